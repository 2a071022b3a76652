#include "openshmem/patience.hpp"

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace heddle::shmem {

namespace {

constexpr int kMostMoves = 1000;

// All that dead PEs wrote before their death has arrived, as far as it will, and so has all that
// living PEs wrote up to now.
void take_what_came(heddle_worker worker) {
  for (int i = 0; i < kMostMoves && heddle_worker_progress(worker) > 0; ++i) {
  }
}

// One wait in the engine.
class Waiting {
 public:
  Waiting(heddle_worker worker, const WaitSubject& awaited) : worker_(worker), awaited_(awaited) {}

  static heddle_status look(void* self) { return static_cast<Waiting*>(self)->look() ? HEDDLE_DONE : HEDDLE_AGAIN; }
  static void tell(void* self, heddle_wait_facts* facts) {
    const WaitSubject& awaited = static_cast<const Waiting*>(self)->awaited_;
    awaited.tell(awaited.arg, facts);
  }

 private:
  [[nodiscard]] bool ready() const { return awaited_.ready(awaited_.arg); }

  bool look() {
    if (ready()) return true;
    if (!is_time_for_deaths() || !sees_death()) [[likely]]
      return false;
    take_what_came(worker_);
    if (ready()) return true;
    const int who = awaited_.dead(awaited_.arg);
    // It may have done what is waited for between the look and its death.
    if (who >= 0) {
      if (ready()) return true;
      if (awaited_.dead(awaited_.arg) != who) return false;
    }
    end_if_in_vain(awaited_.call, awaited_.tell, awaited_.arg, who);
    return false;
  }

  // Once the engine's waits sleep, at each look: they are rare then.
  bool is_time_for_deaths() {
    using std::chrono::steady_clock;
    if (looks_ < kShort) [[likely]] {
      if (++looks_ == kShort) next_ = steady_clock::now() + kBeforeDeaths;
      return false;
    }
    const steady_clock::time_point now = steady_clock::now();
    if (now < next_) return false;
    next_ = now + kBetweenDeaths;
    return true;
  }

  static constexpr unsigned kShort = 64;  // looks: a wait of a few microseconds reads no clock
  static constexpr std::chrono::microseconds kBeforeDeaths{1000};
  static constexpr std::chrono::microseconds kBetweenDeaths{50};

  const heddle_worker worker_;
  const WaitSubject& awaited_;
  unsigned looks_ = 0;  // at most kShort
  std::chrono::steady_clock::time_point next_;
};

}  // namespace

void await(heddle_worker worker, const WaitSubject& awaited) {
  Waiting waiting(worker, awaited);
  const heddle_wait_condition condition{sizeof condition, &Waiting::look, &waiting,
                                        awaited.call,     &Waiting::tell, nullptr};
  must(awaited.call, heddle_worker_wait_for(worker, &condition, HEDDLE_FOREVER));
}

bool comes_true(Call call, const std::function<bool()>& condition, std::int64_t in_ns) {
  const auto look = [](void* arg) {
    return (*static_cast<const std::function<bool()>*>(arg))() ? HEDDLE_DONE : HEDDLE_AGAIN;
  };
  auto looked_at = condition;
  const heddle_wait_condition awaited{sizeof awaited, look, &looked_at, call, nullptr, nullptr};
  const heddle_status status = heddle_worker_wait_for(default_context().worker, &awaited, in_ns);
  // While the job begins there is no worker yet.
  return status == HEDDLE_DONE || (status != HEDDLE_ERR_TIMEOUT && condition());
}

void awaits(heddle_wait_facts& facts, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(facts.text, sizeof facts.text, format, arguments);
  va_end(arguments);
}

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
  const bool heard = comes_true(call, [=] { return pe >= 0 ? has_died(pe) : sees_death(); });
  if (pe >= 0) fail(call, heard ? "PE %d has died" : "PE %d cannot be reached any more", pe);
  if (heard) fail(call, "PE %d has died", g_dead.load(std::memory_order_relaxed));
  fail(call, "a PE cannot be reached any more: %s", in_words_of_shmem(text).c_str());
}

void end_if_in_vain(Call call, heddle_tell_wait tell, void* arg, int dead) {
  heddle_wait_facts facts{};
  facts.size = sizeof facts;
  facts.rank = HEDDLE_ANY;
  facts.call = call;
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
