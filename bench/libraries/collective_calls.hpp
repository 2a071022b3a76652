// The operations that `heddle bench broadcast` and its like measure, each in its three forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "heddle/heddle.h"

namespace heddle::bench::libraries {

enum class Form { persistent, nonblocking, blocking };

// The arguments of one member: blocks of `doubles`, the root is 0, sums are of doubles, lists (…v)
// have equal blocks, neighbours are those of a ring.
struct CollectiveCall {
  Form form;
  heddle_team team;
  std::uint32_t rank;
  std::uint32_t size;
  double* send;
  double* receive;
  std::size_t doubles;
  const heddle_collective_options* options;  // persistent
  heddle_collective* collective;             // persistent, nonblocking: out
};

// Calls the function of heddle/collectives.h of this name. ARGUMENT: there is none.
heddle_status call_collective(std::string_view operation, const CollectiveCall& call);

}  // namespace heddle::bench::libraries
