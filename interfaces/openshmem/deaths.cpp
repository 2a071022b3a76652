#include "openshmem/deaths.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "openshmem/patience.hpp"

namespace heddle::shmem {
namespace {

bool g_ignored = false;           // SHMEM_DEATHS=ignore; written before anybody waits
std::atomic<int> g_dead{-1};      // the first seen. Relaxed: a miss leads to another look
std::atomic<unsigned> g_turn{0};  // the PE that the next call looks at first. Relaxed: likewise

constexpr int kLooks = 64;
constexpr unsigned kTests = 64;

}  // namespace

void read_deaths(Call call) {
  const char* text = std::getenv("SHMEM_DEATHS");
  if (text == nullptr || std::strcmp(text, "end") == 0) return;
  if (std::strcmp(text, "ignore") != 0) fail(call, "SHMEM_DEATHS is \"%s\": it is end or ignore", text);
  g_ignored = true;
}

bool has_died(int pe) {
  return heddle_context_peer_status(g_state.job, static_cast<std::uint32_t>(pe)) == HEDDLE_ERR_PEER_FAILED;
}

bool sees_death() {
  if (g_dead.load(std::memory_order_relaxed) >= 0) return true;
  if (g_state.n_pes <= 1) return false;
  const auto n = static_cast<unsigned>(g_state.n_pes);
  const unsigned looks = std::min<unsigned>(kLooks, n);
  const unsigned from = g_turn.fetch_add(looks, std::memory_order_relaxed);
  for (unsigned i = 0; i < looks; ++i) {
    const auto pe = static_cast<int>((from + i) % n);
    if (pe == g_state.my_pe || !has_died(pe)) continue;
    g_dead.store(pe, std::memory_order_relaxed);
    return true;
  }
  return false;
}

bool sees_death_in_tests() {
  // initial-exec: accessed without a function call. Libraries that are linked may use it.
  static thread_local unsigned t_tests [[gnu::tls_model("initial-exec")]] = 0;
  static thread_local bool t_seen [[gnu::tls_model("initial-exec")]] = false;
  if (++t_tests % kTests != 0 || !sees_death()) return false;
  return std::exchange(t_seen, true);
}

void fail_by_death(Call call, int pe) {
  const std::string text = heddle_last_error();
  const bool heard = comes_true([=] { return pe >= 0 ? has_died(pe) : sees_death(); });
  if (pe >= 0) fail(call, heard ? "PE %d has died" : "PE %d cannot be reached any more", pe);
  if (heard) fail(call, "PE %d has died", g_dead.load(std::memory_order_relaxed));
  fail(call, "a PE cannot be reached any more: %s", in_words_of_shmem(text).c_str());
}

void end_if_in_vain(Call call, heddle_tell_wait tell, void* arg, int dead) {
  heddle_wait_facts facts{};
  facts.size = sizeof facts;
  facts.rank = HEDDLE_ANY;
  tell(arg, &facts);
  const int first = g_dead.load(std::memory_order_relaxed);
  switch (facts.cause) {
    case HEDDLE_WAIT_COLLECTIVE:
      // If all PEs that this one waits for live, a PE that waits for the dead one finds that out.
      if (dead >= 0) fail(call, "PE %d has died, and has not come to this call", dead);
      return;
    case HEDDLE_WAIT_LOCK:
      if (dead >= 0) fail(call, "PE %d has died, and holds %s", dead, facts.tag);
      if (!g_ignored) fail(call, "PE %d has died, and this PE waits: %s", first, facts.text);
      return;
    case HEDDLE_WAIT_WORD:
      if (g_ignored) return;
      fail(call, "PE %d has died, and this PE waits for %s, which any PE may write (SHMEM_DEATHS=ignore: it goes on)",
           first, facts.text);
    default:  // the engine ends it
      return;
  }
}

}  // namespace heddle::shmem
