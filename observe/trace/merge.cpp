#include "observe/trace/merge.hpp"

#include <unistd.h>

#include <cstdio>
#include <new>
#include <vector>

#include "observe/trace/picture.hpp"
#include "observe/trace/recording.hpp"
#include "tap/trace_files.hpp"

namespace heddle::observe::trace {

namespace {

// As a shell reads it.
std::string quoted(const std::string& path) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:@,%";
  if (path.find_first_not_of(kPlain) == std::string::npos) return path;
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

base::Status merge_files(const std::string& path, Parts parts, const char* who) {
  std::vector<std::string> others;
  auto processes = find(path, &others);
  if (!processes) return processes.status();
  if (const base::Status status = align(*processes); status != HEDDLE_DONE) return status;
  Drawn drawn;
  if (const base::Status status = draw(*processes, path, &drawn); status != HEDDLE_DONE) return status;
  tell_others(others, who);
  const auto count = [](std::uint64_t number) { return static_cast<unsigned long long>(number); };
  std::fprintf(stderr, "%s: %s has %llu records of %zu processes", who, path.c_str(), count(drawn.records),
               processes->size());
  if (drawn.lost != 0) {
    std::fprintf(stderr, "; %llu older ones had no room (HEDDLE_TRACE_BYTES)", count(drawn.lost));
  }
  if (drawn.untraced != 0) {
    std::fprintf(stderr, "; %llu were lost, of threads beyond 128 or without room on the disk", count(drawn.untraced));
  }
  std::fprintf(stderr, "; https://ui.perfetto.dev shows it\n");
  if (parts == Parts::remove) {
    for (const Process& process : *processes) ::unlink(process.path.c_str());
  }
  return HEDDLE_DONE;
}

}  // namespace

void tell_others(const std::vector<std::string>& others, const char* who) {
  constexpr std::size_t kMostTold = 16;
  std::vector<std::string> earlier;
  for (const std::string& other : others) {
    const bool written = tap::is_written(other);
    if (!written && head_of(other)) {
      earlier.push_back(other);
      continue;
    }
    std::fprintf(stderr, "%s: %s is %s and was left out\n", who, other.c_str(),
                 written ? "written by another job, which still runs," : "no trace of this job");
  }
  if (earlier.empty()) return;
  std::string removal = "rm";
  for (std::size_t i = 0; i < earlier.size() && i < kMostTold; ++i) removal += ' ' + quoted(earlier[i]);
  if (earlier.size() > kMostTold) removal += " …";
  std::fprintf(stderr, "%s: %zu file%s of an earlier job w%s left out, and may be deleted: %s\n", who, earlier.size(),
               earlier.size() == 1 ? "" : "s", earlier.size() == 1 ? "as" : "ere", removal.c_str());
}

base::Status merge(const std::string& path, Parts parts, const char* who) {
  try {
    return merge_files(path, parts, who);
  } catch (const std::bad_alloc&) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "there is no memory for a picture of so many records; the files %s.rank… stay", path.c_str());
  }
}

std::string left(const std::string& path) {
  constexpr std::size_t kMostTold = 4;
  std::string text;
  std::size_t count = 0;
  for (const std::string& file : tap::trace_files(path)) {
    if (tap::is_trace_file(file) && count++ < kMostTold) text += (text.empty() ? "" : ", ") + file;
  }
  return count <= kMostTold ? text : text + " and " + std::to_string(count - kMostTold) + " more";
}

}  // namespace heddle::observe::trace
