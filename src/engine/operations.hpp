// The operations of a worker that have not ended: their slots, their number towards each rank, the
// parts that are left to post, and the errors that flush and quiet will tell.
//
// Life of an operation: begin() takes a slot; its requester posts what the transport takes. Nothing
// taken: finish(), and the caller gets AGAIN. Otherwise keep(): the rest waits in pending(),
// commands on their way are counted in `unfinished`, sources still in use in `unfreed`. complete()
// counts one end, conclude() fires the completion and frees the slot when nothing is left. A token
// carries slot, generation and role, so that a late event of an operation that has ended is
// recognised.
//
// A command without a completion has no slot: it is only counted (note_unnotified(),
// end_unnotified()).
//
// One thread at a time: the one inside the worker. Exceptions: marks(), busy(), take_offer() and
// give_offer_back().
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/cache_line.hpp"
#include "base/error.hpp"
#include "base/fence.hpp"
#include "engine/objects.hpp"
#include "engine/operation.hpp"
#include "tap/debug_view.hpp"

namespace heddle::engine {

class Operations {
 public:
  Operations(Objects& objects, std::size_t slots);
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // ---- begin ----
  // Null: no slot is free.
  Operation* begin(Kind kind, std::uint32_t rank, const Completion& completion);
  // Begins an operation of one command that the transport has accepted with next_token(), and that
  // touches `remote` (null: none). A slot must be free. The caller sets `unfreed`, `payload_bytes`
  // and `target`.
  Operation& begin_plain(Kind kind, std::uint32_t rank, const Completion& completion, const void* remote);
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
  void conclude(Operation& operation);
  // The operation is over, or never was.
  void finish(Operation& operation);
  // Ends `count` commands of one kind.
  void end_unnotified(Unnotified unnotified, base::Status status, std::uint32_t count);
  // Tells the result of start() for an operation that was started later than it was posted, or
  // never. `rank`: the rank that an error is about; kManyRanks: the owners of the pieces.
  void end_queued(base::Status status, const Completion& completion, std::uint32_t rank, const Pieces& pieces = {});
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

inline Operation& Operations::begin_plain(Kind kind, std::uint32_t rank, const Completion& completion,
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
