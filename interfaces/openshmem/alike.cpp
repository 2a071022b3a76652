#include "openshmem/alike.hpp"

#include <algorithm>
#include <cstring>

namespace heddle::shmem {
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

void meet_alike(Call call, Group& group, const char* what, std::initializer_list<Given> values) {
  Statement mine{};
  std::strncpy(mine.what, what, sizeof mine.what - 1);
  std::size_t count = 0;
  for (const Given& one : values) mine.values[count++] = one.value;
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
  const auto* differs = std::find_if(values.begin(), values.end(), [&](const Given& one) {
    return one.value != theirs.values[&one - values.begin()];
  });
  const std::int64_t value = theirs.values[differs - values.begin()];
  fail(call, "%s is %lld on PE %d and %lld on PE %d: all PEs must give the same", differs->name,
       static_cast<long long>(differs->value), g_state.my_pe, static_cast<long long>(value), pe);
}

}  // namespace heddle::shmem
