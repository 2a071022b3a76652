#include "openshmem/checks.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "openshmem/groups.hpp"
#include "openshmem/heap.hpp"

namespace heddle::shmem {

Check wanted_checks(Call call) {
  const char* text = std::getenv("HEDDLE_CHECK");
  if (text == nullptr || std::strcmp(text, "on") == 0) return Check::on;
  if (std::strcmp(text, "off") == 0) return Check::off;
  if (std::strcmp(text, "full") == 0) return Check::full;
  fail(call, "HEDDLE_CHECK is \"%s\": it is off, on or full", text);
}

void check_apart(Call call, const AddressRange& dest, const AddressRange& source) {
  const auto to = reinterpret_cast<std::uintptr_t>(dest.address);
  const auto from = reinterpret_cast<std::uintptr_t>(source.address);
  if (from - to >= dest.bytes && to - from >= source.bytes) return;
  fail(call, "dest %p with %zu bytes and source %p with %zu bytes overlap", dest.address, dest.bytes, source.address,
       source.bytes);
}

void check_live(Call call, const char* argument, const void* address, std::size_t bytes) {
  if (bytes == 0 || !g_state.heap.holds(address, bytes)) return;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - g_state.heap.base;
  if (offset < kReservedBytes) return;
  // A program's collectives use the same few blocks again and again. This cache keeps the last two
  // blocks, usually those of dest and source.
  struct Known {
    memory::SymmetricAllocator::Extent block;
    std::uint64_t generation = 0;
  };
  static thread_local Known t_known [[gnu::tls_model("initial-exec")]][2];
  static thread_local unsigned t_oldest [[gnu::tls_model("initial-exec")]] = 0;
  // before the lookup, so that the block found is not older than `generation`
  const std::uint64_t generation = heap_generation();
  for (const Known& known : t_known) {
    const auto [begin, end] = known.block;
    if (known.generation == generation && begin <= offset && offset < end && bytes <= end - offset) return;
  }
  const auto block = block_around(offset);
  if (block.end - offset >= bytes && block.end > offset) {
    t_known[t_oldest] = {block, generation};
    t_oldest ^= 1U;
    return;
  }
  if (block.end == 0) {
    fail(call, "%s %p lies in the symmetric heap, but in no block of it: its block was freed, or ends before", argument,
         address);
  }
  fail(call, "%s %p with %zu bytes leaves its block of the symmetric heap, which ends after %zu", argument, address,
       bytes, block.end - offset);
}

const void* this_thread() {
  // initial-exec: accessed without a function call. Libraries that are linked may use it.
  static thread_local char t_mark [[gnu::tls_model("initial-exec")]];
  return &t_mark;
}

void check_thread(Call call, const ShmemContext& context) {
  if ((context.options & SHMEM_CTX_PRIVATE) == 0 || context.owner == this_thread()) return;
  fail(call, "ctx %p is private to the thread that made it (SHMEM_CTX_PRIVATE), which is not the caller",
       reinterpret_cast<const void*>(&context));
}

namespace {

// What a member tells the others. It fits one exchange, so it costs no more than a sync.
struct Statement {
  char what[32];
  std::int64_t values[kMostGiven];
};
static_assert(sizeof(Statement) <= kExchangeBytes);

// In a larger group each member looks at the next one only. If not all are alike, some member
// differs from its next one. To look at all, each member would have to meet all.
constexpr int kMostCompared = 64;

}  // namespace

void meet_alike(Call call, Group& group, const char* what, std::initializer_list<AgreedArgument> values) {
  Statement mine{};
  std::strncpy(mine.what, what, sizeof mine.what - 1);
  std::size_t count = 0;
  for (const AgreedArgument& one : values) mine.values[count++] = one.value;
  int other = -1;
  Statement theirs{};
  const auto compare = [&](int member, const std::byte* told) {
    if (other >= 0 || std::memcmp(told, &mine, sizeof mine) == 0) return;
    other = member;
    std::memcpy(&theirs, told, sizeof theirs);
  };
  if (group.members.size <= kMostCompared) {
    contributions(call, group, &mine, sizeof mine, compare);
  } else {
    const std::byte* board = publish(call, group, &mine, sizeof mine);
    alignas(Statement) std::byte scratch[sizeof mine];
    const int next = (group.me + 1) % group.members.size;
    compare(next, peer_bytes(call, group, board, sizeof mine, next, scratch));
  }
  if (other < 0) return;
  const int pe = group.world(other);
  theirs.what[sizeof theirs.what - 1] = '\0';
  if (std::strcmp(mine.what, theirs.what) != 0) {
    fail(call,
         "PE %d calls it where PE %d calls %s: the PEs of a team make the same collective calls in the same order",
         g_state.my_pe, pe, theirs.what);
  }
  const auto* differs = std::find_if(values.begin(), values.end(), [&](const AgreedArgument& one) {
    return one.value != theirs.values[&one - values.begin()];
  });
  const std::int64_t value = theirs.values[differs - values.begin()];
  fail(call, "%s is %lld on PE %d and %lld on PE %d: all PEs must give the same", differs->name,
       static_cast<long long>(differs->value), g_state.my_pe, static_cast<long long>(value), pe);
}

}  // namespace heddle::shmem
