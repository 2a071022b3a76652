// Threads that make progress besides the application: the policy (HEDDLE_PROGRESS), whether a
// message is left to them (SmallOffload), and the helpers.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/cache_line.hpp"
#include "base/clock.hpp"
#include "transport/transport.hpp"
#include "worker/extension.hpp"

namespace heddle::worker {

// How long a thread that has armed a worker may sleep; the later, the less.
enum class Rest : std::uint8_t {
  whole,  // arrivals ring, or another thread handles them
  polls,  // the same, but an operation under way may need polls
  brief,  // nobody could look: something may be there
  none    // there is something for progress already
};

// HEDDLE_PROGRESS: the threads that make progress besides the application.

enum class PolicyKind : std::uint8_t {
  none,       // nobody
  dedicated,  // threads of normal priority that never sleep
  idle,       // a thread for each core this process may use, under SCHED_IDLE, that never sleeps
  adaptive    // one thread of the lowest nice value that sleeps when nothing happens
};

struct Policy {
  PolicyKind kind = PolicyKind::none;
  std::uint32_t threads = 0;  // dedicated

  static constexpr std::uint32_t kMostDedicated = 256;
  [[nodiscard]] bool helps() const { return kind != PolicyKind::none; }
};

// "none", "dedicated:N" (N from 1), "dedicated" (1), "idle", "adaptive".
std::optional<Policy> policy_named(std::string_view text);

enum class OffloadPolicy : std::uint8_t { off, on, automatic };
// HEDDLE_SMALL_OFFLOAD; empty: it is none of them.
std::optional<OffloadPolicy> offload_policy_named(std::string_view text);

// Small-message offload, after PIOMan: a nonblocking send is only registered in the worker's queue;
// an idle core copies and submits it, or, if none came, the thread that next waits or makes
// progress. So an idle core takes the copy off the program's path; if there is none, the copy is
// only made later.
//
// Measurements decide whether that pays, for each class of lengths (a power of two): the cost of
// submitting for the poster, the cost of registering, and how often a helper came before the poster
// had to submit the message itself. A message is registered if
//
//   share of helpers × cost of submitting  >  cost of registering + what a helper's visit costs the
//                                             owner
//
// and a helper has gone round since the last message. Every kExplore-th message of a class is sent
// the other way, so that the figures do not grow old.
//
// All numbers are hints: written by any thread with relaxed loads and stores, a lost update is a
// lost sample. They order nothing.
class SmallOffload {
 public:
  static constexpr std::uint32_t kExplore = 64;
  static constexpr std::uint32_t kSample = 8;  // one message in so many is timed

  // `visit_ns`: what a helper's visit costs the thread that owns the worker.
  SmallOffload(OffloadPolicy policy, std::uint32_t visit_ns) : policy_(policy), visit_ns_(visit_ns) {}

  struct Plan {
    bool registers = false;
    bool timed = false;  // the caller tells submitted() or registered() how long it took
  };
  // The plan for the next message of this length. `rounds`: how often helpers have gone round;
  // `asleep`: they need a wake-up, which costs more than the copy.
  [[nodiscard]] Plan plan(std::uint64_t bytes, std::uint64_t rounds, bool asleep);
  void submitted(std::uint64_t bytes, std::uint64_t ns) { learn(classes_[class_of(bytes)].submit_ns, ns); }
  void registered(std::uint64_t ns) { learn(register_ns_, ns); }
  // count_registered(): a message was registered. executed(): a registered message has been
  // submitted.
  void count_registered() { registered_.fetch_add(1, std::memory_order_relaxed); }
  void executed(std::uint64_t bytes, bool by_helper);

  [[nodiscard]] std::uint64_t registered_messages() const { return registered_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t helped_messages() const { return helped_.load(std::memory_order_relaxed); }

 private:
  using Average = std::atomic<std::uint32_t>;  // in sixteenths; 0: nothing is known
  static constexpr std::uint32_t kUnit = 16;
  static constexpr std::uint32_t kWhole = 1024;  // of a share
  struct Class {
    Average submit_ns{0};
    std::atomic<std::uint32_t> share{kWhole};  // that helpers submitted; hopeful until it is known
    std::atomic<std::uint32_t> turns{0};
  };
  static constexpr std::size_t kClasses = 12;  // up to 2 KiB, 4 KiB, … and all beyond

  static std::size_t class_of(std::uint64_t bytes) {
    const auto width = static_cast<std::size_t>(std::bit_width(bytes >> 11));
    return width < kClasses ? width : kClasses - 1;
  }
  static void learn(Average& average, std::uint64_t ns);
  [[nodiscard]] bool pays(const Class& of) const;

  const OffloadPolicy policy_;
  const std::uint32_t visit_ns_;
  std::array<Class, kClasses> classes_;
  Average register_ns_{0};
  std::atomic<std::uint64_t> rounds_{0};  // of helpers, at the last message
  std::atomic<std::uint64_t> registered_{0};
  std::atomic<std::uint64_t> helped_{0};
};

class Worker;

// The engine's threads that make progress on the application's workers, as the policy says, and the
// list of the workers that may be helped: those with a gate. Exclusive workers without a gate are
// in the list for their owner alone, which moves them on while it waits (attend()).
//
// A visit to a worker: if its owner has been outside for a while, or comes and goes without making
// progress itself, enter by the gate (a busy worker is skipped, never waited for, but for that
// one), make progress until nothing comes, then arm it. An armed worker is left alone, so that its
// owner's core is not disturbed by barriers, until something arrives for it, which rings the
// transport's bell. When all are armed, the policy decides: look at the bell (dedicated, idle), or
// sleep on it (adaptive). A worker whose owner is at work, or with something under way that only
// polling moves on, is looked at again after a nap that grows. Where threads share cores and
// threads of this process wait, these make the progress, and a helper would take the core that
// they, or who answers them, want: then it sleeps between two sweeps, for a tenth to the whole of
// Crowd::longest_nap_ns(), and no bell wakes it.
//
// Visits and the list: an entry's visitors counts the threads that are at it or about to look;
// `worker` is null before add() and after remove().
// A visitor counts itself in, then looks at `worker`; remove() clears `worker`, then looks at the
// count (both seq_cst), so that one of them sees the other. No helper holds a lock here: it may
// lose its core at any point, and remove(), if it waits for long, fetches those that are at its
// entry (queue/handover.hpp). mutex_ is for the application's threads alone.
class Helpers {
 public:
  // `workers`: the number that can ever be opened.
  Helpers(Policy policy, transport::Transport& transport, base::Clock& clock, base::Crowd& crowd, std::uint32_t workers)
      : policy_(policy), transport_(transport), clock_(clock), crowd_(crowd), entries_(workers) {}
  ~Helpers() { stop(); }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  [[nodiscard]] const Policy& policy() const { return policy_; }

  // The worker's number must be new. Starts the threads with the first one that has a gate; throws
  // std::system_error if there can be none.
  void add(Worker* worker);
  // Afterwards no helper visits the worker. Must not be called from inside its handlers.
  void remove(const Worker* worker);
  // Ends the threads; the workers stay in the list.
  void stop();
  // From now on the attachment is advanced, too. Call it once; the attachment stays until stop().
  // Starts the threads as add() does.
  void attach(Attachment* attachment);

  // Progress on every worker with a gate that is not busy, by the calling thread, at once: number
  // of events.
  int advance_all();

  // ---- for a thread that waits for other ranks, which may wait for this one ----
  // Makes progress on exclusive workers of the calling thread, and on other workers that no thread
  // has polled since the last such look; unless `thorough`, only where that disturbs no owner.
  // Returns the number of events.
  int attend(bool thorough);
  // A number that changes whenever a worker other than this one has moved: Worker::moved().
  [[nodiscard]] std::uint64_t moved_but(const Worker& one);
  // Called before the thread sleeps: arms the workers that no other thread looks after, and adds
  // their places. Returns the least rest that one of them allows; `polls` also where it is its own
  // thread that looks after a worker.
  [[nodiscard]] Rest lie_down(queue::Places* places);

  // A number that changes whenever a helper has gone round: while it changes, a helper has a core.
  // Relaxed: a hint.
  [[nodiscard]] std::uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }

  // ---- for the gates: an operation that the application leaves under way may need a helper that
  // sleeps ----
  [[nodiscard]] bool asleep() const { return (asleep_.load(std::memory_order_relaxed) & kHelper) != 0; }
  // A helper sleeps, or, where there are none, a thread of the program that waits and would make
  // progress on what is left under way. Of the latter it is a hint: if it is lost, that thread
  // sleeps to its end.
  [[nodiscard]] bool wakes_somebody() const { return asleep_.load(std::memory_order_relaxed) != 0; }
  // After this thread has armed what it waits for: on its way out of a worker it would ring for
  // itself.
  void note_sleeper() {
    if (policy_.helps() || (asleep_.load(std::memory_order_relaxed) & kWaiter) != 0) return;
    asleep_.fetch_or(kWaiter, std::memory_order_relaxed);
  }
  // A helper leaves the cores to threads that wait: nothing is left to it.
  [[nodiscard]] bool aside() const { return aside_.load(std::memory_order_relaxed); }
  void wake() {
    if (asleep_.exchange(0, std::memory_order_relaxed) != 0) transport_.ring();
  }

 private:
  // A worker, and what the visitors know about it. Atomics are relaxed where nothing else is said:
  // hints, which order nothing.
  struct alignas(base::kCacheLine) Entry {
    std::atomic<Worker*> worker{nullptr};  // seq_cst with `visitors`
    // seq_cst with `worker`; the last visitor to leave wakes remove()
    std::atomic<std::uint32_t> visitors{0};
    // of the application's threads, when last looked at
    std::atomic<std::uint64_t> entries{0};
    std::atomic<std::uint64_t> unchanged_since{0};  // ns
    // of the application's threads, when last looked at
    std::atomic<std::uint64_t> polls{0};
    std::atomic<std::uint64_t> attended_polls{0};  // the same, at the last look of attend()
    std::atomic<std::uint64_t> advanced_at{0};     // ns: by them, or by a visit
    // ns: visits have found somebody there since; 0: the last has not
    std::atomic<std::uint64_t> refused_since{0};
    std::atomic<std::uint64_t> epoch{0};       // of failures, at the last visit
    std::atomic<std::uint64_t> registered{0};  // messages, at the last visit
    std::atomic<std::uint64_t> not_before{0};  // ns: unless it is rung for
    std::atomic<std::uint64_t> backoff{0};     // ns
    std::atomic<bool> was_armed{false};        // after the last visit
    // the last visit left it armed, and nothing under way
    std::atomic<bool> quiet{false};
  };
  // A helper, as remove() sees it. Relaxed: hints about whom to fetch; a thread that fetches in
  // vain tries again.
  struct Seat {
    std::atomic<std::uint32_t> number{0};  // 0: it has not begun
    std::atomic<const Entry*> at{nullptr};
  };
  // The worker of an entry, kept for as long as this lives; null: there is none.
  class Visit;

  // soon: the worker waits for something that does not ring.
  enum class Found : std::uint8_t { nothing, later, soon, events };

  enum class Owner : std::uint8_t { outside, active, neglectful };
  Found visit(Entry& entry, Worker& worker, std::uint32_t number);
  struct Outcome {
    bool visited = false;
    bool quiet = false;  // armed, and nothing is under way
    int events = 0;
  };
  Outcome let_in(Worker& worker, std::uint32_t number, bool urgent);
  [[nodiscard]] static Owner look_at_owner(Entry& entry, Worker& worker, std::uint64_t now);
  Found sweep(Seat& seat, std::uint32_t number);
  Found sweep_attachment();
  int attend(Entry& entry, Worker& worker, std::uint32_t* number, bool thorough);
  [[nodiscard]] static bool unchanged(const Entry& entry, Worker& worker);
  [[nodiscard]] bool workers_unchanged();
  [[nodiscard]] bool all_unchanged(bool stores);
  bool sleep(std::uint32_t seen, bool stores);
  void start();
  void run(int core, Seat& seat);
  void fetch_visitors(const Entry& entry);
  void cool_down(int core) const;
  void pause(Found found, std::uint32_t seen, std::int64_t* nap_ns, std::uint64_t* quiet_since);
  // What an adaptive helper has last seen of the threads of this process that wait.
  struct Aside {
    std::uint64_t turns = 0;
    std::int64_t nap_ns = 0;  // the last sleep; 0: the next one is the first
    // Sleeps in a row after which it had a core at once, always the same one, where strangers are
    // suspected.
    std::uint32_t prompt = 0;
    std::size_t core = 0;
  };
  // Beside a thread that computes, one of the lowest priority waits until the slice ends, which by
  // chance may be soon: so several sleeps count.
  static constexpr std::uint64_t kPromptNs = 300'000;
  static constexpr std::uint32_t kPromptSleeps = 4;
  void look_for_strangers(std::uint64_t before, Aside* aside);
  bool stands_aside(Aside* aside);

  const Policy policy_;
  transport::Transport& transport_;
  base::Clock& clock_;
  base::Crowd& crowd_;
  std::mutex mutex_;            // guards the list of threads
  std::vector<Entry> entries_;  // by the workers' numbers
  // entries that ever had a worker: those before this one. Release by add(), acquire by sweeps
  std::atomic<std::uint32_t> used_{0};
  std::unique_ptr<Seat[]> seats_;  // of threads_
  // kHelper: a helper sleeps, or is about to. Partner: the barrier in sleep(). kWaiter: see
  // wakes_somebody().
  static constexpr std::uint32_t kHelper = 1;
  static constexpr std::uint32_t kWaiter = 2;
  std::atomic<std::uint32_t> asleep_{0};
  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<Attachment*> attachment_{nullptr};  // release by attach(), acquire by the threads
  std::atomic<bool> stop_{false};                 // relaxed: ring() and join() order it
  // 1: stop_ is set. Helpers that stand aside sleep on it. Release by stop(), which then wakes
  // them.
  std::atomic<std::uint32_t> stopped_{0};
  std::atomic<bool> aside_{false};  // relaxed: a hint
  std::vector<std::thread> threads_;
};

}  // namespace heddle::worker
