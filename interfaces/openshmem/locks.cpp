#include "openshmem/locks.hpp"

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>

#include "openshmem/atomics.hpp"
#include "openshmem/contexts.hpp"
#include "openshmem/patience.hpp"

namespace heddle::shmem {
namespace {

struct Lock {
  std::uint32_t* next;
  std::uint32_t* turn;
  std::uint64_t offset;
  int home;
};

// Neighbours in an array of locks have different home PEs.
Lock find(Call call, long* lock) {
  static_assert(sizeof(long) == 2 * sizeof(std::uint32_t));
  check_initialized(call);
  const RemotePlace place = locate(call, "lock", lock, sizeof *lock);
  if (place.offset % sizeof *lock != 0) fail(call, "lock %p is not aligned as a long is", static_cast<void*>(lock));
  auto* words = reinterpret_cast<std::uint32_t*>(lock);
  const auto n = static_cast<std::size_t>(g_state.n_pes);
  return {words, words + 1, place.offset, static_cast<int>(place.offset / sizeof *lock % n)};
}

// The word that says whose turn it is.
struct Turn {
  std::uint16_t served = 0;  // the ticket, its lower half
  std::uint16_t holder = kNobody;
  static constexpr std::uint16_t kNobody = 0;
  static constexpr std::uint16_t kUnnamed = 0xffff;  // a PE with a larger number has the lock

  static Turn of(std::uint32_t word) {
    return {static_cast<std::uint16_t>(word), static_cast<std::uint16_t>(word >> 16)};
  }
  [[nodiscard]] std::uint32_t word() const { return served | std::uint32_t{holder} << 16; }
  [[nodiscard]] bool is_of(std::uint32_t ticket) const { return served == static_cast<std::uint16_t>(ticket); }
  [[nodiscard]] int pe() const { return holder == kNobody || holder == kUnnamed ? -1 : holder - 1; }
};

std::uint16_t named(int pe) {
  return pe + 1 < Turn::kUnnamed ? static_cast<std::uint16_t>(pe + 1) : Turn::kUnnamed;
}

Turn turn_now(Call call, const Lock& lock) {
  return Turn::of(atomic_fetch(call, World{}, static_cast<const std::uint32_t*>(lock.turn), lock.home));
}

// Both words, as they were at one moment.
struct State {
  std::uint32_t next;
  Turn turn;
};
State state_now(Call call, const Lock& lock) {
  static_assert(std::endian::native == std::endian::little);
  const auto both = atomic_fetch(call, World{}, reinterpret_cast<const std::uint64_t*>(lock.next), lock.home);
  return {static_cast<std::uint32_t>(both), Turn::of(static_cast<std::uint32_t>(both >> 32))};
}

// The locks that this PE holds, for reports about jobs that hang; as many as there is room for.
// Relaxed: they are read when nothing moves.
std::array<std::atomic<std::uint64_t>, 32> g_keys;

// The lock's offset in the symmetric heap, which all PEs know it by; not 0.
std::uint64_t key_of(const Lock& lock) {
  return lock.offset + 1;
}

void hold(std::uint64_t key) {
  for (std::atomic<std::uint64_t>& place : g_keys) {
    std::uint64_t none = 0;
    if (place.compare_exchange_strong(none, key, std::memory_order_relaxed)) return;
  }
}

void unhold(std::uint64_t key) {
  for (std::atomic<std::uint64_t>& place : g_keys) {
    std::uint64_t seen = key;
    if (place.compare_exchange_strong(seen, 0, std::memory_order_relaxed)) return;
  }
}

void took(Call call, const Lock& lock, std::uint32_t ticket) {
  hold(key_of(lock));
  const Turn turn{static_cast<std::uint16_t>(ticket), named(g_state.my_pe)};
  atomic_set(call, World{}, lock.turn, turn.word(), lock.home);
}

void tell_lock(heddle_wait_facts& facts, const Lock& lock, const Turn& turn) {
  const void* const address = lock.next;
  facts.cause = HEDDLE_WAIT_LOCK;
  facts.number = key_of(lock);
  std::snprintf(facts.tag, sizeof facts.tag, "lock %p", address);
  if (turn.pe() < 0) return awaits(facts, "lock %p is held", address);
  facts.rank = static_cast<std::uint32_t>(turn.pe());
  awaits(facts, "lock %p is held by PE %d", address, turn.pe());
}

int dead_holder(const Turn& turn) {
  return turn.pe() >= 0 && has_died(turn.pe()) ? turn.pe() : -1;
}

}  // namespace

std::size_t list_held_locks(std::uint64_t* keys, std::size_t most) {
  std::size_t count = 0;
  for (const std::atomic<std::uint64_t>& place : g_keys) {
    const std::uint64_t key = place.load(std::memory_order_relaxed);
    if (key != 0 && count < most) keys[count++] = key;
  }
  return count;
}

void set_lock(Call call, long* lock) {
  const Lock found = find(call, lock);
  const std::uint32_t ticket = fetch_update<Add>(call, default_context(), found.next, std::uint32_t{1}, found.home);
  // Acquire. Partner: clear_lock's store.
  Turn turn;
  wait_until_true(
      call, default_context().worker, [&] { return (turn = turn_now(call, found)).is_of(ticket); },
      [&](heddle_wait_facts& facts) {
        tell_lock(facts, found, turn);
        const std::size_t used = std::strlen(facts.text);
        std::snprintf(facts.text + used, sizeof facts.text - used, ", and %u are before this one",
                      static_cast<std::uint16_t>(ticket - turn.served));
      },
      [&] { return dead_holder(turn); });
  took(call, found, ticket);
}

int test_lock(Call call, long* lock) {
  const Lock found = find(call, lock);
  const auto [next, turn] = state_now(call, found);
  if (turn.is_of(next) && atomic_compare_swap(call, World{}, found.next, next, next + 1, found.home) == next) {
    took(call, found, next);
    return 0;
  }
  failed_test(
      call, [&](heddle_wait_facts& facts) { tell_lock(facts, found, turn); },
      [&] {
        // It may have given the lock back between the look and its death.
        const int who = dead_holder(turn);
        return who >= 0 && turn_now(call, found).word() == turn.word() ? who : -1;
      });
  return 1;
}

void clear_lock(Call call, long* lock) {
  const Lock found = find(call, lock);
  quiet(call, World{});
  const auto [next, turn] = state_now(call, found);
  const void* const address = lock;
  if (turn.is_of(next)) fail(call, "lock %p is not set", address);
  if (turn.holder != named(g_state.my_pe)) {
    if (turn.pe() < 0) fail(call, "lock %p is set by another PE, not by PE %d, the caller", address, g_state.my_pe);
    fail(call, "lock %p is set by PE %d, not by PE %d, the caller", address, turn.pe(), g_state.my_pe);
  }
  unhold(key_of(found));
  const Turn cleared{static_cast<std::uint16_t>(turn.served + 1)};
  atomic_set(call, World{}, found.turn, cleared.word(), found.home);
}

}  // namespace heddle::shmem
