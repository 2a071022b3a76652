// Serves put, get and atomic requests that arrive as messages, for transports that cannot do them: the owner executes them.
//
// Answers that the transport does not take now wait here. Their number is bounded by what the peers have in flight (each
// peer's worker has at most HEDDLE_WORKER_OPERATIONS requests open). One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <span>

#include "memory/region_table.hpp"
#include "transport/transport.hpp"
#include "wire/packet.hpp"

namespace heddle::protocol {

class Responder {
 public:
  Responder(transport::TransportWorker& transport, const memory::RegionTable& regions, std::uint32_t max_message)
      : transport_(transport), regions_(regions), max_data_(max_message - sizeof(wire::ReplyHeader)) {}

  // Executes the request and answers it, now or in a later call of flush(). Ranges and alignment are checked here; what is wrong
  // is answered with an error.
  void serve(heddle_peer source, const wire::Request& request);

  // Answers a request that was decided elsewhere.
  void answer(heddle_peer source, std::uint64_t token, base::Status status);

  // Sends what waits. Returns how many messages left.
  std::size_t flush();

  void forget(std::uint32_t rank);
  [[nodiscard]] bool idle() const { return waiting_.empty(); }

 private:
  struct Answer {
    heddle_peer peer;
    wire::ReplyHeader head;
    std::span<const std::byte> data;  // of a get; lies in the region, sent in portions
  };
  bool send(Answer& answer);  // false: not (wholly) taken
  void dispatch(Answer answer);

  transport::TransportWorker& transport_;
  const memory::RegionTable& regions_;
  std::size_t max_data_;
  std::deque<Answer> waiting_;
};

}  // namespace heddle::protocol
