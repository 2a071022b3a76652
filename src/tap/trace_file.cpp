#include "tap/trace_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/fd.hpp"

namespace heddle::tap {
namespace {

// "12", or "12-2": of a rank, and of its second context.
bool is_number(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits == text.size()) return digits != 0;
  return text[digits] == '-' && digits + 1 < text.size() &&
         text.find_first_not_of("0123456789", digits + 1) == std::string::npos;
}

}  // namespace

std::vector<std::string> trace_files(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path whole(path);
  const std::string begins = whole.filename().string() + ".rank";
  std::vector<std::string> files;
  std::error_code error;
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(begins) || !is_number(name.substr(begins.size()))) continue;
    files.push_back(whole.has_parent_path() ? entry.path().string() : entry.path().filename().string());
  }
  std::ranges::sort(files);
  return files;
}

bool is_trace_file(const std::string& file) {
  const base::Fd there(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::uint64_t magic = 0;
  return there.valid() && ::read(there.get(), &magic, sizeof magic) == sizeof magic && magic == kTraceMagic;
}

bool is_written(const std::string& file) {
  const base::Fd there(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return there.valid() && ::flock(there.get(), LOCK_SH | LOCK_NB) != 0;
}

void remove_trace_files(const std::string& path) {
  for (const std::string& file : trace_files(path)) {
    if (is_trace_file(file) && !is_written(file)) ::unlink(file.c_str());
  }
}

std::string without_rank(const std::string& file) {
  constexpr std::string_view kRank = ".rank";
  const std::size_t at = file.rfind(kRank);
  const bool is_part = at != std::string::npos && at > 0 && is_number(file.substr(at + kRank.size()));
  return is_part ? file.substr(0, at) : std::string();
}

}  // namespace heddle::tap
