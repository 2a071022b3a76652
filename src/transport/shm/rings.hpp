// The two ends of a worker's rings, and what travels in them.
#pragma once

#include <cstdint>

#include "queue/record_ring.hpp"
#include "transport/shm/home.hpp"

namespace heddle::transport::shm {

inline constexpr std::uint8_t kMessageType = 2;
inline constexpr std::uint8_t kPutType = 3;  // TransferRequest
inline constexpr std::uint8_t kGetType = 4;  // TransferRequest

// A ring to a peer's worker.
struct Outgoing {
  queue::RecordProducer<> ring;
  Peer* peer = nullptr;
  std::uint32_t worker = 0;
};

// A ring from a peer's worker.
struct Incoming {
  queue::RecordConsumer<> ring;
  Peer* peer = nullptr;
  std::uint32_t worker = 0;
  bool lent = false;  // records were taken that the next poll releases
};

}  // namespace heddle::transport::shm
