// The settings under which the conformance suite runs. conformance_settings.cpp has
// those of the transports; one of the table that has none there runs as it is, and with all faults.
// This file holds the parts that they share.
#pragma once

#include <vector>

#include "transport/test/conformance.hpp"

namespace heddle::transport::conformance {

using Variables = base::Config::Overrides;

inline const Variables kEverything = {{"HEDDLE_FAULT", "again=30,delay=5,reorder=1"}};
// Pairs: ranks 0 and 1 are one node, 2 and 3 the next. Alone: each rank is a node by itself.
inline const Variables kPairs = {{"HEDDLE_NODE_RANKS", "2"}};
inline const Variables kAlone = {{"HEDDLE_NODE_RANKS", "1"}};

inline Variables both(Variables left, const Variables& right) {
  left.insert(right.begin(), right.end());
  return left;
}

// At namespace scope; the settings are asked for when main() has begun.
class Given {
 public:
  explicit Given(std::vector<Setting> (*settings)());
};

}  // namespace heddle::transport::conformance
