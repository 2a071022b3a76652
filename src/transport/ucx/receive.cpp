#include "transport/ucx/port.hpp"

#include <cstring>

#include "base/copy.hpp"

namespace heddle::transport::ucx {
namespace {

// Below this size a copy costs less than giving a buffer back, and many messages would hold more of
// UCX's buffers than they have bytes.
constexpr std::uint32_t kLeastKept = 1024;

// What UCX brings.
struct Came {
  std::size_t header_bytes;
  const void* data;
  std::size_t bytes;
  const ucp_am_recv_param_t* param;
};

// True: it has a head, and at most `most` bytes follow the head.
bool is_ours(const Came& came, std::size_t most) {
  return (came.param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 && came.header_bytes == 0 &&
         came.bytes - sizeof(Head) <= most;  // too few wrap
}

// Reads the head, and takes what it says of the other direction. Returns the sender; null: the
// message is malformed.
inline network::StreamPeer* hear(network::Incoming& incoming, const Came& came, std::size_t most, const char* what,
                                 Head* head) {
  if (!is_ours(came, most)) [[unlikely]] {
    incoming.malformed(what, "that is none");
    return nullptr;
  }
  *head = network::read_head(came.data);
  return incoming.hear(*head, what);
}

// Keeps UCX's buffer if it can.
[[gnu::noinline]] ucs_status_t take_long(network::Incoming& incoming, network::StreamPeer& peer, std::uint32_t position,
                                         network::Incoming::Arrival arrival, const ucp_am_recv_param_t* param) {
  const bool keeps = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 && !incoming.closed() &&
                     reinterpret_cast<std::uintptr_t>(arrival.data) % 8 == 0;
  if (keeps) arrival.keep = const_cast<std::byte*>(arrival.data) - sizeof(Head);
  if (incoming.take(peer, position, arrival)) return keeps ? UCS_INPROGRESS : UCS_OK;
  incoming.wrong(peer, "a message");
  return UCS_OK;
}

[[gnu::noinline]] ucs_status_t copy(std::byte* at, const std::byte* packet, std::size_t bytes) {
  base::copy_data(at, packet, bytes);
  return UCS_OK;
}

}  // namespace

// The usual short message is handed out here. This calls nothing, and so saves no registers: each
// word of the head is read where it is needed.
ucs_status_t Receive::on_message(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* param) {
  Port& port = *static_cast<Port*>(arg);
  if (!is_ours({header_bytes, data, bytes, param}, kLeastKept - 1)) [[unlikely]]
    return on_other_message(arg, nullptr, header_bytes, data, bytes, param);
  PeerState* peer = state_of(port.peers().known(network::read_word(data, offsetof(Head, rank)),
                                                network::read_word(data, offsetof(Head, worker))));
  const auto packet_bytes = static_cast<std::uint32_t>(bytes - sizeof(Head));
  std::byte* at = peer != nullptr ? port.incoming().take_next(port.completions(), *peer, data, packet_bytes) : nullptr;
  if (at == nullptr) [[unlikely]]
    return on_other_message(arg, nullptr, header_bytes, data, bytes, param);
  const auto* packet = static_cast<const std::byte*>(data) + sizeof(Head);
  if (packet_bytes != 8) return copy(at, packet, packet_bytes);
  std::memcpy(at, packet, 8);
  return UCS_OK;
}

[[gnu::noinline]] ucs_status_t Receive::on_other_message(void* arg, const void*, std::size_t header_bytes, void* data,
                                                         std::size_t bytes, const ucp_am_recv_param_t* param) {
  network::Incoming& incoming = static_cast<Port*>(arg)->incoming();
  Head head;
  network::StreamPeer* peer = hear(incoming, {header_bytes, data, bytes, param}, kMostMessage, "a message", &head);
  if (peer == nullptr) [[unlikely]]
    return UCS_OK;
  const auto* packet = static_cast<const std::byte*>(data) + sizeof head;
  const auto packet_bytes = static_cast<std::uint32_t>(bytes - sizeof head);
  if (packet_bytes >= kLeastKept) [[unlikely]]
    return take_long(incoming, *peer, head.position, {packet, packet_bytes, head.immediate}, param);
  if (!incoming.take(*peer, head.position, {packet, packet_bytes, head.immediate})) [[unlikely]]
    incoming.wrong(*peer, "a message");
  return UCS_OK;
}

ucs_status_t Receive::on_bundle(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* param) {
  network::Incoming& incoming = static_cast<Port*>(arg)->incoming();
  Head head;
  network::StreamPeer* peer =
      hear(incoming, {header_bytes, data, bytes, param}, network::kMostBundle - sizeof head, "a bundle", &head);
  if (peer != nullptr && !incoming.take_bundle(*peer, head.position, static_cast<const std::byte*>(data) + sizeof head,
                                               static_cast<std::uint32_t>(bytes - sizeof head))) [[unlikely]] {
    incoming.wrong(*peer, "a bundle");
  }
  return UCS_OK;
}

ucs_status_t Receive::on_credit(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* param) {
  Head head;
  static_cast<void>(
      hear(static_cast<Port*>(arg)->incoming(), {header_bytes, data, bytes, param}, 0, "a credit", &head));
  return UCS_OK;
}

base::Status Receive::listen(Port& port) {
  const auto hears = [&port](unsigned id, Function* receive) {
    return ucx::listen(port.call(), port.worker(), id, receive, &port);
  };
  base::Status status = hears(kMessageId, on_message);
  if (status == HEDDLE_DONE) status = hears(kBundleId, on_bundle);
  if (status == HEDDLE_DONE) status = hears(kCreditId, on_credit);
  return status;
}

}  // namespace heddle::transport::ucx
