// Which algorithm an operation gets, and in what pieces. All ranks choose alike, since they know
// the same.
#pragma once

#include <array>
#include <string>

#include "base/error.hpp"
#include "collective/algorithms/algorithms.hpp"
#include "collective/call.hpp"
#include "collective/selection_table.hpp"

namespace heddle::collective {

// Up to here through kept memory: the copy costs less than the word that a peer has begun.
inline constexpr std::uint64_t kKeptBytes = 8192;

// The call says, else HEDDLE_COLLECTIVE_ALGORITHMS, else HEDDLE_COLLECTIVE_TABLE, else what is
// built in. Read once for each context.
class Selection {
 public:
  // CONFIG: no algorithm has one of these names. `names`: OPERATION.WAY, separated by commas; of
  // two for one operation the last.
  static base::Result<Selection> read(const std::string& names, std::uint64_t segment_bytes, SelectionTable table);

  struct Choice {
    const Algorithm* algorithm = nullptr;
    std::uint64_t segment_bytes = 0;
    // by the call, or by HEDDLE_COLLECTIVE_ALGORITHMS: nothing else is to run it
    bool named = false;
  };
  // `mapped`: ranks map each other's memory. `reachable`: peers put into the callers' buffers, so
  // that nothing need be copied. ARGUMENT: call.algorithm is not one of this operation, or refuses
  // it.
  [[nodiscard]] base::Result<Choice> choose(const Call& call, const Request& request, bool reachable,
                                            bool mapped) const;

 private:
  std::array<const Algorithm*, static_cast<std::size_t>(Operation::kCount)> forced_{};
  std::uint64_t segment_bytes_ = 0;
  SelectionTable table_;
};

}  // namespace heddle::collective
