// The two ends of a worker's rings, and what travels in them.
#pragma once

#include <cstdint>

#include "queue/record_ring.hpp"
#include "transport/shm/device.hpp"

namespace heddle::transport::shm {

inline constexpr std::uint8_t kMessageType = 2;
inline constexpr std::uint8_t kPutType = 3;       // TransferRequest
inline constexpr std::uint8_t kGetType = 4;       // TransferRequest
inline constexpr std::uint8_t kSmallPutType = 5;  // SmallRequest, then the data
inline constexpr std::uint8_t kSmallGetType = 6;  // SmallRequest

// A ring to a peer's worker.
struct Outgoing {
  queue::RecordProducer<> ring;
  BellPull bell;
  Peer* peer = nullptr;
  std::uint32_t worker = 0;
  WorkerEntry* entry = nullptr;  // the target's

  void publish() {
    ring.publish();
    bell.published();
  }
};

// A ring from a peer's worker.
struct Incoming {
  queue::RecordConsumer<> ring;
  Peer* peer = nullptr;
  std::uint32_t worker = 0;
  bool lent = false;         // the next poll releases records of it
  std::uint32_t stream = 0;  // records taken lately, less the polls that found none
  std::uint32_t rest = 0;    // number of polls that skip it

  // Called when the ring was emptied and gave `records`. If we polled a ring at once again that is
  // being filled all the time, we would take the line of its tail from the producer for every
  // record. After a rest of a few looks it gives several records. Bursts shorter than
  // kStream get no rest.
  void pace(std::size_t records) {
    if (records == 0) {
      if (stream > 0) --stream;
      return;
    }
    stream = stream + records < std::size_t{2} * kStream ? stream + static_cast<std::uint32_t>(records) : 2 * kStream;
    if (stream >= kStream) rest = kRest;
  }

  static constexpr std::uint32_t kStream = 32;
  static constexpr std::uint32_t kRest = 8;
};

}  // namespace heddle::transport::shm
