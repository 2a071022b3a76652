#include "shmem/locks.hpp"

#include <cstdio>

#include "shmem/atomics.hpp"
#include "shmem/contexts.hpp"
#include "shmem/patience.hpp"

namespace heddle::shmem {
namespace {

struct Lock {
  std::uint32_t* next;
  std::uint32_t* served;
  int home;
};

// Neighbours in an array of locks have different homes.
Lock find(Call call, long* lock) {
  static_assert(sizeof(long) == 2 * sizeof(std::uint32_t));
  check_initialized(call);
  const Place place = locate(call, "lock", lock, sizeof *lock);
  if (place.offset % sizeof *lock != 0) fail(call, "lock %p is not aligned as a long is", static_cast<void*>(lock));
  auto* words = reinterpret_cast<std::uint32_t*>(lock);
  const auto n = static_cast<std::size_t>(g_state.n_pes);
  return {words, words + 1, static_cast<int>(place.offset / sizeof *lock % n)};
}

std::uint32_t served_now(Call call, const Lock& lock) {
  return atomic_fetch(call, World{}, static_cast<const std::uint32_t*>(lock.served), lock.home);
}

}  // namespace

void set_lock(Call call, long* lock) {
  const Lock found = find(call, lock);
  const std::uint32_t ticket = fetch_update<Add>(call, default_context(), found.next, std::uint32_t{1}, found.home);
  // Acquire. Partner: clear_lock's update.
  std::uint32_t served = 0;
  wait_until_true(
      call, default_context().worker, [&] { return (served = served_now(call, found)) == ticket; },
      [&](char* text) {
        std::snprintf(text, kAwaitedText, "lock %p is held, and %u are before this one", static_cast<void*>(lock),
                      ticket - served);
      });
}

int test_lock(Call call, long* lock) {
  const Lock found = find(call, lock);
  const std::uint32_t served = served_now(call, found);
  return atomic_compare_swap(call, World{}, found.next, served, served + 1, found.home) == served ? 0 : 1;
}

void clear_lock(Call call, long* lock) {
  const Lock found = find(call, lock);
  const auto next = atomic_fetch(call, World{}, static_cast<const std::uint32_t*>(found.next), found.home);
  if (next == served_now(call, found)) fail(call, "lock %p is not set", static_cast<void*>(lock));
  quiet(call, World{});
  update<Add>(call, default_context(), found.served, std::uint32_t{1}, found.home);
}

}  // namespace heddle::shmem
