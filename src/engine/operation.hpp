// An operation that did not finish at once, and the pool of them that each worker has.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/completion.hpp"
#include "engine/marks.hpp"
#include "engine/region.hpp"
#include "heddle/heddle.h"
#include "tap/snapshot.hpp"
#include "transport/transport.hpp"

namespace heddle::engine {

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
struct Block {
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
  explicit Pieces(const Block& block) : Pieces(block.local, block.remote, block.offset, {block.bytes, 1, 0, 0}) {}
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
  Completion completion;
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

}  // namespace heddle::engine
