#include "tools/trace/merge.hpp"

#include <unistd.h>

#include <cstdio>
#include <new>

#include "tools/trace/picture.hpp"
#include "tools/trace/recording.hpp"

namespace heddle::tools::trace {

namespace {

base::Status merge_files(const std::string& path, Parts parts, const char* who) {
  std::vector<std::string> others;
  auto processes = find(path, &others);
  if (!processes) return processes.status();
  if (const base::Status status = align(*processes); status != HEDDLE_DONE) return status;
  Drawn drawn;
  if (const base::Status status = draw(*processes, path, &drawn); status != HEDDLE_DONE) return status;
  for (const std::string& other : others) {
    std::fprintf(stderr, "%s: %s is no trace of this job and was left out\n", who, other.c_str());
  }
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

base::Status merge(const std::string& path, Parts parts, const char* who) {
  try {
    return merge_files(path, parts, who);
  } catch (const std::bad_alloc&) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "there is no memory for a picture of so many records; the files %s.rank… stay", path.c_str());
  }
}

void clear(const std::string& path) {
  for (const std::string& file : files_of(path)) {
    if (is_recording(file) && !is_written(file)) ::unlink(file.c_str());
  }
}

}  // namespace heddle::tools::trace
