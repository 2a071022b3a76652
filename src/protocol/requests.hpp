// Requests to the owner of memory that the transport cannot reach: put, get and atomics by message.
// The requester posts them (Requester::post_request). This protocol handles the requests that
// arrive, and the answers to this worker's own requests.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/core.hpp"
#include "engine/protocol.hpp"
#include "wire/packet.hpp"

namespace heddle::protocol {

class Requests final : public engine::Protocol {
 public:
  static constexpr std::array kRows = {wire::row_of(wire::Kind::request), wire::row_of(wire::Kind::reply)};
  explicit Requests(engine::Core& core) : core_(core) {}

  [[nodiscard]] bool arrived(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet) override;

 private:
  void arrived_reply(heddle_peer source, const wire::Reply& reply);

  engine::Core& core_;
};

}  // namespace heddle::protocol
