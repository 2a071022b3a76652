#include "openshmem/locks.hpp"

#include <array>
#include <cstdio>

#include "openshmem/atomics.hpp"
#include "openshmem/checks.hpp"
#include "openshmem/contexts.hpp"
#include "openshmem/patience.hpp"

namespace heddle::shmem {
namespace {

// How many locks this PE holds, counted by a part of their address. If the count of a lock is 0,
// this PE does not hold the lock. If this PE clears another PE's lock, it is not noticed while this
// PE holds a lock with the same count. There are no false alarms.
// Relaxed: the program orders set and clear of one lock.
constexpr std::size_t kCounts = 4096;
std::atomic<std::uint32_t> g_held[kCounts];

struct Lock {
  std::atomic<std::uint32_t>* held;
  std::uint32_t* next;
  std::uint32_t* served;
  std::uint64_t offset;
  int home;
};

// Neighbours in an array of locks have different home PEs.
Lock find(Call call, long* lock) {
  static_assert(sizeof(long) == 2 * sizeof(std::uint32_t));
  check_initialized(call);
  const Place place = locate(call, "lock", lock, sizeof *lock);
  if (place.offset % sizeof *lock != 0) fail(call, "lock %p is not aligned as a long is", static_cast<void*>(lock));
  auto* words = reinterpret_cast<std::uint32_t*>(lock);
  const auto n = static_cast<std::size_t>(g_state.n_pes);
  return {&g_held[place.offset / sizeof *lock % kCounts], words, words + 1, place.offset,
          static_cast<int>(place.offset / sizeof *lock % n)};
}

std::uint32_t served_now(Call call, const Lock& lock) {
  return atomic_fetch(call, World{}, static_cast<const std::uint32_t*>(lock.served), lock.home);
}

// The locks that this PE holds, for reports about jobs that hang; as many as there is room for.
// Relaxed: they are looked at when nothing moves.
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

void took(const Lock& lock) {
  hold(key_of(lock));
  if (checks_collectives()) lock.held->fetch_add(1, std::memory_order_relaxed);
}

void give_back(Call call, const Lock& lock, const long* address) {
  unhold(key_of(lock));
  if (!checks_collectives()) return;
  if (lock.held->load(std::memory_order_relaxed) == 0) {
    fail(call, "lock %p is set by another PE, not by PE %d, the caller", static_cast<const void*>(address),
         g_state.my_pe);
  }
  lock.held->fetch_sub(1, std::memory_order_relaxed);
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
  // Acquire. Partner: clear_lock's update.
  std::uint32_t served = 0;
  wait_until_true(
      call, default_context().worker, [&] { return (served = served_now(call, found)) == ticket; },
      [&](heddle_wait_facts& facts) {
        facts.cause = HEDDLE_WAIT_LOCK;
        facts.number = key_of(found);
        std::snprintf(facts.tag, sizeof facts.tag, "lock %p", static_cast<void*>(lock));
        awaits(facts, "lock %p is held, and %u are before this one", static_cast<void*>(lock), ticket - served);
      });
  took(found);
}

int test_lock(Call call, long* lock) {
  const Lock found = find(call, lock);
  const std::uint32_t served = served_now(call, found);
  if (atomic_compare_swap(call, World{}, found.next, served, served + 1, found.home) != served) return 1;
  took(found);
  return 0;
}

void clear_lock(Call call, long* lock) {
  const Lock found = find(call, lock);
  const auto next = atomic_fetch(call, World{}, static_cast<const std::uint32_t*>(found.next), found.home);
  if (next == served_now(call, found)) fail(call, "lock %p is not set", static_cast<void*>(lock));
  give_back(call, found, lock);
  quiet(call, World{});
  update<Add>(call, default_context(), found.served, std::uint32_t{1}, found.home);
}

}  // namespace heddle::shmem
