// Runs one rank's schedule: the session queue in software.
//
// Commands are bound once: to addresses where the other rank's memory is this process's too, else
// to a carrier. start() begins a run: it writes two words and executes what may go at once; nothing
// is posted again, so it costs the same for any number of segments. From there whoever calls
// advance() moves the run on: the thread that waits, a helper. One at a time is inside; the others
// go on without waiting.
//
// Invariants, beside those of Runner: a counter holds all credits that ever came to it; run k of a
// schedule waits for k * per_run + count. A counter with one giver is written by plain stores of
// the sum (release), one with several by additions (release); waits read it (acquire), so that who
// sees a credit sees the bytes that came with it. What a carrier puts may arrive in any order, so
// its credits, and those of the commands behind it in its queue, follow when it is there; until
// then no command of its queue writes to its source.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/cache_line.hpp"
#include "base/error.hpp"
#include "collective/runner.hpp"

namespace heddle::collective {

// In memory that all ranks of the operation reach; a line each, so that givers do not disturb each
// other.
struct alignas(base::kCacheLine) CounterWord {
  // Partners: SessionQueue's release store or addition at the giver, its acquire load at the owner.
  std::atomic<std::uint64_t> credits{0};
  alignas(16) std::array<std::byte, kBesideBytes> bytes{};  // Place::beside; as any element may ask
};
static_assert(sizeof(CounterWord) == base::kCacheLine);

// Where a block beside a counter begins, from the first counter on.
constexpr std::uint64_t beside_at(std::uint64_t offset) {
  return offset / kBesideBytes * sizeof(CounterWord) + offsetof(CounterWord, bytes) + offset % kBesideBytes;
}

// Brings bytes and credits to a rank whose memory is not this process's. For who is inside one
// SessionQueue.
class Carrier {
 public:
  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  virtual ~Carrier() = default;

  static constexpr std::int32_t kThere = 1;
  // When the bytes are in `place` there, *ended becomes kThere, or a negative status; with release,
  // from any thread. False: not now, nothing has happened.
  virtual bool put(const std::byte* source, std::uint64_t bytes, Place place, std::uint64_t offset,
                   std::atomic<std::int32_t>* ended) = 0;
  // AGAIN: not now. An error: they will not come.
  virtual base::Status give(std::uint32_t counter, std::uint64_t credits) = 0;
};

// A rank's memory, as this process sees it.
struct RankMemory {
  std::array<std::byte*, 3>
      // by Place, beside excepted; those that no command of this rank touches may be null
      places{};
  CounterWord* counters = nullptr;  // as many as its schedule has
  Carrier* carrier = nullptr;       // not null: it is reached by this, and the others mean nothing
};

class SessionQueue : public Runner {
 public:
  // `ranks[i]` is the memory of rank i; all of it stays until the queue is gone. Nobody may start
  // before prepare() of all ranks is done. The schedule is as check() proves it.
  SessionQueue(const Schedule& schedule, std::span<const RankMemory> ranks, Reduction reduction) : SessionQueue() {
    bind_to(schedule, ranks, reduction);
  }

  // Gives this rank's counters what they have at first.
  static void prepare(const Schedule& schedule, CounterWord* counters);

  // Before a start, no run being under way: the caller's buffers are elsewhere. Not those that
  // peers put into.
  void set_place(Place place, std::byte* address) { places_[static_cast<std::size_t>(place)] = address; }
  // Before a start: what expose() copies to Place::receive. Unless set, it is that place itself.
  void set_exposed(std::byte* address) { exposed_ = address; }

  // Before a start: what the next runs combine with; it has elements as long as the one before.
  void set_reduction(const Reduction& reduction) { reduction_ = reduction; }
  // Before a start: what the end of a run that went well copies, before anybody sees that it has
  // ended. No bytes: nothing.
  struct Delivery {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint64_t bytes = 0;
  };
  void set_delivery(const Delivery& delivery) { delivery_ = delivery; }

  // ---- Runner
  void start(std::uint64_t bytes) final {
    begin();
    const queue::TryLock<>::Guard guard(lock_);
    if (!guard) return;  // who advances it next begins
    allowance_ = bytes;
    static_cast<void>(advance_locked());
    allowance_ = kAll;
  }
  using Runner::start;
  bool advance() final {
    if (done()) return true;
    const queue::TryLock<>::Guard guard(lock_);
    return guard && advance_locked();
  }
  [[nodiscard]] std::vector<std::uint32_t> awaited() final;
  // By who knows the members' memory; nobody reaches it any more.
  [[nodiscard]] Memory retire(const Past&) override { return Memory::never; }

 protected:
  // Bound by bind_to(), before anything else.
  SessionQueue() : Runner(Needs::processor) {}
  void bind_to(const Schedule& schedule, std::span<const RankMemory> ranks, Reduction reduction);

 private:
  struct Due {
    const CounterWord* counter = nullptr;
    std::uint64_t credits = 0;  // that the counter must have; grows by per_run with each run
    std::uint64_t per_run = 0;
  };
  struct Step {
    Action action = Action::nop;
    std::array<Due, 2> dues;
    // of places_, or exposed_; null: `source` is the address
    std::byte* const* source_base = nullptr;
    const std::byte* source = nullptr;
    std::uint64_t source_offset = 0;
    std::byte* const* destination_base = nullptr;  // null: `destination` is the address
    std::byte* destination = nullptr;
    std::uint64_t destination_offset = 0;
    std::uint64_t bytes = 0;
    CounterWord* counter = nullptr;  // null: it gives nothing, or its carrier does
    std::uint64_t credits = 0;
    // one giver: the sum of what this rank has given; null: several
    std::uint64_t* given = nullptr;
    Carrier* carrier = nullptr;
    std::uint32_t counter_number = 0;          // carrier
    Place destination_place = Place::receive;  // carrier
  };
  struct Queue {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t next = 0;
    std::uint32_t settled = 0;  // steps before this one have given their credits
    bool carries = false;       // some step has a carrier
  };

  [[nodiscard]] static bool released(const Due& due) {
    return due.counter == nullptr || due.counter->credits.load(std::memory_order_acquire) >= due.credits;
  }
  bool advance_locked();
  void begin_run(std::uint64_t run);
  bool end_run(std::uint64_t run);
  bool advance_queue(Queue& queue);
  bool settle(Queue& queue);
  bool sources_left(Queue& queue, const Step& step);
  [[nodiscard]] bool on_its_way(const Queue& queue) const;
  bool execute(Step& step);
  void give(Step& step);
  void bind_command(const Command& command, Rank rank, std::span<const RankMemory> ranks, const Schedule& schedule);
  void bind_target(const Command& command, const RankMemory& target, bool here, Step& step);
  std::uint64_t* sum_of(const CounterWord* counter);

  std::array<std::byte*, kPlaces> places_{};
  std::byte* exposed_ = nullptr;
  Delivery delivery_;
  std::uint64_t allowance_ = kAll;  // bytes that this visit may still move
  std::uint64_t running_ = 0;       // the run that queues_ are at
  std::vector<Queue> queues_;       // those that are not at their end come first: open_ of them
  std::size_t open_ = 0;
  std::vector<Step> steps_;  // queue by queue
  // Of steps with a carrier and bytes; 0: on its way. Release by the carrier, partner: the acquire
  // load in settle().
  std::unique_ptr<std::atomic<std::int32_t>[]> ended_;
  std::vector<std::pair<const CounterWord*, std::unique_ptr<std::uint64_t>>> sums_;
  Reduction reduction_;
};

}  // namespace heddle::collective
