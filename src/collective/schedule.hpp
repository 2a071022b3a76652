// What one rank does in one collective operation: commands in session queues, and the arrivals that
// release each of them.
//
// An algorithm is a pure function from a Request to a Schedule. It knows no memory, no network and
// no time, so that it can be proved (check.hpp) at any size, printed and drawn (print.hpp), and run
// by every transport (session_queue.hpp).
//
// The model is the session mode of Tofu2 [Morie et al., Prototyping of Offloaded Persistent
// Broadcast on Tofu2], somewhat widened:
//  * A rank has counters, which only grow. A put adds credits to a counter of its target when its
//    bytes are stored there, a local command to one of its own rank when it is done.
//  * Commands stand in queues. A queue executes its commands in order and never passes one that
//    still waits; a command waits for at most two counters. Queues do not wait for each other
//    except by counters.
//  * Puts of one queue to one target are stored in order, their credits too.
//  * A schedule is run again and again (a persistent operation). Counts belong to one run: the k-th
//    run starts where the credits of k runs end. Credits that come early, from a peer that is a run
//    ahead, are kept. A counter may have credits at first: so many runs a peer may be ahead.
//  * A run is complete at a rank when all its commands are executed; who expects data has a command
//    that waits for it. Between two runs the caller may do what it likes with the buffers `send`
//    and `receive`; `scratch` is the schedule's.
//
// A schedule whose every queue has one counter, the i-th command of which waits for i + 1 credits
// there (or for nothing, in a queue without a counter), fits the hardware's session queues: one
// descriptor, one credit. runs_on_session_queues().
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace heddle::collective {

using Rank = std::uint32_t;

enum class Place : std::uint8_t {
  send,     // what the caller gives
  receive,  // what the caller gets; a broadcast has only this one
  scratch,  // the schedule's own; keeps its contents from run to run
  // the schedule's own too: kBesideBytes in the line of each counter, so that few bytes come with
  // their credit
  beside
};
inline constexpr std::size_t kPlaces = 4;
inline constexpr std::uint64_t kBesideBytes = 48;

// Bytes of one rank. Empty: bytes == 0, the rest is then without meaning.
struct Block {
  Place place = Place::receive;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The place beside a counter; bytes <= kBesideBytes. Who puts there gives to that counter.
constexpr Block beside(std::uint32_t counter, std::uint64_t bytes) {
  return {Place::beside, counter * kBesideBytes, bytes};
}

struct Wait {
  std::uint32_t counter = 0;
  std::uint32_t count = 0;  // credits of this run; 0: nothing is waited for
};

enum class Action : std::uint8_t {
  nop,     // waits; may give credits
  put,     // source of this rank to destination of `target`; no bytes: credits only
  get,     // source of `target` to destination of this rank; where ranks map each other's memory
  copy,    // source to destination, both of this rank
  reduce,  // destination = destination op source, both of this rank
  // a block of receive (source and destination) is from here on where others get it; a copy, if
  // that is elsewhere
  expose
};

struct Command {
  Action action = Action::nop;
  std::uint32_t queue = 0;
  std::array<Wait, 2> waits;
  Rank target = 0;  // put; may be this rank. get: another
  Block source;
  Block destination;          // as many bytes as source
  std::uint32_t counter = 0;  // put: of the target, else of this rank
  std::uint32_t credits = 0;  // 0: none
  // other ranks than this one give to that counter too: it takes an atomic addition, not a store
  bool shares = false;
};

struct Counter {
  std::uint32_t initial = 0;  // credits before the first run
  std::uint32_t per_run = 0;  // credits that come, and are used up, in every run
};

// The links of a rank in a torus: 2 * axis upwards, 2 * axis + 1 downwards.
inline constexpr std::uint32_t kLinks = 6;
inline constexpr std::uint32_t kAnyLink = ~std::uint32_t{0};

struct Schedule {
  Rank rank = 0;
  Rank ranks = 1;
  std::uint32_t queues = 0;
  std::vector<Counter> counters;
  std::uint64_t scratch_bytes = 0;
  std::vector<Command> commands;  // those of one queue in its order
  // By queue, as far as there are any: the link by which all bytes leave that its commands put to
  // other ranks, and those of no other queue with a link. Whoever can give queues their own engines
  // learns from it which ones are worth it; others need not care.
  std::vector<std::uint32_t> links;

  [[nodiscard]] std::uint32_t link_of(std::uint32_t queue) const {
    return queue < links.size() ? links[queue] : kAnyLink;
  }
};

enum class Operation : std::uint8_t {
  barrier,         // no bytes
  broadcast,       // `bytes` in receive of the root to receive of all
  reduce,          // `bytes` of send of all, combined, in receive of the root
  allreduce,       // … in receive of all
  gather,          // `bytes` of send of each, in the order of ranks in receive of the root
  allgather,       // … in receive of all
  scatter,         // block i of `bytes` in send of the root, in receive of rank i
  alltoall,        // block j of `bytes` in send of rank i is block i in receive of rank j
  reduce_scatter,  // block i of `bytes` of send of all, combined, in receive of rank i
  scan,            // `bytes` of send of the ranks up to and with i, combined, in receive of rank i
  // Blocks as the ranks list them (Exchange); only their lists tell these apart.
  allgatherv,          // one block of each rank to all
  alltoallv,           // a block of each rank to each
  gatherv,             // one block of each rank to the root
  scatterv,            // a block of the root to each rank
  neighbor_alltoallv,  // blocks to the ranks that each one names, from those that it names
  kCount
};
const char* name_of(Operation operation);
bool lists_blocks(Operation operation);

// One block that a rank gives to another, or takes from it, where ranks list their blocks. The k-th
// that a rank gives to another is the k-th that the other takes from it, of the same length.
struct Message {
  Rank peer = 0;
  std::uint64_t bytes = 0;
  std::uint64_t here = 0;  // given: of send; taken: of receive
  // given: of the peer's receive, or of its scratch if it keeps; taken and kept: of this rank's
  // scratch
  std::uint64_t there = 0;
  // given: the peer's number among those that this rank gives to; taken: this rank's among the
  // peer's
  std::uint32_t slot = 0;
  bool kept = false;  // given: the peer keeps
};

// What one rank gives and takes; made by lay_out() and what the peers tell (exchange.hpp).
struct Exchange {
  std::vector<Message> given;  // by peer; those of one peer as they were listed
  std::vector<Message> taken;  // likewise
  // what comes is put into scratch, and copied from there: nobody waits for this rank to begin
  bool kept = false;
};

// What is asked of an algorithm. All ranks ask alike but for `rank`.
struct Request {
  Operation operation = Operation::broadcast;
  Rank rank = 0;
  Rank ranks = 1;
  Rank root = 0;
  std::uint64_t bytes = 0;          // see Operation
  std::uint64_t element_bytes = 1;  // reductions: vectors are cut between elements
  std::uint64_t segment_bytes = 0;  // pipelines: most bytes of one put; 0: all at once
  // algorithms for a torus: ranks along x, y, z (x varies fastest); their product is `ranks`
  std::array<Rank, 3> shape{0, 0, 0};
  bool reachable = true;  // others get from this rank's receive as it is; this rank's own matter
  // Session queues: one for each link by which this rank sends, where an algorithm knows links;
  // this rank's own matter.
  bool spread = true;
  // Where ranks list their blocks: the lists of `rank` alone, or those of all ranks, for proofs.
  // None: each block has `bytes`, and they stand one after the other.
  std::span<const Exchange> exchanges{};
};

// Bytes of the buffers that an operation uses at a rank.
std::uint64_t send_bytes(const Request& request, Rank rank);
std::uint64_t receive_bytes(const Request& request, Rank rank);

// True: fits the hardware's session queues (see above); else why not.
struct SessionFit {
  bool fits = true;
  std::string reason;
};
SessionFit runs_on_session_queues(const Schedule& schedule);

// For algorithms: builds a schedule command by command. Counters and queues are made by their
// number, in any order.
class Builder {
 public:
  explicit Builder(const Request& request) {
    schedule_.rank = request.rank;
    schedule_.ranks = request.ranks;
  }

  Builder& counter(std::uint32_t number, std::uint32_t per_run, std::uint32_t initial = 0);
  // What the queue puts to other ranks leaves by this link.
  Builder& link(std::uint32_t queue, std::uint32_t number);
  // A place of the schedule's own; returns where it begins.
  std::uint64_t scratch(std::uint64_t bytes);

  // The command is the last of its queue so far; the reference is good until the next one.
  Command& put(std::uint32_t queue, Block source, Rank target, Block destination);
  Command& get(std::uint32_t queue, Rank target, Block source, Block destination);
  Command& signal(std::uint32_t queue, Rank target, std::uint32_t counter, std::uint32_t credits = 1);
  Command& signal_shared(std::uint32_t queue, Rank target, std::uint32_t counter, std::uint32_t credits = 1);
  Command& copy(std::uint32_t queue, Block source, Block destination);
  Command& reduce(std::uint32_t queue, Block source, Block destination);
  Command& expose(std::uint32_t queue, Block block);
  Command& nop(std::uint32_t queue);

  [[nodiscard]] Schedule take() { return std::move(schedule_); }

 private:
  Command& add(std::uint32_t queue, Action action);
  Schedule schedule_;
};

// Readable, at the end of a Builder's line: wait(command, counter, count), give(command, counter,
// credits).
Command& wait(Command& command, std::uint32_t counter, std::uint32_t count);
Command& give(Command& command, std::uint32_t counter, std::uint32_t credits = 1);
// The same, to a counter that other ranks give to as well.
Command& give_shared(Command& command, std::uint32_t counter, std::uint32_t credits = 1);

}  // namespace heddle::collective
