// The command queue of a worker: the starts that it takes besides commands, and the queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "engine/handlers.hpp"
#include "queue/command_queue.hpp"
#include "worker/helpers.hpp"
#include "worker/worker.hpp"

namespace heddle::worker {

// The starts of a worker besides single commands, each as a plain value. So a sharing mode can
// execute a start at once, or let it wait in the worker's queue for the thread that will.
//
// A start has
//   start_queued(worker)   optional: start() where it comes from the queue
//   start(worker)          on the thread that is inside the worker: DONE, POSTED, AGAIN or an error
//   ended(worker, status)  of one that has waited in the queue, with what start() returned, or with
//                          the error by which it ends unstarted

// A put or get of any shape.
struct TransferStart {
  engine::Kind kind;
  engine::Pieces pieces;
  std::uint32_t rank;
  engine::CallersCompletion completion;

  base::Status start(Worker& worker) const {
    return worker.core().requester.try_transfer(kind, pieces, rank, completion);
  }
  void ended(Worker& worker, base::Status status) const {
    worker.core().operations.end_queued(status, completion, rank, pieces);
  }
};

struct PutSignalStart {
  engine::Pieces pieces;
  std::uint32_t rank;
  engine::RemoteRegion* word;
  std::uint64_t word_offset;
  heddle_signal signal;
  engine::CallersCompletion completion;

  base::Status start(Worker& worker) const {
    return worker.core().requester.try_put_signal(pieces, rank, word, word_offset, signal, completion);
  }
  void ended(Worker& worker, base::Status status) const {
    worker.core().operations.end_queued(status, completion, rank);
  }
};

struct AtomicStart {
  engine::Requester::AtomicRequest request;
  std::uint32_t rank;
  engine::CallersCompletion completion;

  base::Status start(Worker& worker) const { return worker.core().requester.try_atomic(request, completion); }
  void ended(Worker& worker, base::Status status) const {
    worker.core().operations.end_queued(status, completion, rank);
  }
};

// heddle_run_on_engine.
struct CallStart {
  void (*fn)(void* arg);
  void* arg;
  std::uint32_t rank;
  engine::CallersCompletion completion;

  // gate.cpp
  base::Status start(Worker& worker) const;
  void ended(Worker& worker, base::Status status) const;
};

// An active message that is longer than one of the transport's. Credit and offer are reserved.
struct LongMessageStart {
  heddle_peer target;
  engine::LongMessage message;
  engine::CallersCompletion completion;

  base::Status start(Worker& worker) const { return worker.messages().try_long(target, message, completion); }
  void ended(Worker& worker, base::Status status) const {
    if (status < HEDDLE_DONE) worker.messages().give_back(target, message);
    worker.core().operations.end_queued(status, completion, target.rank);
  }
};

// A tagged message that is offered to its receiver, or goes in parts. Credit and offer, or its
// room, are reserved.
struct OfferStart {
  protocol::SendRequest request;
  engine::CallersCompletion completion;

  base::Status start(Worker& worker) const {
    return request.in_parts ? worker.tagged().send_parts(request, completion)
                            : worker.tagged().offer(request, completion);
  }
  // From the queue: a pipe that is busy may stay so for long, and must not hold up what is behind.
  base::Status start_queued(Worker& worker) const {
    const base::Status status = start(worker);
    if (status != HEDDLE_AGAIN || !request.in_parts) return status;
    return worker.tagged().offer_instead(request, completion);
  }
  void ended(Worker& worker, base::Status status) const {
    if (status < HEDDLE_DONE) give_back(worker);
    worker.core().operations.end_queued(status, completion, request.target.rank);
  }
  void give_back(Worker& worker) const {
    if (request.in_parts) {
      worker.tagged().give_back<true>(request.target, request.bytes);
    } else {
      worker.tagged().give_offer_back<true>(request.target);
    }
  }
};

// The end of a receive is also stored in its heddle_receive; without a completion, only there.
struct ReceiveStart {
  protocol::Wanted wanted;
  protocol::ReceiveRequest request;

  base::Status start(Worker& worker) const { return worker.tagged().receive(wanted, request); }
  void ended(Worker& /*worker*/, base::Status status) const {
    if (status <= HEDDLE_DONE) request.completion.fire(status);
  }
  void cancelled(base::Status status) const { protocol::Tagged::end_unposted(request, status); }
};

struct ClaimedStart {
  protocol::ReceiveRequest request;

  base::Status start(Worker& worker) const { return worker.tagged().receive_claimed(request); }
  void ended(Worker& /*worker*/, base::Status status) const {
    if (status <= HEDDLE_DONE) request.completion.fire(status);
  }
  void cancelled(base::Status status) const { protocol::Tagged::end_unposted(request, status); }
};

class Executor;

// The command queue of a worker: which commands wait in it, in which form, and what the consumer
// does with them.
//
// Producers are any threads; the consumer is the thread that is inside the worker. A command, or
// another start, takes one record of the queue if it is short: a message of up to 32 bytes without
// a completion, a put or a get. A message is copied into the queue if the transport would copy it
// as well.
//
// The consumer hands commands without a completion to the transport together, as many as follow
// each other in the queue. It starts everything else alone, in the order of the claims: a command
// that the transport does not take holds up those behind it (stalled()).
//
// Small-message offload (SmallOffload) is a policy of this queue: whether a message is only
// put here for a helper, although its caller could post it.
class Inbox {
 public:
  // `records`: of the queue, at least. `small`: null: all messages are posted by their callers
  // where these can.
  Inbox(Worker& worker, std::uint32_t records, std::unique_ptr<SmallOffload> small);

  // ---- any thread ----
  // DONE: the message was copied, and has no completion; POSTED; AGAIN: the queue is full.
  // put_registered(): by small-message offload.
  base::Status put(const transport::Command& command, const engine::CallersCompletion& completion);
  base::Status put_registered(const transport::Command& command, const engine::CallersCompletion& completion) {
    return put_other(command, completion, true);
  }
  // A put or get of one block.
  base::Status put(const engine::BlockTransfer& block, const engine::CallersCompletion& completion);
  template <class Start>
  base::Status put(const Start& what) {
    static_assert(std::is_trivially_copyable_v<Start>);
    const Part part = part_of(what);
    return put_parts(&run_start<Start>, {&part, 1}) ? HEDDLE_POSTED : HEDDLE_AGAIN;
  }
  // Commands wait, or are being started.
  [[nodiscard]] bool queued() const { return queue_.claimed() != queue_.executed(); }
  [[nodiscard]] std::uint64_t records() const { return queue_.claimed() - queue_.executed(); }
  void show(tap::DebugWorker& shown) const {
    queue_.show([&shown](const char* name, const auto& word, std::uint32_t shift) { shown.value(name, word, shift); });
  }
  // Everything before this position was put here before this call.
  [[nodiscard]] std::uint64_t claimed() const { return queue_.claimed(); }
  // A thread that becomes the consumer has something to take.
  [[nodiscard]] bool ready() const { return queue_.ready(); }
  // Null: it is off.
  [[nodiscard]] SmallOffload* small_offload() const { return small_.get(); }
  // Whether a message of these lengths that is put here is copied.
  [[nodiscard]] bool copies(const transport::Command& message) const {
    return message.inlined || (copies_messages_ && message.bytes <= kMostCopied);
  }
  static constexpr std::uint64_t kMostCopied = 1024;  // bytes of payload

  // ---- the consumer -----------------------------------------------------------------------------
  // Starts at most kBatch of the waiting commands. Returns how many were started. `by_helper`: the
  // caller is one of the library's threads.
  std::size_t drain(bool by_helper);
  // The transport did not take the next one.
  [[nodiscard]] bool stalled() const { return stalled_; }
  // Everything before this position has been started.
  [[nodiscard]] std::uint64_t started() const { return started_; }
  void cancel_all(base::Status status);
  // The executor that a producer wakes when it ends the consumer's sleep, see queue::CommandQueue.
  void set_executor(Executor* executor) { executor_ = executor; }
  [[nodiscard]] bool prepare_sleep() { return queue_.prepare_sleep(); }
  [[nodiscard]] bool wake_up() { return queue_.wake_up(); }

 private:
  using Queue = queue::CommandQueue<>;
  using Queued = Queue::Command;
  using Part = std::span<const std::byte>;
  // Starts the command that follows it in the record, and tells its completion. With `cancel` other
  // than DONE, ends the command without starting it.
  using Run = base::Status (*)(Inbox& inbox, const std::byte* bytes, base::Status cancel);

  static constexpr std::size_t kBodyBytes = sizeof(queue::CommandBytes);
  static constexpr std::size_t kBatch = 64;  // before those inside let others in

  // A message of at most kShortBytes without a completion, in one record: followed by its packet,
  // with zeros up to a multiple of 8.
  struct ShortMessage {
    std::uint64_t target;  // worker << 32 | rank
    std::uint64_t what;    // bytes of the packet << 32 | immediate

    [[nodiscard]] std::uint32_t rank() const { return static_cast<std::uint32_t>(target); }
    [[nodiscard]] std::uint32_t worker() const { return static_cast<std::uint32_t>(target >> 32); }
    [[nodiscard]] std::uint32_t immediate() const { return static_cast<std::uint32_t>(what); }
    [[nodiscard]] std::uint32_t bytes() const { return static_cast<std::uint32_t>(what >> 32); }
  };
  static_assert(sizeof(ShortMessage) == 16);
  static constexpr std::size_t kShortBytes = kBodyBytes - sizeof(Run) - sizeof(ShortMessage);

  // Any other message as it stands in the queue, followed by [Completion, if `notifies` is set],
  // and the packet if it was copied, else header, pointer to the payload (8 bytes), and its length
  // (8).
  struct QueuedMessage {
    std::uint32_t rank;
    std::uint32_t worker;
    std::uint32_t immediate;
    std::uint16_t bytes;  // of the packet, or of the header
    bool notifies : 1;
    bool copied : 1;
    bool registered : 1;
  };
  static_assert(sizeof(QueuedMessage) == 16);

  // A put or get. It has one record, unless it has both a callback and a counter.
  struct QueuedBlock {
    std::byte* local;
    engine::RemoteRegion* remote;
    std::uint64_t offset;
    std::uint64_t bytes_and_flags;
    union {
      heddle_callback fn;                 // kCallback
      engine::OperationCounter* counter;  // null: nobody is told
    };
    void* arg;

    static constexpr std::uint64_t kGet = 1;
    static constexpr std::uint64_t kCallback = 2;
    static constexpr std::uint64_t kLocal = 4;
    static constexpr unsigned kFlagBits = 8;

    [[nodiscard]] engine::CallersCompletion completion() const;
    [[nodiscard]] engine::BlockTransfer block() const;
  };
  static_assert(HEDDLE_WHEN_REMOTE == 0 && HEDDLE_WHEN_LOCAL == 1);

  static constexpr std::size_t kMostBytes =
      sizeof(Run) + sizeof(QueuedMessage) + sizeof(engine::CallersCompletion) + HEDDLE_AM_HEADER_BYTES + kMostCopied;
  static constexpr std::size_t kMostRecords = (kMostBytes + kBodyBytes - 1) / kBodyBytes;

  template <class Value>
  static Part part_of(const Value& value) {
    return {reinterpret_cast<const std::byte*>(&value), sizeof value};
  }
  template <class Start>
  static base::Status run_start(Inbox& inbox, const std::byte* bytes, base::Status cancel) {
    static_assert(sizeof(Run) + sizeof(Start) <= kMostBytes);
    alignas(Start) std::byte copy[sizeof(Start)];
    std::memcpy(copy, bytes, sizeof copy);
    const auto& what = *reinterpret_cast<const Start*>(copy);
    if constexpr (requires { what.cancelled(cancel); }) {
      if (cancel != HEDDLE_DONE) {
        what.cancelled(cancel);
        return cancel;
      }
    }
    base::Status status = cancel;
    if (cancel == HEDDLE_DONE) {
      if constexpr (requires { what.start_queued(inbox.worker_); }) {
        status = what.start_queued(inbox.worker_);
      } else {
        status = what.start(inbox.worker_);
      }
    }
    what.ended(inbox.worker_, status);
    return status;
  }
  static base::Status run_short(Inbox& inbox, const std::byte* bytes, base::Status cancel);
  static base::Status run_message(Inbox& inbox, const std::byte* bytes, base::Status cancel);
  static base::Status run_block(Inbox& inbox, const std::byte* bytes, base::Status cancel);

  base::Status put_other(const transport::Command& command, const engine::CallersCompletion& completion,
                         bool registered);
  base::Status put_message(const transport::Command& command, const engine::CallersCompletion& completion,
                           bool registered);
  bool put_parts(Run run, std::span<const Part> parts);
  template <class Write>
  bool put_one(Run run, Write&& write);
  void wake_executor();
  void note_failures();
  [[gnu::cold]] void note(tap::TraceEvent event, std::uint64_t position) const;
  std::size_t post_run(const Queued& first, std::size_t most);
  [[nodiscard]] bool read_short(const std::byte* bytes, std::byte* room, bool* tagged) const;
  [[nodiscard]] bool read_block(const std::byte* bytes, std::byte* room) const;
  base::Status start_message(transport::Command& command, const engine::CallersCompletion& completion,
                             base::Status cancel);
  base::Status execute(const Queued& queued, base::Status cancel);

  Worker& worker_;
  tap::Tracer* const tracer_;  // null: the job is not traced
  // Short messages, and blocks, of fewer bytes have their own paths. 0 if the job is traced, or
  // ThreadSanitizer is told the order, so that these paths need not check for either.
  const std::uint64_t short_end_;
  const std::uint64_t block_end_;
  const bool copies_messages_;
  Executor* executor_ = nullptr;
  const std::unique_ptr<SmallOffload> small_;
  Queue queue_;
  // The consumer's.
  bool stalled_ = false;
  bool by_helper_ = false;     // drain() is one's
  std::uint64_t started_ = 0;  // where the last one that was started ends, in the queue's positions
};

}  // namespace heddle::worker
