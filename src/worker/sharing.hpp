// The threads that may post to a worker, and the counting of what they post.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/cache_line.hpp"
#include "base/fence.hpp"
#include "base/threads.hpp"

namespace heddle::engine {

// See docs/architecture.md, "Sharing modes". The values are those of heddle_sharing. A mode that no
// other file asks for needs no name here: Sharing{7}.
enum class Sharing : std::uint8_t { exclusive = 1, shared, offload, delegate, mutex, automatic };

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

}  // namespace heddle::engine
