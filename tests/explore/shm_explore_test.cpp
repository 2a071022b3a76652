// The protocols of src/transport/shm between two processes, as models beside the code: that code
// stands on std::atomic over mapped memory. Each function here does the atomic operations of the
// function that it is named after, in its order and with its memory orders. If you change one,
// change the other. The words of a chunk are made by the code itself (bounce.hpp); the words of a
// small slot and of a worker's attention are the code itself (layout.hpp).
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"
#include "transport/shm/bounce.hpp"
#include "transport/shm/layout.hpp"

namespace heddle::explore::shm_explore_test {
namespace {

namespace shm = transport::shm;
using shm::chunk_word;
using shm::ChunkState;

// ---- bounce chunks ------------------------------------------------------------------------------

enum class ChunkBug {
  none,
  generation_not_checked,  // serve() takes whatever is requested
  cancelled_by_store,      // cancel() looks, then stores
  announced_before_filled,
  done_before_copied,
};

// One chunk, lent for a first put, taken back if the target has not looked, and lent again for a
// second put. The target serves both announcements late or early. The announcement's contents
// travel in the ring, which is explored by itself: here a release store per announcement.
template <ChunkBug kBug>
struct ChunkModel final : Model {
  static constexpr std::uint32_t kPuts = 2;

  Atomic<std::uint64_t> word;
  Plain<std::uint32_t> data;
  std::array<Atomic<std::uint64_t>, kPuts> announced;   // the generation, from 1 on
  std::array<Plain<std::uint32_t>, kPuts> destination;  // in the target's region
  std::array<ChunkState, kPuts> ended{};

  ChunkModel() {
    word.name("word");
    data.name("data");
    announced[0].name("announced");
    announced[1].name("announced");
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    if (thread == 0) return initiate();
    for (std::uint32_t put = 0; put < kPuts; ++put) {
      std::uint64_t generation = 0;
      while ((generation = announced[put].load(std::memory_order_acquire)) == 0) pause();
      serve(put, generation);
    }
  }

  // BouncePool::request
  std::uint64_t request() {
    const std::uint64_t generation = shm::generation_of(word.load(std::memory_order_relaxed)) + 1;
    word.store(chunk_word(generation, ChunkState::requested), std::memory_order_release);
    return generation;
  }
  // BouncePool::cancel
  bool cancel(std::uint64_t generation) {
    std::uint64_t expected = chunk_word(generation, ChunkState::requested);
    const std::uint64_t free = chunk_word(generation + 1, ChunkState::free);
    if (kBug == ChunkBug::cancelled_by_store) {
      if (word.load(std::memory_order_acquire) != expected) return false;
      word.store(free, std::memory_order_release);
      return true;
    }
    return word.compare_exchange_strong(expected, free, std::memory_order_acq_rel, std::memory_order_acquire);
  }
  // BouncePool::give_back
  void give_back() {
    const std::uint64_t generation = shm::generation_of(word.load(std::memory_order_relaxed));
    word.store(chunk_word(generation + 1, ChunkState::free), std::memory_order_release);
  }

  // Transfers::feed_one, then fall_back_to_cma for the first put, collect for the second.
  void initiate() {
    for (std::uint32_t put = 0; put < kPuts; ++put) {
      if (kBug != ChunkBug::announced_before_filled) data.store(70 + put);
      const std::uint64_t generation = request();
      announced[put].store(generation, std::memory_order_release);
      if (kBug == ChunkBug::announced_before_filled) data.store(70 + put);
      if (put == 0 && cancel(generation)) {
        ended[put] = ChunkState::free;
        give_back();
        continue;
      }
      ended[put] = collect();
      give_back();
    }
  }
  ChunkState collect() {
    for (;;) {
      const ChunkState state = shm::state_of(word.load(std::memory_order_acquire));
      if (state != ChunkState::requested && state != ChunkState::taken) return state;
      pause();
    }
  }

  // Transfers::serve
  void serve(std::uint32_t put, std::uint64_t generation) {
    std::uint64_t expected = chunk_word(generation, ChunkState::requested);
    if (kBug == ChunkBug::generation_not_checked) {
      expected = word.load(std::memory_order_acquire);
      if (shm::state_of(expected) != ChunkState::requested) return;
      generation = shm::generation_of(expected);
    }
    if (!word.compare_exchange_strong(expected, chunk_word(generation, ChunkState::taken), std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return;
    }
    if (kBug == ChunkBug::done_before_copied) {
      word.store(chunk_word(generation, ChunkState::done), std::memory_order_release);
    }
    destination[put].store(data.load());
    check(destination[put].load() == 70 + put, "a put brings its own data");
    if (kBug != ChunkBug::done_before_copied) {
      word.store(chunk_word(generation, ChunkState::done), std::memory_order_release);
    }
  }

  void finish() override {
    check(ended[0] == ChunkState::done || ended[0] == ChunkState::free, "the first put is finished or taken back");
    check(ended[1] == ChunkState::done, "the second put is finished");
    check(destination[0].load() == (ended[0] == ChunkState::done ? 70U : 0U), "what was taken back is not written");
    check(destination[1].load() == 71, "the second put has arrived");
    check(shm::state_of(word.load()) == ChunkState::free, "the chunk is the owner's again");
  }
};

TEST(BounceChunk, HoldsInAllSchedules) {
  expect_holds<ChunkModel<ChunkBug::none>>("chunk: request, take, cancel, reuse", kOrdered);
}

TEST(BounceChunk, PlantedBugsAreFound) {
  // The stale announcement takes the chunk of the second put.
  expect_finds<ChunkModel<ChunkBug::generation_not_checked>>("generation not checked", kInterleaved, "its own data");
  expect_finds<ChunkModel<ChunkBug::generation_not_checked>>("generation not checked, weak", kOrdered, "its own data");
  // The target has taken it in between: both sides have the chunk.
  expect_finds<ChunkModel<ChunkBug::cancelled_by_store>>("cancelled by store", kOrdered, "race");
  expect_finds<ChunkModel<ChunkBug::announced_before_filled>>("announced before filled", kOrdered, "race");
  expect_finds<ChunkModel<ChunkBug::announced_before_filled>>("announced before filled, data delayed", kByData,
                                                              "its own data");
  expect_finds<ChunkModel<ChunkBug::done_before_copied>>("done before copied", kOrdered, "race");
}

// ---- small slots --------------------------------------------------------------------------------

enum class SlotBug {
  none,
  any_request_taken,      // serve() takes the slot as it is, not as the request names it
  not_taken,              // serve() copies first, and then ends the operation if it may
  kernel_copies_at_once,  // the kernel copies though the request was not taken back
  ended_before_copied,
  read_before_ended,  // the initiator reads a get's data when the target has taken the slot
};

// One slot, used for a put that is taken back if the target has not looked, by a second put if it
// was, and then by a get. The target serves all requests late or early. The contents of a request
// travel in the ring, which is explored by itself: here a release store for each.
template <SlotBug kBug>
struct SlotModel final : Model {
  static constexpr std::uint32_t kPuts = 2;
  static constexpr std::uint32_t kRequests = kPuts + 1;

  shm::SlotWord<Atomic> slot;
  Plain<std::uint32_t> data;                            // the slot's
  std::array<Atomic<std::uint64_t>, kRequests> asked;   // the word that it names, from 1 on
  std::array<Plain<std::uint32_t>, kPuts> destination;  // in the target's memory
  Plain<std::uint32_t> source{42};                      // of the get, in the target's memory
  std::array<bool, kPuts> by_kernel{};

  SlotModel() {
    data.name("data");
    for (auto& word : asked) word.name("asked");
    for (auto& word : destination) word.name("destination");
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    if (thread == 0) return initiate();
    for (std::uint32_t request = 0; request < kRequests; ++request) {
      std::uint64_t named = 0;
      while ((named = asked[request].load(std::memory_order_acquire)) == 0) pause();
      serve(request, named - 1);
    }
  }

  // SmallTransfers::start
  std::uint64_t ask(std::uint32_t request) {
    const std::uint64_t word = slot.idle();
    asked[request].store(word + 1, std::memory_order_release);
    return word;
  }
  // SmallTransfers::advance
  shm::ChunkState wait(std::uint64_t word) {
    for (;;) {
      const ChunkState state = slot.look(word);
      const bool over = state != ChunkState::taken || kBug == SlotBug::read_before_ended;
      if (state != ChunkState::requested && over) return state;
      pause();
    }
  }
  void initiate() {
    for (std::uint32_t put = 0; put < kPuts; ++put) {
      const std::uint64_t word = ask(put);
      by_kernel[put] = kBug == SlotBug::kernel_copies_at_once ? slot.look(word) == ChunkState::requested
                                                              : put == 0 && slot.take_back(word);
      if (by_kernel[put]) {
        destination[put].store(70 + put);
        if (kBug == SlotBug::kernel_copies_at_once) static_cast<void>(slot.take_back(word));
      } else {
        static_cast<void>(wait(word));
      }
      check(destination[put].load() == 70 + put, "a put that has ended is there");
    }
    const std::uint64_t word = ask(kPuts);
    check(wait(word) != ChunkState::failed, "the range is there");
    check(data.load() == 42, "a get brings its data");
  }

  // SmallTransfers::serve
  void serve(std::uint32_t request, std::uint64_t named) {
    if (kBug == SlotBug::any_request_taken) named = slot.idle();
    if (kBug == SlotBug::not_taken) copy(request);
    if (!slot.take(named)) return;
    if (kBug == SlotBug::ended_before_copied) slot.end(named, true);
    if (kBug != SlotBug::not_taken) copy(request);
    if (kBug != SlotBug::ended_before_copied) slot.end(named, true);
  }
  void copy(std::uint32_t request) {
    if (request == kPuts) {
      data.store(source.load());
    } else {
      destination[request].store(70 + request);
    }
  }

  void finish() override {
    for (std::uint32_t put = 0; put < kPuts; ++put) check(destination[put].load() == 70 + put, "both puts are there");
  }
};

TEST(SmallSlot, HoldsInAllSchedules) {
  expect_holds<SlotModel<SlotBug::none>>("small slot: request, take back, reuse", kOrdered);
  expect_holds<SlotModel<SlotBug::none>>("small slot, data delayed", kByData);
}

TEST(SmallSlot, PlantedBugsAreFound) {
  // The request that was taken back takes the slot of the next one.
  expect_finds<SlotModel<SlotBug::any_request_taken>>("any request taken", kOrdered, "race");
  expect_finds<SlotModel<SlotBug::not_taken>>("not taken", kOrdered, "race");
  expect_finds<SlotModel<SlotBug::kernel_copies_at_once>>("kernel copies at once", kOrdered, "race");
  expect_finds<SlotModel<SlotBug::ended_before_copied>>("ended before copied", kOrdered, "race");
  expect_finds<SlotModel<SlotBug::ended_before_copied>>("ended before copied, data delayed", kByData, "is there");
  expect_finds<SlotModel<SlotBug::read_before_ended>>("read before ended", kOrdered, "race");
}

// ---- new rings ----------------------------------------------------------------------------------

enum class ConnectBug {
  none,
  attention_before_bit,
  bit_before_count,
  count_before_entry,
  bits_before_attention,  // of the receiver: attention is lowered after the bitmap is taken
};

// Device::open_ring of two senders and Worker::discover of one receiver. The appending to a ring
// list is under a mutex of the sender's process; each sender here is a process with one thread. The
// bitmap is one word for both.
template <ConnectBug kBug, std::uint32_t kSenders, std::uint32_t kRings, class Attention = shm::Attention<Atomic>,
          bool kIgnored = false>
struct ConnectModel final : Model {
  struct Process {
    Atomic<std::uint64_t> ring_count;
    std::array<Plain<std::uint64_t>, kRings> ring;
  };
  std::array<Process, kSenders> peers;
  Atomic<std::uint64_t> senders;
  Attention attention;

  ConnectModel() {
    senders.name("senders");
    for (Process& peer : peers) peer.ring_count.name("ring_count");
  }
  [[nodiscard]] std::uint32_t threads() const override { return kSenders + 1 + (kIgnored ? 1 : 0); }
  void run(std::uint32_t thread) override {
    if (thread == kSenders) return receive();
    if (thread > kSenders) return attention.ignore();  // SmallTransfers::gives_up
    for (std::uint32_t ring = 0; ring < kRings; ++ring) open_ring(thread, 100 + ring);
  }

  // Device::open_ring
  void open_ring(std::uint32_t rank, std::uint64_t offset) {
    if (kBug == ConnectBug::bit_before_count) announce(rank);
    Process& me = peers[rank];
    const std::uint64_t index = me.ring_count.load(std::memory_order_relaxed);
    if (kBug != ConnectBug::count_before_entry) me.ring[index].store(offset);
    me.ring_count.store(index + 1, std::memory_order_release);
    if (kBug == ConnectBug::count_before_entry) me.ring[index].store(offset);
    if (kBug != ConnectBug::bit_before_count) announce(rank);
  }
  void announce(std::uint32_t rank) {
    if (kBug == ConnectBug::attention_before_bit) attention.announce();
    senders.fetch_or(std::uint64_t{1} << rank, std::memory_order_release);
    if (kBug != ConnectBug::attention_before_bit) attention.announce();
  }

  // Worker::poll until it knows all rings; Worker::discover and read_ring_list.
  void receive() {
    std::array<std::uint64_t, kSenders> cursors{};
    for (std::uint32_t known = 0; known < kSenders * kRings;) {
      if (!attention.wanted()) {
        pause();
        continue;
      }
      std::uint64_t bits = 0;
      if (kBug == ConnectBug::bits_before_attention) bits = senders.exchange(0, std::memory_order_acquire);
      if (!attention.take()) continue;
      if (kBug != ConnectBug::bits_before_attention) bits = senders.exchange(0, std::memory_order_acquire);
      for (std::uint32_t rank = 0; rank < kSenders; ++rank) {
        if ((bits >> rank & 1) == 0) continue;
        const std::uint64_t count = peers[rank].ring_count.load(std::memory_order_acquire);
        check(count <= kRings, "the ring list is well formed");
        for (; cursors[rank] < count; ++cursors[rank], ++known) {
          check(peers[rank].ring[cursors[rank]].load() == 100 + cursors[rank], "the entry is whole");
        }
      }
    }
  }
};

template <ConnectBug kBug>
using OneSender = ConnectModel<kBug, 1, 2>;
template <ConnectBug kBug>
using TwoSenders = ConnectModel<kBug, 2, 1>;

// The planted bug: it stores although an announcement may come in between, or it forgets the rings
// that it has found.
enum class IgnoreBug { stores, takes_all };
template <IgnoreBug kBug>
struct WrongAttention {
  Atomic<std::uint32_t> word;
  bool wanted() { return word.load(std::memory_order_relaxed) != 0; }
  bool take() {
    const std::uint32_t found = word.exchange(0, std::memory_order_acquire);
    return kBug == IgnoreBug::takes_all ? found == 1 : (found & 1) != 0;
  }
  void announce() { word.fetch_or(1, std::memory_order_release); }
  void ignore() {
    if (kBug == IgnoreBug::takes_all) {
      word.fetch_or(2, std::memory_order_relaxed);
    } else {
      word.store(word.load(std::memory_order_relaxed) | 2, std::memory_order_relaxed);
    }
  }
};
template <class Attention>
using Ignored = ConnectModel<ConnectBug::none, 1, 2, Attention, true>;

TEST(Connect, HoldsInAllSchedules) {
  expect_holds<OneSender<ConnectBug::none>>("connect, 1 sender, 2 rings", kOrdered);
  expect_holds<TwoSenders<ConnectBug::none>>("connect, 2 senders", kOrdered);
  expect_holds<Ignored<shm::Attention<Atomic>>>("connect, ignored meanwhile", kOrdered);
}

TEST(Connect, PlantedBugsAreFound) {
  expect_finds<TwoSenders<ConnectBug::attention_before_bit>>("attention before the bit", kInterleaved,
                                                             "waits for ever");
  expect_finds<OneSender<ConnectBug::attention_before_bit>>("attention before the bit, weak", kOrdered,
                                                            "waits for ever");
  expect_finds<OneSender<ConnectBug::bit_before_count>>("bit before the count", kOrdered, "waits for ever");
  expect_finds<OneSender<ConnectBug::count_before_entry>>("count before the entry", kOrdered, "race");
  expect_finds<OneSender<ConnectBug::count_before_entry>>("count before the entry, data delayed", kByData,
                                                          "the entry is whole");
  expect_finds<TwoSenders<ConnectBug::bits_before_attention>>("bits before attention", kOrdered, "waits for ever");
  expect_finds<Ignored<WrongAttention<IgnoreBug::stores>>>("ignored by a store", kOrdered, "waits for ever");
  expect_finds<Ignored<WrongAttention<IgnoreBug::takes_all>>>("ignored and announced", kOrdered, "waits for ever");
}

}  // namespace
}  // namespace heddle::explore::shm_explore_test
