// Runs one rank's schedule: the session queue in software.
//
// Commands are bound once: to addresses if this process maps the other rank's memory, otherwise to
// a carrier. start() begins a run: it writes two words and executes what may run at once. Nothing
// is posted again, so it costs the same for any number of segments. After that any thread that
// calls advance() moves the run on: a waiting thread, a helper. One thread at a time is inside; the
// others return without waiting.
//
// Invariants, in addition to those of Runner: a counter holds all credits that it ever got; run k
// of a schedule waits for k * per_run + count. A counter with one giver is written by plain stores
// of the sum (release), one with several givers by additions (release). Waits read it (acquire): a
// thread that sees a credit also sees the bytes that came with it. Puts of a carrier may arrive in
// any order. So the credits of such a put, and of the commands behind it in its queue, follow when
// it has arrived; until then no command of its queue writes to its source.
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
#include "queue/bell.hpp"

namespace heddle::collective {

// In memory that all ranks of the operation reach; each in its own cache line, so that givers do
// not disturb each other.
struct alignas(base::kCacheLine) CounterWord {
  // Partners: the giver's release store or addition in SessionQueue, the owner's acquire load
  // there.
  std::atomic<std::uint64_t> credits{0};
  // Place::beside; aligned for any element
  alignas(16) std::array<std::byte, kBesideBytes> bytes{};
};
static_assert(sizeof(CounterWord) == base::kCacheLine);

// Where a block of Place::beside begins, counted from the first counter.
constexpr std::uint64_t beside_at(std::uint64_t offset) {
  return offset / kBesideBytes * sizeof(CounterWord) + offsetof(CounterWord, bytes) + offset % kBesideBytes;
}

// Carries bytes and credits to a rank whose memory this process does not map. Used by the thread
// that is inside one SessionQueue.
class Carrier {
 public:
  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  virtual ~Carrier() = default;

  static constexpr std::int32_t kThere = 1;
  // Puts the bytes into `place` at the rank. When they are there, *ended becomes kThere, or a
  // negative status; release, from any thread. False: not now, nothing has happened.
  virtual bool put(const std::byte* source, std::uint64_t bytes, Place place, std::uint64_t offset,
                   std::atomic<std::int32_t>* ended) = 0;
  // AGAIN: not now. An error: the credits will not arrive.
  virtual base::Status give(std::uint32_t counter, std::uint64_t credits) = 0;
};

// A rank's memory, as this process sees it.
struct RankMemory {
  std::array<std::byte*, 3>
      // by Place, without beside; may be null where no command of this rank touches the place
      places{};
  CounterWord* counters = nullptr;  // as many as its schedule has
  // wakes the rank's threads that sleep until it gets credits; null: they are not asleep for long
  queue::BellPull* bell = nullptr;
  // not null: the rank is reached through this, and the other fields mean nothing
  Carrier* carrier = nullptr;
};

class SessionQueue : public Runner {
 public:
  // `ranks[i]` is the memory of rank i; all of it must outlive the queue. No rank may start before
  // prepare() is done at all ranks. The schedule must pass check().
  SessionQueue(const Schedule& schedule, std::span<const RankMemory> ranks, Reduction reduction) : SessionQueue() {
    bind_to(schedule, ranks, reduction);
  }

  // Sets this rank's counters to their initial values.
  static void prepare(const Schedule& schedule, CounterWord* counters);

  // Before a start, while no run is under way: sets another address of the caller's buffers. Not
  // for buffers that peers put into.
  void set_place(Place place, std::byte* address) { places_[static_cast<std::size_t>(place)] = address; }
  // Before a start: the memory that `expose` copies to Place::receive. By default that place
  // itself.
  void set_exposed(std::byte* address) { exposed_ = address; }

  // Before a start: what the next runs combine with. Its elements must have the same length as
  // before.
  void set_reduction(const Reduction& reduction) { reduction_ = reduction; }
  // Before a start: a copy made at the end of a successful run, before anybody can see the end. No
  // bytes: nothing is copied.
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
    if (!guard) return;  // the next thread that advances it begins the run
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
  // A derived class that knows the members' memory overrides this; by default the memory is not
  // reused.
  [[nodiscard]] Memory retire(const Past&) override { return Memory::never; }

 protected:
  // bind_to() must be called before anything else.
  SessionQueue() : Runner(Needs::processor) {}
  void bind_to(const Schedule& schedule, std::span<const RankMemory> ranks, Reduction reduction);

 private:
  struct Due {
    const CounterWord* counter = nullptr;
    std::uint64_t credits = 0;  // that the counter must have; grows by per_run in each run
    std::uint64_t per_run = 0;
  };
  struct Step {
    Action action = Action::nop;
    std::array<Due, 2> dues;
    // points into places_, or to exposed_; null: `source` is the address
    std::byte* const* source_base = nullptr;
    const std::byte* source = nullptr;
    std::uint64_t source_offset = 0;
    std::byte* const* destination_base = nullptr;  // null: `destination` is the address
    std::byte* destination = nullptr;
    std::uint64_t destination_offset = 0;
    std::uint64_t bytes = 0;
    CounterWord* counter = nullptr;   // null: the step gives nothing, or its carrier gives
    queue::BellPull* bell = nullptr;  // of the counter's rank; see RankMemory
    std::uint64_t credits = 0;
    // for a counter with one giver: the sum of what this rank has given; null: several givers
    std::uint64_t* given = nullptr;
    Carrier* carrier = nullptr;
    std::uint32_t counter_number = 0;          // for the carrier
    Place destination_place = Place::receive;  // for the carrier
  };
  struct Queue {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t next = 0;
    std::uint32_t credited = 0;  // steps before this one have given their credits
    bool carries = false;        // some step has a carrier
  };
  struct alignas(base::kCacheLine) Sum {
    std::uint64_t given = 0;
  };

  [[nodiscard]] static bool released(const Due& due) {
    return due.counter == nullptr || due.counter->credits.load(std::memory_order_acquire) >= due.credits;
  }
  static void show_released(const Step& step);
  bool advance_locked();
  void begin_run(std::uint64_t run);
  bool end_run(std::uint64_t run);
  bool advance_queue(Queue& queue);
  bool give_credits(Queue& queue);
  bool sources_left(Queue& queue, const Step& step);
  [[nodiscard]] bool on_its_way(const Queue& queue) const;
  bool execute(Step& step);
  void give(Step& step);
  void bind_command(const ScheduleCommand& command, Rank rank, std::span<const RankMemory> ranks,
                    const Schedule& schedule);
  void bind_target(const ScheduleCommand& command, const RankMemory& target, bool here, Step& step);
  std::uint64_t* sum_of(const CounterWord* counter);

  std::array<std::byte*, kPlaces> places_{};
  std::byte* exposed_ = nullptr;
  Delivery delivery_;
  std::uint64_t allowance_ = kAll;  // bytes that the current call may still move
  std::uint64_t running_ = 0;       // the run that queues_ belong to
  // The fields that a run writes have cache lines of their own: operations that are made one after
  // the other lie side by side in memory, and each may be run by another thread. The first open_
  // queues have not reached their end.
  std::vector<Queue, base::OwnLines<Queue>> queues_;
  std::size_t open_ = 0;
  std::vector<Step, base::OwnLines<Step>> steps_;  // queue by queue
  // For steps with a carrier and bytes; 0: under way. Release by the carrier, partner: the acquire
  // load in give_credits().
  std::unique_ptr<std::atomic<std::int32_t>[]> ended_;
  std::vector<std::pair<const CounterWord*, std::unique_ptr<Sum>>> sums_;
  Reduction reduction_;
};

}  // namespace heddle::collective
