// One side of a partitioned operation: what sender and receiver have in common.
//
// Who may do what: start, test, wait and close are for one thread at a time, the program's. What is
// marked "inside" is for the thread inside the worker, which may be any (a helper, an executor).
// The two meet in atomics, and in visit(), by which the program's thread goes inside.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/gate.hpp"
#include "engine/handles.hpp"
#include "engine/hang_report.hpp"
#include "engine/inside.hpp"
#include "engine/worker.hpp"
#include "heddle/partitioned.h"
#include "wire/partitioned.hpp"

namespace heddle::partitioned {

class Switchboard;

// Runs function() inside the worker; waits for who is there. Not in a handler of another worker,
// whose thread might wait for this one's.
template <class Function>
void visit(engine::Worker& worker, Function&& function) {
  if (engine::Gate* gate = worker.gate(); gate != nullptr) return gate->visit(function);
  function();
}
// In a handler or callback of another worker that has a gate: visit() is not allowed.
inline bool must_not_visit(engine::Worker& worker) {
  const engine::Worker* in = engine::inside_of();
  return worker.gate() != nullptr && in != nullptr && in != &worker;
}

struct Shape {
  heddle_peer peer{};
  std::uint64_t tag = 0;
  std::uint32_t partitions = 0;
  std::uint64_t bytes = 0;  // of one
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
  // DONE; STATE: a run is under way; how it has failed.
  base::Status start();
  // DONE: no run is under way (any more); AGAIN; how it has failed.
  base::Status test();
  base::Status wait(std::int64_t timeout_ns);
  // Takes it from the program; it is gone, or the switchboard's until the peer knows. STATE: a run
  // is under way.
  base::Status close();

  // ---- inside -----------------------------------------------------------------------------------
  // The first trouble stays. Also of the program's threads.
  void fail(base::Status status);
  [[nodiscard]] bool failed() const { return trouble_.load(std::memory_order_acquire) != HEDDLE_DONE; }
  // Totals differ: the other side's.
  void fail_totals(std::uint32_t partitions, std::uint64_t bytes);
  // The peer has an operation with this number for it.
  [[nodiscard]] bool matched() const { return peer_number_ != 0; }
  [[nodiscard]] std::uint64_t peer_number() const { return peer_number_; }
  void match(std::uint64_t peer_number) { peer_number_ = peer_number; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  void set_number(std::uint64_t number) { number_ = number; }
  // To be told to the peer, as soon as the transport takes it.
  void owe(wire::PartitionedKind kind) { owed_ |= bit(kind); }
  [[nodiscard]] bool owes() const { return owed_ != 0 || notices_ > 0; }
  // Sends what it can. False: something is left for a later call.
  virtual bool advance() { return send_owed(); }
  // The program's memory is not used any more.
  virtual void release() {}
  // Freed by the program: the peer is told, as soon as there is one.
  void bury() {
    buried_ = true;
    if (matched() && trouble() != HEDDLE_ERR_PEER_FAILED) owe(wire::PartitionedKind::freed);
  }
  [[nodiscard]] bool buried() const { return buried_; }
  // Nothing can be told any more.
  void owe_nothing() { owed_ = 0; }
  // The status of `refused` that is owed.
  void refuse(base::Status status) {
    refusal_ = status;
    owe(wire::PartitionedKind::refused);
  }

 protected:
  Partitioned(engine::Worker& worker, Switchboard& board, const Shape& shape, bool sends)
      : worker_(worker), board_(board), shape_(shape), sends_(sends) {}

  // A run has begun: with its number.
  virtual base::Status begin_run(std::uint64_t run) = 0;
  // DONE: it has ended; AGAIN; an error: it has failed, and nothing of it is under way.
  virtual base::Status look() = 0;
  virtual void describe(std::span<char> text) = 0;
  // What an accept brings.
  [[nodiscard]] virtual const wire::PartitionedPlaces* places() const { return nullptr; }
  // Inside: another number than 0 for the notices that have one.
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

  // Of the last start; 0: none. Written by the program's thread; others have their own edge to it
  // (see partitioned.h), or only compare. Relaxed.
  std::atomic<std::uint64_t> run_{0};
  // How it has failed; DONE: it has not. Release by fail(), partner: the acquire load in trouble().
  std::atomic<base::Status> trouble_{HEDDLE_DONE};
  bool active_ = false;                 // the program's thread
  std::uint32_t other_partitions_ = 0;  // before trouble_ says ARGUMENT
  std::uint64_t other_bytes_ = 0;
  // Inside.
  std::uint64_t number_ = 0;
  std::uint64_t peer_number_ = 0;
  std::uint32_t owed_ = 0;
  std::uint32_t notices_ = 0;  // on their way, with memory of this
  base::Status refusal_ = HEDDLE_DONE;
  bool buried_ = false;
};

}  // namespace heddle::partitioned
