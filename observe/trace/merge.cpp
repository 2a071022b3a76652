#include "observe/trace/merge.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <new>
#include <protozero/pbf_reader.hpp>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "observe/trace/picture.hpp"
#include "observe/trace/recording.hpp"
#include "tap/trace_file.hpp"

namespace heddle::observe::trace {

namespace {

// As a shell reads it.
std::string shell_word(const std::string& path) {
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
  for (std::size_t i = 0; i < earlier.size() && i < kMostTold; ++i) removal += ' ' + shell_word(earlier[i]);
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

namespace {

using tap::TraceFileHead;
using tap::TraceRecord;
using tap::TraceRingHead;

// A packed process is a TraceFileHead, and for each ring a PackedRing and so many records. They are
// unpacked to where they stood.
struct PackedRing {
  std::uint64_t records = 0;
  TraceRingHead head;
};

// Bytes of a process, in the order in which the picture has them, as they become a file in memory.
class Unpacking {
 public:
  // False: there is no memory for it.
  bool begin() {
    file_.reset(::memfd_create("heddle trace", MFD_CLOEXEC));
    return file_.valid();
  }
  // False: it is damaged, or there is no memory.
  bool take(std::span<const char> bytes) {
    while (!bytes.empty()) {
      if (left_ == 0 && !next()) return false;
      const std::size_t part = std::min<std::size_t>(left_, bytes.size());
      if (!take_part(bytes.first(part))) return false;
      bytes = bytes.subspan(part);
      left_ -= part;
      if (left_ == 0 && !finish_part()) return false;
    }
    return true;
  }
  // Whole rings, whatever the last one's records. False: there is none.
  bool end() {
    const std::uint64_t bytes = tap::kTraceHeadBytes + rings_ * ring_bytes_;
    return left_ == 0 && ring_bytes_ != 0 && ::ftruncate(file_.get(), static_cast<off_t>(bytes)) == 0;
  }
  base::Fd take_file() { return std::move(file_); }

 private:
  enum class Part : std::uint8_t { nothing, head, ring, records };
  static constexpr std::uint64_t kMostRingRecords = std::uint64_t{1} << 40;

  bool next() {
    if (part_ == Part::ring && ring_.records != 0) {
      part_ = Part::records;
      left_ = ring_.records * sizeof(TraceRecord);
    } else if (part_ == Part::nothing) {
      part_ = Part::head;
      left_ = sizeof(TraceFileHead);
    } else {
      part_ = Part::ring;
      left_ = sizeof ring_;
    }
    taken_ = 0;
    return true;
  }
  bool take_part(std::span<const char> bytes) {
    if (part_ == Part::ring) {
      std::memcpy(reinterpret_cast<char*>(&ring_) + taken_, bytes.data(), bytes.size());
    } else if (!write(bytes, place_ + taken_)) {
      return false;
    }
    taken_ += bytes.size();
    return true;
  }
  bool finish_part() {
    if (part_ == Part::head) {
      std::uint64_t records = 0;
      if (::pread(file_.get(), &records, sizeof records, offsetof(TraceFileHead, ring_records)) !=
          ssize_t{sizeof records})
        return false;
      if (records == 0 || records > kMostRingRecords) return false;
      ring_bytes_ = tap::kTraceRingHeadBytes + records * sizeof(TraceRecord);
      ring_records_ = records;
      return true;
    }
    if (part_ != Part::ring) return true;
    const std::uint64_t at = tap::kTraceHeadBytes + rings_ * ring_bytes_;
    ++rings_;
    place_ = at + tap::kTraceRingHeadBytes;
    const std::span head(reinterpret_cast<const char*>(&ring_.head), sizeof ring_.head);
    const std::uint64_t count = ring_.head.count.load(std::memory_order_relaxed);
    return ring_.records == std::min(count, ring_records_) && write(head, at);
  }
  bool write(std::span<const char> bytes, std::uint64_t at) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (written <= 0) return false;
      at += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return true;
  }

  base::Fd file_;
  Part part_ = Part::nothing;
  std::uint64_t left_ = 0;   // bytes of this part that are to come
  std::uint64_t taken_ = 0;  // and that have come
  std::uint64_t place_ = 0;  // of its first byte
  PackedRing ring_;
  std::uint64_t rings_ = 0;
  std::uint64_t ring_bytes_ = 0;
  std::uint64_t ring_records_ = 0;
};

base::Result<Recordings> unpack(const std::string& path) {
  const FileMapping file(path);
  std::map<std::uint32_t, Unpacking> all;
  if (file.bytes() != 0) {
    protozero::pbf_reader trace(file.at<char>(0), file.bytes());
    try {
      while (trace.next(PerfettoWriter::kPacketField, protozero::pbf_wire_type::length_delimited)) {
        protozero::pbf_reader packet = trace.get_message();
        if (!packet.next(PerfettoWriter::kRecordingField, protozero::pbf_wire_type::length_delimited)) continue;
        protozero::pbf_reader recording = packet.get_message();
        if (!recording.next(1, protozero::pbf_wire_type::varint)) continue;
        const std::uint32_t number = recording.get_uint32();
        if (!recording.next(2, protozero::pbf_wire_type::length_delimited)) continue;
        const protozero::data_view bytes = recording.get_view();
        auto [at, fresh] = all.try_emplace(number);
        if ((fresh && !at->second.begin()) || !at->second.take({bytes.data(), bytes.size()})) {
          return base::fail(HEDDLE_ERR_ARGUMENT, "the records in %s are damaged, or there is no memory for them",
                            path.c_str());
        }
      }
    } catch (const protozero::exception&) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "%s is no trace, or was cut off", path.c_str());
    }
  }
  if (all.empty()) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s has no records of a job: it is none of `heddle run --trace`",
                      path.c_str());
  }
  Recordings recordings;
  for (auto& [number, one] : all) {
    if (!one.end()) return base::fail(HEDDLE_ERR_ARGUMENT, "the records in %s are damaged", path.c_str());
    recordings.unpacked.push_back(one.take_file());
    auto process = head_of("/proc/self/fd/" + std::to_string(recordings.unpacked.back().get()));
    if (!process) return process.status();
    recordings.processes.push_back(std::move(*process));
  }
  return recordings;
}

}  // namespace

base::Status pack(const Process& process, std::uint32_t number, PerfettoWriter& writer) {
  const FileMapping file(process.path);
  if (file.bytes() < tap::kTraceHeadBytes) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s cannot be read any more", process.path.c_str());
  }
  const auto& head = *file.at<TraceFileHead>(0);
  writer.embed(number, {file.at<char>(0), sizeof head});
  const std::size_t ring_bytes = tap::kTraceRingHeadBytes + head.ring_records * sizeof(TraceRecord);
  for (std::size_t i = 0; i < head.rings.load(std::memory_order_acquire); ++i) {
    const std::size_t offset = tap::kTraceHeadBytes + i * ring_bytes;
    if (offset + ring_bytes > file.bytes()) break;  // it was cut off
    PackedRing ring;
    std::memcpy(static_cast<void*>(&ring.head), file.at<char>(offset), sizeof ring.head);
    ring.records = std::min(ring.head.count.load(std::memory_order_relaxed), head.ring_records);
    writer.embed(number, {reinterpret_cast<const char*>(&ring), sizeof ring});
    writer.embed(number, {file.at<char>(offset + tap::kTraceRingHeadBytes), ring.records * sizeof(TraceRecord)});
  }
  return HEDDLE_DONE;
}

base::Result<Recordings> open(const std::string& path, std::vector<std::string>* others) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::vector<std::string> parts = tap::trace_files(path);
  // A later job may have left its files beside an earlier one's picture.
  const bool later = !parts.empty() && fs::last_write_time(parts.front(), error) > fs::last_write_time(path, error);
  if (fs::is_regular_file(path, error) && !later) {
    if (tap::is_trace_file(path)) return wrong_path(path);
    return unpack(path);
  }
  auto processes = find(path, others);
  if (!processes) return processes.status();
  Recordings recordings;
  recordings.processes = std::move(*processes);
  return recordings;
}

}  // namespace heddle::observe::trace
