// The activity of a process of a traced job, as tracks of a picture: its threads, with calls,
// waits, progress and messages; and the lives of its operations, receives and collectives.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "observe/trace/perfetto.hpp"
#include "observe/trace/recording.hpp"
#include "tap/trace_file.hpp"

namespace heddle::observe::trace {

// Of all processes together.
struct Drawn {
  std::uint64_t records = 0;
  std::uint64_t lost = 0;      // older ones
  std::uint64_t untraced = 0;  // of threads that had no room
};

// Writes them all to PATH. ARGUMENT: a file cannot be read or written.
base::Status draw(const std::vector<Process>& processes, const std::string& path, Drawn* drawn);

// The tracks of one process of a traced job.

// Slices that may overlap, although those of one track may not. They are put on as few tracks of
// one name as possible.
class Lanes {
 public:
  Lanes(PerfettoWriter& writer, PerfettoWriter::Track parent, std::string name)
      : writer_(writer), parent_(parent), name_(std::move(name)) {}
  // In the order of ends.
  void add(std::int64_t begin, std::int64_t end, const Mark& mark);

 private:
  struct Lane {
    PerfettoWriter::Track track;
    std::int64_t free_from;
  };
  PerfettoWriter& writer_;
  PerfettoWriter::Track parent_;
  std::string name_;
  std::vector<Lane> lanes_;
};

class ProcessPicture {
 public:
  ProcessPicture(const Process& process, std::uint32_t number, PerfettoWriter& writer);
  // Once.
  void draw(const std::vector<Thread>& threads);

 private:
  using Record = tap::TraceRecord;
  enum class Slice : std::uint8_t { call, wait, sleep, task, progress };
  struct Drawing {  // of a thread
    PerfettoWriter::Track track;
    std::vector<Slice> open;
    std::int64_t ns = 0;  // of its last record
    // a call that begins, and its arguments so far
    const char* call = nullptr;
    std::string arguments;
    std::int64_t call_ns = 0;
  };
  // An activity under way, which a later record ends.
  struct Open {
    std::int64_t begin;
    Record record;
  };

  void take(Drawing& thread, const Moment& moment);
  bool take_slice(Drawing& thread, const Moment& moment);
  void take_call(Drawing& thread, const Moment& moment);
  void take_command(Drawing& thread, const Moment& moment);
  void take_arrival(Drawing& thread, const Moment& moment);
  void take_queue(const Moment& moment);
  void take_match(Drawing& thread, const Moment& moment);
  void take_schedule(Drawing& thread, const Moment& moment);
  static void add_more(Mark& mark, const Moment& moment);
  void show_call(Drawing& thread);
  void open(Drawing& thread, Slice slice, std::int64_t ns, const Mark& mark);
  void close(Drawing& thread, Slice slice, std::int64_t ns);
  void close_progress(Drawing& thread, std::int64_t ns);
  void end_operation(const Open& operation, std::int64_t ns, const char* how);
  void end_receive(const Open& receive, std::int64_t ns, const Record* match);
  void close_all(std::int64_t ns);
  Lanes& lanes(std::uint8_t worker, const char* of);
  [[nodiscard]] std::uint64_t flow(const Record& record, bool arrives) const;

  const Process& process_;
  PerfettoWriter& writer_;
  const std::uint32_t number_;
  const PerfettoWriter::Track track_;
  std::vector<Drawing> drawings_;
  std::map<std::pair<std::uint8_t, std::string>, Lanes> lanes_;
  // by worker, slot
  std::map<std::pair<std::uint8_t, std::uint64_t>, std::deque<Open>> operations_;
  std::map<std::uint8_t, std::deque<Open>> queued_;  // by worker
  std::map<std::uint8_t, std::uint64_t> started_;    // entries before this have left the queue
  std::map<std::uint8_t, std::deque<Open>> receives_;
  std::map<std::uint8_t, std::deque<Open>> kept_;
  std::map<std::uint64_t, Open> schedules_;  // by the number of the run
};

// Words for the records of a trace.

// "8 B", "64 KiB".
std::string size_text(std::uint64_t bytes);
// Names a posted command or an arrived message, without its target: "put 8 B", "tagged message 64
// KiB".
std::string command_text(const tap::TraceRecord& record);
// The name of a message's kind: "active message".
const char* kind_text(std::uint8_t kind);
// True if a message of this kind runs a handler, or is a request of the library or its answer.
bool is_active(std::uint8_t kind);
// "rank 3"; "any rank".
std::string rank_text(std::uint32_t rank);

// Of a posted command, or a kept message.
constexpr std::uint64_t bytes_of(const tap::TraceRecord& record) {
  return record.bytes & ((std::uint64_t{1} << tap::kTraceSlotShift) - 1);
}
// For a kept message: the ticks that it took to keep it.
constexpr std::uint64_t copy_ticks(const tap::TraceRecord& kept) {
  return (kept.bytes >> tap::kTraceSlotShift) * tap::kTraceCopyUnit;
}
// For a posted command: its slot + 1; 0: no end will follow.
constexpr std::uint64_t slot_of(const tap::TraceRecord& posted) {
  return posted.bytes >> tap::kTraceSlotShift;
}

}  // namespace heddle::observe::trace
