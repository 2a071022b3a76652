// One side of a partitioned operation: what sender and receiver have in common.
//
// Threads: one thread of the program at a time calls start, test, wait and close. Functions marked
// "inside" are for the thread inside the worker, which may be any thread (a helper, an executor).
// The two share atomics; the program's thread enters the worker through visit().
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/handles.hpp"
#include "engine/inside.hpp"
#include "heddle/partitioned.h"
#include "wire/messages.hpp"
#include "worker/gate.hpp"
#include "worker/hang_report.hpp"
#include "worker/worker.hpp"

namespace heddle::partitioned {

class Switchboard;

// Runs function() inside the worker; waits until no other thread is inside. Not allowed in a
// handler of another worker: that worker's thread might wait for this one's.
template <class Function>
void visit(engine::Worker& worker, Function&& function) {
  if (engine::Gate* gate = worker.gate(); gate != nullptr) return gate->visit(function);
  function();
}
// True: visit() is not allowed, because this is a handler or callback of another worker and
// `worker` has a gate.
inline bool must_not_visit(engine::Worker& worker) {
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

class Partitioned {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::partitioned;
  Partitioned(const Partitioned&) = delete;
  Partitioned& operator=(const Partitioned&) = delete;
  virtual ~Partitioned() = default;

  [[nodiscard]] bool sends() const { return sends_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] engine::Worker& worker() { return worker_; }
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
  // Marks a notice `refused` with this status to be sent.
  void refuse(base::Status status) {
    refusal_ = status;
    owe(wire::PartitionedKind::refused);
  }

 protected:
  Partitioned(engine::Worker& worker, Switchboard& board, const Shape& shape, bool sends)
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

  engine::Worker& worker_;
  Switchboard& board_;
  const Shape shape_;
  const bool sends_;

 private:
  static constexpr std::uint32_t bit(wire::PartitionedKind kind) { return 1U << static_cast<std::uint32_t>(kind); }
  base::Status send(wire::PartitionedKind kind);
  base::Status settle();

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
  base::Status refusal_ = HEDDLE_DONE;
  bool buried_ = false;
};

}  // namespace heddle::partitioned
