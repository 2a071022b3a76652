#include "bootstrap/local/watchdog.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/clock.hpp"

namespace heddle::bootstrap::local {
namespace {

using diagnosis::Presence;
using diagnosis::RankView;

constexpr std::uint64_t kSecond = 1'000'000'000;
// Between two pulses: a second, or a quarter of a shorter time.
constexpr std::uint64_t kPulseNs = kSecond;
constexpr std::uint64_t kSlowPulseNs = 15 * kSecond;  // while nobody is known to wait
// How long a snapshot may take: a quarter of a second, but where ranks have few cores.
constexpr std::uint64_t kSnapshotNs = 1'900'000'000;
// If a round comes so late, something has held up everything: for example, the launcher was
// stopped.
constexpr std::uint64_t kLateNs = 3 * kSecond;
constexpr std::size_t kMostLines = 40;  // of a rank

std::uint64_t now_ns() {
  return base::SystemClock().now_ns();
}

// The process is one of this machine. Its name, in parentheses, may have any characters.
bool is_stopped(std::int64_t pid) {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%lld/stat", static_cast<long long>(pid));
  std::FILE* file = std::fopen(path.data(), "re");
  if (file == nullptr) return false;
  std::array<char, 256> text{};
  const std::size_t got = std::fread(text.data(), 1, text.size() - 1, file);
  std::fclose(file);
  const std::string_view all(text.data(), got);
  const std::size_t end = all.rfind(')');
  if (end == std::string_view::npos || end + 2 >= all.size()) return false;
  return all[end + 2] == 'T' || all[end + 2] == 't';
}

}  // namespace

Watchdog::Watchdog(Broker& broker, std::uint32_t size, const Options& options, Say say)
    : broker_(broker), count_rounds_(broker, size), options_(options), say_(std::move(say)), ranks_(size) {
  broker_.set_watcher(this, options_.still_seconds);
}

std::uint64_t Watchdog::due_ns() const {
  const std::uint64_t watch = watch_due_ns();
  const std::uint64_t counts = count_rounds_.due_ns();
  return watch == 0 || counts == 0 ? std::max(watch, counts) : std::min(watch, counts);
}

std::uint64_t Watchdog::watch_due_ns() const {
  if (wanted_) return 1;
  if (inquiries_.empty()) return next_ns_;
  const std::uint64_t of_inquiries = ask_ns_ != 0 ? ask_ns_ : until_ns_;
  return next_ns_ == 0 ? of_inquiries : std::min(next_ns_, of_inquiries);
}

void Watchdog::waiting(std::uint32_t) {
  if (!fast_ && options_.still_seconds != 0) wanted_ = true;
}

void Watchdog::moved() {
  moved_ = true;
  if (next_ns_ == 0 && options_.still_seconds != 0) wanted_ = true;  // the first has joined
}

void Watchdog::tick(std::uint64_t now) {
  count_rounds_.tick(now);
  if (next_ns_ == 0 && wanted_) {
    still_ns_ = now;
    for (Rank& rank : ranks_) rank.moved_ns = rank.called_ns = now;
  }
  if (wanted_ || (next_ns_ != 0 && now >= next_ns_)) look(now);
  if (inquiries_.empty()) return;
  if (ask_ns_ != 0 && now >= ask_ns_) ask_snapshots(now);
  if (ask_ns_ == 0 && (all_have_answered() || now >= until_ns_)) end_inquiries(now);
}

void Watchdog::ask_pulses(std::uint64_t now) {
  ++number_;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].answered = false;
    static_cast<void>(broker_.ask(rank, FrameType::ask_pulse, number_));
  }
  const std::uint64_t quarter = std::max<std::uint64_t>(options_.still_seconds, 1) * kSecond / 4;
  next_ns_ = now + std::min(quarter, fast_ ? kPulseNs : kSlowPulseNs);
}

// At the end of a round of pulses.
void Watchdog::look(std::uint64_t now) {
  const bool wanted = std::exchange(wanted_, false);
  const bool late = next_ns_ != 0 && now > next_ns_ + kLateNs;
  bool idle = false;  // somebody waits, or polls in vain
  for (Rank& rank : ranks_) {
    still_ns_ = std::max(still_ns_, std::min(rank.moved_ns, now));
    idle = idle || (rank.known && (rank.pulse.waiting_ns != 0 || rank.polls));
  }
  if (std::exchange(moved_, false) || late) still_ns_ = now;
  const bool fast = wanted || (idle && options_.still_seconds != 0) || !inquiries_.empty();
  if (fast && !fast_) fast_since_ns_ = now;
  fast_ = fast;
  if (now - still_ns_ < kPulseNs && !all_wait_for_a_lock(now, options_.still_seconds * kSecond)) reports_ = 0;
  const std::uint64_t period = options_.still_seconds * kSecond << std::min<std::uint64_t>(reports_, 16);
  if (period != 0 && idle && (now - still_ns_ >= period || all_wait_for_a_lock(now, period))) {
    ++reports_;
    add({say_, true}, now);
  }
  if (options_.still_seconds != 0 || fast_) {
    ask_pulses(now);
  } else {
    next_ns_ = 0;
  }
}

// A thread that waits for a lock asks for it again and again, and the lock's home answers, so the
// numbers of both ranks move. So it is enough that each rank has a thread that has waited for so
// long, or that the rank does not move or makes no calls.
bool Watchdog::all_wait_for_a_lock(std::uint64_t now, std::uint64_t period) const {
  bool for_locks = false;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& it = ranks_[rank];
    if (broker_.membership(rank) != Membership::joined) continue;
    if (it.known && it.pulse.for_lock_ns >= period) for_locks = true;
    const bool quiet = now - std::min(now, it.moved_ns) >= period || now - std::min(now, it.called_ns) >= period;
    if (!quiet && it.pulse.waiting_ns < period) return false;
  }
  return for_locks;
}

// A job that is not being watched is watched for a while first, to see which ranks call the
// library.
void Watchdog::inquire(Say told, std::uint64_t now) {
  const std::uint64_t long_enough = kPulseNs + kPulseNs / 2;
  wanted_ = true;
  add({std::move(told), false}, fast_ ? std::max(now, fast_since_ns_ + long_enough) : now + long_enough);
}

void Watchdog::add(Inquiry&& inquiry, std::uint64_t ask_ns) {
  inquiries_.push_back(std::move(inquiry));
  if (inquiries_.size() == 1) ask_ns_ = ask_ns;
}

void Watchdog::ask_snapshots(std::uint64_t now) {
  ask_ns_ = 0;
  until_ns_ = now + kSnapshotNs;
  ++snapshots_;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    Rank& it = ranks_[rank];
    it.snapshot.reset();
    it.still_ns = it.known ? now - std::min(now, it.moved_ns) : 0;
    it.silent_ns = it.known ? now - std::min(now, it.called_ns) : 0;
    static_cast<void>(broker_.ask(rank, FrameType::ask_snapshot, snapshots_));
  }
}

bool Watchdog::all_have_answered() const {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    // A stopped process does not answer.
    if (!ranks_[rank].snapshot && presence(rank) == Presence::here) return false;
  }
  return true;
}

void Watchdog::answered(std::uint32_t rank, FrameType type, std::int32_t number, std::span<const std::byte> payload) {
  if (type == FrameType::counters) return count_rounds_.answered(rank, number, payload);
  Rank& it = ranks_[rank];
  if (type == FrameType::snapshot) {
    it.looked_at = true;
    // Bytes that are no snapshot count as no answer, and so does an answer of an earlier round.
    if (number != snapshots_) return;
    if (auto snapshot = tap::decode(payload)) it.snapshot = std::move(*snapshot);
    return;
  }
  tap::Pulse pulse;
  if (payload.size() != sizeof pulse) return;
  std::memcpy(&pulse, payload.data(), sizeof pulse);
  const std::uint64_t now = now_ns();
  const bool moves = !it.known || pulse.moves != it.pulse.moves;
  // The snapshot itself counts as a call.
  const bool looked_at = std::exchange(it.looked_at, false);
  const bool calls = !it.known || (pulse.calls != it.pulse.calls && !looked_at);
  if (moves) it.moved_ns = now;
  if (calls) it.called_ns = now;
  it.polls = it.known && calls && !moves;
  it.pulse = pulse;
  it.known = true;
  it.answered = number == number_;
}

Presence Watchdog::presence(std::uint32_t rank) const {
  switch (broker_.membership(rank)) {
    case Membership::left:
      return Presence::left;
    case Membership::lost:
      return Presence::dead;
    case Membership::outside:
      return Presence::outside;
    case Membership::joined:
      break;
  }
  return broker_.is_near(rank) && broker_.pid(rank) > 0 && is_stopped(broker_.pid(rank)) ? Presence::stopped
                                                                                         : Presence::here;
}

std::vector<RankView> Watchdog::take_views() {
  std::vector<RankView> all(ranks_.size());
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    Rank& it = ranks_[rank];
    all[rank] = {presence(rank), broker_.pid(rank), std::exchange(it.snapshot, std::nullopt), it.silent_ns,
                 it.still_ns};
  }
  return all;
}

void Watchdog::end_inquiries(std::uint64_t now) {
  // a callback may add more inquiries
  const std::vector<Inquiry> inquiries = std::exchange(inquiries_, {});
  const std::vector<RankView> all = take_views();
  const diagnosis::Verdict verdict = diagnosis::judge(all, options_.rank_word);
  const std::string blamed = verdict.culprits.empty()
                                 ? "to blame: nobody can be named"
                                 : std::string("to blame: ") + options_.rank_word +
                                       (verdict.culprits.size() > 1 ? "s " : " ") + tap::list_of(verdict.culprits);
  // Threads that wait for a lock change the numbers; see all_wait_for_a_lock().
  std::uint64_t still_ns = now - still_ns_;
  for (const Rank& rank : ranks_) {
    still_ns = std::max(still_ns, rank.pulse.for_lock_ns);
  }
  Lines report;
  report.push_back("  " + blamed);
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) tell_rank(rank, all[rank], report);
  const std::string still = "nothing has moved for " + std::to_string(still_ns / kSecond) + " s: ";
  const std::string first = (still_ns >= kSecond ? still : "the job moves: ") + verdict.sentence;
  report.insert(report.begin(), first);
  const bool hangs = can_hang(all);
  const bool unknown =
      std::ranges::any_of(all, [](const RankView& view) { return view.presence == Presence::here && !view.snapshot; });
  // If a rank that might have reported a long wait has not answered, the job is looked at again
  // soon.
  if (!hangs && unknown && reports_ > 0) --reports_;
  for (const Inquiry& inquiry : inquiries) {
    if (hangs || !inquiry.hang) inquiry.told(report);
  }
}

// True: a thread has waited for long, or a rank polls and has something under way.
bool Watchdog::can_hang(const std::vector<RankView>& all) const {
  const std::uint64_t long_ns = options_.still_seconds * kSecond / 2;
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].snapshot) continue;
    const tap::Snapshot& snapshot = *all[rank].snapshot;
    if (std::ranges::any_of(snapshot.waits, [=](const auto& wait) { return wait.waited_ns >= long_ns; })) return true;
    if (!ranks_[rank].polls) continue;
    if (!snapshot.steps.empty()) return true;
    if (std::ranges::any_of(snapshot.workers, [](const auto& worker) { return !worker.under_way.empty(); }))
      return true;
  }
  return false;
}

// The ranks that are missing in the exchange in which this rank waits; the rank itself does not
// know them.
std::string Watchdog::missing_of(std::uint32_t rank, const std::string& line) const {
  if (!line.ends_with(tap::kNotAllArrived)) return {};
  const std::vector<std::uint32_t> missing = broker_.awaited_by(rank);
  return missing.empty() ? std::string() : ": missing is rank " + tap::list_of(missing);
}

void Watchdog::tell_rank(std::uint32_t rank, const RankView& view, Lines& lines) const {
  const std::string who =
      std::string("  ") + options_.rank_word + ' ' + std::to_string(rank) + " (pid " + std::to_string(view.pid) + ')';
  switch (view.presence) {
    case Presence::outside:
      lines.push_back(std::string("  ") + options_.rank_word + ' ' + std::to_string(rank) + " has not joined the job");
      return;
    case Presence::left:
      lines.push_back(who + " has left the job");
      return;
    case Presence::dead:
      lines.push_back(who + " has ended");
      return;
    case Presence::stopped:
      lines.push_back(who + " is stopped");
      return;
    case Presence::here:
      break;
  }
  if (!view.snapshot) {
    lines.push_back(who + " does not answer");
    return;
  }
  lines.push_back(who + (view.snapshot->waits.empty() ? ": no thread waits in the library" : ":"));
  std::size_t told = 0;
  for (const std::string& line : view.snapshot->lines) {
    if (++told <= kMostLines) lines.push_back("    " + line + missing_of(rank, line));
  }
  if (told > kMostLines) lines.push_back("    and " + std::to_string(told - kMostLines) + " more lines");
}

base::Status Watchdog::open_door() {
  auto door = Door::open([this](std::string_view request, Door::Answer told) { answer(request, std::move(told)); });
  if (!door) return door.status();
  door_ = std::move(*door);
  return HEDDLE_DONE;
}

void Watchdog::answer(std::string_view request, Door::Answer told) {
  if (request == "hang") {
    const auto tell = [told = std::move(told)](const Lines& report) {
      std::string text;
      for (const std::string& line : report) text += line + '\n';
      told(std::move(text));
    };
    return inquire(tell, now_ns());
  }
  if (request == "counters") return ask_counters(std::move(told), now_ns());
  std::string text;
  if (request == "ranks") {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      text += std::to_string(rank) + ' ' + std::to_string(broker_.pid(rank)) + '\n';
    }
  } else {
    text = "this job knows \"hang\", \"ranks\" and \"counters\"\n";
  }
  told(std::move(text));
}

}  // namespace heddle::bootstrap::local
