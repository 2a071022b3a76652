#include "openshmem/groups.hpp"

#include <cstdio>
#include <cstring>

#include "openshmem/atomics.hpp"
#include "openshmem/checks.hpp"
#include "openshmem/contexts.hpp"
#include "openshmem/patience.hpp"
#include "openshmem/rma.hpp"

namespace heddle::shmem {
namespace {

// The words of an active set, in pSync: first those of sync, by round and distance, then the word
// of give() and prefix_in_chain().
constexpr int kGiveWord = kRounds * (kRadix - 1);
static_assert(kGiveWord < SHMEM_SYNC_SIZE);

std::uint64_t* word_at(long* psync, int index) {
  static_assert(sizeof(long) == sizeof(std::uint64_t));
  return reinterpret_cast<std::uint64_t*>(psync + index);
}

// Acquire; partner: the release store of the signal.
bool heard(const std::uint64_t* word, std::uint64_t number) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= number;
}

// In which collective of the group this PE is: its steps are counted, so that members which call
// different ones differ in the number, or in the call. An active set has no such numbers.
void tell_step(heddle_wait_facts& facts, const Group& group) {
  if (group.slot == nullptr) return;
  const Members& members = group.members;
  facts.cause = HEDDLE_WAIT_COLLECTIVE;
  facts.team = std::uint64_t{1} << 63 | static_cast<std::uint64_t>(members.start) << 42 |
               static_cast<std::uint64_t>(members.stride) << 21 | static_cast<std::uint64_t>(members.size);
  facts.number = group.syncs + group.exchanges + group.broadcasts;
  facts.members = static_cast<std::uint32_t>(members.size);
  if (members.size == g_state.n_pes) {
    std::snprintf(facts.team_name, sizeof facts.team_name, "all PEs");
  } else {
    std::snprintf(facts.team_name, sizeof facts.team_name, "the team of %d PEs from %d by %d", members.size,
                  members.start, members.stride);
  }
  std::snprintf(facts.operation, sizeof facts.operation, "%s", facts.call);
}

void tell_absent(heddle_wait_facts& facts, const Group& group, int pe) {
  tell_step(facts, group);
  facts.cause = HEDDLE_WAIT_COLLECTIVE;
  facts.rank = static_cast<std::uint32_t>(pe);
  awaits(facts, "PE %d has not come%s", pe,
         checks_everything() ? "" : "; HEDDLE_CHECK=full tells if it is in another collective");
}

// `from`: the PE that sets the signal.
void hear(Call call, const Group& group, const std::uint64_t* word, std::uint64_t number, int from) {
  wait_until_true(
      call, default_context().worker, [=] { return heard(word, number); },
      [&](heddle_wait_facts& facts) { tell_absent(facts, group, from); }, [=] { return has_died(from) ? from : -1; });
}

// Waits until the counter is not 0, then takes one. The sender may already be in its next use of
// the word and have counted twice.
void hear_count(Call call, const Group& group, std::uint64_t* word, int from) {
  hear(call, group, word, 1, from);
  __atomic_fetch_sub(word, 1, __ATOMIC_RELAXED);
}

// Waits until has(k) is true for all k below `count`; one wait for all. from(k): the PE that k
// waits for.
template <class Has, class From>
void hear_all(Call call, const Group& group, int count, const Has& has, const From& from) {
  int k = 0;
  wait_until_true(
      call, default_context().worker,
      [&] {
        while (k < count && has(k)) ++k;
        return k == count;
      },
      [&](heddle_wait_facts& facts) { tell_absent(facts, group, from(k)); },
      [&] { return has_died(from(k)) ? from(k) : -1; });
}

// In each round, tell(round, k, world) signals the members me + (k + 1) * 8^round; then
// hear_round(round, count, from) waits for as many members me - (k + 1) * 8^round; from(k) is their
// PE.
template <class Tell, class Hear>
void disseminate(const Group& group, const Tell& tell, const Hear& hear_round) {
  const long n = group.members.size;
  long distance = 1;
  for (int round = 0; distance < n; ++round, distance *= kRadix) {
    int count = 0;
    for (; count < kRadix - 1 && distance * (count + 1) < n; ++count) {
      tell(round, count, group.world(static_cast<int>((group.me + distance * (count + 1)) % n)));
    }
    hear_round(round, count,
               [&](int k) { return group.world(static_cast<int>((group.me + n - distance * (k + 1)) % n)); });
  }
}

void sync_by_team(Call call, Group& group) {
  ++group.syncs;
  must(call, heddle_collective_start(group.barrier));
  wait_until_true(
      call, default_context().worker, [&] { return must(call, heddle_collective_test(group.barrier)) != HEDDLE_AGAIN; },
      [&](heddle_wait_facts& facts) {
        std::uint32_t member = HEDDLE_NO_RANK;
        must(call, heddle_collective_awaited(group.barrier, &member));
        if (member != HEDDLE_NO_RANK) return tell_absent(facts, group, group.world(static_cast<int>(member)));
        tell_step(facts, group);
        awaits(facts, "not all PEs have come");
      });
}

}  // namespace

int member_of(const Members& members, int world) {
  const int distance = world - members.start;
  if (members.size <= 0) return -1;
  if (distance == 0) return 0;
  if (members.stride == 0 || distance % members.stride != 0) return -1;
  const int index = distance / members.stride;
  return index > 0 && index < members.size ? index : -1;
}

void sync(Call call, Group& group) {
  if (group.by_team()) return sync_by_team(call, group);
  ShmemContext& context = default_context();
  if (group.slot == nullptr) {
    disseminate(
        group,
        [&](int round, int k, int world) {
          change_signal(context, word_at(group.psync, round * (kRadix - 1) + k), 1, SHMEM_SIGNAL_ADD, world, call);
        },
        [&](int round, int count, const auto& from) {
          for (int k = 0; k < count; ++k)
            hear_count(call, group, word_at(group.psync, round * (kRadix - 1) + k), from(k));
        });
    return;
  }
  const std::uint64_t number = ++group.syncs;
  TeamSlot& slot = *group.slot;
  disseminate(
      group,
      [&](int round, int k, int world) {
        change_signal(context, &slot.sync[round][k].number, number, SHMEM_SIGNAL_SET, world, call);
      },
      [&](int round, int count, const auto& from) {
        hear_all(call, group, count, [&](int k) { return heard(&slot.sync[round][k].number, number); }, from);
      });
}

void exchange(Call call, Group& group, const void* mine, std::size_t bytes, std::byte* all) {
  const int n = group.members.size;
  const std::uint64_t number = ++group.exchanges;
  TeamSlot::Line* lines = group.slot->exchange[number % 2];
  TeamSlot::Line& of_mine = lines[group.me];
  for (int k = 1; k < n; ++k) {
    put_bytes_signal(default_context(), of_mine.payload, mine, bytes, {&of_mine.number, number, SHMEM_SIGNAL_SET},
                     group.world((group.me + k) % n), Until::complete, call);
  }
  std::memcpy(all + static_cast<std::size_t>(group.me) * bytes, mine, bytes);
  const auto has = [&](int member) {
    if (member == group.me) return true;
    if (!heard(&lines[member].number, number)) return false;
    std::memcpy(all + static_cast<std::size_t>(member) * bytes, lines[member].payload, bytes);
    return true;
  };
  hear_all(call, group, n, has, [&](int member) { return group.world(member); });
}

const std::byte* publish(Call call, Group& group, const void* mine, std::size_t bytes) {
  std::byte* board = group.slot->board[++group.boards % 2];
  std::memcpy(board, mine, bytes);
  sync(call, group);
  return board;
}

void give(Call call, Group& group, void* dest, const void* source, std::size_t bytes, int root) {
  const int n = group.members.size;
  const std::uint64_t number = ++group.broadcasts;
  std::uint64_t* word = group.slot != nullptr ? &group.slot->broadcast[root].number : word_at(group.psync, kGiveWord);
  if (group.me != root) {
    if (group.slot != nullptr) {
      hear(call, group, word, number, group.world(root));
    } else {
      hear_count(call, group, word, group.world(root));
    }
    return;
  }
  const Signal signal =
      group.slot != nullptr ? Signal{word, number, SHMEM_SIGNAL_SET} : Signal{word, 1, SHMEM_SIGNAL_ADD};
  for (int k = 1; k < n; ++k) {
    put_bytes_signal(default_context(), dest, source, bytes, signal, group.world((root + k) % n), Until::complete,
                     call);
  }
}

void show(Call call, Group& group, void* dest, const void* source, std::size_t bytes, int root) {
  const int n = group.members.size;
  const std::uint64_t number = ++group.broadcasts;
  TeamSlot& slot = *group.slot;
  ShmemContext& context = default_context();
  std::uint64_t* word = &slot.broadcast[root].number;
  if (group.me != root) {
    hear(call, group, word, number, group.world(root));
    get_bytes(context, dest, source, bytes, group.world(root), call);
    change_signal(context, &slot.fetched.number, 1, SHMEM_SIGNAL_ADD, group.world(root), call);
    return;
  }
  for (int k = 1; k < n; ++k) {
    change_signal(context, word, number, SHMEM_SIGNAL_SET, group.world((root + k) % n), call);
  }
  group.fetches += static_cast<std::uint64_t>(n - 1);
  wait_until_true(
      call, context.worker, [&] { return heard(&slot.fetched.number, group.fetches); },
      [&](heddle_wait_facts& facts) {
        tell_step(facts, group);
        awaits(facts, "not all others have fetched the data");
      },
      [&] {
        int k = 1;
        while (k < n && !has_died(group.world((root + k) % n))) ++k;
        return k < n ? group.world((root + k) % n) : -1;
      });
}

std::size_t prefix_in_chain(Call call, Group& group, std::size_t bytes) {
  std::uint64_t* word = word_at(group.psync, kGiveWord);
  std::uint64_t begin = 0;
  if (group.me > 0) {
    hear(call, group, word, 1, group.world(group.me - 1));
    // The word carries the value plus 1, so that it is never zero.
    const std::uint64_t told = __atomic_load_n(word, __ATOMIC_RELAXED);
    __atomic_fetch_sub(word, told, __ATOMIC_RELAXED);
    begin = told - 1;
  }
  if (group.me + 1 < group.members.size) {
    change_signal(default_context(), word, begin + bytes + 1, SHMEM_SIGNAL_ADD, group.world(group.me + 1), call);
  }
  return begin;
}

const std::byte* peer_bytes(Call call, const Group& group, const void* address, std::size_t bytes, int member,
                            std::byte* scratch) {
  const int world = group.world(member);
  if (member == group.me) return static_cast<const std::byte*>(address);
  if (const std::byte* at = direct(address, bytes, world); at != nullptr) return at;
  get_bytes(default_context(), scratch, address, bytes, world, call);
  return scratch;
}

void to_peer(Call call, const Group& group, void* dest, const void* source, std::size_t bytes, int member) {
  put_bytes(default_context(), dest, source, bytes, group.world(member), call);
}

void complete(Call call) {
  if (default_context().posted.load(std::memory_order_relaxed)) quiet_posted(call, default_context());
}

}  // namespace heddle::shmem
