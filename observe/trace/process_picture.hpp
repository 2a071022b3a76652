// The tracks of one process of a traced job.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "observe/trace/perfetto.hpp"
#include "observe/trace/recording.hpp"

namespace heddle::observe::trace {

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

}  // namespace heddle::observe::trace
