// Frames between a rank and its launcher: decode alone, and a broker that gets the stream from one
// rank of three and must not harm another, correct rank.
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/local/broker.hpp"
#include "bootstrap/local/channel.hpp"
#include "fuzz.hpp"

namespace {

using heddle::fuzz::inside;
using heddle::fuzz::require;
namespace local = heddle::bootstrap::local;

constexpr std::uint32_t kSize = 3;

void decode_all(heddle::fuzz::Input input) {
  const auto direction =
      (input.take<std::uint8_t>() & 1U) != 0 ? local::Direction::to_rank : local::Direction::to_launcher;
  if (input.rest().size() >= sizeof(local::Header)) {
    static_cast<void>(local::decode_header(input.rest(), direction, kSize));
  }
  static_cast<void>(local::decode_hello(input.rest()));
  static_cast<void>(local::decode_welcome(input.rest()));
  if (const auto parts = local::decode_parts(input.rest(), kSize)) {
    std::size_t total = 0;
    for (const auto& part : *parts) total += part.size();
    require(parts->size() == kSize && total <= input.rest().size(), "more in the parts than in the whole");
    require(local::encode_parts(*parts).size() == input.rest().size(), "parts do not make the whole again");
  }
}

// The broker may have disconnected the rank, or read less than is sent: both are correct.
void send_some(int socket, std::span<const std::byte> bytes) {
  static_cast<void>(send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

struct Pair {
  int launcher = -1;
  int rank = -1;
  Pair() {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    launcher = ends[0];
    rank = ends[1];
  }
};

void hello(int socket) {
  const std::vector<std::byte> payload = local::encode(local::Hello{});
  local::Header header;
  header.type = local::FrameType::hello;
  header.bytes = static_cast<std::uint32_t>(payload.size());
  send_some(socket, local::encode(header));
  send_some(socket, payload);
}

void serve_stream(heddle::fuzz::Input input) {
  heddle::bootstrap::JobSecret secret{};
  local::Broker broker(kSize, secret);
  Pair pairs[2];
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    broker.attach(rank, heddle::bootstrap::ProcessFd(heddle::base::Fd(pairs[rank].launcher)));
  hello(pairs[1].rank);
  broker.serve(1);
  if ((input.take<std::uint8_t>() & 1U) != 0) hello(pairs[0].rank);
  while (!input.rest().empty()) {  // frames with lengths that fit, or raw bytes
    if ((input.take<std::uint8_t>() & 1U) != 0) {
      local::Header header;
      header.type = static_cast<local::FrameType>(input.take<std::uint8_t>() % 8);
      header.rank = input.take<std::uint8_t>() % (kSize + 1);
      header.value = input.take<std::int32_t>();
      const auto payload = input.bytes(input.take<std::uint8_t>());
      header.bytes = static_cast<std::uint32_t>(payload.size());
      send_some(pairs[0].rank, local::encode(header));
      send_some(pairs[0].rank, payload);
    } else {
      send_some(pairs[0].rank, input.bytes(input.take<std::uint8_t>()));
    }
    broker.serve(0);
  }
  require(broker.membership(1) == local::Membership::joined, "one rank's bytes cut off another");
  close(pairs[0].rank);
  broker.ended(0);
  close(pairs[1].rank);
  broker.ended(1);
  require(broker.membership(1) != local::Membership::joined, "an ended rank is still a member");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  heddle::fuzz::Input input(data, size);
  if (input.take<std::uint8_t>() % 4 == 0) {
    decode_all(input);
  } else {
    serve_stream(input);
  }
  return 0;
}
