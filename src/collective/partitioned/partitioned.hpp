// One side of a partitioned operation: what sender and receiver have in common.
//
// Threads: one thread of the program at a time calls start, test, wait and close. Functions marked
// "inside" are for the thread inside the worker, which may be any thread (a helper, an executor).
// The two share atomics; the program's thread enters the worker through visit().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/fence.hpp"
#include "engine/handlers.hpp"
#include "engine/handles.hpp"
#include "heddle/partitioned.h"
#include "queue/part_marks.hpp"
#include "wire/messages.hpp"
#include "worker/gate.hpp"
#include "worker/watch.hpp"
#include "worker/worker.hpp"

namespace heddle::collective::partitioned {

class Switchboard;

// Runs function() inside the worker; waits until no other thread is inside. Not allowed in a
// handler of another worker: that worker's thread might wait for this one's.
template <class Function>
void visit(worker::Worker& worker, Function&& function) {
  if (worker::Gate* gate = worker.gate(); gate != nullptr) return gate->visit(function);
  function();
}
// True: visit() is not allowed, because this is a handler or callback of another worker and
// `worker` has a gate.
inline bool must_not_visit(worker::Worker& worker) {
  const engine::Core* in = engine::inside_of();
  return worker.gate() != nullptr && in != nullptr && in != &worker.core();
}

struct Shape {
  heddle_peer peer{};
  std::uint64_t tag = 0;
  std::uint32_t partitions = 0;
  std::uint64_t bytes = 0;  // of one partition
  [[nodiscard]] std::uint64_t total() const { return bytes * partitions; }
};

class PartitionedSide {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::partitioned;
  PartitionedSide(const PartitionedSide&) = delete;
  PartitionedSide& operator=(const PartitionedSide&) = delete;
  virtual ~PartitionedSide() = default;

  [[nodiscard]] bool sends() const { return sends_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] worker::Worker& worker() { return worker_; }
  // DONE; STATE: a run is under way; otherwise the error with which the operation failed.
  base::Status start();
  // DONE: no run is under way (any more); AGAIN; otherwise the error with which the operation
  // failed.
  base::Status test();
  base::Status wait(std::int64_t timeout_ns);
  // Called when the program frees the operation. The operation is then destroyed, or the
  // switchboard keeps it until the peer is told. STATE: a run is under way.
  base::Status close();

  // ---- inside -----------------------------------------------------------------------------------
  // Records the error of the operation; the first error stays. The program's threads may call it,
  // too.
  void fail(base::Status status);
  [[nodiscard]] bool failed() const { return trouble_.load(std::memory_order_acquire) != HEDDLE_DONE; }
  // The sender's total is above the receiver's; the arguments are the other side's.
  void fail_totals(std::uint32_t partitions, std::uint64_t bytes);
  // True: the peer has an operation that matches this one.
  [[nodiscard]] bool matched() const { return peer_number_ != 0; }
  [[nodiscard]] std::uint64_t peer_number() const { return peer_number_; }
  void match(std::uint64_t peer_number) { peer_number_ = peer_number; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  void set_number(std::uint64_t number) { number_ = number; }
  // Marks a notice to be sent to the peer as soon as the transport takes it.
  void owe(wire::PartitionedKind kind) { owed_ |= bit(kind); }
  [[nodiscard]] bool owes() const { return owed_ != 0 || notices_ > 0; }
  // Sends what the transport takes. False: something is left for a later call.
  virtual bool advance() { return send_owed(); }
  // Called when the program's memory is used no more.
  virtual void release() {}
  // The program has freed the operation: tells the peer as soon as the peer's operation is known.
  void bury() {
    buried_ = true;
    if (matched() && trouble() != HEDDLE_ERR_PEER_FAILED) owe(wire::PartitionedKind::freed);
  }
  [[nodiscard]] bool buried() const { return buried_; }
  // The peer can no longer be told anything.
  void owe_nothing() { owed_ = 0; }
  // Marks a notice `rejected` with this status to be sent.
  void reject(base::Status status) {
    rejection_ = status;
    owe(wire::PartitionedKind::rejected);
  }

 protected:
  PartitionedSide(worker::Worker& worker, Switchboard& board, const Shape& shape, bool sends)
      : worker_(worker), board_(board), shape_(shape), sends_(sends) {}

  // Called when a run begins.
  virtual base::Status begin_run(std::uint64_t run) = 0;
  // DONE: the run has completed; AGAIN; an error: it has failed, and nothing of it is under way.
  virtual base::Status look() = 0;
  virtual void describe(tap::Wait& wait) = 0;
  // The addresses that an `accept` carries; null: none.
  [[nodiscard]] virtual const wire::PartitionedPlaces* places() const { return nullptr; }
  // Inside: the number that a notice of this kind carries.
  [[nodiscard]] virtual std::uint64_t notice_number(wire::PartitionedKind kind) const = 0;

  bool send_owed();
  [[nodiscard]] base::Status trouble() const { return trouble_.load(std::memory_order_acquire); }
  [[nodiscard, gnu::cold]] base::Status explain() const;
  [[nodiscard]] std::uint64_t run() const { return run_.load(std::memory_order_relaxed); }
  void set_run(std::uint64_t run) { run_.store(run, std::memory_order_relaxed); }

  worker::Worker& worker_;
  Switchboard& board_;
  const Shape shape_;
  const bool sends_;

 private:
  static constexpr std::uint32_t bit(wire::PartitionedKind kind) { return 1U << static_cast<std::uint32_t>(kind); }
  base::Status send(wire::PartitionedKind kind);
  base::Status try_complete();

  // Number of the last start; 0: none. The program's thread writes it. Other threads are ordered
  // after that write by other means (see partitioned.h), or only compare. Relaxed.
  std::atomic<std::uint64_t> run_{0};
  // The error with which the operation failed; DONE: none. Release by fail(), partner: the acquire
  // load in trouble().
  std::atomic<base::Status> trouble_{HEDDLE_DONE};
  bool active_ = false;                 // the program's thread
  std::uint32_t other_partitions_ = 0;  // written before trouble_ becomes ARGUMENT
  std::uint64_t other_bytes_ = 0;
  // Inside.
  std::uint64_t number_ = 0;
  std::uint64_t peer_number_ = 0;
  std::uint32_t owed_ = 0;
  std::uint32_t notices_ = 0;  // notices on their way that use memory of this object
  base::Status rejection_ = HEDDLE_DONE;
  bool buried_ = false;
};

// The sending side. Each part is put with a signal: the receiver's word for the part becomes the
// number of the run, so that nothing is reset between runs.
//
// queue::PartMarks decides which thread posts which part. A claimed part is being posted by the
// thread that claimed it, is under way, or is in queue_. A part that could not be posted in a
// handler of another worker is marked again, and stray_ tells the next look(). The sender learns
// the addresses before it opens the first run; they never change. The receiver begins run r + 1
// only when all parts of run r have arrived: so nothing of run r is still being put when run r + 1
// is open.
class Sender final : public PartitionedSide {
 public:
  // May throw std::bad_alloc.
  Sender(worker::Worker& worker, Switchboard& board, const Shape& shape, const void* data);
  ~Sender() override;

  // heddle_pready. Any thread.
  base::Status ready(std::uint32_t partition);

  // ---- inside
  void set_sequence(std::uint64_t sequence) { sequence_ = sequence; }
  // True: the peer has not yet answered its offer.
  [[nodiscard]] bool waits() const { return !matched() && !failed(); }
  void accepted(std::uint64_t peer_number, const wire::PartitionedPlaces& places, std::uint64_t run);
  void begun(std::uint64_t run);
  bool advance() override;

 private:
  // The argument of a put's callback.
  struct Part {
    Sender* owner = nullptr;
    std::uint32_t number = 0;
  };

  base::Status begin_run(std::uint64_t run) override;
  base::Status look() override;
  void describe(tap::Wait& wait) override;
  [[nodiscard]] std::uint64_t notice_number(wire::PartitionedKind /*kind*/) const override { return sequence_; }

  void end(std::uint32_t partition, base::Status status);
  static void end_put(void* arg, heddle_status status);
  bool put_directly(std::uint32_t partition, std::uint64_t run);
  [[nodiscard]] worker::PutSignalStart command(std::uint32_t partition, std::uint64_t run);
  base::Status post(std::uint32_t partition, std::uint64_t run);
  base::Status post_later(std::uint32_t partition);
  bool posted(std::uint32_t partition, base::Status status);
  bool post_queued();
  void collect();
  base::Result<engine::RemoteRegion*> import(std::span<const std::byte> packed, std::uint64_t offset,
                                             std::uint64_t bytes);
  [[gnu::cold]] base::Status reject_mark(std::uint32_t partition) const;

  // Read by every thread that marks parts.
  std::byte* const source_;  // only read
  std::unique_ptr<Part[]> parts_;
  // of the last run that the receiver has begun, once its places are known
  queue::PartMarks<> marks_;
  engine::RemoteRegion* data_ = nullptr;
  engine::RemoteRegion* words_ = nullptr;
  std::uint64_t offset_ = 0;
  // Release by post_later(), partner: the exchange in look().
  std::atomic<bool> stray_{false};

  // A part did not arrive. Relaxed: the release of the part's state publishes it.
  std::atomic<bool> put_failed_{false};

  // the program's thread: all parts before this one have ended in this run
  std::uint32_t ended_ = 0;
  // Inside.
  bool bound_ = false;
  bool told_ = false;        // the receiver was told that a part did not arrive
  std::uint64_t begun_ = 0;  // may be set before bound_
  std::uint64_t sequence_ = 0;
  // parts from head_ on are claimed and not posted. Reserved for all parts, so that it never grows
  std::vector<std::uint32_t> queue_;
  std::size_t head_ = 0;
};

// The receiving side. For each of the sender's parts there is a word that becomes the number of the
// run when the part has arrived. During a run the receiver does nothing but look at these words.
class Receiver final : public PartitionedSide {
 public:
  Receiver(worker::Worker& worker, Switchboard& board, const Shape& shape, void* data);
  ~Receiver() override;
  // Makes the data reachable for the sender. Call it before the receive is matched.
  base::Status prepare();

  // heddle_parrived. Any thread.
  base::Status arrived(std::uint32_t partition);
  // Bytes of all of the sender's parts; 0 before it is matched. Any thread.
  [[nodiscard]] std::uint64_t sent() const { return words_.load(std::memory_order_acquire) == nullptr ? 0 : sent_; }

  // ---- inside
  void release() override;
  // Matches a send of `sent` bytes in all, which this receive has room for. peer_number: the
  // sender's number of its operation. Allocates the words and tells the sender where to put.
  void accept(std::uint64_t peer_number, std::uint32_t partitions, std::uint64_t sent);

 private:
  base::Status begin_run(std::uint64_t run) override;
  base::Status look() override;
  void describe(tap::Wait& wait) override;
  [[nodiscard]] const wire::PartitionedPlaces* places() const override { return &places_; }
  [[nodiscard]] std::uint64_t notice_number(wire::PartitionedKind /*kind*/) const override { return run(); }

  // True: the sender's part has arrived in this run. Not to be called with 0 words.
  [[nodiscard]] static bool has(std::uint64_t* words, std::uint64_t part, std::uint64_t run) {
    // Partner: the signal of the put, which follows its data.
    if (std::atomic_ref(words[part]).load(std::memory_order_acquire) < run) return false;
    base::show_acquire(&words[part]);
    base::show_learnt();  // the data, which this process may have written for the sender
    return true;
  }
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  [[nodiscard]] Range covering(std::uint32_t partition) const;
  [[nodiscard]] bool covered(std::uint32_t partition) const;

  void* const data_;
  // Number 0: the data is in one of the program's regions, or there are no bytes. This memory is
  // lent, not a region, so that region_around() does not find it for others: it ends with this
  // operation.
  engine::LentMemory lent_;
  // Inside, until words_ is set.
  engine::Region* words_region_ = nullptr;
  wire::PartitionedPlaces places_{};
  std::uint32_t senders_ = 0;  // partitions of the sender
  std::uint64_t sent_ = 0;     // bytes of all of them
  // Release by accept(), after all of the above; partner: the acquire loads of the readers.
  std::atomic<std::uint64_t*> words_{nullptr};
  // the program's thread: all of the sender's parts before this one have arrived in this run
  std::uint32_t come_ = 0;
};

}  // namespace heddle::collective::partitioned
