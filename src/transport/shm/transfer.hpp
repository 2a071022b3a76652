// Puts and gets on memory that cannot be mapped: the initiator's pipeline through bounce chunks,
// the target's half of it, and the way over to the kernel's copy (cma.hpp) when that is better.
//
// One per worker; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/common/backlog.hpp"
#include "transport/shm/bounce.hpp"
#include "transport/shm/cma.hpp"
#include "transport/shm/home.hpp"
#include "transport/shm/rings.hpp"

namespace heddle::transport::shm {

// What an initiator writes into the ring, one per chunk.
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

  Transfers(Home& home, Backlog& backlog);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // A checked put or get of at least one byte. False: no room now. Otherwise command.done, or a
  // completion follows.
  [[nodiscard]] bool start(Command& command, Outgoing& to);

  [[nodiscard]] bool idle() const { return active_.empty(); }
  // Moves on what is under way; called by poll.
  void advance();

  // Target: does what the record asks. no_memory: nothing has happened, the record is to be served
  // again later.
  enum class Served : std::uint8_t { done, malformed, no_memory };
  [[nodiscard]] Served serve(Peer& peer, const queue::Record& record) noexcept;

  void peer_failed(std::uint32_t rank);

 private:
  // How many chunks one transfer has out at once, and how many one call copies: enough that both
  // sides always have something to do, not so many that a poll takes long.
  static constexpr std::uint32_t kDepth = 64;
  static constexpr std::uint32_t kBurst = 4;
  static constexpr std::uint64_t kCmaStep = std::uint64_t{1} << 20;
  static constexpr std::uint16_t kMostSkips = 64;

  struct Piece {
    std::uint64_t at = 0;  // in the transfer
    std::uint64_t generation = 0;
    std::uint32_t chunk = 0;
    std::uint32_t bytes = 0;
  };
  struct Transfer {
    Token token = 0;
    Outgoing* to = nullptr;
    std::byte* local = nullptr;
    std::uint64_t region = 0;
    std::uint64_t address = 0;  // of the region in the peer
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t next = 0;           // everything before it was given to a chunk or copied
    std::uint64_t last_progress = 0;  // ns
    Direction direction = Direction::put;
    base::Status status = HEDDLE_DONE;
    bool owes_source_free = false;
    bool source_given = false;  // the caller may have changed it: only the chunks have the data
    bool by_cma = false;        // the rest goes by the kernel
    bool impatient = false;     // because the target did not react
    std::uint32_t first = 0;    // of the pieces out: a ring
    std::uint32_t out = 0;
    std::array<Piece, kDepth> pieces;
  };

  [[nodiscard]] bool cma_works(Peer& peer, std::uint64_t address);
  [[nodiscard]] bool copy_alone(Command& command, Peer& peer);
  [[nodiscard]] bool prefers_cma(const Command& command, Peer& peer);
  void feed(Transfer& transfer);
  [[nodiscard]] bool feed_one(Transfer& transfer);
  void collect(Transfer& transfer);
  void give_up_on_target(Transfer& transfer);
  void copy_by_cma(Transfer& transfer);
  void finish_source(Transfer& transfer);
  void reclaim(Transfer& transfer);
  void retire(std::size_t position);
  [[nodiscard]] Served pool_of(Peer& peer, BounceView* pool) noexcept;
  [[nodiscard]] std::uint64_t now() const { return home_.environment().clock->now_ns(); }

  Home& home_;
  Backlog& backlog_;
  BouncePool& pool_;
  std::uint64_t min_bounce_;
  std::uint64_t patience_ns_;
  std::vector<Transfer> transfers_;  // kMost
  std::vector<std::uint32_t> idle_;  // of transfers_
  std::vector<std::uint32_t> active_;
  // Per rank: after a target was found inattentive, so many transfers go straight to the kernel
  // before it is tried again.
  struct Patience {
    std::uint16_t skip = 0;
    std::uint16_t last = 0;
  };
  std::vector<Patience> patience_;
};

}  // namespace heddle::transport::shm
