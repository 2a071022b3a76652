// Small puts and gets on memory that is not mapped, while the worker that serves them polls: the
// request travels in the message ring, with a put's data, and ends in a slot of the initiator. That
// takes as long as a message and its answer; the kernel's copy takes several times as long. If the
// target turns out not to poll, the initiator takes the request back, and the kernel copies.
//
// One per worker; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/common/rejections.hpp"
#include "transport/shm/device.hpp"

namespace heddle::transport::shm {

// The request that an initiator writes into the ring; a put's data follows.
struct SmallRequest {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
  std::uint64_t word = 0;  // the slot's, see layout.hpp
  std::uint32_t slot = 0;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(SmallRequest) == 32);

class SmallTransfers {
 public:
  SmallTransfers(Device& device, std::uint32_t worker, Backlog& backlog);
  ~SmallTransfers();
  SmallTransfers(const SmallTransfers&) = delete;
  SmallTransfers& operator=(const SmallTransfers&) = delete;

  // Starts a checked put or get of 1 to kSmallBytes bytes, whose source is free afterwards and
  // whose completion follows. False: nothing has happened; another way is better, or the only one.
  [[nodiscard]] bool start(Command& command, OutgoingRing& to);

  [[nodiscard]] bool idle() const { return count_ == 0; }
  [[nodiscard]] std::uint32_t under_way() const { return count_; }
  // Ends the operations that are over; called by poll.
  void advance();

  // Target: executes the request, which came from that worker of the peer.
  [[nodiscard]] Served serve(const PeerProcess& peer, std::uint32_t worker, const queue::Record& record) noexcept;

  void peer_failed(std::uint32_t rank);

 private:
  // Looks at an operation before the clock is read, and between two looks at the clock.
  static constexpr std::uint32_t kLooks = 8;
  // A polling target has answered by then, however far away it is. It is also about the time of the
  // kernel's copy, which a target that does not poll costs in any case.
  static constexpr std::uint64_t kPatienceNs = 2'000;
  static constexpr std::uint16_t kMostSkips = 64;

  struct Operation {
    Token token = 0;
    OutgoingRing* to = nullptr;
    std::byte* local = nullptr;  // of a get
    std::uint64_t region = 0;    // its address in the peer
    std::uint64_t address = 0;   // in the peer
    std::uint64_t word = 0;      // the slot's word when it was requested
    std::uint64_t since = 0;     // ns; from the kLooks-th look on
    std::uint32_t looks = 0;
    std::uint32_t bytes = 0;
    Direction direction = Direction::put;
    bool taken = false;                       // the target was seen to have it,
    bool abandoned = false;                   // and not to go on, or not to take it
    std::array<std::byte, kSmallBytes> data;  // a put's, since its source is free
  };
  // Per rank: after a target did not react, `skip` operations go straight to the kernel before it
  // is asked again.
  struct Patience {
    std::uint16_t skip = 0;
    std::uint16_t last = 0;
  };

  [[nodiscard]] bool may_ask(const OutgoingRing& to, std::uint64_t region);
  [[nodiscard]] bool disappointed(Operation& operation) const;
  [[nodiscard]] bool abandons(Operation& operation, base::Status* failure);
  [[nodiscard]] static base::Status copied_by_kernel(Operation& operation);
  void finish(std::uint32_t slot, bool copied);
  void end(std::uint32_t slot, base::Status status);

  Device& device_;
  Backlog& backlog_;
  SmallSlot* slots_;  // kSmallSlots, of this worker
  std::uint64_t patience_ns_;
  std::uint32_t count_ = 0;                        // under way
  std::uint32_t unused_ = 0;                       // how many stand in `free_`
  std::array<std::uint8_t, kSmallSlots> order_{};  // slots of operations under way, oldest first
  std::array<std::uint8_t, kSmallSlots> free_{};
  std::vector<Operation> operations_;  // by slot
  std::vector<Patience> patience_;
};

}  // namespace heddle::transport::shm
