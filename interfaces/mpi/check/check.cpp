#include "mpi/check/check.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "mpi/types/type.hpp"

namespace heddle::mpi {

constinit bool g_checks = false;

bool wants_checks() {
  const char* const text = std::getenv("HEDDLE_CHECK");
  return text != nullptr && std::string_view(text) == "full";
}

void begin_checks(bool all) {
  g_checks = all;
  if (all) std::ranges::fill(g_plain_sizes, std::uint8_t{0});
}

}  // namespace heddle::mpi
