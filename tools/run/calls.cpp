#include "tools/run/calls.hpp"

#include <cstdlib>

#include "tools/run/beside.hpp"

namespace heddle::tools::run {
namespace {

constexpr const char* kPreload = "LD_PRELOAD";

// The value that the ranks would get without us.
std::string preloaded(const Options& options) {
  const char* const inherited = std::getenv(kPreload);
  std::string value = inherited != nullptr ? inherited : "";
  for (const auto& [name, given] : options.environment) {
    if (name == kPreload) value = given;
  }
  return value;
}

}  // namespace

base::Status preload_calls(Options* options) {
  const std::string before = preloaded(*options);
  std::string value = before;
  for (const char* file : {"libheddle_mpi_calls.so", "libheddle_shmem_calls.so"}) {
    const std::string folder = beside_program("calls", "heddle/calls", file);
    if (folder.empty()) continue;
    if (folder.find_first_of(": ") != std::string::npos) {
      return base::fail(HEDDLE_ERR_SYSTEM,
                        "calls of MPI and OpenSHMEM are not traced by name: LD_PRELOAD cannot name a library in %s",
                        folder.c_str());
    }
    if (!value.empty()) value += ':';
    value += folder + '/' + file;
  }
  if (value != before) options->environment.emplace_back(kPreload, value);
  return HEDDLE_DONE;
}

}  // namespace heddle::tools::run
