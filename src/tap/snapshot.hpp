// The report of one rank about itself when its job seems to hang: which threads wait, and for what;
// which operations its workers have under way. Plain values, which travel as bytes from the rank to
// the process that makes the verdict (diagnosis/verdict.hpp).
//
// A rank tells what it knows without waiting: a worker that no thread advances may be missing, or
// only its numbers may be known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace heddle::tap {

inline constexpr std::uint32_t kNobody = ~std::uint32_t{0};

// Why something is not finished, and so which event has to happen.
enum class Cause : std::uint8_t {
  unknown,     // only the text says it
  answer,      // a put, get, atomic or message: `rank` has to make progress on `worker`
  room,        // not accepted: `rank` has to make progress on `worker`
  receive,     // a receive: `rank` (kNobody: anybody) has to send a message with the tag
  unreceived,  // a message to `rank`, which has to receive it
  credit,      // a message is not accepted: `rank` has to receive those before it
  tasks,       // a message of class USER: `rank` has to run its tasks
  collective,  // `rank` has not come to it; the wait's Step says to what
  word,        // somebody has to write a word of this rank's memory
  lock,        // `rank` holds it
  partition,   // a partitioned message: `rank` has to do its part
  own          // this rank itself has to do something (its other threads)
};
inline constexpr Cause kLastCause = Cause::own;

// One thing that is not finished.
struct Awaited {
  Cause cause = Cause::unknown;
  std::uint32_t rank = kNobody;    // who has to act; kNobody: any rank, or unknown
  std::uint32_t worker = kNobody;  // of that rank; kNobody: any, or none
  // lock: its key; the holder has it among Snapshot::held. word: a number that is the same at all
  // ranks for the same place of a symmetric memory; 0: it has none
  std::uint64_t bytes = 0;
  std::string what;  // "get", "receive", "tagged message", …
  std::string tag;   // of messages: as the program words it; empty: none
  bool operator==(const Awaited&) const = default;
};

// A collective call: members make the same ones in the same order.
struct Step {
  // The same number at all members; 0: all ranks of the job. The upper 32 bits: the number of a
  // persistent operation, whose runs are counted separately.
  std::uint64_t team = 0;
  std::uint64_t number = 0;  // of the call there, from 1
  std::uint32_t size = 0;    // members
  std::string team_name;     // "the team of ranks 0-3"; "MPI_COMM_WORLD"
  std::string operation;     // "barrier"
  bool operator==(const Step&) const = default;
};

// A thread that waits.
struct Wait {
  std::string call;     // "heddle_recv_wait", "MPI_Recv"
  std::string awaited;  // a clause for people: "tag 7 from rank 0"; may be empty
  std::uint64_t waited_ns = 0;
  std::uint32_t thread = 0;        // the kernel's number
  std::uint32_t worker = kNobody;  // on which; kNobody: on none, or on several
  // The things that the call itself waits for. Empty: the call does not say; then it waits for some
  // of what its worker has under way, if it has a worker.
  std::vector<Awaited> things;
  std::optional<Step> step;  // of a collective
  bool operator==(const Wait&) const = default;
};

// The text for a wait in an exchange of all ranks. A rank whose exchange goes by way of the
// launcher knows no more; the launcher knows which ranks are missing, and adds them.
inline constexpr const char* kNotAllArrived = "not all ranks have arrived";

// Messages of one sender and tag that have arrived and that no receive has matched.
struct Kept {
  std::uint32_t rank = 0;
  std::uint32_t worker = 0;
  std::uint64_t messages = 0;
  std::string tag;
  bool operator==(const Kept&) const = default;
};

// Messages that have been sent, and that wait until `rank` opens that worker.
struct Unopened {
  std::uint32_t rank = 0;
  std::uint32_t worker = 0;
  std::uint64_t messages = 0;
  bool operator==(const Unopened&) const = default;
};

struct WorkerState {
  std::uint32_t index = 0;
  // True: the other members are known. False: no thread has come by the worker.
  bool seen = false;
  // A thread is inside and does not leave: in a handler, a callback, a call that the engine runs.
  bool held = false;
  std::uint64_t tasks = 0;  // USER messages that wait for heddle_run_tasks
  std::vector<Awaited> under_way;
  std::vector<Kept> kept;
  bool runs_task = false;  // a handler of class USER has been called and has not returned
  bool untaken = false;    // messages have come that no progress has taken
  bool internal = false;   // of the library itself, for collective calls
  // The handler number of the last active message that was dropped because it had no handler.
  // kNobody: there was none.
  std::uint32_t unhandled = kNobody;
  std::vector<Unopened> unopened{};
  bool operator==(const WorkerState&) const = default;
};

struct Passed {
  std::uint64_t team = 0;
  std::uint64_t number = 0;
  bool operator==(const Passed&) const = default;
};

struct Snapshot {
  std::vector<Wait> waits;
  std::vector<WorkerState> workers;
  std::vector<Step> steps;          // nonblocking collectives that are under way
  std::vector<Passed> passed;       // teams, and the last call there that has ended
  std::vector<std::uint64_t> held;  // keys of locks
  std::vector<std::string> lines;   // all of it in words, for people
  bool operator==(const Snapshot&) const = default;
};

// Code that fills a list cuts it to this length, and decode() rejects longer ones. encode() cuts
// texts to kMostText characters.
inline constexpr std::size_t kMostListed = 64;
inline constexpr std::size_t kMostText = 400;
// The size limit of an encoded snapshot: room for lists of that length, with each element as long
// as it may be.
inline constexpr std::size_t kMostBytes = std::size_t{8} << 20;

// At most kMostBytes: the lines are dropped if it would be longer, then all but the waits.
[[nodiscard]] std::vector<std::byte> encode(const Snapshot& snapshot);
// PROTOCOL: not such bytes. Control characters in texts become spaces: they go to a terminal.
[[nodiscard]] base::Result<Snapshot> decode(std::span<const std::byte> bytes);

// "0-3, 5": for texts. At most a dozen parts, then "and N more".
[[nodiscard]] std::string list_of(const std::vector<std::uint32_t>& ranks);

// A rank's sign of life: numbers that change when something happens.
struct Pulse {
  std::uint64_t moves = 0;       // operations posted and ended, messages that have arrived
  std::uint64_t calls = 0;       // of the library by threads of the program
  std::uint64_t waiting_ns = 0;  // of the thread that has waited longest, in vain; 0: none waits
  // The same for the thread that has waited longest for a lock. It waits by operations of its own,
  // so moves mean nothing then.
  std::uint64_t for_lock_ns = 0;
  bool operator==(const Pulse&) const = default;
};

}  // namespace heddle::tap
