// The threads that use a worker: the counts of what they post, the sharing modes, and the owner of
// an exclusive worker.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/cache_line.hpp"
#include "base/fence.hpp"
#include "base/threads.hpp"

namespace heddle::worker {

// See docs/architecture.md, "Sharing modes". The values are those of heddle_sharing. A mode that no
// other file asks for needs no name here: Sharing{7}.
enum class Sharing : std::uint8_t { exclusive = 1, shared, offload, delegate, automatic = 6 };

// Counts of what was posted on a worker.
struct Tally {
  std::uint64_t puts = 0;
  std::uint64_t gets = 0;
  std::uint64_t atomics = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t again = 0;
  std::uint64_t commands = 0;  // operations that were not direct
  std::uint64_t sends = 0;     // tagged messages
  // Direct puts and gets of 8 bytes. Each is counted here alone, and not above: see Tallies::sum()
  // and total().
  std::uint64_t word_puts = 0;
  std::uint64_t word_gets = 0;

  // The same with the words added to puts, gets and bytes.
  [[nodiscard]] Tally total() const {
    Tally all = *this;
    all.puts += word_puts;
    all.gets += word_gets;
    all.bytes += 8 * (word_puts + word_gets);
    return all;
  }
};

// A Tally for each thread that posts to a worker that is not exclusive, so that no two threads
// write the same line. Exception: the threads beyond base::kThreadNumbers share one Tally, to which
// they add atomically. Each other number has one writer; it may be read at any time. The numbers
// order nothing (relaxed), except for `commands`.
class Tallies {
 public:
  using Field = std::uint64_t Tally::*;
  // All but `commands`.
  static constexpr std::array<Field, 9> kFields = {&Tally::puts,     &Tally::gets,      &Tally::atomics,
                                                   &Tally::messages, &Tally::bytes,     &Tally::again,
                                                   &Tally::sends,    &Tally::word_puts, &Tally::word_gets};

  void add(Field field, std::uint64_t amount) {
    for_caller([=](auto place) { place.raise(field, amount); });
  }
  // One more operation of `bytes` bytes.
  void add_operation(Field field, std::uint64_t bytes) {
    for_caller([=](auto place) {
      place.raise(field, 1);
      place.raise(&Tally::bytes, bytes);
    });
  }
  // One more operation that was not direct. The command is counted last, with release; partner: the
  // acquire load in sum(). So sum() never sees more commands than operations, whatever is posted
  // meanwhile.
  void add_command(Field field, std::uint64_t bytes) {
    for_caller([=](auto place) {
      place.raise(field, 1);
      place.raise(&Tally::bytes, bytes);
      place.template raise<std::memory_order_release>(&Tally::commands, 1);
    });
  }
  [[nodiscard]] Tally sum() {
    Tally all;
    for (Place& place : places_) {
      all.commands += std::atomic_ref<std::uint64_t>(place.tally.commands).load(std::memory_order_acquire);
      for (const Field field : kFields) {
        all.*field += std::atomic_ref<std::uint64_t>(place.tally.*field).load(std::memory_order_relaxed);
      }
    }
    return all;
  }

 private:
  struct alignas(base::kCacheLine) Place {
    Tally tally;
  };
  // kOwn: only this thread writes there.
  template <bool kOwn>
  struct Raised {
    Tally& tally;
    template <std::memory_order kOrder = std::memory_order_relaxed>
    void raise(Field field, std::uint64_t amount) const {
      const std::atomic_ref<std::uint64_t> count(tally.*field);
      if constexpr (kOwn) {
        count.store(count.load(std::memory_order_relaxed) + amount, kOrder);
      } else {
        count.fetch_add(amount, kOrder);
      }
    }
  };
  // Runs `add` on the calling thread's place. The three cases are separate, so that the usual one
  // takes one decision.
  template <class Add>
  void for_caller(Add add) {
    if (const std::uint32_t known = base::known_thread_number(); known != 0) [[likely]] {
      add(Raised<true>{places_[known].tally});
    } else if (const std::uint32_t number = base::thread_number(); number != base::kNoThreadNumber) {
      add(Raised<true>{places_[number + 1].tally});
    } else {
      add(Raised<false>{places_[0].tally});
    }
  }

  std::array<Place, base::kThreadNumbers + 1> places_{};  // the first for threads without a number
};

// Counts what was posted on a worker: by one thread, or, after share(), by any thread. Operations
// that are not counted as commands are direct, so that the direct path has one number less to
// count.
class Counts {
 public:
  // Call it before other threads post. Throws std::bad_alloc.
  void share() { shared_ = std::make_unique<Tallies>(); }

  void add(Tallies::Field field, std::uint64_t amount = 1) {
    if (shared_ == nullptr) [[likely]] {
      own_.*field += amount;
    } else {
      shared_->add(field, amount);
    }
  }
  // One more operation of `bytes` bytes.
  void add_operation(Tallies::Field field, std::uint64_t bytes) {
    if (shared_ == nullptr) [[likely]] {
      own_.*field += 1;
      own_.bytes += bytes;
    } else {
      shared_->add_operation(field, bytes);
    }
  }
  // The same inside a worker that one thread owns (exclusive, auto).
  void add_own_operation(Tallies::Field field, std::uint64_t bytes) {
    own_.*field += 1;
    own_.bytes += bytes;
  }
  // One more operation that was not direct.
  void add_command(Tallies::Field field, std::uint64_t bytes) {
    if (shared_ == nullptr) {
      own_.commands += 1;
      own_.*field += 1;
      own_.bytes += bytes;
    } else {
      shared_->add_command(field, bytes);
    }
  }
  // True: since the last call something may have been stored without a command. Only valid if
  // share() was not called.
  [[nodiscard]] bool stored_directly() {
    const std::uint64_t stores = own_.puts + own_.word_puts + own_.atomics;
    if (stores == stores_seen_) [[likely]]
      return false;
    stores_seen_ = stores;
    return true;
  }
  // A number that changes with each operation. Any thread.
  [[nodiscard]] std::uint64_t glimpse() {
    const Tally all = shared_ == nullptr ? Tally{} : shared_->sum();
    std::uint64_t sum = 0;
    for (const Tallies::Field field : Tallies::kFields) {
      if (field != &Tally::again) sum += all.*field + base::peek(own_.*field);
    }
    return sum;
  }
  // As total(), while other threads post. Any thread.
  [[nodiscard]] Tally peek_total() {
    Tally all = shared_ == nullptr ? Tally{} : shared_->sum();
    for (const Tallies::Field field : Tallies::kFields) all.*field += base::peek(own_.*field);
    all.commands += base::peek(own_.commands);
    return all.total();
  }
  // Inside.
  [[nodiscard]] Tally total() {
    Tally all = shared_ == nullptr ? Tally{} : shared_->sum();
    for (const Tallies::Field field : Tallies::kFields) all.*field += own_.*field;
    all.commands += own_.commands;
    return all.total();
  }

 private:
  std::unique_ptr<Tallies> shared_;
  Tally own_;
  std::uint64_t stores_seen_ = 0;
};

// The sharing modes, by a table: every list of them comes from it.

class Gate;
class Inbox;
class Worker;

// One row of gate.cpp per sharing mode.
struct Mode {
  Sharing sharing;
  const char* name;
  const char* moved_by;  // for the report of a wait
  bool queues;           // it has a queue, whatever the small-message offload
  bool registers;        // messages may be left there for helpers, though callers could post them
  std::uint32_t visit_ns;
  std::unique_ptr<Gate> (*make)(Worker& worker, std::unique_ptr<Inbox> inbox);
};
// The order is that of their numbers.
std::span<const Mode> modes();

// Null: there is none.
const Mode* mode_named(std::string_view name);
const Mode* mode_numbered(std::uint32_t number);
// Texts for error messages.
std::string mode_names();

// The calling thread, and what it does in each round of a wait for another one.
struct SystemThread {
  // The thread pointer, which the processor has in a register: a comparison with it is one
  // instruction.
  static const void* me() { return __builtin_thread_pointer(); }
  // The thread that attends runs the worker's handlers, which do not block; it may have lost its
  // core.
  static void wait() { sched_yield(); }
};

// Which thread an exclusive worker without a gate belongs to, so that this thread can move the
// worker on while it waits for something else (Helpers::attend()). The owner is the thread that
// opened the worker, and later the thread that last used it for more than a direct operation.
// Another thread may have been given the worker and may use it for the first time while the
// previous owner waits in a barrier and is about to look at it:
//
//   a thread that uses it                the owner, which waits for something else
//   owner == me ? go on                  owner == me ? go on : leave it alone
//   owner = me                           attended: nobody -> me (compare-and-swap)
//   attended != nobody ? wait : go on    owner == me ? move the worker on
//   … use …                              attended = nobody
//
// Handlers and callbacks that use the worker while the owner moves it on are part of that: a thread
// that has come meanwhile waits for them, too.
//
// Invariants
//   The second column's look at owner comes after its write to attended, the first column's look at
//   attended after its write to owner, all seq_cst: one of them sees the other (Dekker). So nobody
//   uses the worker while another thread attends to it.
//   One thread at a time attends (the compare-and-swap), and only that clears attended.
//   Apart from that, the program ensures that one thread at a time uses the worker.
//
// The usual use costs one comparison.
template <template <class> class Atomic = std::atomic, class Thread = SystemThread>
class Ownership {
 public:
  Ownership() = default;
  Ownership(const Ownership&) = delete;
  Ownership& operator=(const Ownership&) = delete;

  // Called before any use if the worker has a gate: it then belongs to no thread.
  void renounce() { owner_.store(nullptr, std::memory_order_relaxed); }
  // The calling thread may use the worker at once. False: it has to call come_by() first.
  [[nodiscard]] bool mine() const { return owner_.load(std::memory_order_relaxed) == Thread::me(); }
  // The calling thread is about to use the worker.
  void come_by() {
    if (!mine()) [[unlikely]]
      take();
  }
  // Runs function(). False: the worker is another thread's, and nothing has run. The calling thread
  // must not be using the worker at the moment.
  template <class Function>
  bool attend(Function&& function) {
    if (!mine()) return false;
    const void* nobody = nullptr;
    if (!attended_.compare_exchange_strong(nobody, Thread::me(), std::memory_order_seq_cst, std::memory_order_relaxed))
      return false;
    const bool mine = owner_.load(std::memory_order_seq_cst) == Thread::me();
    if (mine) function();
    attended_.store(nullptr, std::memory_order_release);  // partner: the load in take()
    return mine;
  }

 private:
  [[gnu::noinline, gnu::cold]] void take() {
    // Inside its own look, only this thread's own write is read here.
    if (attended_.load(std::memory_order_relaxed) == Thread::me()) return;
    owner_.store(Thread::me(), std::memory_order_seq_cst);
    while (attended_.load(std::memory_order_seq_cst) != nullptr) Thread::wait();
  }

  Atomic<const void*> owner_{Thread::me()};
  Atomic<const void*> attended_{nullptr};  // by whom
};

}  // namespace heddle::worker
