#include "mpi/check/check.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "mpi/types/type.hpp"

namespace heddle::mpi {

constinit bool g_checks = false;

int read_checks(bool* wanted) {
  const char* const text = std::getenv("HEDDLE_CHECK");
  const std::string_view value = text == nullptr ? "off" : text;
  *wanted = value == "full";
  if (*wanted || value == "on" || value == "off") return MPI_SUCCESS;
  return error(MPI_ERR_OTHER, "HEDDLE_CHECK is \"%s\": it is off, on or full", text);
}

void begin_checks(bool all) {
  g_checks = all;
  if (all) std::ranges::fill(g_plain_sizes, std::uint8_t{0});
}

}  // namespace heddle::mpi
