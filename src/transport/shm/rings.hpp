// The two ends of a worker's rings, and what travels in them.
#pragma once

#include <algorithm>
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
  // A record that was taken from its copy; lent as records are.
  alignas(8) std::byte copy[queue::RecordConsumer<>::kCopyBytes];

  // Called when the ring was emptied and gave `records`. If a ring that is being filled all the
  // time were polled again at once, we would take the line of its tail from the producer for every
  // record. After a rest of about as long as a look takes, the ring gives several records. Bursts
  // shorter than kStream get no rest.
  void pace(std::size_t records) {
    if (records == 0) {
      if (stream > 0) --stream;
      return;
    }
    stream = stream + records < std::size_t{2} * kStream ? stream + static_cast<std::uint32_t>(records) : 2 * kStream;
    if (streams()) rest = std::clamp(look_ns / kPollNs, kLeastRest, kMostRest);
  }
  [[nodiscard]] bool streams() const { return stream >= kStream; }
  // A look that found records has taken so long: mostly for the line of the tail to come.
  void looked(std::uint64_t ns) {
    const auto taken = static_cast<std::uint32_t>(std::min<std::uint64_t>(ns, kMostLookNs));
    look_ns = (3 * look_ns + taken) / 4;
  }

  static constexpr std::uint32_t kStream = 32;
  static constexpr std::uint32_t kPollNs = 12;  // about what a poll that skips the ring takes
  static constexpr std::uint32_t kLeastRest = 8;
  static constexpr std::uint32_t kMostRest = 24;
  static constexpr std::uint32_t kMostLookNs = 1000;  // the thread has lost its core meanwhile

  std::uint32_t look_ns = 0;  // mean of the last few, while it streams
};

}  // namespace heddle::transport::shm
