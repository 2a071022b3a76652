// Puts and gets on memory that cannot be mapped: the initiator's pipeline through bounce chunks,
// the target's part of it, and the change to the kernel's copy (cma_copy) when the target is not
// there.
//
// Which way: both sides copy at once through chunks, as long as the target takes them; that is
// faster than the kernel's copy, near or far. A target that does not poll, or does not take a chunk
// in time, or loses its core with one, is left to the kernel, and so are the next transfers to it,
// a number that doubles each time (Absences). No transfer is ever sent a slower way to find out how
// slow that is (docs/decisions/0076).
//
// One per worker; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/common/rejections.hpp"
#include "transport/shm/bounce.hpp"
#include "transport/shm/device.hpp"
#include "transport/shm/small.hpp"

namespace heddle::transport::shm {

// The request that an initiator writes into the ring, one per chunk.
struct TransferRequest {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
  std::uint64_t generation = 0;
  std::uint32_t chunk = 0;
  std::uint32_t bytes = 0;
};

// Transfers of up to so many bytes take about as long, however short they are.
inline constexpr std::uint64_t kShortTransfer = 8192;
// Shorter ones go by message or by the kernel.
inline constexpr std::uint64_t kLeastBounce = 121;

// Targets that were not there: how many transfers the kernel copies before they are asked again.
class Absences {
 public:
  explicit Absences(std::size_t ranks) : peers_(ranks) {}

  // True: the kernel copies the next transfer, too.
  [[nodiscard]] bool skips(std::uint32_t rank, std::uint64_t bytes);
  // A transfer has gone through chunks.
  void note_answered(std::uint32_t rank);
  // The target has not taken a chunk: it does not poll, or has no core.
  void note_unanswered(std::uint32_t rank);
  // The target has taken a chunk and has not finished it for so long that its thread must have lost
  // its core.
  void note_stalled(std::uint32_t rank);

 private:
  // A slice of time that a target takes to get its core back is as long as many short transfers: so
  // many of them count as one of those that avoid it.
  static constexpr std::uint32_t kShortAsOne = 8;
  static constexpr std::uint32_t kLeastSkips = 4;
  static constexpr std::uint32_t kMostSkips = 64;
  static constexpr std::uint32_t kLeastAvoided = 64;
  static constexpr std::uint32_t kMostAvoided = 2048;
  static constexpr std::uint32_t kCalm = 64;

  struct Target {
    std::uint16_t skip = 0;     // transfers that the kernel copies before anything else is asked
    std::uint16_t skipped = 0;  // the last number of them, for a target that did not answer
    std::uint16_t avoided = 0;  // for one that lost its core
    std::uint16_t calm = 0;     // transfers since then
    std::uint16_t parts = 0;    // short transfers, of kShortAsOne
    bool avoids = false;        // `skip` is for a target that lost its core
  };
  std::vector<Target> peers_;
};

class Transfers {
 public:
  static constexpr std::size_t kMost = 32;  // in flight per worker
  static constexpr std::uint64_t kStallNs = 200'000;

  Transfers(Device& device, std::uint32_t worker, Backlog& backlog);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Starts a checked put or get of at least one byte. False: no room now, or `alone` and not
  // possible. Otherwise command.done is set, or a completion follows.
  [[nodiscard]] bool start(Command& command, OutgoingRing& to);

  [[nodiscard]] bool idle() const { return under_way_ == 0; }
  // Advances the transfers under way; called by poll. True: a part of one has moved. In one call
  // kLook bytes of all, or kLeastLook of each if there are many.
  static constexpr std::uint64_t kLook = std::uint64_t{256} << 10;
  static constexpr std::uint64_t kLeastLook = std::uint64_t{64} << 10;
  [[nodiscard]] bool advance();
  // Target: executes the request in the record.
  [[nodiscard]] Served serve(PeerProcess& peer, const queue::Record& record) noexcept;
  [[nodiscard]] Served serve_small(const PeerProcess& peer, std::uint32_t worker,
                                   const queue::Record& record) noexcept {
    return small_.serve(peer, worker, record);
  }

  void peer_failed(std::uint32_t rank);

 private:
  // Chunks that one transfer lends at once: enough that both sides always have work.
  static constexpr std::uint32_t kDepth = 64;
  static constexpr std::uint64_t kCmaStep = std::uint64_t{1} << 20;
  // How long a chunk of a short transfer waits for a target that does not take it.
  static constexpr std::uint64_t kShortPatienceNs = 2'000;
  // If more time lies between two calls of advance(), this thread was somewhere else, and says
  // nothing of how long its target takes.
  static constexpr std::uint64_t kAwayNs = 5'000;
  // A chunk that is used for the first time: its pages have to be made and mapped.
  static constexpr std::uint64_t kColdNs = 8'000;

  struct Piece {
    std::uint64_t at = 0;  // in the transfer
    std::uint64_t generation = 0;
    std::uint32_t chunk = 0;
    std::uint32_t bytes = 0;
  };
  struct Transfer {
    Token token = 0;
    OutgoingRing* to = nullptr;
    std::byte* local = nullptr;
    std::uint64_t region = 0;
    std::uint64_t address = 0;  // of the region in the peer
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t next = 0;           // everything before it is in a chunk or copied
    std::uint64_t last_progress = 0;  // ns
    std::uint64_t patience_ns = 0;
    Direction direction = Direction::put;
    base::Status status = HEDDLE_DONE;
    bool owes_source_free = false;
    bool source_given = false;  // the caller may reuse the source: only the chunks have the data
    bool by_cma = false;        // the kernel copies the rest
    bool starved = false;       // there was no chunk to lend
    bool stalled = false;       // the target has lost its core with a piece
    bool cold = false;          // it has had a chunk that was used for the first time
    std::uint64_t looks = 0;    // ns: since when this thread is here and looks
    std::uint32_t first = 0;    // index of the oldest piece that is out; `pieces` is a ring
    std::uint32_t out = 0;
    std::array<Piece, kDepth> pieces;
  };

  [[nodiscard]] bool copy_alone(Command& command, PeerProcess& peer);
  [[nodiscard]] bool goes_by_kernel(const Command& command, const OutgoingRing& to);
  [[nodiscard]] std::uint64_t patience(std::uint64_t bytes) const;
  void feed(Transfer& transfer, std::uint64_t most);
  [[nodiscard]] std::uint64_t feed_one(Transfer& transfer);
  void collect(Transfer& transfer, std::uint64_t now, std::uint64_t most);
  void stand_no_longer(Transfer& transfer);
  void note_gap(std::uint64_t now);
  void look_at_waiting(Transfer& transfer, bool taken, std::uint64_t now);
  void abandon(Transfer& transfer);
  void fall_back_to_cma(Transfer& transfer);
  void copy_by_cma(Transfer& transfer);
  void finish_source(Transfer& transfer);
  void reclaim(Transfer& transfer);
  void retire(std::size_t position);
  [[nodiscard]] Served pool_of(PeerProcess& peer, BounceView* pool) noexcept;
  std::uint64_t look_at_clock() { return time_ = device_.environment().clock->now_ns(); }
  // After much has been copied, looks at the clock again.
  void note_copied(std::uint64_t bytes) {
    if (bytes > kShortTransfer) look_at_clock();
  }

  void note_under_way() { under_way_ = static_cast<std::uint32_t>(active_.size()) + small_.under_way(); }

  Device& device_;
  Backlog& backlog_;
  BouncePool& pool_;
  SmallTransfers small_;
  std::uint32_t under_way_ = 0;
  std::uint64_t patience_ns_;
  std::vector<Transfer> transfers_;  // kMost
  std::vector<std::uint32_t> idle_;  // of transfers_
  std::vector<std::uint32_t> active_;
  bool moved_ = false;  // in this call of advance()
  Absences absences_;
  std::vector<std::uint64_t> came_;  // by rank: when a chunk came back last, in ns
  std::uint64_t last_advance_ = 0;   // ns
  // ns: the clock as it was looked at last, in this call and after everything that takes long. A
  // look at the clock takes a tenth of the time of a short transfer.
  std::uint64_t time_ = 0;
};

}  // namespace heddle::transport::shm
