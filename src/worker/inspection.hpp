// What this rank tells about itself while it runs: to a debugger (DebugBoard), and to the launcher
// that watches the job (Inspection).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "heddle/heddle.h"
#include "tap/debug_view.hpp"
#include "tap/snapshot.hpp"

namespace heddle::worker {

class Worker;

// The part of one context that a debugger sees (tap/debug_view.hpp): its workers, and the threads
// that wait. Guarded by the mutex of the Inspection that owns it.
class DebugBoard {
 public:
  DebugBoard() = default;
  DebugBoard(const DebugBoard&) = delete;
  DebugBoard& operator=(const DebugBoard&) = delete;
  ~DebugBoard();

  void begin(std::uint32_t rank, std::uint32_t size);
  // The handle of the context.
  void name(std::uint64_t handle) { context_.handle = handle; }
  // Throws std::bad_alloc.
  void add(Worker& worker);
  void remove(const Worker& worker);

  // The row of a thread that waits: shown from enter() until its end.
  class Row {
   public:
    Row() = default;
    explicit Row(tap::DebugWait* wait) : wait_(wait) {}
    Row(Row&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
    Row& operator=(Row&& other) noexcept {
      std::swap(wait_, other.wait_);
      return *this;
    }
    Row(const Row&) = delete;
    Row& operator=(const Row&) = delete;
    ~Row() {
      if (wait_ != nullptr) wait_->waits = tap::DebugWaiting::no;
    }
    // It waits in this call (null: the program has not said which).
    void begin(const char* call, std::uint32_t worker);
    void returned();
    void resumed();
    // Shows what the thread waits for, after it has waited so long.
    void tell(const tap::Wait& wait, std::uint64_t waited_ns);

   private:
    tap::DebugWait* wait_ = nullptr;  // null: there was no memory for one
  };
  [[nodiscard]] Row enter(std::uint32_t thread) noexcept;

 private:
  tap::DebugContext context_;
  bool begun_ = false;
  // Free ones are used again.
  std::vector<std::unique_ptr<tap::DebugWait>> waits_;
  std::vector<std::pair<const Worker*, std::unique_ptr<tap::DebugWorker>>> workers_;
};

class Context;
class Worker;

// Collects what this rank can tell about itself when its job seems to hang, for the launcher that
// watches the job (bootstrap::Observed): which threads wait, for what, and which operations the
// workers have under way.
//
// Threads and workers report themselves. An inspection raises the failure epoch, which every call
// of progress reads anyway, and rings. A thread that waits then reports in its next round; a worker
// is reported by the thread that next makes progress on it. The asking thread looks only at workers
// that are still missing after that, if their gates let it in. So an inspection costs nothing while
// nobody asks. A wait is entered here once it naps.
//
// mutex_ guards everything but the epoch. It is held only briefly, and never while a program's
// function is called, a wait is described, or a worker is entered.
class Inspection final : public bootstrap::Observed {
 public:
  explicit Inspection(Context& context) : context_(context) {}

  // ---- workers, as they are opened and closed. Throws std::bad_alloc.
  void add(Worker& worker);
  // Waits while it is being looked at.
  void remove(Worker& worker);

  // ---- threads that wait: in each round before a nap
  struct Waiting {
    const char* call = nullptr;
    std::uint32_t worker = tap::kNobody;
    // For a wait in a loop of the program (heddle_wait_note): takes precedence over the calls
    // within it.
    heddle_tell_wait tell = nullptr;
    void* arg = nullptr;
  };
  // What `tell` says of the wait.
  [[nodiscard]] static tap::Wait told(const Waiting& waiting);
  // False: it tells nothing, or leaves it to the call within the wait.
  [[nodiscard]] static bool speaks(const Waiting& waiting);
  // True: an inspection wants to know what the thread waits for, or it is time to show that to a
  // debugger; the thread must answer(). `now`: of the context's clock.
  [[nodiscard]] bool note(const Waiting& waiting, std::uint64_t now);
  // `wait`: what a call of Heddle waits for (empty, from the program); call, time and thread are
  // filled in. If the program has noted a wait around this call, that wait is told instead; if it
  // is for a collective of a team, the call within says of which team.
  enum class From : std::uint8_t { call, program };
  void answer(From from, tap::Wait&& wait) noexcept;
  // The calling thread does not wait any more; `resumes`: it may go on with the same wait at once.
  void end(bool resumes, std::uint64_t now) noexcept;
  // heddle_wait_end: ends the wait that was noted with this argument.
  void end_noted(const void* arg) noexcept;

  // heddle_context_list_held. Any thread.
  void list_held(heddle_list_held function) { list_held_.store(function, std::memory_order_relaxed); }

  // ---- the thread inside a worker, after the failure epoch has changed
  void noticed(Worker& worker) noexcept;

  // ---- Observed: on the bootstrap's thread
  tap::Pulse pulse() override;
  std::vector<std::byte> snapshot() override;
  std::string counters() override;

  // Whether the launcher reports long waits. Otherwise the waiting threads do.
  [[nodiscard]] bool watched() const { return watched_; }
  // begin(): call it once the job has been joined. named(): call it when the context's handle is
  // known.
  void begin();
  void named(std::uint64_t handle);

 private:
  void report(const Waiting& waiting, std::uint64_t seconds);
  // A debugger is shown a wait that has lasted for kTellNs, then each time that this time has
  // doubled, and at least once a second.
  static constexpr std::uint64_t kTellNs = 10'000'000;
  static constexpr std::uint64_t kMostTellNs = 1'000'000'000;
  struct Thread {
    std::uint32_t number = 0;  // the kernel's
    Waiting waiting;
    std::uint64_t since = 0;
    std::uint64_t last = 0;  // when it was noted last
    bool inside = false;     // in a call that waits
    bool told = false;       // the launcher knows of the wait
    bool for_lock = false;
    std::uint64_t reports = 0;   // where nobody watches
    std::uint64_t answered = 0;  // the number of the inspection
    tap::Wait wait;              // the answer
    DebugBoard::Row row;
    std::uint64_t tell_ns = kTellNs;  // after so long it shows a debugger what it waits for

    void begin(const Waiting& what);
    [[nodiscard]] bool tells(std::uint64_t now) const { return now - since >= tell_ns; }
    void tell(const tap::Wait& what, std::uint64_t now);
  };
  struct Row {
    Worker* worker = nullptr;
    std::uint64_t answered = 0;
    tap::WorkerState state;
    std::uint64_t polls = 0;  // when the inspection began
    std::vector<std::string> lines;
  };
  // A thread that has returned from a wait and has not come back for so long does not wait any
  // more.
  static constexpr std::uint64_t kStaleNs = 500'000'000;
  // How long an inspection waits for threads and workers to report themselves.
  static constexpr std::uint64_t kAnswersNs = 250'000'000;

  [[nodiscard]] Thread* find(std::uint32_t number);
  [[nodiscard]] static bool stale(const Thread& thread, std::uint64_t now) {
    return !thread.inside && now - thread.last > kStaleNs;
  }
  [[nodiscard]] bool all_answered(std::uint64_t now) const;
  void look_at_others();
  [[nodiscard]] tap::Snapshot gather();
  [[nodiscard]] tap::Snapshot gather_waits();
  [[nodiscard]] std::uint64_t due_seconds(Thread& thread, const Waiting& waiting, std::uint64_t now) const;

  Context& context_;
  bool watched_ = false;
  std::uint64_t notice_ns_ = 0;  // when a wait is told to the launcher; 0: nobody watches
  // The number of the inspection under way, or of the last one. Written with mutex_ held. Passing
  // threads read it without the mutex: relaxed, since the epoch's release has published it.
  std::atomic<std::uint64_t> number_{0};
  std::atomic<heddle_list_held> list_held_{nullptr};  // relaxed: a function of the program's code
  std::mutex mutex_;
  DebugBoard board_;  // before threads_, whose rows it has
  std::condition_variable changed_;
  std::vector<Thread> threads_;
  std::vector<Row> rows_;
  std::uint64_t ends_ = 0;             // of waits
  const Worker* looked_at_ = nullptr;  // which is not to be closed meanwhile
};

}  // namespace heddle::worker
