// The file in which a process notes what happens while its job is traced: records, layout, names.
// tap/tracer.hpp writes it; `heddle trace` and `heddle explain` read it.
//
// One file per process: a head, then rings, one for each thread: a page that describes it, and its
// records. The file is mapped while the process runs, so it is whole whatever ends the process.
// Numbers have the byte order of the machine.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace heddle::tap {

// The kind of event. Each comment says what `id`, `bytes` and `detail` are; `rank` and `peer` are
// the other worker, `worker` is the own one, unless the comment says otherwise.
enum class TraceEvent : std::uint8_t {
  none = 0,
  // The transport has accepted a command. id: of a message its number among those to that worker,
  // from 1; of others 0. bytes: see trace_size(). detail: the command's opcode, or kTraceWord.
  // kind: of a message its row in the table of arrivals (wire::row_of). The slot is 0 if no end
  // will follow.
  posted,
  // The transport accepts no command to that peer now. id: how often in a row. bytes: ticks of the
  // last one. detail: opcode
  refused,
  // A command with a slot has ended. id: slot. detail: 1: only its source is free. kind: minus its
  // status
  ended,
  arrived,     // a message. id: its number. bytes. kind: as posted
  progressed,  // a call of progress ends that found something. id: how much
  away,        // nobody had looked for arrivals since the ticks in `id`
  queued,      // into the worker's command queue. id: its position
  started,     // out of it: everything before position `id`
  wait_begin,  // id: the call's name
  wait_end,
  sleep_begin,
  sleep_end,
  task_begin,  // a handler of class USER. id: its number
  task_end,
  receive,  // was posted. id: tag. bytes: room. rank: kAnyRank: of any. detail: 1: under a mask
  // a receive and a message. id: tag. bytes: of the message. detail: 1: the message was first
  matched,
  // a message came before its receive, and was copied. id: tag. bytes: see trace_copy()
  kept,
  held,        // something waits for what a peer must give. id: what for, a name. bytes
  call_begin,  // of an interface above. id: its name
  call_text,   // its arguments: 16 bytes of text in `id` and `bytes`; may be several
  call_end,    // id: its name
  // a run of a collective. id: its name. bytes: which run. rank: number of the call
  schedule_begin,
  schedule_step,  // steps of it were executed. id: how many. bytes: which run
  schedule_end,   // bytes: which run
  // What the wait that the thread is in waits for: noted with the wait when it has lasted for a
  // while, and again later. detail: a Cause. rank, peer: who has to do something;
  // kAnyRank: anybody, or nobody knows. id, bytes: of a collective its team and its number there
  awaited,
  // The thread comes to a collective. id: its team. bytes: its number there. rank: members
  entered,
  // id: nanoseconds that the thread was ready to run so far, and had no core. bytes: that it ran
  core_time,
  // The record before has happened again: it differs only in its time, and in the number of a
  // message, which is the next one each time (trace_step()). id: how often. ticks: of the last one
  // whose time was read; 0: of none. bytes: what `folded` of the ring was before. The thread counts
  // it up while nothing else happens
  repeated
};

// What `detail` says of a command: its opcode. The numbers are those of transport::Opcode, as
// engine/tapped.cpp proves.
inline constexpr std::uint8_t kTraceMessage = 0;
inline constexpr std::uint8_t kTracePut = 1;
inline constexpr std::uint8_t kTraceGet = 2;
inline constexpr std::uint8_t kTraceAtomic = 3;
// no message of a program: a word about messages, such as credit
inline constexpr std::uint8_t kTraceWord = 4;
// What `kind` says of active messages; the numbers are those of wire::row_of, which the same file
// proves.
inline constexpr std::uint8_t kTraceActive = 1;
inline constexpr std::uint8_t kTraceRequest = 3;
inline constexpr std::uint8_t kTraceReply = 4;
inline constexpr std::uint8_t kTraceUser = 7;
inline constexpr std::uint8_t kNoTraceWorker = 255;  // it is about no worker, or all
inline constexpr std::uint32_t kAnyRank = ~std::uint32_t{0};

struct TraceRecord {
  std::uint64_t ticks;  // 0: as the record before, or soon after
  std::uint64_t id;
  std::uint64_t bytes;
  std::uint32_t rank;
  std::uint8_t peer;
  std::uint8_t worker;
  TraceEvent event;
  std::uint8_t detail : 4;
  std::uint8_t kind : 4;
};
static_assert(sizeof(TraceRecord) == 32);

// The step by which `id` of a repeated record grows each time.
constexpr std::uint64_t trace_step(TraceEvent event, std::uint64_t id) {
  return (event == TraceEvent::posted || event == TraceEvent::arrived) && id != 0 ? 1 : 0;
}

// For a posted command: its bytes, and its slot + 1; 0: it has none.
inline constexpr unsigned kTraceSlotShift = 40;
// The slot of long puts and gets without a completion. No operation has it.
inline constexpr std::uint64_t kTraceLongSlot = 0xFF'FFF0;
constexpr std::uint64_t trace_size(std::uint64_t bytes, std::uint64_t slot) {
  return slot << kTraceSlotShift | (bytes & ((std::uint64_t{1} << kTraceSlotShift) - 1));
}

// For a kept message: its bytes, and the ticks that keeping it took, in units of 16 (mostly for the
// copy).
inline constexpr std::uint64_t kTraceCopyUnit = 16;
constexpr std::uint64_t trace_copy(std::uint64_t bytes, std::uint64_t ticks) {
  const std::uint64_t most = (std::uint64_t{1} << (64 - kTraceSlotShift)) - 1;
  return trace_size(bytes, ticks / kTraceCopyUnit < most ? ticks / kTraceCopyUnit : most);
}

// One moment by two clocks, and by the calendar.
struct TraceMoment {
  std::uint64_t ticks = 0;
  std::uint64_t monotonic_ns = 0;
  std::uint64_t calendar_ns = 0;
};

inline constexpr std::uint64_t kTraceMagic = 0x3345434152544448;  // "HDTRACE3"
inline constexpr std::size_t kTraceNames = 400;
inline constexpr std::size_t kTraceNameBytes = 128;

struct TraceFileHead {
  std::uint64_t magic = kTraceMagic;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t process = 0;
  std::uint64_t job = 0;           // the same in all processes of a job
  std::uint64_t ring_records = 0;  // of each ring
  // messages from worker to worker arrive in the order of their numbers
  std::uint32_t ordered = 0;
  // Moments: the first, and the last in one of two places. Everything from here on is written while
  // the process runs; relaxed, since readers look at what a process has left.
  TraceMoment first;
  std::array<TraceMoment, 2> last;
  std::atomic<std::uint32_t> last_at{0};
  std::atomic<std::uint32_t> rings{0};
  std::atomic<std::uint32_t> names{0};
  std::atomic<std::uint64_t> untraced{0};  // records of threads that have no ring
  std::atomic<std::uint64_t> unnamed{0};   // names that had no room
  std::array<char, 64> host{};
  std::array<char, 40> machine{};  // which boot of which machine
  // Number n stands at n - 1.
  std::array<std::array<char, kTraceNameBytes>, kTraceNames> text{};
};
inline constexpr std::size_t kTraceHeadBytes = 65536;
static_assert(sizeof(TraceFileHead) <= kTraceHeadBytes);

// The head before each ring's records. The last `ring_records` of `count` are there; if the process
// was killed, the oldest one may be half overwritten already.
struct TraceRingHead {
  std::atomic<std::uint64_t> count{0};
  // The number of events beyond one for each record, from the records of kind `repeated` except the
  // last one. The newest of these has newer numbers (bytes, and id - 1), if it is still there.
  std::atomic<std::uint64_t> folded{0};
  std::uint64_t thread = 0;  // number in the system
  std::array<char, 16> name{};
};
// the largest page, as all parts of a file
inline constexpr std::size_t kTraceRingHeadBytes = 65536;

// The files in which the ranks of a traced job note what happens, in the format above: PATH.rank0,
// PATH.rank1, … Other files with such a name are the user's.

// All that is named PATH.rank… and a number, sorted; a directory that is not there has none.
[[nodiscard]] std::vector<std::string> trace_files(const std::string& path);
// It begins as a trace of this version does.
[[nodiscard]] bool is_trace_file(const std::string& file);
// A process writes it.
[[nodiscard]] bool is_written(const std::string& file);
// Removes the traces of jobs before, but what is written now.
void remove_trace_files(const std::string& path);
// PATH, where FILE is named PATH.rank…; empty: it is not.
[[nodiscard]] std::string without_rank(const std::string& file);

}  // namespace heddle::tap
