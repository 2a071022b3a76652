// The choice of algorithm and segments: the tuned table (SelectionTable), and the choice
// (Selection).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "collective/algorithms/algorithms.hpp"
#include "collective/runner.hpp"

namespace heddle::collective {

// A table of the fastest algorithms, measured by a tuning run (`heddle bench tune`) or written by
// hand.
//
// Text, one row per line; '#' begins a comment. The first row that fits the operation is taken, if
// its algorithm can do the operation there:
//   operation buffers ranks bytes algorithm segment
//   broadcast kept    4     8K    broadcast.flat -
// buffers: `kept` (through memory of the operation's own: blocking calls, except for blocks of more
// than 64K in all where these do not go in pieces) or `callers` (all others). ranks, bytes (of a
// block; of the whole call if it goes in pieces): upper limits; * any. segment: maximum bytes of
// one step; - the configured value.
class SelectionTable {
 public:
  struct Row {
    Operation operation = Operation::barrier;
    bool kept = false;
    Rank ranks = 0;
    std::uint64_t bytes = 0;
    const Algorithm* algorithm = nullptr;
    std::uint64_t segment_bytes = 0;  // 0: the configured value
  };
  static constexpr Rank kAnyRanks = ~Rank{0};
  static constexpr std::uint64_t kAnyBytes = ~std::uint64_t{0};

  // CONFIG: the file cannot be read, or a line has another form; the message names the file and the
  // line. Empty path: an empty table.
  static base::Result<SelectionTable> read(const std::string& path);
  static base::Result<SelectionTable> parse(const std::string& text, const std::string& name);
  // The line of such a file for this row.
  static std::string line(const Row& row);

  // Null: no row fits. `mapped`: ranks map each other's memory.
  // `bytes`: of the call; the request may be of a piece.
  [[nodiscard]] const Row* find(const AlgorithmRequest& request, std::uint64_t bytes, bool kept, bool mapped) const;

 private:
  std::vector<Row> rows_;
};

// Up to this size data goes through kept memory: a copy costs less than the message that a peer has
// begun.
inline constexpr std::uint64_t kKeptBytes = 8192;
// At most this many ranks access each other's, or one rank's, memory at once.
inline constexpr Rank kFewRanks = 16;

// Chooses the algorithm of an operation, and the length of its segments. All ranks choose alike,
// since they know the same.
//
// The call decides; then HEDDLE_COLLECTIVE_ALGORITHMS, HEDDLE_COLLECTIVE_TABLE, and the built-in
// choice, in this order. The variables are read once per context.
class Selection {
 public:
  // CONFIG: no algorithm has one of these names. `names`: OPERATION.WAY, separated by commas; the
  // last name for an operation counts.
  static base::Result<Selection> read(const std::string& names, std::uint64_t segment_bytes, SelectionTable table);

  struct Choice {
    const Algorithm* algorithm = nullptr;
    std::uint64_t segment_bytes = 0;
    // named by the call or by HEDDLE_COLLECTIVE_ALGORITHMS: nothing else may run it
    bool named = false;
  };
  // `mapped`: ranks map each other's memory. `reachable`: peers put into the callers' buffers, so
  // no copy is needed. ARGUMENT: call.algorithm is not one of this operation, or does not support
  // it.
  [[nodiscard]] base::Result<Choice> choose(const Call& call, const AlgorithmRequest& request, bool reachable,
                                            bool mapped) const;
  // Whether a blocking call of blocks may go in pieces of all blocks, where ranks map each other's
  // memory: not if HEDDLE_COLLECTIVE_ALGORITHMS or the table names an algorithm that needs the
  // blocks side by side.
  [[nodiscard]] bool may_cut(const AlgorithmRequest& request) const;

 private:
  std::array<const Algorithm*, static_cast<std::size_t>(Operation::kCount)> forced_{};
  std::uint64_t segment_bytes_ = 0;
  SelectionTable table_;
};

}  // namespace heddle::collective
