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
  BellPull bell;
  Peer* peer = nullptr;
  std::uint32_t worker = 0;

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
  bool lent = false;         // records were taken that the next poll releases
  std::uint32_t stream = 0;  // records taken lately, less the polls that found none
  std::uint32_t rest = 0;    // polls for which it is left alone

  // It was emptied, and gave `records`. Looking at once again at a ring that is being filled all
  // the time would take the line of its tail away from the producer for every record; left alone
  // for about two cache transfers it gives several. Bursts shorter than kStream are answered
  // without that rest.
  void pace(std::size_t records) {
    if (records == 0) {
      if (stream > 0) --stream;
      return;
    }
    stream = stream + records < std::size_t{2} * kStream ? stream + static_cast<std::uint32_t>(records) : 2 * kStream;
    if (stream >= kStream) rest = kRest;
  }

  static constexpr std::uint32_t kStream = 32;
  static constexpr std::uint32_t kRest = 16;
};

}  // namespace heddle::transport::shm
