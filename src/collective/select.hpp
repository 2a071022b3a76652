// Chooses the algorithm of an operation, and the length of its segments. All ranks choose alike,
// since they know the same.
#pragma once

#include <array>
#include <string>

#include "base/error.hpp"
#include "collective/algorithms/algorithms.hpp"
#include "collective/call.hpp"
#include "collective/selection_table.hpp"

namespace heddle::collective {

// Up to this size data goes through kept memory: a copy costs less than the message that a peer has
// begun.
inline constexpr std::uint64_t kKeptBytes = 8192;

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
  [[nodiscard]] base::Result<Choice> choose(const Call& call, const Request& request, bool reachable,
                                            bool mapped) const;

 private:
  std::array<const Algorithm*, static_cast<std::size_t>(Operation::kCount)> forced_{};
  std::uint64_t segment_bytes_ = 0;
  SelectionTable table_;
};

}  // namespace heddle::collective
