// How the members of a team exchange information outside of operations: each member sends each
// other member a record, in rounds that all members make in the same order. A round is an alltoall
// through kept memory (algorithms/kept_exchange.cpp), in a team of more than 32 one in two steps
// over a grid (algorithms/grid.cpp): nobody waits until a peer begins, and a member may be one
// round ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/commons.hpp"
#include "collective/region_carrier.hpp"
#include "collective/session_queue.hpp"
#include "collective/ways.hpp"

namespace heddle::collective {

// One member's record for another member, about an operation that all of them prepare, or about a
// team that they make. All ranks of a job run the same library on the same kind of machine; the
// arenas require this, too.
struct Record {
  enum class Kind : std::uint32_t { operation = 1, split, subset, verdict };
  Kind kind = Kind::operation;
  std::int32_t status = HEDDLE_DONE;  // an error that keeps the member from taking part
  // These must be the same at all members.
  std::uint32_t operation = 0;
  std::uint32_t root = 0;
  std::uint64_t bytes = 0;
  std::uint64_t whole = 0;
  std::uint64_t element_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::uint32_t reduction = 0;
  std::uint32_t algorithm = 0;  // row of the table
  std::uint64_t list = 0;       // subset: digest of the ranks that were named
  // The position of this member's memory: its piece of the arena, with its counters at the
  // beginning, and its places.
  std::uint64_t counters = 0;
  enum class Where : std::uint32_t { nowhere, arena, scratch_region, receive_region };
  Where scratch_in = Where::arena;
  Where receive_in = Where::nowhere;
  std::uint64_t scratch = 0;  // offsets in that memory
  std::uint64_t receive = 0;
  PackedRegion scratch_region{};
  PackedRegion receive_region{};
  // For operations whose members list their blocks. First, the same to all members: the number of
  // rounds of this setup's records. Then the values for the member that gets the record.
  std::uint32_t rounds = 1;
  std::uint32_t keeps = 0;  // blocks for this member arrive in its scratch
  std::uint32_t gives = 0;  // number of blocks to that member
  std::uint32_t takes = 0;  // number of blocks from that member
  std::uint32_t slot = 0;   // that member's number among those that this one gives to
  struct Listed {
    std::uint64_t given = 0;  // bytes of a block to that member
    std::uint64_t taken = 0;  // bytes of a block from that member
    std::uint64_t at = 0;     // offset in receive or in scratch where the latter is put
  };
  std::array<Listed, 2> listed{};  // of this round
  // the way by which this member would run the operation, and the data that the receiver of the
  // record needs for it
  WayKeys keys;
  // split, subset
  std::int64_t key = 0;
  std::uint32_t colour = 0;
  std::uint32_t coloured = 0;
  std::uint64_t assembly = 0;  // the new team's piece of the arena
};

class Assembly {
 public:
  // Bytes of the piece of the arena that a member of a team of that size needs.
  static std::uint64_t bytes(std::uint32_t members);
  // For tests: the member's schedule fits into these bytes, and prepare() gives its counters the
  // credits that they begin with.
  [[nodiscard]] static bool fits(std::uint32_t members, std::uint32_t member);

  // `ranks`: the members' ranks in the job. `pieces`: the offsets of their pieces, each in its own
  // arena. This member's piece must be prepared before any other member learns of it.
  static void prepare(Arena& arena, std::uint64_t piece, std::uint32_t members);
  static base::Result<std::unique_ptr<Assembly>> make(Commons& commons, std::span<const std::uint32_t> ranks,
                                                      std::uint32_t member, std::span<const std::uint64_t> pieces);

  // One round at a time, by one thread at a time. told(): the records to be sent, by member; fill
  // them before start().
  [[nodiscard]] std::span<Record> told() { return told_; }
  void start() { queue_->start(); }
  bool advance() { return queue_->advance(); }
  [[nodiscard]] std::uint64_t executed() const { return queue_->executed(); }  // see Runner
  void fail(base::Status status) { queue_->fail(status); }
  [[nodiscard]] base::Status status() const { return queue_->status(); }
  [[nodiscard]] std::span<const Record> records() const { return records_; }
  // The values of its counters when all that peers owe has arrived.
  [[nodiscard]] std::vector<std::uint64_t> final_counters() const;

 private:
  Assembly() = default;
  struct Members {
    std::span<const std::uint32_t> ranks;
    std::uint32_t member;
    std::span<const std::uint64_t> pieces;
  };
  base::Status reach(Commons& commons, const Members& members, std::uint32_t other, RankMemory* at);
  std::vector<Record> told_;
  std::vector<Record> records_;
  Schedule schedule_;
  std::vector<std::unique_ptr<Carrier>> carriers_;
  std::unique_ptr<SessionQueue> queue_;
};

// The values of the counters after `runs` successful runs.
std::vector<std::uint64_t> final_counters(const Schedule& schedule, std::uint64_t runs);

}  // namespace heddle::collective
