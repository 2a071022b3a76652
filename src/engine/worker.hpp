// One queue of communication: requester and completer of the operations posted on it, and the gate through which threads come
// to them.
//
// Direct operations are done by the inline functions of api/ without coming here. Everything else becomes an Operation: the
// requester (requester.cpp) cuts it into commands and hands them to the transport; the completer (completer.cpp) turns the
// transport's completions into finished operations, handlers and answers. Both are for one thread at a time: the only one that
// uses an exclusive worker, or the one that the gate (gate.hpp) of the other sharing modes has let in.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "engine/am_rendezvous.hpp"
#include "engine/context.hpp"
#include "engine/hang_report.hpp"
#include "engine/operation.hpp"
#include "engine/sharing.hpp"
#include "engine/tagged.hpp"
#include "engine/tasks.hpp"
#include "protocol/aggregator.hpp"
#include "protocol/reassembly.hpp"
#include "protocol/responder.hpp"
#include "protocol/user_credits.hpp"

namespace heddle::engine {

class Gate;

class Worker {
 public:
  static constexpr HandleType kType = HandleType::worker;
  struct Traits {
    Sharing sharing = Sharing::exclusive;
    bool helped = false;
    bool aggregates = false;
  };
  static base::Result<std::unique_ptr<Worker>> open(Context& context, std::uint32_t index, const Traits& traits);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] Context& context() { return context_; }
  [[nodiscard]] const Context& context() const { return context_; }
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t max_workers() const { return max_workers_; }
  [[nodiscard]] std::uint64_t max_payload() const { return max_payload_; }
  [[nodiscard]] Sharing sharing() const { return sharing_; }
  // Null: exclusive and not helped.
  [[nodiscard]] Gate* gate() { return gate_.get(); }

  // Counts what was posted. What is not a command is direct, so that the direct path has one number less to keep.
  void count(std::uint64_t Tally::* field, std::uint64_t amount = 1) {
    if (tallies_ == nullptr) [[likely]] {
      tally_.*field += amount;
    } else {
      tallies_->add(field, amount);
    }
  }
  // One more operation of `bytes` bytes.
  void count_operation(std::uint64_t Tally::* field, std::uint64_t bytes) {
    if (tallies_ == nullptr) [[likely]] {
      tally_.*field += 1;
      tally_.bytes += bytes;
    } else {
      tallies_->add_operation(field, bytes);
    }
  }
  // One that was not direct.
  void count_command(std::uint64_t Tally::* field, std::uint64_t bytes) {
    if (tallies_ == nullptr) {
      tally_.commands += 1;
      tally_.*field += 1;
      tally_.bytes += bytes;
    } else {
      tallies_->add_command(field, bytes);
    }
  }
  [[nodiscard]] heddle_worker_stats read_stats();
  // What its operations may still touch. Any thread.
  [[nodiscard]] bool names_remote(const RemoteRegion* remote) const;
  [[nodiscard]] bool names_counter(const Counter* counter) const;

  // When the context knows the worker, whose handlers may be told its handle: starts the executor, if it has one, which may
  // then run them at once. Throws std::system_error if there can be no more threads.
  void begin();
  // Before the context forgets it, since what operations name stays while a worker names it: no executor any more; all
  // that is queued or in flight ends with CANCELLED. Nobody else uses the worker.
  void end();

  // ---- any thread that the sharing mode permits ------------------------------------------------------------------------
  // Number of events, 0 if another thread is inside, or ERR_STATE from inside a handler.
  int progress();
  // DONE, AGAIN, or the first unreported error (which is then reported).
  base::Status try_flush(std::uint32_t rank);
  base::Status try_quiet();
  // DONE: nothing is under way. Errors are left to flush and quiet.
  base::Status try_drain();
  // Progress until attempt() says something else than AGAIN. STATE if it says AGAIN inside a handler. For describe(), see
  // Watch::round().
  template <class Attempt, class Describe>
  base::Status until(const Wait& wait, Attempt&& attempt, Describe&& describe);
  template <class Attempt>
  base::Status until(const Wait& wait, Attempt&& attempt) {
    return until(wait, std::forward<Attempt>(attempt), kNothingMore);
  }
  // heddle_worker_wait; `handle` is this worker's.
  base::Status wait_moved(std::uint64_t handle, std::int64_t timeout_ns);
  // Changes whenever something has moved, by whatever thread: after what handlers and callbacks did, which is then seen.
  [[nodiscard]] std::uint64_t moved() const { return moved_.load(std::memory_order_acquire) + tasks_.ran(); }
  // DONE: no answer to a peer waits here for room.
  base::Status try_answer();
  // Operations that have not ended, and records of commands in the queue of its sharing mode.
  std::uint64_t unfinished_operations();
  // Calls of heddle_run_on_engine may run on this thread, which is inside: offload: the executor.
  [[nodiscard]] bool may_call() const;
  // heddle_run_tasks; `handle` is this worker's.
  int run_tasks(heddle_worker handle, std::uint32_t most, std::int64_t timeout_ns);
  // Credit for a message of class USER: DONE; AGAIN: its target must handle some first.
  base::Status take_credit(heddle_peer target, const heddle_am_message& message);
  // Any thread, before it sends a long message, tagged or active, whose source is lent: a share of the operations. Such a message ends
  // when its receiver has found an operation of its own to fetch it with. So these leave a quarter free: two workers that offer to
  // each other as much as they can would wait for ever. Taken by the caller, since a queued command that waited for it would hold up
  // those behind it, such as receives that peers wait for. The end of the operation gives it back, or who was refused.
  [[nodiscard]] bool take_offer() {
    // Whoever is refused for another's that fails tries again.
    if (offers_.fetch_add(1, std::memory_order_relaxed) < operations_.all().size() * 3 / 4) return true;
    give_offer_back();
    return false;
  }
  void give_offer_back() { offers_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] bool is_offered(std::uint64_t payload_bytes) const { return payload_bytes > am_rendezvous_.eager(); }
  // Of a message of class USER that did not leave.
  void give_credit_back(heddle_peer target, std::uint32_t header_bytes, std::uint64_t payload_bytes) {
    credits_.give_back(target, charge(header_bytes, payload_bytes));
  }
  // What was reserved for a message that did not leave.
  void give_back(heddle_peer target, const LongMessage& message);
  void give_back(const transport::Command& command);
  [[nodiscard]] std::uint64_t credit_used(heddle_peer target) const { return credits_.used(target); }
  // For Context::nap(): arms the worker, so that arrivals ring.
  enum class Rest : std::uint8_t {
    whole,  // what arrives rings, or another thread sees to it
    brief,  // nobody could look: something may be there
    none    // there is something for progress already
  };
  [[nodiscard]] Rest lie_down();
  // The lines of a report about what is under way.
  void report_operations();

  // ==== what follows is for the thread inside: the one thread of an exclusive worker, or who passed the gate ============

  // ---- requester. Arguments are checked; direct operations have been done. DONE, POSTED, AGAIN or an error. --------------
  // One command: a put, a get, or a message that fits one of the transport's. It takes an operation
  // only if somebody is to be told of its end.
  base::Status post(transport::Command& command, const Completion& completion) {
    if (completion.observed() || command.opcode != transport::Opcode::message) [[unlikely]] {
      return post_with_care(command, completion);
    }
    if (wire::kind_of(command.immediate) == wire::Kind::tagged) {
      return post_tagged(command, [&] { return post_untold(command, false); });
    }
    return post_untold(command, false);
  }
  // Several, of which nobody is to be told; puts and gets are whole(). How many were posted, from the
  // front; for the next one post() tells why it was not.
  std::size_t post(std::span<transport::Command> commands);
  // Makes the command of a put or get; false: it needs more than one, or none. Any thread.
  [[nodiscard]] bool whole(const Block& block, transport::Command* command) const {
    const RemoteRegion& remote = *block.remote;
    const auto opcode = block.kind == Kind::put ? transport::Opcode::put : transport::Opcode::get;
    if ((remote.memory.opcodes & transport::bit(opcode)) == 0 || block.bytes > capabilities_.max_transfer ||
        remote.direct_range(block.offset, block.bytes)) {
      return false;
    }
    command->opcode = opcode;
    command->rank = remote.rank;
    command->worker = remote.server;
    command->local = block.local;
    command->bytes = block.bytes;
    command->remote = &remote.memory;
    command->offset = block.offset;
    return true;
  }
  // Whether a message of these lengths fits one of the transport's. Any thread.
  [[nodiscard]] bool fits_one(std::uint32_t header_bytes, std::uint64_t payload_bytes) const {
    return wire::pad8(header_bytes) + payload_bytes <= max_message_;
  }

  // A put or get of one block, in one command if that is possible.
  base::Status try_block(const Block& block, const Completion& completion) {
    transport::Command command;
    if (whole(block, &command)) [[likely]]
      return post(command, completion);
    return try_transfer(block.kind, Pieces(block), block.remote->rank, completion);
  }
  base::Status try_transfer(Kind kind, const Pieces& pieces, std::uint32_t rank, const Completion& completion);
  base::Status try_put_signal(const Pieces& pieces, std::uint32_t rank, RemoteRegion* word, std::uint64_t word_offset,
                              const heddle_signal& signal, const Completion& completion);
  struct AtomicRequest {
    std::uint32_t op;
    RemoteRegion* remote;
    std::uint64_t offset;
    std::uint64_t operand;
    std::uint64_t compare;
    void* result;
  };
  base::Status try_atomic(const AtomicRequest& request, const Completion& completion);
  // An active message of either class that does not fit one of the transport's.
  base::Status try_long_message(heddle_peer target, const LongMessage& message, const Completion& completion);
  // A message that is not inlined is copied when it is posted, so that it may be copied into a queue before.
  [[nodiscard]] bool copies_messages() const { return capabilities_.copies_messages; }

  // A message to the extension of a peer's worker: the header (up to transport::kMaxHeaderBytes) is copied, the payload stays
  // until the completion, if that follows; together they fit every transport's message (2 x kMaxHeaderBytes).
  base::Status try_notice(heddle_peer target, std::span<const std::byte> header, std::span<const std::byte> payload,
                          const Completion& completion) {
    transport::Command command;
    command.rank = target.rank;
    command.worker = target.worker;
    command.immediate = wire::kExtension;
    command.set_message(header.data(), static_cast<std::uint32_t>(header.size()), payload.data(), payload.size());
    return post(command, completion);
  }
  // Null: there is none. Any thread.
  [[nodiscard]] WorkerExtension* extension() const { return extension_.get(); }

  // Sending from any thread needs its reserve(); the rest is for the thread inside.
  [[nodiscard]] Tagged& tagged() { return tagged_; }
  [[nodiscard]] const Tagged& tagged() const { return tagged_; }
  // Something has moved that a program may wait for: after its handlers and callbacks have run.
  void note_moved() { moved_.store(moved_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  // Tagged::advance, AmRendezvous::advance and the extension's are to be called again.
  void want_chores() {
    if (chores_.pending) return;
    chores_.pending = true;
    pending_.push_back(&chores_);
  }

  // ---- completer -----------------------------------------------------------------------------------------------------------
  // Number of events, or ERR_STATE from inside a handler.
  int progress_inside();
  // What start() told about a command that came from a queue is told to its completion.
  // `rank`: whom an error is about; kManyRanks: the owners of the pieces.
  void end_queued(base::Status status, const Completion& completion, std::uint32_t rank, const Pieces& pieces = {});

  // Something is left that only progress moves on, or that an answer is expected for.
  [[nodiscard]] bool under_way() const {
    return outstanding_total_ > 0 || !pending_.empty() || !responder_.idle() ||
           (aggregator_ != nullptr && !aggregator_->idle());
  }
  // For sleeping, see transport.hpp. False: it needs more polls, though what arrives rings.
  [[nodiscard]] bool arm_inside() { return transport_->arm() && !under_way(); }
  [[nodiscard]] bool can_ring() const { return capabilities_.sleeping != transport::Sleeping::impossible; }
  [[nodiscard]] bool has_arrivals_inside() { return transport_->has_arrivals(); }
  // Any thread.
  [[nodiscard]] bool armed() const { return transport_->armed(); }
  [[nodiscard]] std::uint64_t failure_epoch() const { return failure_epoch_.load(std::memory_order_relaxed); }

  // Everything in flight ends with `status`.
  void cancel_all(base::Status status);

 private:
  friend class Tagged;  // parts of it, in files of their own
  friend class AmRendezvous;
  Worker(Context& context, std::uint32_t index, const Traits& traits,
         std::unique_ptr<transport::TransportWorker> transport);

  // requester.cpp
  base::Status post_with_care(transport::Command& command, const Completion& completion);
  [[nodiscard]] bool needs_care(const transport::Command& command) const;
  base::Status post_told(transport::Command& command, const Completion& completion);
  template <class Post>
  base::Status post_tagged(transport::Command& command, Post&& post) {
    if (numbers_) [[unlikely]]
      tagged_.number(command);
    const base::Status status = post();
    if (status == HEDDLE_DONE || status == HEDDLE_POSTED) tagged_.count_sent({command.rank, command.worker});
    return status;
  }
  base::Status post_untold(transport::Command& command, bool memory) {
    command.token = Untold{command.rank, memory}.token();
    try {
      if (transport_->post({&command, 1}) == 0) return HEDDLE_AGAIN;
    } catch (const std::bad_alloc&) {  // the first use of a peer connects to it
      return no_memory();
    }
    if (command.done) [[likely]]
      return HEDDLE_DONE;
    note_untold({command.rank, memory});
    return HEDDLE_POSTED;
  }
  void note_untold(Untold untold) {
    ++outstanding_total_;
    ++outstanding_[untold.rank];
    if (untold.memory) operations_.marks().enter_untold();
  }
  void end_untold(Untold untold, base::Status status);
  void cancel_untold();
  [[gnu::cold]] static base::Status no_memory();
  Operation* begin(Kind kind, std::uint32_t rank, const Completion& completion);
  void finish(Operation& operation);
  Operation* begin_plain(Kind kind, std::uint32_t rank, const Completion& completion);
  void offered(Operation& operation) { operation.offered = true; }
  base::Status start(Operation* operation);
  base::Status keep(Operation* operation);
  bool advance(Operation& operation);  // posts what it can; false: nothing more could be posted now
  bool advance_pieces(Operation& operation);
  bool advance_message(Operation& operation);
  bool advance_word(Operation& operation);
  std::uint64_t post_piece(Operation& operation, const Piece& piece);
  std::uint64_t post_command(Operation& operation, const Piece& piece);
  std::uint64_t post_request(Operation& operation, const Piece& piece);
  bool post_message(transport::Command& command, Operation& operation, Role role);
  static void await_answer(Operation& operation, heddle_peer from);
  void direct_piece(const Operation& operation, const Piece& piece);
  std::size_t advance_pending();

  // hang_report.cpp
  void report_inside();
  void report_operation(const Operation& operation);

  // tasks.cpp
  void arrived_user(heddle_peer source, const transport::Completion& completion);
  void store_large(heddle_peer source, protocol::Reassembly::Message* whole, Tasks::Room room);
  void refuse_task(heddle_peer source, Tasks::Stored stored);
  void run_task(heddle_worker handle, Tasks::Task* task);
  void grant(heddle_peer source, Tasks::Source* from);
  void grant_owed();
  [[nodiscard]] std::uint64_t charge(std::uint32_t header_bytes, std::uint64_t payload_bytes) const {
    return protocol::credit_charge(header_bytes, payload_bytes, credits_.window());
  }

  // completer.cpp
  bool deliver(const transport::Completion& completion);
  void handle(const transport::Completion& completion);
  void arrived(const transport::Completion& completion);
  void arrived_packet(const transport::Completion& packet);
  void arrived_fragment(heddle_peer source, const wire::Fragment& fragment);
  void arrived_reply(heddle_peer source, const wire::Reply& reply);
  void run_handler(heddle_peer source, const wire::ActiveMessage& message, std::uint64_t payload_bytes);
  void drop(heddle_peer source, const char* why);
  // One command or request of it has ended; `rank`: see Operation::fail().
  void settle(Operation& operation, base::Status status, std::uint32_t rank);
  void conclude(Operation& operation);  // fires and frees it when nothing is left
  void end_plain(Operation& operation);
  bool note_failures();
  bool note_closed();  // true: something has ended
  void note_rest();
  [[nodiscard]] bool begin_look();
  void end_served(Operation& operation, base::Status status);
  void keep_error(std::uint32_t rank, base::Status status);
  void keep_error(std::uint32_t rank, base::Status status, const Pieces& pieces);
  base::Status take_error(std::uint32_t rank);
  base::Status flush_inside(std::uint32_t rank);
  base::Status quiet_inside();

  // What every thread that posts reads, and nobody writes: on lines of its own, for the rest is written all the time by who
  // is inside.
  Context& context_;
  std::unique_ptr<Gate> gate_;        // goes first, see ~Worker: its executor uses all the rest
  std::unique_ptr<Tallies> tallies_;  // the modes other than exclusive
  std::uint32_t index_;
  const Sharing sharing_;
  std::uint32_t size_;
  std::uint32_t max_workers_;
  std::uint64_t max_payload_;
  std::uint64_t max_message_;  // of the transport
  const bool numbers_;         // tagged messages, since the transport does not keep their order
  protocol::Aggregator* aggregator_ = nullptr;  // what transport_ is then; null: the transport's own
  std::unique_ptr<transport::TransportWorker> transport_;
  const transport::Capabilities& capabilities_;
  const std::atomic<std::uint64_t>& failure_epoch_;  // the bootstrap's; partner: its release
  std::vector<std::uint32_t> outstanding_;  // operations not finished, per rank; the numbers are written inside

  alignas(base::kCacheLine) std::uint64_t seen_epoch_ = 0;  // of failures, dealt with
  std::atomic<std::uint64_t> moved_{0};  // written inside, with release; partner: moved()'s acquire load
  heddle_worker handle_{};               // for arrivals; found at the first
  heddle_worker_stats stats_{};
  Tally tally_;  // exclusive

  OperationPool operations_;
  OperationQueue pending_;              // have something left to post, in order
  std::uint32_t outstanding_many_ = 0;  // lists over several ranks
  std::uint32_t outstanding_total_ = 0;
  std::vector<base::Status> unreported_;  // per rank: first error of operations that nobody observes
  bool has_unreported_ = false;
  std::uint64_t noted_epoch_ = 0;  // of failures that are being dealt with
  std::size_t failed_left_ = 0;    // operations that note_failures() has still to look at
  std::size_t closed_next_ = 0;  // of the operations, from 1, the next that note_closed() looks at; 0: it is not at it
  std::uint64_t closed_polls_ = 0;  // when it began the last time
  std::uint32_t rests_ = 0;         // naps with operations outstanding since
  std::vector<bool> failed_;        // ranks whose failure this worker has dealt with
  std::uint64_t next_message_ = 1;
  protocol::Reassembly reassembly_;
  protocol::Responder responder_;
  protocol::UserCredits credits_;
  Tasks tasks_;
  std::atomic<std::uint64_t> offers_{0};  // shares taken by take_offer(); relaxed: it is only counted
  bool owes_grants_ = false;              // memory was exhausted when a grant was due
  Operation chores_;                      // not of the pool: stands in pending_ while tagged_ has something left to do
  Tagged tagged_;                         // these use most of the above
  AmRendezvous am_rendezvous_;
  std::unique_ptr<WorkerExtension> extension_;
  std::array<transport::Completion, 32> arrivals_;
};

template <class Attempt, class Describe>
base::Status Worker::until(const Wait& wait, Attempt&& attempt, Describe&& describe) {
  base::Waiter waiter(context_.clock(), wait.timeout_ns, &context_.crowd());
  Watch watch(context_, this, wait.call);
  for (;;) {
    const base::Status status = attempt();
    if (status != HEDDLE_AGAIN) return status;
    if (inside_of() != nullptr) [[unlikely]] {
      return refuse_wait(wait.call);
    }
    const int events = progress();
    if (events < 0) return static_cast<base::Status>(events);
    if (!(events > 0 ? waiter.busy() : waiter.idle())) return HEDDLE_ERR_TIMEOUT;
    if (const std::int64_t ns = waiter.nap_ns(); ns > 0) [[unlikely]] {
      context_.nap(this, ns);
    }
    watch.round(describe, waiter.nap_ns() > 0);
  }
}

}  // namespace heddle::engine
