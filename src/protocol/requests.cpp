#include "protocol/requests.hpp"

#include <cstring>

#include "base/copy.hpp"

namespace heddle::protocol {

bool Requests::arrived(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet) {
  if (wire::kind_of(immediate) == wire::Kind::request) {
    const auto request = wire::decode_request(packet);
    if (request) core_.responder.serve(source, *request);
    return request.has_value();
  }
  const auto reply = wire::decode_reply(packet);
  if (reply) arrived_reply(source, *reply);
  return reply.has_value();
}

void Requests::arrived_reply(heddle_peer source, const wire::Reply& reply) {
  engine::Operation* operation = core_.operations.find(reply.head.token);
  if (operation == nullptr || engine::OperationPool::role(reply.head.token) != engine::Role::reply ||
      operation->served == 0 || operation->served_rank != source.rank) {
    // Its operation has ended when the death of the sender became known; the answer was already in
    // the ring then.
    if (core_.job.failed(source.rank)) {
      ++core_.stats.dropped;
      return;
    }
    return core_.drop(source, "it answers nothing that was asked");
  }
  if (!reply.payload.empty()) {
    const std::uint64_t bytes = reply.payload.size();
    if (operation->kind != engine::Kind::get || reply.head.offset > operation->window_bytes ||
        bytes > operation->window_bytes - reply.head.offset || bytes > operation->window_left) {
      return core_.drop(source, "it answers a get with data outside what was asked");
    }
    base::copy_data(operation->window + reply.head.offset, reply.payload.data(), bytes);
    operation->window_left -= bytes;
  }
  // Parts of a get may overtake each other: it is finished when all its bytes are here, or with an
  // error.
  const bool finished = operation->kind == engine::Kind::get && reply.head.status == HEDDLE_DONE
                            ? operation->window_left == 0
                            : reply.head.last == 1;
  if (!finished) return;
  if (operation->kind == engine::Kind::atomic && operation->result != nullptr && reply.head.status == HEDDLE_DONE) {
    std::memcpy(operation->result, &reply.head.value, wire::atomic_bytes(operation->atomic_op));
  }
  --operation->served;
  core_.operations.complete(*operation, static_cast<base::Status>(reply.head.status), source.rank);
}

}  // namespace heddle::protocol
