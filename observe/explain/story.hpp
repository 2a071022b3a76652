// The events of a traced job that explain why its ranks waited: read once from the records, then
// only looked at.
//
// Times are nanoseconds of the job's clock. A rank is an index into Story::ranks, which is its
// number where all ranks have left their files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "observe/trace/recording.hpp"
#include "tap/snapshot.hpp"
#include "tap/trace_file.hpp"

namespace heddle::observe::explain {

struct TimeSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t length() const { return end > begin ? end - begin : 0; }
  [[nodiscard]] TimeSpan within(const TimeSpan& other) const {
    return {begin > other.begin ? begin : other.begin, end < other.end ? end : other.end};
  }
};

// A call or activity of a thread. Slices of one thread nest. call: of an interface; own: the
// program's own (heddle_trace_begin).
struct Slice : TimeSpan {
  enum class What : std::uint8_t { call, own, wait, sleep, task } what = What::call;
  std::string name;
};

// The thing that a wait is for, as the thread itself knows it.
struct AwaitedThing {
  tap::Cause cause = tap::Cause::unknown;
  std::uint32_t rank = tap::kAnyRank;
  std::uint8_t worker = tap::kNoTraceWorker;
  std::uint64_t team = 0;  // of a collective, and its number there
  std::uint64_t number = 0;
};

struct WaitStory : TimeSpan {
  std::size_t rank = 0;
  std::size_t thread = 0;
  std::uint8_t worker = tap::kNoTraceWorker;
  std::string call;  // of the program's, or of the interface above
  // since when the thread is in one of an interface above; 0: it is not
  std::int64_t in_call = 0;
  std::vector<AwaitedThing> awaited;  // as it was noted last
  std::int64_t until = 0;             // its cause of ending was noted before this
  bool ended = true;                  // false: it was under way when the trace ended
  std::int64_t longest_piece_ns = 0;
};

// How long a thread had no core, by its kernel, up to a moment.
struct CoreTime {
  std::int64_t at = 0;
  std::int64_t without_ns = 0;
};

struct ThreadStory {
  std::uint64_t number = 0;  // in the system
  std::string name;
  std::vector<Slice> slices;        // by their beginnings
  std::vector<CoreTime> core_time;  // in order
};

struct Message {  // as its receiver has noted it
  std::int64_t at = 0;
  std::int64_t posted = 0;  // 0: its sender's record is not there
  std::size_t thread = 0;   // that noted it
  std::size_t sender_thread = 0;
  std::uint32_t rank = 0;
  std::uint8_t peer = 0;
  std::uint8_t worker = 0;
  bool word = false;    // about messages, such as credit
  bool active = false;  // of a handler, or a request or its answer
};

struct Match {
  std::int64_t at = 0;
  std::int64_t received = 0;  // when the receive was posted; 0: that record is not there
  std::size_t thread = 0;
  std::size_t receiver = 0;        // the thread that posted the receive
  std::optional<Message> message;  // that brought it; absent where it lay there before
  std::uint64_t left = 0;          // bytes that no get was posted for
  std::uint32_t rank = 0;
  std::uint8_t worker = 0;
};

struct KeptCopy {
  std::int64_t at = 0;
  std::int64_t copy_ns = 0;
  std::uint64_t bytes = 0;
  std::uint32_t rank = 0;
};

struct EndedOperation : TimeSpan {
  std::uint32_t rank = 0;
  std::uint8_t peer = 0;
  std::uint8_t worker = 0;
  std::uint8_t opcode = tap::kTraceMessage;
  std::uint64_t bytes = 0;
  bool of_message = false;  // it moves the data of a long message
};

struct CollectiveEntry {  // of a member of a collective
  std::int64_t at = 0;
  std::size_t rank = 0;
  std::size_t thread = 0;
};

struct EndedCollective {
  std::int64_t at = 0;
  std::uint64_t team = 0;
  std::uint64_t number = 0;
};

struct Rank {
  std::uint32_t number = 0;
  std::string machine;
  TimeSpan seen;
  std::uint64_t lost = 0;  // records that had no room
  std::vector<ThreadStory> threads;
  std::vector<Message> messages;  // these by their moments
  std::vector<Match> matches;
  std::vector<KeptCopy> kept;
  // The times when nobody looked for arrivals, by worker, in order.
  std::map<std::uint8_t, std::vector<TimeSpan>> away;
  std::vector<EndedCollective> ended_collectives;
  std::vector<EndedOperation> operations;  // those that have ended, by their ends
};

struct Story {
  std::uint32_t size = 0;  // of the job
  // later contexts of ranks that have several: their messages have the same numbers
  std::size_t left_out = 0;
  std::vector<Rank> ranks;
  std::vector<WaitStory> waits;
  // by team, number
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<CollectiveEntry>> entries;
  // how many there are
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> members;
  // calls of interfaces that may have written a word of another rank
  std::vector<CollectiveEntry> writes;
  // The rank of this number. Null: it has left no file.
  [[nodiscard]] const Rank* of(std::uint32_t number) const;
};

// ARGUMENT: a file cannot be read.
base::Result<Story> tell(const std::vector<trace::Process>& processes);

// The innermost slice around a moment; null: the thread is outside the library.
const Slice* slice_at(const ThreadStory& thread, std::int64_t at);
// How long the thread had no core within a span; between two accounts of its kernel, evenly.
std::int64_t without_core(const ThreadStory& thread, const TimeSpan& span);

}  // namespace heddle::observe::explain
