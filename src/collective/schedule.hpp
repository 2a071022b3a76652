// What one rank does in one collective operation: commands in session queues, and the arrivals that
// release each command.
//
// An algorithm is a pure function from a Request to a Schedule. It knows no memory, no network and
// no time. So a schedule can be proved (check.hpp) at any size, printed and drawn (below), and
// run on every transport (session_queue.hpp).
//
// The model is the session mode of Tofu2 [Morie et al., Prototyping of Offloaded Persistent
// Broadcast on Tofu2], slightly extended:
//  * A rank has counters, which only grow. A put adds credits to a counter of its target when its
//    bytes are stored there. A local command adds credits to a counter of its own rank when it is
//    done.
//  * Commands are in queues. A queue executes its commands in order and never passes one that still
//    waits; a command waits for at most two counters. Queues wait for each other only through
//    counters.
//  * Puts of one queue to one target are stored in order, and so are their credits.
//  * A schedule is run many times (a persistent operation). Counts are per run: run k + 1 starts
//    from the credits of k runs. Credits that arrive early, from a peer that is a run ahead, are
//    kept. A counter may have initial credits: they say how many runs a peer may be ahead.
//  * A run is complete at a rank when all its commands are executed; a rank that expects data has a
//    command that waits for it. Between two runs the caller may do what it likes with the buffers
//    `send` and `receive`; `scratch` belongs to the schedule.
//
// A schedule fits the hardware's session queues (one descriptor, one credit) if every queue has one
// counter, and its i-th command waits for i + 1 credits there (or for nothing, in a queue without a
// counter). See runs_on_session_queues().
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
  scratch,  // belongs to the schedule; keeps its contents from run to run
  // belongs to the schedule, too: kBesideBytes in the cache line of each counter, so that few bytes
  // arrive together with their credit
  beside
};
inline constexpr std::size_t kPlaces = 4;
inline constexpr std::uint64_t kBesideBytes = 48;

// Bytes of one rank. Empty: bytes == 0; the other fields then mean nothing.
struct Block {
  Place place = Place::receive;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The place beside a counter; bytes <= kBesideBytes. A put there must give to that counter.
constexpr Block beside(std::uint32_t counter, std::uint64_t bytes) {
  return {Place::beside, counter * kBesideBytes, bytes};
}

struct CreditWait {
  std::uint32_t counter = 0;
  std::uint32_t count = 0;  // credits of this run; 0: does not wait
};

enum class Action : std::uint8_t {
  nop,     // waits; may give credits
  put,     // source of this rank to destination of `target`; no bytes: credits only
  get,     // source of `target` to destination of this rank; only if ranks map each other's memory
  copy,    // source to destination, both of this rank
  reduce,  // destination = destination op source, both of this rank
  // from here on others can get a block of receive (source and destination are that block); copies
  // it if they get it from other memory
  expose
};

struct ScheduleCommand {
  Action action = Action::nop;
  std::uint32_t queue = 0;
  std::array<CreditWait, 2> waits;
  Rank target = 0;  // put: may be this rank. get: another rank
  Block source;
  Block destination;          // same number of bytes as source
  std::uint32_t counter = 0;  // put: of the target; otherwise of this rank
  std::uint32_t credits = 0;  // 0: none
  // other ranks give to that counter, too: needs an atomic addition, not a store
  bool shares = false;
};

struct ScheduleCounter {
  std::uint32_t initial = 0;  // credits before the first run
  std::uint32_t per_run = 0;  // credits that arrive, and are used up, in every run
};

// The links of a rank in a torus: 2 * axis upwards, 2 * axis + 1 downwards.
inline constexpr std::uint32_t kLinks = 6;
inline constexpr std::uint32_t kAnyLink = ~std::uint32_t{0};

struct Schedule {
  Rank rank = 0;
  Rank ranks = 1;
  std::uint32_t queues = 0;
  std::vector<ScheduleCounter> counters;
  std::uint64_t scratch_bytes = 0;
  std::vector<ScheduleCommand> commands;  // those of one queue in its order
  // By queue, may be shorter: the link by which the queue's commands put to other ranks. No other
  // queue with a link uses that link. A runner that can give queues their own engines uses this;
  // others may ignore it.
  std::vector<std::uint32_t> links;

  [[nodiscard]] std::uint32_t link_of(std::uint32_t queue) const {
    return queue < links.size() ? links[queue] : kAnyLink;
  }
};

enum class Operation : std::uint8_t {
  barrier,         // no bytes
  broadcast,       // `bytes` from receive of the root to receive of all
  reduce,          // `bytes` of send of all, combined, to receive of the root
  allreduce,       // … to receive of all
  gather,          // `bytes` of send of each, in the order of ranks, to receive of the root
  allgather,       // … to receive of all
  scatter,         // block i of `bytes` in send of the root to receive of rank i
  alltoall,        // block j of `bytes` in send of rank i is block i in receive of rank j
  reduce_scatter,  // block i of `bytes` of send of all, combined, to receive of rank i
  scan,            // `bytes` of send of ranks 0 to i, combined, to receive of rank i
  // Blocks as the ranks list them (Exchange); these operations differ only in their lists.
  allgatherv,          // one block of each rank to all
  alltoallv,           // a block of each rank to each
  gatherv,             // one block of each rank to the root
  scatterv,            // a block of the root to each rank
  neighbor_alltoallv,  // blocks to the ranks that each rank names, from the ranks that it names
  kCount
};
const char* name_of(Operation operation);
bool lists_blocks(Operation operation);
// A root is named in the call, and the blocks are not listed.
bool has_root(Operation operation);

// One block that a rank gives to another or takes from it, where ranks list their blocks. The k-th
// block that a rank gives to a peer is the k-th that the peer takes from it, and has the same
// length.
struct ListedBlock {
  Rank peer = 0;
  std::uint64_t bytes = 0;
  std::uint64_t here = 0;  // given: offset in send; taken: offset in receive
  // given: offset in the peer's receive, or in its scratch if it keeps; taken and kept: offset in
  // this rank's scratch
  std::uint64_t there = 0;
  // given: the peer's number among those that this rank gives to; taken: this rank's number among
  // those that the peer gives to
  std::uint32_t slot = 0;
  bool kept = false;  // given: the peer keeps
};

// The blocks that one rank gives and takes; made by lay_out() and from the peers' records
// (lay_out()).
struct Exchange {
  // by peer; blocks of one peer in the order in which they were listed
  std::vector<ListedBlock> given;
  std::vector<ListedBlock> taken;  // likewise
  // blocks arrive in scratch and are copied from there: no peer waits until this rank begins
  bool kept = false;
};

// The request to an algorithm. The same at all ranks except where noted.
struct AlgorithmRequest {
  Operation operation = Operation::broadcast;
  Rank rank = 0;
  Rank ranks = 1;
  Rank root = 0;
  std::uint64_t bytes = 0;          // see Operation
  std::uint64_t element_bytes = 1;  // reductions: vectors are cut only between elements
  std::uint64_t segment_bytes = 0;  // pipelines: maximum of one put; 0: everything at once
  // algorithms for a torus: ranks along x, y, z (x varies fastest); their product is `ranks`
  std::array<Rank, 3> shape{0, 0, 0};
  bool reachable = true;  // others get from this rank's receive directly; ranks may differ in it
  // Session queues: one per link by which this rank sends, in algorithms that know links; ranks may
  // differ in it.
  bool spread = true;
  // If ranks list their blocks: the lists of `rank` only, or, for proofs, those of all ranks.
  // Empty: each block has `bytes`, and the blocks are contiguous.
  std::span<const Exchange> exchanges{};
};

// Bytes of the buffers that an operation uses at a rank.
std::uint64_t send_bytes(const AlgorithmRequest& request, Rank rank);
std::uint64_t receive_bytes(const AlgorithmRequest& request, Rank rank);

// Whether the schedule fits the hardware's session queues (see above), and if not, why.
struct SessionFit {
  bool fits = true;
  std::string reason;
};
SessionFit runs_on_session_queues(const Schedule& schedule);

// For algorithms: builds a schedule command by command. Counters and queues are created by number,
// in any order.
class Builder {
 public:
  explicit Builder(const AlgorithmRequest& request) {
    schedule_.rank = request.rank;
    schedule_.ranks = request.ranks;
  }

  Builder& counter(std::uint32_t number, std::uint32_t per_run, std::uint32_t initial = 0);
  // The queue's puts to other ranks leave by this link.
  Builder& link(std::uint32_t queue, std::uint32_t number);
  // Reserves scratch; returns its offset.
  std::uint64_t scratch(std::uint64_t bytes);

  // Adds the command at the end of its queue. The reference is valid until the next command is
  // added.
  ScheduleCommand& put(std::uint32_t queue, Block source, Rank target, Block destination);
  ScheduleCommand& get(std::uint32_t queue, Rank target, Block source, Block destination);
  ScheduleCommand& signal(std::uint32_t queue, Rank target, std::uint32_t counter, std::uint32_t credits = 1);
  ScheduleCommand& signal_shared(std::uint32_t queue, Rank target, std::uint32_t counter, std::uint32_t credits = 1);
  ScheduleCommand& copy(std::uint32_t queue, Block source, Block destination);
  ScheduleCommand& reduce(std::uint32_t queue, Block source, Block destination);
  ScheduleCommand& expose(std::uint32_t queue, Block block);
  ScheduleCommand& nop(std::uint32_t queue);

  [[nodiscard]] Schedule take() { return std::move(schedule_); }

 private:
  ScheduleCommand& add(std::uint32_t queue, Action action);
  Schedule schedule_;
};

// For use after a Builder's call: wait(command, counter, count), give(command, counter, credits).
ScheduleCommand& wait(ScheduleCommand& command, std::uint32_t counter, std::uint32_t count);
ScheduleCommand& give(ScheduleCommand& command, std::uint32_t counter, std::uint32_t credits = 1);
// The same, for a counter that other ranks give to as well.
ScheduleCommand& give_shared(ScheduleCommand& command, std::uint32_t counter, std::uint32_t credits = 1);

// Lists of blocks: what a rank gives to others and takes from them, and what two ranks must know of
// each other's lists.
//
// A rank that keeps has everything that arrives put into its scratch. Otherwise peers put into its
// receive once it has begun. A rank's blocks for itself are copied, whether it keeps or not. Blocks
// of no bytes are only compared, nothing else.

// The lists of a rank, see Request::exchanges. If the request has none: equal blocks, and `kept`
// for all ranks.
Exchange exchange_of(const AlgorithmRequest& request, Rank rank, bool kept = false);

// Where the last of these blocks ends in its buffer.
std::uint64_t extent(std::span<const ListedBlock> messages);

// Sorts the lists, and decides everything that needs no peer: the slots of the ranks that this rank
// gives to, and where in scratch blocks are kept. Peers are told `here` of each block that this
// rank takes, or `there` if it keeps the block.
void lay_out(Rank rank, Exchange* exchange);

// The blocks with one peer; the lists must be sorted.
std::span<ListedBlock> of_peer(std::vector<ListedBlock>& messages, Rank peer);
std::span<const ListedBlock> of_peer(const std::vector<ListedBlock>& messages, Rank peer);

// Bytes of scratch for the blocks that are kept.
std::uint64_t kept_bytes(Rank rank, const Exchange& exchange);

// Tells the lists of all ranks, laid out, about each other; for proofs, where no messages are sent.
void acquaint(std::span<Exchange> all);

// Schedules as text for people.

// One line per command, by queue: what it waits for, what it does, which credits it gives.
std::string text_of(const Schedule& schedule);

// A graph for Graphviz: how many bytes each rank puts to each other rank. Edges with signals only
// are dashed.
std::string dot_of(const std::string& title, const std::vector<Schedule>& schedules);

}  // namespace heddle::collective
