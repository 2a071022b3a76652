#include "observe/trace/picture.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "observe/trace/merge.hpp"

namespace heddle::observe::trace {

std::string size_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + " " + kUnits[unit];
}

const char* kind_text(std::uint8_t kind) {
  // The rows of wire::row_of().
  constexpr std::array kKinds = {"message", "active message", "part of a long message", "request",
                                 "answer",  "tagged message", "packet of messages",     "message of class USER"};
  return kind < kKinds.size() ? kKinds[kind] : "message of a protocol";
}

bool is_active(std::uint8_t kind) {
  return kind == tap::kTraceActive || kind == tap::kTraceRequest || kind == tap::kTraceReply || kind == tap::kTraceUser;
}

std::string command_text(const tap::TraceRecord& record) {
  constexpr std::array kOpcodes = {"put", "get", "atomic"};  // from kTracePut on
  if (record.detail == tap::kTraceWord) return "credit for tagged messages";
  const bool message = record.event == tap::TraceEvent::arrived || record.detail == tap::kTraceMessage;
  const std::size_t opcode = record.detail - std::size_t{tap::kTracePut};
  const char* const what = message ? kind_text(record.kind) : opcode < kOpcodes.size() ? kOpcodes[opcode] : "command";
  const std::uint64_t bytes = record.event == tap::TraceEvent::arrived ? record.bytes : bytes_of(record);
  return std::string(what) + " " + size_text(bytes);
}

std::string rank_text(std::uint32_t rank) {
  return rank == tap::kAnyRank ? "any rank" : "rank " + std::to_string(rank);
}

using tap::TraceEvent;

void Lanes::add(std::int64_t begin, std::int64_t end, const Mark& mark) {
  auto lane = std::ranges::find_if(lanes_, [&](const Lane& one) { return one.free_from <= begin; });
  if (lane == lanes_.end()) lane = lanes_.insert(lanes_.end(), {writer_.track(parent_, name_), 0});
  writer_.begin(lane->track, begin, mark);
  writer_.end(lane->track, end);
  lane->free_from = end;
}

ProcessPicture::ProcessPicture(const Process& process, std::uint32_t number, PerfettoWriter& writer)
    : process_(process),
      writer_(writer),
      number_(number),
      track_(writer.process(number, "rank " + std::to_string(process.rank) + " (process " +
                                        std::to_string(process.process) + " on " + process.host + ")")) {}

void ProcessPicture::draw(const std::vector<Thread>& threads) {
  std::vector<std::pair<const Moment*, std::size_t>> all;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const Thread& thread = threads[i];
    Drawing& drawing = drawings_.emplace_back();
    drawing.track = writer_.thread(number_, thread.number, thread.name.empty() ? "thread" : thread.name);
    if (thread.lost != 0) {
      Mark mark{"older records had no room (HEDDLE_TRACE_BYTES)", {{"records", thread.lost}}};
      if (!thread.moments.empty()) writer_.instant(drawing.track, thread.moments.front().ns, mark);
    }
    for (const Moment& moment : thread.moments) all.emplace_back(&moment, i);
  }
  // Those of one moment in the order in which their thread has noted them, which is that of memory.
  std::ranges::sort(all, [](const auto& a, const auto& b) {
    return std::tuple(a.first->ns, a.second, a.first) < std::tuple(b.first->ns, b.second, b.first);
  });
  for (const auto& [moment, thread] : all) take(drawings_[thread], *moment);
  if (!all.empty()) close_all(all.back().first->ns);
}

Lanes& ProcessPicture::lanes(std::uint8_t worker, const char* of) {
  const std::string name = worker == tap::kNoTraceWorker ? of : "worker " + std::to_string(worker) + ": " + of;
  return lanes_.try_emplace({worker, name}, writer_, track_, name).first->second;
}

// The same at both ends of a message. 0: it is not known which message it is.
std::uint64_t ProcessPicture::flow(const Record& record, bool arrives) const {
  if (!process_.ordered || record.kind == 0 || record.id == 0) return 0;
  const std::uint64_t own = std::uint64_t{process_.rank} << 8 | record.worker;
  const std::uint64_t other = std::uint64_t{record.rank} << 8 | record.peer;
  std::uint64_t mixed = 0;
  for (const std::uint64_t part : {arrives ? other : own, arrives ? own : other, record.id}) {
    mixed = (mixed ^ part) * 0x9E3779B97F4A7C15U;
    mixed ^= mixed >> 29;
  }
  return mixed | 1;
}

// ---- threads ------------------------------------------------------------------------------------

void ProcessPicture::open(Drawing& thread, Slice slice, std::int64_t ns, const Mark& mark) {
  writer_.begin(thread.track, ns, mark);
  thread.open.push_back(slice);
}

// Ends it and the slices that were opened inside it. Does nothing if its begin was lost.
void ProcessPicture::close(Drawing& thread, Slice slice, std::int64_t ns) {
  const auto found = std::ranges::find(thread.open.rbegin(), thread.open.rend(), slice);
  if (found == thread.open.rend()) return;
  for (auto count = found - thread.open.rbegin() + 1; count > 0; --count) {
    writer_.end(thread.track, ns);
    thread.open.pop_back();
  }
}

void ProcessPicture::close_progress(Drawing& thread, std::int64_t ns) {
  if (!thread.open.empty() && thread.open.back() == Slice::progress) close(thread, Slice::progress, ns);
}

void ProcessPicture::take(Drawing& thread, const Moment& moment) {
  thread.ns = moment.ns;
  if (moment.record.event != TraceEvent::call_text) show_call(thread);
  if (take_slice(thread, moment)) return;
  switch (moment.record.event) {
    case TraceEvent::posted:
    case TraceEvent::refused:
    case TraceEvent::held:
      return take_command(thread, moment);
    case TraceEvent::arrived:
    case TraceEvent::ended:
    case TraceEvent::away:
      return take_arrival(thread, moment);
    case TraceEvent::queued:
    case TraceEvent::started:
      return take_queue(moment);
    case TraceEvent::receive:
    case TraceEvent::matched:
    case TraceEvent::kept:
      return take_match(thread, moment);
    case TraceEvent::schedule_begin:
    case TraceEvent::schedule_step:
    case TraceEvent::schedule_end:
      return take_schedule(thread, moment);
    default:
      return;
  }
}

// False: it is no beginning or end of something that the thread does.
bool ProcessPicture::take_slice(Drawing& thread, const Moment& moment) {
  const Record& record = moment.record;
  switch (record.event) {
    case TraceEvent::progressed:
      close(thread, Slice::progress, moment.ns);
      return true;
    case TraceEvent::wait_begin: {
      close_progress(thread, moment.ns);
      Mark mark{"wait in " + std::string(process_.name(record.id)), {}};
      if (record.worker != tap::kNoTraceWorker) mark.annotations.emplace_back("worker", std::uint64_t{record.worker});
      open(thread, Slice::wait, moment.ns, mark);
      return true;
    }
    case TraceEvent::wait_end:
      close(thread, Slice::wait, moment.ns);
      return true;
    case TraceEvent::sleep_begin:
      close_progress(thread, moment.ns);
      open(thread, Slice::sleep, moment.ns, {"sleep", {}});
      return true;
    case TraceEvent::sleep_end:
      close(thread, Slice::sleep, moment.ns);
      return true;
    case TraceEvent::task_begin:
      close_progress(thread, moment.ns);
      open(thread, Slice::task, moment.ns, {"handler of class USER", {{"number", record.id}}});
      return true;
    case TraceEvent::task_end:
      close(thread, Slice::task, moment.ns);
      return true;
    case TraceEvent::call_begin:
    case TraceEvent::call_text:
    case TraceEvent::call_end:
      take_call(thread, moment);
      return true;
    default:
      return false;
  }
}

// The text of its arguments follows a call that begins, in pieces.
void ProcessPicture::take_call(Drawing& thread, const Moment& moment) {
  const Record& record = moment.record;
  if (record.event == TraceEvent::call_text) {
    std::array<char, 16> piece{};
    std::memcpy(piece.data(), &record.id, 8);
    std::memcpy(piece.data() + 8, &record.bytes, 8);
    thread.arguments.append(piece.data(), ::strnlen(piece.data(), piece.size()));
    return;
  }
  close_progress(thread, moment.ns);
  if (record.event == TraceEvent::call_end) return close(thread, Slice::call, moment.ns);
  thread.call = process_.name(record.id);
  thread.arguments.clear();
  thread.call_ns = moment.ns;
}

void ProcessPicture::show_call(Drawing& thread) {
  if (thread.call == nullptr) return;
  Mark mark{std::exchange(thread.call, nullptr)};
  if (!thread.arguments.empty()) mark.annotations.emplace_back("arguments", std::exchange(thread.arguments, {}));
  open(thread, Slice::call, thread.call_ns, mark);
}

// ---- commands and messages ----------------------------------------------------------------------

void ProcessPicture::take_command(Drawing& thread, const Moment& moment) {
  const Record& record = moment.record;
  Mark mark{{}, {{"worker", std::uint64_t{record.worker}}, {"to worker", std::uint64_t{record.peer}}}};
  if (record.event == TraceEvent::held) {
    mark.name = "waits for " + std::string(process_.name(record.id)) + " from " + rank_text(record.rank);
  } else if (record.event == TraceEvent::refused) {
    mark.name = "not taken for " + rank_text(record.rank) + " (AGAIN)";
    mark.annotations.emplace_back("times", record.id);
    const std::int64_t last_ns = std::max(process_.at(record.bytes), moment.ns);
    mark.annotations.emplace_back("for ns", static_cast<std::uint64_t>(last_ns - moment.ns));
  } else {
    mark.name = command_text(record) + " to " + rank_text(record.rank);
    mark.annotations.emplace_back("bytes", bytes_of(record));
    if (record.kind != 0) mark.annotations.emplace_back("number", record.id);
    mark.flow = flow(record, false);
    if (slot_of(record) != 0) operations_[{record.worker, slot_of(record) - 1}].push_back({moment.ns, record});
  }
  add_more(mark, moment);
  writer_.instant(thread.track, moment.ns, mark);
}

// For activities of which a recording has too many to list each one.
void ProcessPicture::add_more(Mark& mark, const Moment& moment) {
  if (moment.more != 0) mark.annotations.emplace_back("and alike after it", moment.more);
}

void ProcessPicture::take_arrival(Drawing& thread, const Moment& moment) {
  const Record& record = moment.record;
  if (record.event == TraceEvent::away) {
    const Mark mark{"nobody looks", {}};
    return lanes(record.worker, "not advanced").add(std::min(process_.at(record.id), moment.ns), moment.ns, mark);
  }
  if (thread.open.empty() || thread.open.back() != Slice::progress) {
    open(thread, Slice::progress, moment.ns, {"progress", {{"worker", std::uint64_t{record.worker}}}});
  }
  if (record.event == TraceEvent::arrived) {
    const std::string name = command_text(record) + " from " + rank_text(record.rank);
    Mark mark{name,
              {{"worker", std::uint64_t{record.worker}},
               {"from worker", std::uint64_t{record.peer}},
               {"bytes", record.bytes},
               {"number", record.id}},
              0,
              flow(record, true)};
    add_more(mark, moment);
    writer_.instant(thread.track, moment.ns, mark);
    return;
  }
  if (record.detail == 1) return;  // its source is free; the end follows
  const auto found = operations_.find({record.worker, record.id});
  if (found == operations_.end() || found->second.empty()) return;
  end_operation(found->second.front(), moment.ns, record.kind == 0 ? nullptr : "with an error");
  found->second.pop_front();
}

void ProcessPicture::end_operation(const Open& operation, std::int64_t ns, const char* how) {
  const Record& record = operation.record;
  const std::string name = command_text(record) + " to " + rank_text(record.rank);
  Mark mark{name, {{"bytes", bytes_of(record)}, {"to worker", std::uint64_t{record.peer}}}};
  if (how != nullptr) mark.annotations.emplace_back("ended", std::string(how));
  lanes(record.worker, "operations").add(operation.begin, ns, mark);
}

void ProcessPicture::take_queue(const Moment& moment) {
  std::deque<Open>& waiting = queued_[moment.record.worker];
  std::uint64_t& started = started_[moment.record.worker];
  if (moment.record.event == TraceEvent::queued) {
    // The thread that starts it may have been faster than the one that notes it.
    if (moment.record.id > started) waiting.push_back({moment.ns, moment.record});
    return;
  }
  started = std::max(started, moment.record.id);
  while (!waiting.empty() && waiting.front().record.id <= moment.record.id) {
    lanes(moment.record.worker, "queue").add(waiting.front().begin, moment.ns, {"queued", {}});
    waiting.pop_front();
  }
}

// ---- receives and collectives -------------------------------------------------------------------

void ProcessPicture::end_receive(const Open& receive, std::int64_t ns, const Record* match) {
  const Record& record = receive.record;
  const std::uint32_t from = match != nullptr ? match->rank : record.rank;
  const std::string name = "receive from " + rank_text(from);
  Mark mark{name, {{"tag", match != nullptr ? match->id : record.id}, {"room", record.bytes}}};
  if (match != nullptr) mark.annotations.emplace_back("bytes", match->bytes);
  if (match == nullptr) mark.annotations.emplace_back("ended", std::string("not matched"));
  lanes(record.worker, "receives").add(receive.begin, ns, mark);
}

void ProcessPicture::take_match(Drawing& thread, const Moment& moment) {
  const Record& record = moment.record;
  if (record.event == TraceEvent::receive) {
    receives_[record.worker].push_back({moment.ns, record});
    return;
  }
  const std::string name = (record.event == TraceEvent::kept ? "unexpected message from " : "matched message from ") +
                           rank_text(record.rank);
  Mark mark{name, {{"tag", record.id}, {"bytes", bytes_of(record)}}};
  add_more(mark, moment);
  writer_.instant(thread.track, moment.ns, mark);
  if (record.event == TraceEvent::kept) {
    kept_[record.worker].push_back({moment.ns, record});
    return;
  }
  std::deque<Open>& receives = receives_[record.worker];
  const auto from = [&](const Open& open) {
    return open.record.rank == record.rank || open.record.rank == tap::kAnyRank;
  };
  auto receive =
      std::ranges::find_if(receives, [&](const Open& open) { return from(open) && open.record.id == record.id; });
  if (receive == receives.end()) {  // of any tag, or under a mask
    receive = std::ranges::find_if(receives, [&](const Open& open) { return from(open) && open.record.detail == 1; });
  }
  if (receive != receives.end()) {
    end_receive(*receive, moment.ns, &record);
    receives.erase(receive);
  }
  if (record.detail == 0) return;
  std::deque<Open>& kept = kept_[record.worker];
  const auto message = std::ranges::find_if(
      kept, [&](const Open& open) { return open.record.id == record.id && open.record.rank == record.rank; });
  if (message == kept.end()) return;
  lanes(record.worker, "unexpected messages")
      .add(message->begin, moment.ns,
           {"from " + rank_text(record.rank), {{"tag", record.id}, {"bytes", record.bytes}}});
  kept.erase(message);
}

void ProcessPicture::take_schedule(Drawing& thread, const Moment& moment) {
  const Record& record = moment.record;
  if (record.event == TraceEvent::schedule_begin) {
    schedules_[record.bytes] = {moment.ns, record};
    return;
  }
  const auto run = schedules_.find(record.bytes);
  const std::string name = run == schedules_.end() ? "" : process_.name(run->second.record.id);
  if (record.event == TraceEvent::schedule_step) {
    writer_.instant(thread.track, moment.ns,
                    {"steps of " + (name.empty() ? "a collective" : name), {{"steps", record.id}}});
    return;
  }
  if (run == schedules_.end()) return;
  lanes(tap::kNoTraceWorker, "collectives")
      .add(run->second.begin, moment.ns, {name, {{"call", std::uint64_t{run->second.record.rank}}}});
  schedules_.erase(run);
}

// An activity that nobody has ended goes on to the end of the trace.
void ProcessPicture::close_all(std::int64_t ns) {
  for (Drawing& thread : drawings_) {
    show_call(thread);
    for (; !thread.open.empty(); thread.open.pop_back()) writer_.end(thread.track, ns);
  }
  for (const auto& [slot, operations] : operations_) {
    for (const Open& operation : operations) end_operation(operation, ns, "not in this trace");
  }
  for (const auto& [worker, receives] : receives_) {
    for (const Open& receive : receives) end_receive(receive, ns, nullptr);
  }
  for (const auto& [worker, waiting] : queued_) {
    for (const Open& one : waiting) lanes(worker, "queue").add(one.begin, ns, {"queued", {}});
  }
  for (const auto& [worker, messages] : kept_) {
    for (const Open& one : messages) {
      const Mark mark{"from " + rank_text(one.record.rank), {{"tag", one.record.id}, {"bytes", bytes_of(one.record)}}};
      lanes(worker, "unexpected messages").add(one.begin, ns, mark);
    }
  }
  for (const auto& [run, schedule] : schedules_) {
    lanes(tap::kNoTraceWorker, "collectives")
        .add(schedule.begin, ns,
             {process_.name(schedule.record.id),
              {{"call", std::uint64_t{schedule.record.rank}}, {"ended", std::string("not in this trace")}}});
  }
}

base::Status draw(const std::vector<Process>& processes, const std::string& path, Drawn* drawn) {
  PerfettoWriter writer;
  if (const base::Status status = writer.open(path); status != HEDDLE_DONE) return status;
  std::uint32_t number = 0;
  for (const Process& process : processes) {
    const auto threads = read(process);
    if (!threads) return threads.status();
    ProcessPicture(process, ++number, writer).draw(*threads);
    if (const base::Status status = pack(process, number, writer); status != HEDDLE_DONE) return status;
    drawn->untraced += process.untraced;
    for (const Thread& thread : *threads) {
      drawn->records += thread.moments.size();
      for (const Moment& moment : thread.moments) drawn->records += moment.more;
      drawn->lost += thread.lost;
    }
  }
  return writer.close();
}

}  // namespace heddle::observe::trace
