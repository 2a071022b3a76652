// Puts and gets on memory that cannot be mapped: the initiator's pipeline through bounce chunks,
// the target's part of it, and the change to the kernel's copy (cma_copy) when that is better.
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
#include "transport/shm/ways.hpp"

namespace heddle::transport::shm {

// The request that an initiator writes into the ring, one per chunk.
struct TransferRequest {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
  std::uint64_t generation = 0;
  std::uint32_t chunk = 0;
  std::uint32_t bytes = 0;
};

class Transfers {
 public:
  static constexpr std::size_t kMost = 32;  // in flight per worker

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
  // The most bytes that a transfer moves through bounce space to show that this is faster. If it
  // was slower then, or could not be measured, the kernel copies the rest.
  static constexpr std::uint64_t kTrialBytes = std::uint64_t{1} << 20;

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
  // If more time lies between two calls of advance(), this thread was somewhere else, and measures
  // nothing.
  static constexpr std::uint64_t kAwayNs = 5'000;
  // The first chunk may take so many times the kernel's time for it: a chunk alone is not as quick
  // as one in a row, and the time of a row is measured at its end. Pages of a chunk that is used
  // for the first time have to be made and mapped.
  static constexpr std::uint64_t kLateTimes = 3;
  static constexpr std::uint64_t kColdNs = 8'000;
  // The same for a target that has taken such a chunk: its copy makes and maps four pages, and says
  // nothing about the next use. Too short a time here leaves all transfers to the kernel, since
  // each trial takes a chunk that was not used yet.
  static constexpr std::uint64_t kColdCopyNs = 100'000;
  // Whether the first chunk still has to show that bounce space is worth it.
  enum class Probe : std::uint8_t { none, first, alone };

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
    bool away = false;          // this thread was somewhere else meanwhile
    bool cold = false;          // it has had a chunk that was used for the first time
    bool trial = false;         // chosen to show whether bounce space is faster
    bool unproven = false;      // a trial, or the first to this peer: kTrialBytes until judge()
    Probe probe = Probe::none;  // alone: nothing else is sent before
    std::uint64_t began = 0;    // ns
    std::uint64_t portion = 0;  // bytes that came back since it was last measured
    std::uint64_t looks = 0;    // ns: since when this thread is here and looks
    std::uint32_t first = 0;    // index of the oldest piece that is out; `pieces` is a ring
    std::uint32_t out = 0;
    std::array<Piece, kDepth> pieces;
  };

  [[nodiscard]] bool copy_alone(Command& command, PeerProcess& peer);
  [[nodiscard]] Way way_of(const Command& command, const OutgoingRing& to);
  [[nodiscard]] bool tries(const PeerProcess& peer) const;
  [[nodiscard]] base::Status copy_timed(const Command& command, PeerProcess& peer, Direction direction);
  [[nodiscard]] std::uint64_t patience(std::uint32_t rank, std::uint64_t bytes) const;
  void feed(Transfer& transfer, std::uint64_t most);
  [[nodiscard]] std::uint64_t feed_one(Transfer& transfer, std::uint64_t end);
  void collect(Transfer& transfer, std::uint64_t now, std::uint64_t most);
  void measure(Transfer& transfer);
  void judge(Transfer& transfer);
  void stand_no_longer(Transfer& transfer);
  void note_gap(std::uint64_t now);
  void look_at_waiting(Transfer& transfer, bool taken, std::uint64_t now);
  [[nodiscard]] std::uint64_t probing_ns(const Transfer& transfer) const;
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
    if (bytes > Ways::kShort) look_at_clock();
  }

  void note_under_way() { under_way_ = static_cast<std::uint32_t>(active_.size()) + small_.under_way(); }

  Device& device_;
  Backlog& backlog_;
  BouncePool& pool_;
  SmallTransfers small_;
  std::uint32_t under_way_ = 0;
  std::uint64_t min_bounce_;
  std::uint64_t patience_ns_;
  std::vector<Transfer> transfers_;  // kMost
  std::vector<std::uint32_t> idle_;  // of transfers_
  std::vector<std::uint32_t> active_;
  bool moved_ = false;  // in this call of advance()
  Ways ways_;
  // The bytes that came back through bounce space since the last transfer ended, or the first one
  // began.
  struct Window {
    std::uint64_t began = 0;  // ns
    std::uint64_t bytes = 0;
    std::uint64_t came = 0;  // ns: the last of them
  };
  std::vector<Window> windows_;     // by rank
  std::uint64_t last_advance_ = 0;  // ns
  // ns: the clock as it was looked at last, in this call and after everything that takes long. A
  // look at the clock takes a tenth of the time of a short transfer.
  std::uint64_t time_ = 0;
};

}  // namespace heddle::transport::shm
