#include "tools/run/beside.hpp"

#include <filesystem>

namespace heddle::tools::run {

std::string beside_program(const std::string& in_build, const std::string& installed, const std::string& file) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  for (const std::string& from_here : {in_build, HEDDLE_BIN_TO_LIB "/" + installed}) {
    const std::filesystem::path folder = (program.parent_path() / from_here).lexically_normal();
    if (std::filesystem::exists(folder / file, error)) return folder.string();
  }
  return {};
}

}  // namespace heddle::tools::run
