// The operations of a worker: what they may still touch (MarkTable); one operation, and the pool of
// them; Operations, which begins, counts and ends them.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/cache_line.hpp"
#include "base/error.hpp"
#include "base/fence.hpp"
#include "engine/objects.hpp"
#include "heddle/heddle.h"
#include "tap/debug_view.hpp"
#include "tap/snapshot.hpp"
#include "transport/transport.hpp"

namespace heddle::engine {

// The remote regions and counters that the operations of a worker may still touch.
//
// A program may release a region or a counter while operations that name it are on their way.
// The releasing code asks the workers. An object that is still named is destroyed when the last
// such operation has ended (Objects::reclaim). So operations and the transports beneath them may
// keep plain pointers, and direct operations, which end within their call, pay nothing.
//
// Invariants: only the worker's thread writes; any thread reads. A mark is set before the call that
// posts the operation returns and cleared after the transport has done with the operation.
// It is an error of the program to release an object while another thread is in a call with the
// same handle, so every mark that matters was set before the release. If the end of a mark is seen
// late, that only delays the destruction.
class MarkTable {
 public:
  explicit MarkTable(std::size_t slots) : slots_(slots), marks_(std::make_unique<Mark[]>(slots)) {}

  // Stands for every remote region: an operation on a list, whose segments are the caller's and may
  // not be read here.
  static const void* any_remote() { return &kAnyRemote; }

  // A slot's marks are set between enter and clear.
  void enter() { used_.store(used_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void set_counter(std::size_t slot, const void* counter) { store(marks_[slot].counter, counter); }
  void set_remotes(std::size_t slot, const void* data, const void* word) {
    store(marks_[slot].data, data);
    store(marks_[slot].word, word);
  }
  void clear(std::size_t slot) {
    store(marks_[slot].data, nullptr);
    store(marks_[slot].word, nullptr);
    store(marks_[slot].counter, nullptr);
    // Release: as for the marks. Partner: names().
    used_.store(used_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }

  // Operations on remote memory that have no slot, since they have no completion. While there is
  // one, it may be about any remote region. So a program that always has one on its way keeps the
  // regions that it releases until it calls quiet.
  void enter_unnotified() {
    unnotified_.store(unnotified_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // True: these were the last operations of this kind.
  bool leave_unnotified(std::uint32_t count) {
    const std::size_t left = unnotified_.load(std::memory_order_relaxed) - count;
    // as for the marks. Partner: names_remote()
    unnotified_.store(left, std::memory_order_release);
    return left == 0;
  }

  void forget_unnotified() { unnotified_.store(0, std::memory_order_release); }

  // Any thread.
  [[nodiscard]] bool names_remote(const void* remote) const {
    if (unnotified_.load(std::memory_order_acquire) != 0) return true;
    return names([remote](const Mark& mark) {
      const void* data = load(mark.data);
      return data == remote || data == &kAnyRemote || load(mark.word) == remote;
    });
  }
  [[nodiscard]] bool names_counter(const void* counter) const {
    return names([counter](const Mark& mark) { return load(mark.counter) == counter; });
  }

 private:
  using Pointer = std::atomic<const void*>;
  struct Mark {
    Pointer data{nullptr};
    Pointer word{nullptr};
    Pointer counter{nullptr};
  };
  // Release: a thread that sees the mark gone sees all that the operation did. Partner: load().
  static void store(Pointer& mark, const void* value) { mark.store(value, std::memory_order_release); }
  static const void* load(const Pointer& mark) { return mark.load(std::memory_order_acquire); }

  template <class Match>
  [[nodiscard]] bool names(Match&& match) const {
    if (used_.load(std::memory_order_acquire) == 0) return false;
    for (std::size_t i = 0; i < slots_; ++i) {
      if (match(marks_[i])) return true;
    }
    return false;
  }

  static constexpr char kAnyRemote = 0;
  std::size_t slots_;
  std::atomic<std::size_t> used_{0};  // slots with marks, so that a worker with none costs one look
  std::atomic<std::size_t> unnotified_{0};
  std::unique_ptr<Mark[]> marks_;
};

// An operation that did not finish at once, and the pool of them that each worker has.

// One contiguous part of a put or get.
struct Piece {
  std::byte* local = nullptr;
  RemoteRegion* remote = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// protocol: only the owner knows its meaning. protocol_work: see Core::want_advance().
enum class Kind : std::uint8_t { put, get, atomic, message, protocol, protocol_work };

// A put or get of one block.
struct BlockTransfer {
  Kind kind = Kind::put;
  std::byte* local = nullptr;
  std::uint64_t bytes = 0;
  RemoteRegion* remote = nullptr;
  std::uint64_t offset = 0;
};

// The data of a transfer of any shape, as a sequence of pieces. A contiguous transfer is a strided
// shape of one block.
class Pieces {
 public:
  Pieces() = default;
  Pieces(std::byte* local, RemoteRegion* remote, std::uint64_t offset, const heddle_strided& shape)
      : local_(local), remote_(remote), offset_(offset), shape_(shape) {}
  explicit Pieces(const BlockTransfer& block)
      : Pieces(block.local, block.remote, block.offset, {block.bytes, 1, 0, 0}) {}
  Pieces(const heddle_segment* segments, std::size_t count) : segments_(segments) { shape_.blocks = count; }

  // What MarkTable::set_remotes needs to know of them.
  [[nodiscard]] const void* mark() const { return segments_ != nullptr ? MarkTable::any_remote() : remote_; }

  // The next piece; false: there is none.
  [[nodiscard]] bool peek(Piece* piece);
  // The bytes of all pieces.
  [[nodiscard]] std::uint64_t bytes() const;
  // Runs function(rank) for the owner of each piece, or of each that is not wholly on its way.
  // False: at least one is not known any more.
  enum class Which { all, left };
  template <class Function>
  bool each_rank(Which which, Function&& function) const {
    bool all = true;
    for (std::uint64_t i = which == Which::all ? 0 : index_; i < shape_.blocks; ++i) {
      const RemoteRegion* remote = block(i).remote;
      remote != nullptr ? function(remote->rank) : void(all = false);
    }
    return all;
  }
  // `bytes` of the piece that peek() gave are on their way.
  void advance(std::uint64_t bytes);

 private:
  [[nodiscard]] Piece block(std::uint64_t index) const;

  std::byte* local_ = nullptr;
  RemoteRegion* remote_ = nullptr;
  std::uint64_t offset_ = 0;
  heddle_strided shape_{};                    // list: only `blocks`
  const heddle_segment* segments_ = nullptr;  // list: the caller's, stays until the completion
  std::uint64_t index_ = 0;
  std::uint64_t within_ = 0;  // bytes of block index_ that are on their way
};

inline constexpr std::uint32_t kManyRanks = ~std::uint32_t{0};

struct Operation;

// Told of an operation's end besides its completion: the protocol that has begun it.
class OperationOwner {
 public:
  // The operation ends with an error, and its completion is about to be told: the source is the
  // program's from here on.
  virtual void failed(const Operation& operation) { static_cast<void>(operation); }
  // Its slot is about to be freed.
  virtual void ended(Operation& operation) { static_cast<void>(operation); }
  // For reports of operations of Kind::protocol: what the operation is to a program, and what it
  // does while its peer has not answered.
  struct Words {
    const char* name;
    const char* waits;
  };
  [[nodiscard]] virtual Words words() const { return {"operation", "waits for the answer of"}; }
  // The same for the verdict: what is known besides rank, worker and bytes.
  virtual void explain(const Operation& operation, tap::Awaited* awaited) const {
    static_cast<void>(operation);
    awaited->what = words().name;
  }

 protected:
  OperationOwner() = default;
  OperationOwner(const OperationOwner&) = default;
  OperationOwner& operator=(const OperationOwner&) = default;
  ~OperationOwner() = default;
};

// An active message that does not fit one of the transport's. The payload is the caller's.
struct LongMessage {
  std::uint32_t handler = 0;
  std::uint32_t header_bytes = 0;
  std::array<std::byte, HEDDLE_AM_HEADER_BYTES> header alignas(8){};
  const std::byte* payload = nullptr;
  std::uint64_t payload_bytes = 0;
};

// Together one word, so that they are set and compared at once.
struct OperationFlags {
  bool live = false;
  // one command, whose end is its end: only OperationState means something
  bool plain = false;
  bool posted = false;  // nothing is left to be posted
  bool fired = false;   // the completion has run
  // in the worker's list of operations with something left to post, or to fire
  bool pending = false;
  bool signal_due = false;
  bool charged = false;      // a message of class USER that has credit
  bool seen_closed = false;  // the worker that should answer was closed at the last look

  [[nodiscard]] bool same(const OperationFlags& other) const {
    return std::bit_cast<std::uint64_t>(*this) == std::bit_cast<std::uint64_t>(other);
  }
};

// The part that every operation has.
struct OperationState : OperationFlags {
  static constexpr OperationFlags kPlain{.live = true, .plain = true, .posted = true};

  heddle_status status = HEDDLE_DONE;  // the first error
  std::uint32_t unfreed = 0;           // commands on their way whose source is still in use
  std::uint32_t generation = 0;
  std::uint32_t slot = 0;        // its index in the pool, for ever
  std::uint32_t rank = 0;        // kManyRanks: a list over several
  std::uint32_t unfinished = 0;  // commands and requests on their way
  Kind kind = Kind::put;
  bool marked = false;  // has an entry in the MarkTable
  CallersCompletion completion;
  std::uint64_t payload_bytes = 0;
  heddle_peer target{};             // message
  OperationOwner* owner = nullptr;  // null: nobody
  Operation* next = nullptr;        // in the worker's list, while `pending`
  // whom `status` is about, if it is an error of a list; kManyRanks: unknown
  std::uint32_t error_rank = 0;
  // rank and number of requests that wait for a reply (one rank at a time)
  std::uint32_t served_rank = 0;
  std::uint32_t served = 0;
  std::uint32_t served_worker = 0;

  // True: only its end is left to come.
  [[nodiscard]] bool ends_next() const { return same(kPlain) && unfreed == 0 && status == HEDDLE_DONE; }
  // The first error stays. `of`: the rank at fault; kManyRanks: an unknown one of the list.
  void fail(base::Status error, std::uint32_t of) {
    if (status != HEDDLE_DONE || error == HEDDLE_DONE) return;
    status = error;
    error_rank = of;
  }
};

struct Operation : OperationState {
  Pieces pieces;                // put, get
  std::byte* window = nullptr;  // a get by message: where the replies' data belongs
  std::uint64_t window_bytes = 0;
  std::uint64_t window_left = 0;

  RemoteRegion* word = nullptr;  // atomic, or signal of a put
  std::uint64_t word_offset = 0;
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  std::uint32_t atomic_op = 0;
  void* result = nullptr;

  std::uint32_t handler = 0;  // message
  std::uint32_t header_bytes = 0;
  std::array<std::byte, HEDDLE_AM_HEADER_BYTES> header alignas(8){};
  const std::byte* payload = nullptr;
  std::uint64_t payload_sent = 0;
  std::uint64_t message_number = 0;
};

// Operations in order, linked through themselves: it never allocates. Each is in at most one queue.
class OperationQueue {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // For a debugger.
  [[nodiscard]] const std::size_t& count() const { return size_; }
  void push_back(Operation* operation) {
    operation->next = nullptr;
    *(size_ == 0 ? &first_ : &last_->next) = operation;
    last_ = operation;
    ++size_;
  }
  // Not of an empty queue.
  [[nodiscard]] Operation* pop_front() {
    Operation* operation = first_;
    first_ = operation->next;
    --size_;
    return operation;
  }
  void clear() { size_ = 0; }

 private:
  Operation* first_ = nullptr;  // both mean something only if there is one
  Operation* last_ = nullptr;
  std::size_t size_ = 0;
};

// The meaning of a token when it comes back.
enum class Role : std::uint8_t {
  command = 1,  // the operation's data or result: done at the target
  carrier = 2,  // the message that carries a request or part: only its source matters
  reply = 3,    // the answer to a request
  // of a command without an operation: nobody is notified of its end, see Unnotified
  unnotified = 4
};

// A command without an operation. Its token has what flush, quiet and the release of regions must
// know of it.
struct Unnotified {
  std::uint32_t rank;
  bool memory;  // put or get

  [[nodiscard]] transport::Token token() const {
    return static_cast<std::uint64_t>(Role::unnotified) << 60 | (memory ? kMemory : 0) | rank;
  }
  [[nodiscard]] static Unnotified of(transport::Token token) {
    return {static_cast<std::uint32_t>(token & 0xFFFFFFFFU), (token & kMemory) != 0};
  }
  static constexpr std::uint64_t kMemory = std::uint64_t{1} << 32;
};

// A fixed number of operations, reached by index; one thread. A stale token (its operation has
// ended) is told by the generation.
//
// Invariant: a free slot has no flag, no error, no owner and no request that waits for a reply, so
// that a plain operation need not reset what it does not use.
class OperationPool {
 public:
  explicit OperationPool(std::size_t count)
      : operations_(count), marks_(count), free_(std::make_unique<std::uint32_t[]>(count)), free_count_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      operations_[i].slot = static_cast<std::uint32_t>(i);
      free_[i] = static_cast<std::uint32_t>(count - 1 - i);
    }
  }

  [[nodiscard]] Operation* take() {
    if (empty()) return nullptr;
    Operation& operation = take_slot();
    const std::uint32_t generation = operation.generation;
    const std::uint32_t slot = operation.slot;
    operation = Operation{};
    operation.generation = generation;
    operation.slot = slot;
    operation.live = true;
    return &operation;
  }
  // Takes an operation that is plain and posted, with its marks (null: none). The caller sets the
  // other members that its kind needs. The pool must not be empty.
  [[nodiscard]] Operation& take_plain(const void* counter, const void* remote) {
    Operation& operation = take_slot();
    static_cast<OperationFlags&>(operation) = Operation::kPlain;
    operation.unfinished = 1;
    operation.marked = counter != nullptr || remote != nullptr;
    if (operation.marked) {
      marks_.enter();
      marks_.set_counter(operation.slot, counter);
      marks_.set_remotes(operation.slot, remote, nullptr);
    }
    return operation;
  }
  [[nodiscard]] bool empty() const { return free_count_ == 0; }
  // The token of the operation that the next take() will return. So the operation need not be taken
  // before it is needed.
  [[nodiscard]] transport::Token next_token(Role role) const {
    const Operation& operation = operations_[free_[free_count_ - 1]];
    return token_of(role, operation.generation + 1, operation.slot);
  }
  void give_back(Operation* operation) {
    if (operation->marked) marks_.clear(operation->slot);
    if (!operation->plain) {
      operation->owner = nullptr;
      operation->served = 0;
    }
    operation->unfreed = 0;
    operation->status = HEDDLE_DONE;
    static_cast<OperationFlags&>(*operation) = {};
    free_[free_count_++] = operation->slot;
  }
  // Sets what the operation may touch until it is given back; see MarkTable.
  void mark_counter(Operation& operation, const void* counter) {
    enter(operation);
    marks_.set_counter(operation.slot, counter);
  }
  void mark_remotes(Operation& operation, const void* data, const void* word) {
    enter(operation);
    marks_.set_remotes(operation.slot, data, word);
  }
  [[nodiscard]] const MarkTable& marks() const { return marks_; }
  [[nodiscard]] MarkTable& marks() { return marks_; }

  [[nodiscard]] static transport::Token token(const Operation& operation, Role role) {
    return token_of(role, operation.generation, operation.slot);
  }
  static Role role(transport::Token token) { return static_cast<Role>(token >> 60); }
  // Null: not a token of a live operation.
  [[nodiscard]] Operation* find(transport::Token token) {
    const std::uint64_t slot = token & 0xFFFFFFFFU;
    if (slot >= operations_.size()) return nullptr;
    Operation& operation = operations_[slot];
    const bool same = operation.live && operation.generation == (token >> 32 & kGenerationMask);
    return same ? &operation : nullptr;
  }
  // Null: not a token of the command of an operation that has only its end to come.
  [[nodiscard]] Operation* find_plain(transport::Token token) {
    const std::uint64_t slot = token & 0xFFFFFFFFU;
    if (slot >= operations_.size()) return nullptr;
    Operation& operation = operations_[slot];
    const bool same = token == token_of(Role::command, operation.generation, slot);
    return same && operation.ends_next() ? &operation : nullptr;
  }

  [[nodiscard]] std::size_t in_use() const { return operations_.size() - free_count_; }
  [[nodiscard]] std::vector<Operation>& all() { return operations_; }
  [[nodiscard]] const std::vector<Operation>& all() const { return operations_; }

 private:
  static constexpr std::uint32_t kGenerationMask = (1U << 28) - 1;
  static transport::Token token_of(Role role, std::uint32_t generation, std::uint64_t slot) {
    return static_cast<std::uint64_t>(role) << 60 | static_cast<std::uint64_t>(generation & kGenerationMask) << 32 |
           slot;
  }
  Operation& take_slot() {
    Operation& operation = operations_[free_[--free_count_]];
    operation.generation = (operation.generation + 1) & kGenerationMask;
    return operation;
  }
  void enter(Operation& operation) {
    if (!operation.marked) marks_.enter();
    operation.marked = true;
  }
  std::vector<Operation> operations_;
  MarkTable marks_;
  std::unique_ptr<std::uint32_t[]> free_;  // slots: a stack of free_count_
  std::size_t free_count_;
};

// The operations of a worker that have not ended: their slots, their number towards each rank, the
// parts that are left to post, and the errors that flush and quiet will tell.
//
// Life of an operation: begin() takes a slot; its requester posts what the transport takes. Nothing
// taken: finish(), and the caller gets AGAIN. Otherwise keep(): the rest waits in pending(),
// commands on their way are counted in `unfinished`, sources still in use in `unfreed`. complete()
// counts one end, notify_and_free() fires the completion and frees the slot when nothing is left. A
// token carries slot, generation and role, so that a late event of an operation that has ended is
// recognised.
//
// A command without a completion has no slot: it is only counted (note_unnotified(),
// end_unnotified()).
//
// One thread at a time: the one inside the worker. Exceptions: marks(), busy(), take_offer() and
// give_offer_back().
class Operations {
 public:
  Operations(Objects& objects, std::size_t slots);
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // ---- begin ----
  // Null: no slot is free.
  Operation* begin(Kind kind, std::uint32_t rank, const CallersCompletion& completion);
  // Begins an operation of one command that the transport has accepted with next_token(), and that
  // touches `remote` (null: none). A slot must be free. The caller sets `unfreed`, `payload_bytes`
  // and `target`.
  Operation& begin_plain(Kind kind, std::uint32_t rank, const CallersCompletion& completion, const void* remote);
  [[nodiscard]] bool full() const { return pool_.empty(); }
  [[nodiscard]] transport::Token next_token() const { return pool_.next_token(Role::command); }
  [[nodiscard]] static transport::Token token(const Operation& operation, Role role) {
    return OperationPool::token(operation, role);
  }
  // Sets what the operation may touch until its end. Null: nothing.
  void mark_remotes(Operation& operation, const void* data, const void* word) {
    pool_.mark_remotes(operation, data, word);
  }
  // Keeps an operation that was accepted but is not finished. If something is left to post, or the
  // source is free already and its completion waits only for that, the next progress takes it up.
  // Returns POSTED.
  base::Status keep(Operation& operation);
  void note_unnotified(Unnotified unnotified);

  // ---- ends ----
  // Null: not a token of an operation.
  [[nodiscard]] Operation* find(transport::Token token) { return pool_.find(token); }
  // One command or request of it has ended. `rank`: see Operation::fail().
  void complete(Operation& operation, base::Status status, std::uint32_t rank);
  // The command of this token is done. False: nothing happened, since its operation has other ends
  // to come, or there is no such operation.
  [[nodiscard]] bool complete_plain(transport::Token token);
  // The requests of this operation that wait for answers will not get any.
  void end_served(Operation& operation, base::Status status);
  // Fires and frees the operation if nothing is left.
  void notify_and_free(Operation& operation);
  // The operation is over, or never was.
  void finish(Operation& operation);
  // Ends `count` commands of one kind.
  void end_unnotified(Unnotified unnotified, base::Status status, std::uint32_t count);
  // Tells the result of start() for an operation that was started later than it was posted, or
  // never. `rank`: the rank that an error is about; kManyRanks: the owners of the pieces.
  void end_queued(base::Status status, const CallersCompletion& completion, std::uint32_t rank,
                  const Pieces& pieces = {});
  // Everything ends with `status`.
  void cancel_all(base::Status status);

  // ---- flush and quiet: DONE, AGAIN, or the first error that nobody was told of ----
  base::Status flush(std::uint32_t rank);
  base::Status quiet();

  // ---- what is under way ----
  [[nodiscard]] std::uint32_t under_way() const {
    return static_cast<std::uint32_t>(busy_.load(std::memory_order_relaxed));
  }
  // Any thread. False: everything that was posted before has ended, with all its effects, and quiet
  // has no error to tell. "Before": by this thread, or ordered before this call by other means.
  // Commands in a command queue are not posted yet: look there first.
  [[nodiscard]] bool busy() const { return busy_.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] std::uint32_t under_way_to(std::uint32_t rank) const { return towards_[rank]; }
  [[nodiscard]] OperationQueue& pending() { return pending_; }
  [[nodiscard]] const OperationQueue& pending() const { return pending_; }
  [[nodiscard]] std::vector<Operation>& slots() { return pool_.all(); }
  [[nodiscard]] static std::size_t index(const Operation& operation) { return operation.slot; }
  // For a debugger.
  void show(tap::DebugWorker& shown) const;
  // The number of operations that have failed. Any thread.
  [[nodiscard]] std::uint64_t failed() const { return base::peek(failed_); }
  [[nodiscard]] const MarkTable& marks() const { return pool_.marks(); }

  // Any thread calls this before it sends a long message, tagged or active, whose source is lent:
  // it takes a share of the slots. Such a message ends when its receiver has found a slot of its
  // own to fetch it with. So these messages leave a quarter of the slots free: otherwise two
  // workers that offer as much as they can to each other would wait for ever. The caller takes the
  // share before it queues a start: a queued start that waited for it would hold up those behind
  // it, such as receives that peers wait for. The end of the operation gives the share back, or the
  // caller does if the message was refused.
  [[nodiscard]] bool take_offer() {
    // A failed attempt may make another caller fail, which then tries again.
    if (offers_.fetch_add(1, std::memory_order_relaxed) < most_offers()) return true;
    give_offer_back();
    return false;
  }
  // For reports.
  [[nodiscard]] bool all_offered() { return offers_.load(std::memory_order_relaxed) >= most_offers(); }
  [[nodiscard]] std::size_t most_offers() { return pool_.all().size() * 3 / 4; }
  void give_offer_back() { offers_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  void fire(Operation& operation);
  void keep_error(std::uint32_t rank, base::Status status);
  void keep_error(std::uint32_t rank, base::Status status, const Pieces& pieces);
  base::Status take_error(std::uint32_t rank);
  // An operation with or without marks has ended.
  void reclaim(bool marked) {
    if (marked && objects_.retired()) [[unlikely]]
      objects_.reclaim();
  }
  void forget_unnotified();
  void set_busy(std::uint64_t busy) { busy_.store(busy, std::memory_order_release); }
  void count_begun() { set_busy(busy_.load(std::memory_order_relaxed) + 1); }
  void count_ended(std::uint32_t count = 1) { set_busy(busy_.load(std::memory_order_relaxed) - count); }
  [[nodiscard]] bool has_unreported() const { return (busy_.load(std::memory_order_relaxed) & kUnreported) != 0; }

  static constexpr std::uint64_t kUnreported = std::uint64_t{1} << 63;

  Objects& objects_;
  const std::atomic<std::uint64_t>& failure_epoch_;  // the bootstrap's; partner: its release
  // not ended, by rank
  std::vector<std::uint32_t, base::OwnLines<std::uint32_t>> towards_;
  std::uint32_t towards_many_ = 0;  // lists over several ranks
  // kUnreported, and in the lower half how many operations have not ended. It is one word, so that
  // any thread learns by one look that neither is left. Written inside. An error is set before its
  // operation counts as ended. Release: a thread that sees the end sees its effects. Partner:
  // busy().
  std::atomic<std::uint64_t> busy_{0};
  OperationPool pool_;
  OperationQueue pending_;                // have something left to post, in order
  std::vector<base::Status> unreported_;  // by rank: first error without a completion
  std::uint64_t failed_ = 0;
  // shares taken by take_offer(); relaxed: it is only counted
  std::atomic<std::uint64_t> offers_{0};
};

inline Operation& Operations::begin_plain(Kind kind, std::uint32_t rank, const CallersCompletion& completion,
                                          const void* remote) {
  Operation& operation = pool_.take_plain(completion.counter, remote);
  operation.kind = kind;
  operation.rank = rank;
  operation.completion = completion;
  if (kind == Kind::get) operation.completion.when = HEDDLE_WHEN_REMOTE;  // no source to free
  count_begun();
  ++towards_[rank];
  return operation;
}

// A counter that was freed meanwhile is still there, and may be raised.
inline bool Operations::complete_plain(transport::Token token) {
  Operation* const operation = pool_.find_plain(token);
  if (operation == nullptr) return false;
  const bool marked = operation->marked;
  operation->fired = true;
  operation->unfinished = 0;
  operation->completion.fire(HEDDLE_DONE);
  count_ended();
  --towards_[operation->rank];
  pool_.give_back(operation);
  reclaim(marked);
  return true;
}

inline void Operations::note_unnotified(Unnotified unnotified) {
  count_begun();
  ++towards_[unnotified.rank];
  if (unnotified.memory) pool_.marks().enter_unnotified();
}

}  // namespace heddle::engine
