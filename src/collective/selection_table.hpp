// A table of which algorithm is fastest where, as a tuning run has measured it (`heddle bench
// tune`) or somebody has written it.
//
// Text, a row a line, '#' begins a comment; the first row that an operation fits is taken, if the
// algorithm can do it there:
//   operation buffers ranks bytes algorithm segment
//   broadcast kept    4     8K    broadcast.flat -
// buffers: `kept` (through memory of the operation's own: blocking calls, but for blocks of more
// than 64K in all) or `callers` (all others). ranks, bytes (of a block, and of the whole call where
// it goes in pieces): up to so many; * any. segment: most bytes of one step; - as it is set.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {

class SelectionTable {
 public:
  struct Row {
    Operation operation = Operation::barrier;
    bool kept = false;
    Rank ranks = 0;
    std::uint64_t bytes = 0;
    const Algorithm* algorithm = nullptr;
    std::uint64_t segment_bytes = 0;  // 0: as it is set
  };
  static constexpr Rank kAnyRanks = ~Rank{0};
  static constexpr std::uint64_t kAnyBytes = ~std::uint64_t{0};

  // CONFIG: the file cannot be read, or a line is not as above: the message names it and the line.
  // No path: an empty table.
  static base::Result<SelectionTable> read(const std::string& path);
  static base::Result<SelectionTable> parse(const std::string& text, const std::string& name);
  // A line of such a file.
  static std::string line(const Row& row);

  // Null: no row fits. `mapped`: ranks map each other's memory.
  // `bytes`: of the call; the request may be of a piece.
  [[nodiscard]] const Row* find(const Request& request, std::uint64_t bytes, bool kept, bool mapped) const;

 private:
  std::vector<Row> rows_;
};

}  // namespace heddle::collective
