#include "observe/explain/blame.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "diagnosis/owed.hpp"
#include "observe/explain/ending.hpp"

namespace heddle::observe::explain {
namespace {

using diagnosis::Duty;

// a message is noticed within this where somebody looks
constexpr std::int64_t kUnnoticedNs = 50'000;
constexpr std::int64_t kAfterNs = 20'000;  // what ends a wait may be noted so long after it
// A thread that looks serves messages first. It notes that nobody had looked only after that: this
// much later, or by an eighth of the time if others have the core meanwhile.
constexpr std::int64_t kServeNs = 1'000'000;
bool was_needed(const TimeSpan& away, std::int64_t end, std::int64_t common) {
  return away.end <= end + std::max(kServeNs, common / 8);
}

// Of spans in the order of their ends, the first that may overlap a span that begins there.
template <class Spans, class Get>
auto first_after(const Spans& spans, std::int64_t begin, Get&& span_of) {
  return std::ranges::partition_point(spans, [&](const auto& one) { return span_of(one).end <= begin; });
}

constexpr auto kSpan = [](const TimeSpan& span) { return span; };

// A sleeping thread does nothing else, so these spans follow each other.
std::vector<TimeSpan> sleeps_of(const ThreadStory& thread) {
  std::vector<TimeSpan> sleeps;
  for (const Slice& slice : thread.slices) {
    if (slice.what == Slice::What::sleep) sleeps.push_back(slice);
  }
  return sleeps;
}

class Blamer {
 public:
  explicit Blamer(const Story& story)
      : story_(story), done_(story.waits.size()), state_(story.waits.size()), latest_(latest_calls(story)) {
    of_thread_.resize(story.ranks.size());
    sleeps_.resize(story.ranks.size());
    for (std::size_t i = 0; i < story.ranks.size(); ++i) {
      const std::vector<ThreadStory>& threads = story.ranks[i].threads;
      of_thread_[i].resize(threads.size());
      for (const ThreadStory& thread : threads) sleeps_[i].push_back(sleeps_of(thread));
    }
    for (std::size_t i = 0; i < story.waits.size(); ++i)
      of_thread_[story.waits[i].rank][story.waits[i].thread].push_back(i);
  }
  const std::vector<Blame>& of(std::size_t wait);
  std::vector<std::vector<Blame>> take_all() {
    for (std::size_t i = 0; i < story_.waits.size(); ++i) of(i);
    return std::move(done_);
  }

 private:
  enum class State : std::uint8_t { fresh, under_way, done };
  // The parts of one wait that are known so far: [begin, at).
  struct Building {
    const WaitStory& wait;
    std::vector<Blame> parts;
    std::int64_t at;
  };

  void explain(Building& building);
  bool for_awaited(Building& building, const AwaitedThing& awaited);
  bool for_collective(Building& building, const AwaitedThing& awaited);
  [[nodiscard]] const Message* ending(const WaitStory& wait, const AwaitedThing* awaited, bool* received) const;
  bool for_message(Building& building, const AwaitedThing* awaited);
  bool for_receiver(Building& building, const AwaitedThing& awaited);
  bool for_operation(Building& building, const AwaitedThing* awaited);
  bool for_word(Building& building);
  bool for_cut_off(Building& building, const AwaitedThing* awaited);
  [[nodiscard]] std::pair<std::size_t, bool> owing_at_end(const WaitStory& wait) const;
  void for_peer(Building& building, const AwaitedThing& awaited);
  // Until `end`, the rank's thread had not yet done the awaited thing.
  void late(Building& building, std::int64_t end, Why why, std::size_t rank, std::size_t thread);
  // Until `end`, the rank's worker had to notice it and move it; kNoTraceWorker: any worker.
  void moving(Building& building, std::int64_t end, std::size_t rank, std::uint8_t worker);
  void own_thread(Building& building, std::int64_t end);
  // Until `end` nobody was late.
  void under_way(Building& building, std::int64_t end);
  void add(Building& building, std::int64_t end, Why why, std::size_t rank, std::size_t thread,
           std::uint8_t worker = tap::kNoTraceWorker);
  void add_late(Building& building, const TimeSpan& span, Why why, std::size_t rank, std::size_t thread);
  // `known`: the wait was for a collective, whose end it may have noticed late.
  bool for_ended_collective(Building& building, bool known = false);
  [[nodiscard]] const Match* received_before(const WaitStory& wait, const Message& message, std::size_t sender) const;
  [[nodiscard]] std::size_t missing(const AwaitedThing& awaited, const std::vector<CollectiveEntry>& entries) const;
  [[nodiscard]] const Message* asked_by(const Message& answer, std::size_t sender, std::uint32_t asker) const;
  [[nodiscard]] std::size_t index_of(std::uint32_t rank) const;
  // Who owes the thing to the wait: an index; kNoRank: any rank, or one that has left no file.
  [[nodiscard]] std::size_t debtor(const WaitStory& wait, const AwaitedThing& awaited,
                                   std::span<const std::uint32_t> able = {}) const;
  [[nodiscard]] std::pair<std::uint8_t, std::int64_t> longest_away(std::size_t rank, const TimeSpan& span) const;
  [[nodiscard]] std::size_t program_thread(std::size_t rank) const;
  [[nodiscard]] std::size_t acting_thread(std::size_t rank, const TimeSpan& span, std::uint8_t worker) const;

  const Story& story_;
  std::vector<std::vector<Blame>> done_;
  std::vector<State> state_;
  int depth_ = 0;
  std::vector<std::vector<std::vector<std::size_t>>> of_thread_;  // waits by rank, thread
  std::vector<std::vector<std::vector<TimeSpan>>> sleeps_;        // the same, in order
  std::map<std::uint64_t, diagnosis::LatestCalls> latest_;        // by team
  std::optional<Ending> ending_;                                  // once a wait needs it
};

std::size_t Blamer::index_of(std::uint32_t rank) const {
  const Rank* const found = story_.of(rank);
  return found == nullptr ? kNoRank : static_cast<std::size_t>(found - story_.ranks.data());
}

std::size_t Blamer::debtor(const WaitStory& wait, const AwaitedThing& awaited,
                           std::span<const std::uint32_t> able) const {
  static_assert(tap::kAnyRank == tap::kNobody);
  tap::Awaited thing;
  thing.cause = awaited.cause;
  thing.rank = awaited.rank;
  return index_of(diagnosis::debtor_of(thing, story_.ranks[wait.rank].number, story_.size, able).rank);
}

const std::vector<Blame>& Blamer::of(std::size_t wait) {
  // Waits may depend on each other without end, each a little later. They are not followed beyond
  // this depth.
  constexpr int kDeepest = 200;
  // a wait that depends on itself has no parts yet
  if (state_[wait] != State::fresh || depth_ == kDeepest) return done_[wait];
  state_[wait] = State::under_way;
  Building building{story_.waits[wait], {}, story_.waits[wait].begin};
  ++depth_;
  explain(building);
  --depth_;
  done_[wait] = std::move(building.parts);
  state_[wait] = State::done;
  return done_[wait];
}

void Blamer::explain(Building& building) {
  const WaitStory& wait = building.wait;
  const AwaitedThing* const awaited = wait.awaited.empty() ? nullptr : &wait.awaited.back();
  const bool lock = wait.call.find("_lock") != std::string::npos && wait.call.find("unlock") == std::string::npos &&
                    wait.call.find("clear_lock") == std::string::npos;
  if (lock && (awaited == nullptr || diagnosis::duty_of(awaited->cause) != Duty::release)) {
    add(building, wait.end, Why::lock, kNoRank, 0);
  } else if (!for_cut_off(building, awaited) &&
             (awaited == nullptr ? !for_ended_collective(building) : !for_awaited(building, *awaited))) {
    if (!for_message(building, awaited) && !for_operation(building, awaited) && awaited != nullptr) {
      for_peer(building, *awaited);
    }
  }
  add(building, wait.end, Why::unknown, kNoRank, 0);
}

// False: it must be guessed from the messages that came.
bool Blamer::for_awaited(Building& building, const AwaitedThing& awaited) {
  const WaitStory& wait = building.wait;
  switch (diagnosis::duty_of(awaited.cause)) {
    case Duty::come:
      // The steps of a library on top have numbers of their own, and may be none of the engine's.
      if (for_collective(building, awaited) || for_ended_collective(building, true)) return true;
      if (const std::size_t rank = debtor(wait, awaited); rank != kNoRank && !story_.ranks[rank].threads.empty()) {
        late(building, wait.end, Why::late_member, rank, program_thread(rank));
        return true;
      }
      return false;
    case Duty::release:
      add(building, wait.end, Why::lock, debtor(wait, awaited), 0);
      return true;
    case Duty::leave_to_others:
      add(building, wait.end, Why::lock, debtor(wait, awaited), wait.thread);
      return true;
    case Duty::take:
    case Duty::run_tasks:
      add(building, wait.end, Why::credit, debtor(wait, awaited), 0);
      return true;
    case Duty::receive:
      return for_receiver(building, awaited);
    case Duty::look:
      return for_operation(building, &awaited);
    case Duty::do_part:
    case Duty::write:
      for_peer(building, awaited);
      return true;
    case Duty::send:
    case Duty::unknown:
      break;
  }
  return false;
}

// ---- parts --------------------------------------------------------------------------------------

void Blamer::add(Building& building, std::int64_t end, Why why, std::size_t rank, std::size_t thread,
                 std::uint8_t worker) {
  end = std::min(end, building.wait.end);
  if (end <= building.at) return;
  Blame part;
  part.begin = building.at;
  part.end = end;
  part.why = why;
  part.rank = rank;
  part.thread = thread;
  part.worker = worker;
  building.parts.push_back(part);
  building.at = end;
}

// The time for which the kernel gave that thread no core comes first. It is not known where in the
// span it lies.
void Blamer::add_late(Building& building, const TimeSpan& span, Why why, std::size_t rank, std::size_t thread) {
  if (span.length() == 0) return;
  const std::int64_t without = without_core(story_.ranks[rank].threads[thread], span);
  if (without > span.length() / 20) add(building, building.at + without, Why::no_core, rank, thread);
  add(building, span.end, why, rank, thread);
}

void Blamer::late(Building& building, std::int64_t end, Why why, std::size_t rank, std::size_t thread) {
  end = std::min(end, building.wait.end);
  if (end <= building.at) return;
  if (rank == kNoRank || rank == building.wait.rank) return add(building, end, why, rank, thread);
  const TimeSpan whole{building.at, end};
  const std::vector<std::size_t>& waits = of_thread_[rank][thread];
  const auto span_of = [&](std::size_t other) -> const TimeSpan& { return story_.waits[other]; };
  for (auto at = first_after(waits, building.at, span_of); at != waits.end(); ++at) {
    const std::size_t other = *at;
    const WaitStory& wait = story_.waits[other];
    if (wait.begin >= end) break;
    add_late(building, {building.at, wait.begin}, why, rank, thread);
    if (state_[other] == State::under_way) continue;  // a ring of waits: each for the next
    const std::vector<Blame>& parts = of(other);      // stays where it is
    for (auto at_part = first_after(parts, building.at, kSpan); at_part != parts.end() && at_part->begin < end;
         ++at_part) {
      const Blame& part = *at_part;
      if (whole.within(part).length() == 0) continue;
      // The waiting rank itself is not late meanwhile. If something has come, it is not the thing
      // that never came.
      const bool itself =
          part.rank == building.wait.rank && part.thread == building.wait.thread &&
          (part.why == Why::late_sender || part.why == Why::late_receiver || part.why == Why::late_member);
      if (itself || (part.why == Why::never && (building.wait.ended || part.rank == building.wait.rank))) {
        add(building, std::min(part.end, end), why, rank, thread);
      } else {
        add(building, std::min(part.end, end), part.why, part.rank, part.thread, part.worker);
      }
    }
  }
  add_late(building, {building.at, end}, why, rank, thread);
}

// For how long, within the span, nobody looked at one of the rank's workers, and at which one. If
// the awaited thing came before anybody looked, nobody had to look.
std::pair<std::uint8_t, std::int64_t> Blamer::longest_away(std::size_t rank, const TimeSpan& span) const {
  std::pair<std::uint8_t, std::int64_t> longest{tap::kNoTraceWorker, 0};
  for (const auto& [worker, all] : story_.ranks[rank].away) {
    for (auto away = first_after(all, span.begin, kSpan); away != all.end() && away->begin < span.end; ++away) {
      const std::int64_t common = away->within(span).length();
      if (was_needed(*away, span.end, common) && common > longest.second) longest = {worker, common};
    }
  }
  return longest;
}

// The thread that looked last at that rank's worker, or first after the span.
std::size_t Blamer::acting_thread(std::size_t rank, const TimeSpan& span, std::uint8_t worker) const {
  const Rank& peer = story_.ranks[rank];
  constexpr int kMostLooked = 1000;
  auto after = std::ranges::lower_bound(peer.messages, span.end, {}, &Message::at);
  for (int looked = 0; after != peer.messages.end() && looked < kMostLooked; ++after, ++looked) {
    if (after->worker == worker) return after->thread;
  }
  return 0;
}

// If the thread is not known: the first one that is not the library's own.
std::size_t Blamer::program_thread(std::size_t rank) const {
  const std::vector<ThreadStory>& threads = story_.ranks[rank].threads;
  const auto found =
      std::ranges::find_if(threads, [](const ThreadStory& thread) { return !thread.name.starts_with("heddle-"); });
  return found == threads.end() ? 0 : static_cast<std::size_t>(found - threads.begin());
}

void Blamer::moving(Building& building, std::int64_t end, std::size_t rank, std::uint8_t worker) {
  end = std::min(end, building.wait.end);
  if (rank != kNoRank && worker == tap::kNoTraceWorker) worker = longest_away(rank, {building.at, end}).first;
  if (rank != kNoRank && story_.ranks[rank].away.contains(worker)) {
    const Rank& peer = story_.ranks[rank];
    const std::vector<TimeSpan>& all = peer.away.at(worker);
    for (auto away = first_after(all, building.at, kSpan); away != all.end() && away->begin < end; ++away) {
      const TimeSpan common = away->within({building.at, end});
      if (common.length() == 0 || !was_needed(*away, end, common.length())) continue;
      under_way(building, common.begin);
      const std::size_t thread = acting_thread(rank, *away, worker);
      const std::int64_t without = peer.threads.empty() ? 0 : without_core(peer.threads[thread], common);
      if (without > common.length() / 20) add(building, building.at + without, Why::no_core, rank, thread);
      add(building, common.end, Why::no_progress, rank, thread, worker);
    }
  }
  own_thread(building, end);
}

// The waiting thread itself may have had no core.
void Blamer::own_thread(Building& building, std::int64_t end) {
  const TimeSpan rest{building.at, std::min(end, building.wait.end)};
  const WaitStory& wait = building.wait;
  const std::int64_t without = without_core(story_.ranks[wait.rank].threads[wait.thread], rest);
  if (rest.length() > kUnnoticedNs && without > rest.length() / 2) {
    add(building, building.at + without, Why::no_core, wait.rank, wait.thread);
  }
  under_way(building, end);
}

// A thread that sleeps in its wait notices arrivals when it is woken, or when it wakes by itself.
void Blamer::under_way(Building& building, std::int64_t end) {
  const WaitStory& wait = building.wait;
  const std::vector<TimeSpan>& sleeps = sleeps_[wait.rank][wait.thread];
  for (auto sleep = first_after(sleeps, building.at, kSpan); sleep != sleeps.end() && sleep->begin < end; ++sleep) {
    add(building, sleep->begin, Why::under_way, kNoRank, 0);
    add(building, std::min(sleep->end, end), Why::asleep, wait.rank, wait.thread);
  }
  add(building, end, Why::under_way, kNoRank, 0);
}

// ---- what is waited for -------------------------------------------------------------------------

// The trace ended before the wait did, so nothing that came meanwhile was the awaited thing. False:
// the cause is known all the same, from the ranks that have come to a collective or hold something.
bool Blamer::for_cut_off(Building& building, const AwaitedThing* awaited) {
  if (building.wait.ended) return false;
  if (awaited != nullptr && diagnosis::is_standing(diagnosis::duty_of(awaited->cause))) return false;
  if (!ending_.has_value()) ending_ = ending_of(story_);
  const auto [rank, follow] = owing_at_end(building.wait);
  const std::size_t thread = rank == kNoRank ? 0 : program_thread(rank);
  if (follow) late(building, building.wait.end, Why::never, rank, thread);
  add(building, building.wait.end, Why::never, rank, thread);
  return true;
}

// Of those that owe the wait something the one that the verdict blames; else one that waits for it,
// and is to be followed (true); else the last.
std::pair<std::size_t, bool> Blamer::owing_at_end(const WaitStory& wait) const {
  std::pair<std::size_t, bool> found{kNoRank, false};
  for (const AwaitedThing& awaited : wait.awaited) {
    const std::size_t rank = debtor(wait, awaited, ending_->able);
    if (rank == kNoRank) continue;
    if (std::ranges::binary_search(ending_->culprits, story_.ranks[rank].number)) return {rank, false};
    const bool behind = std::ranges::binary_search(ending_->behind, story_.ranks[rank].number);
    if (behind || !found.second) found = {rank, behind && !story_.ranks[rank].threads.empty()};
  }
  return found;
}

// The first rank that has never come to a collective, and that has lost no records; kNoRank: all
// have come, or it is not known.
std::size_t Blamer::missing(const AwaitedThing& awaited, const std::vector<CollectiveEntry>& entries) const {
  const auto members = story_.members.find({awaited.team, awaited.number});
  if (members == story_.members.end() || entries.size() >= members->second) return kNoRank;
  std::vector<std::uint32_t> come;
  for (const CollectiveEntry& entry : entries) come.push_back(story_.ranks[entry.rank].number);
  std::ranges::sort(come);
  for (const std::uint32_t number :
       diagnosis::absentees_of(step_of(story_, awaited), come, latest_.at(awaited.team), story_.size).ranks) {
    const std::size_t rank = index_of(number);
    if (rank != kNoRank && story_.ranks[rank].lost == 0 && !story_.ranks[rank].threads.empty()) return rank;
  }
  return kNoRank;
}

bool Blamer::for_collective(Building& building, const AwaitedThing& awaited) {
  const auto found = story_.entries.find({awaited.team, awaited.number});
  if (found == story_.entries.end()) return false;
  const CollectiveEntry& last = *std::ranges::max_element(found->second, {}, &CollectiveEntry::at);
  if (const std::size_t never = missing(awaited, found->second); never != kNoRank) {
    late(building, building.wait.end, Why::late_member, never, program_thread(never));
  }
  late(building, last.at, Why::late_member, last.rank, last.thread);
  // All have come. Finds the rank that does not advance it.
  const TimeSpan rest{building.at, building.wait.end};
  std::size_t blamed = kNoRank;
  std::int64_t most = kUnnoticedNs;
  for (const CollectiveEntry& entry : found->second) {
    if (entry.rank == building.wait.rank) continue;
    const std::int64_t longest = longest_away(entry.rank, rest).second;
    if (longest <= most) continue;
    most = longest;
    blamed = entry.rank;
  }
  moving(building, building.wait.end, blamed, tap::kNoTraceWorker);
  return true;
}

// A collective whose end may have ended the wait.
bool Blamer::for_ended_collective(Building& building, bool known) {
  const WaitStory& wait = building.wait;
  const std::vector<EndedCollective>& ended = story_.ranks[wait.rank].ended_collectives;
  const auto after =
      std::ranges::upper_bound(ended, std::max(wait.until, wait.end + kUnnoticedNs), {}, &EndedCollective::at);
  if (after == ended.begin()) return false;
  const EndedCollective& last = *std::prev(after);
  if (last.at < (known ? wait.begin : std::max(wait.begin, wait.end - kUnnoticedNs))) return false;
  AwaitedThing awaited;
  awaited.team = last.team;
  awaited.number = last.number;
  return for_collective(building, awaited);
}

// A long message of this rank that the sender of `message` had to receive first. Null: there is
// none.
const Match* Blamer::received_before(const WaitStory& wait, const Message& message, std::size_t sender) const {
  const std::vector<Match>& matches = story_.ranks[sender].matches;
  auto match = std::ranges::upper_bound(matches, message.posted, {}, &Match::at);
  while (match != matches.begin()) {
    --match;
    if (match->at < wait.begin) return nullptr;
    if (match->rank == story_.ranks[wait.rank].number) return &*match;
  }
  return nullptr;
}

// The message that was answered by this one: the last one that its thread noted, right before.
// Null: it came as soon as it was sent, or there was none.
const Message* Blamer::asked_by(const Message& answer, std::size_t sender, std::uint32_t asker) const {
  constexpr std::int64_t kAnswerNs = 100'000;
  const std::vector<Message>& came = story_.ranks[sender].messages;
  auto before = std::ranges::upper_bound(came, answer.posted, {}, &Message::at);
  while (before != came.begin()) {
    --before;
    if (answer.posted - before->at > kAnswerNs) return nullptr;
    if (before->rank != asker || before->thread != answer.sender_thread || before->posted == 0) continue;
    if (!before->active) continue;
    return before->at - before->posted > kUnnoticedNs ? &*before : nullptr;
  }
  return nullptr;
}

// A receive's message that came during the wait, or else the last or next message. Null: there is
// none.
const Message* Blamer::ending(const WaitStory& wait, const AwaitedThing* awaited, bool* received) const {
  const Rank& own = story_.ranks[wait.rank];
  const auto mine = [&](std::uint8_t worker) { return wait.worker == tap::kNoTraceWorker || worker == wait.worker; };
  const auto from = [&](std::uint32_t rank) {
    return awaited == nullptr || awaited->rank == tap::kAnyRank || awaited->rank == rank;
  };
  *received = true;
  auto match = std::ranges::upper_bound(own.matches, wait.end + kAfterNs, {}, &Match::at);
  while (match != own.matches.begin() && std::prev(match)->at >= wait.begin) {
    --match;
    if (mine(match->worker) && from(match->rank) && match->message) return &*match->message;
  }
  *received = false;
  const auto after = std::ranges::upper_bound(own.messages, wait.end + kAfterNs, {}, &Message::at);
  for (auto one = after; one != own.messages.begin() && std::prev(one)->at >= wait.begin;) {
    --one;
    if (mine(one->worker) && from(one->rank) && !one->word) return &*one;
  }
  for (auto one = after; one != own.messages.end() && one->at <= wait.until; ++one) {
    if (mine(one->worker) && from(one->rank) && !one->word) return &*one;
  }
  return nullptr;
}

// A receive, or another wait that a message has ended.
bool Blamer::for_message(Building& building, const AwaitedThing* awaited) {
  const WaitStory& wait = building.wait;
  bool received = false;
  const Message* const message = ending(wait, awaited, &received);
  if (message == nullptr || message->posted == 0) return false;
  const std::size_t sender = index_of(message->rank);
  if (sender == kNoRank) return false;
  if (const Match* const taken = received ? nullptr : received_before(wait, *message, sender); taken != nullptr) {
    if (taken->received != 0) late(building, taken->received, Why::late_receiver, sender, taken->receiver);
    moving(building, wait.end, sender, message->peer);
    return true;
  }
  // It answers a message of this rank, which lay there: nobody had looked.
  if (const Message* const asked =
          !message->active ? nullptr : asked_by(*message, sender, story_.ranks[wait.rank].number);
      asked != nullptr) {
    late(building, asked->posted, Why::late_sender, wait.rank, wait.thread);
    moving(building, asked->at, sender, asked->worker);
  }
  late(building, message->posted, Why::late_sender, sender, message->sender_thread);
  own_thread(building, message->at);
  moving(building, wait.end, sender, message->peer);
  return true;
}

// A long message of this rank, which its target has to receive.
bool Blamer::for_receiver(Building& building, const AwaitedThing& awaited) {
  const WaitStory& wait = building.wait;
  const std::size_t target = debtor(wait, awaited);
  if (target == kNoRank) return false;
  const Rank& peer = story_.ranks[target];
  const std::uint32_t own = story_.ranks[wait.rank].number;
  const Match* match = nullptr;
  auto one = std::ranges::upper_bound(peer.matches, wait.end + kAfterNs, {}, &Match::at);
  while (one != peer.matches.begin()) {
    --one;
    if (one->at < wait.begin) break;
    if (one->rank != own) continue;
    match = &*one;
    break;
  }
  if (match == nullptr) {
    moving(building, wait.end, target, awaited.worker);
    return true;
  }
  if (match->received != 0) late(building, match->received, Why::late_receiver, target, match->receiver);
  moving(building, wait.end, target, awaited.worker);
  return true;
}

// A put, get, atomic or message whose end was waited for.
bool Blamer::for_operation(Building& building, const AwaitedThing* awaited) {
  const WaitStory& wait = building.wait;
  const EndedOperation* last = nullptr;
  const std::vector<EndedOperation>& all = story_.ranks[wait.rank].operations;
  for (auto at = first_after(all, wait.begin, kSpan); at != all.end() && at->end <= wait.end + kAfterNs; ++at) {
    const EndedOperation& one = *at;
    if (one.begin > wait.end) continue;
    if (wait.worker != tap::kNoTraceWorker && one.worker != wait.worker) continue;
    if (awaited != nullptr && awaited->rank != tap::kAnyRank && awaited->rank != one.rank) continue;
    last = &one;
  }
  if (last == nullptr) {
    if (awaited == nullptr || awaited->rank == tap::kAnyRank) return false;
    moving(building, wait.end, debtor(wait, *awaited), awaited->worker);
    return true;
  }
  under_way(building, last->begin);
  moving(building, wait.end, index_of(last->rank), last->peer);
  return true;
}

// The last call before the end, of the other ranks' calls that may have written the word.
bool Blamer::for_word(Building& building) {
  auto write = std::ranges::upper_bound(story_.writes, building.wait.end, {}, &CollectiveEntry::at);
  while (write != story_.writes.begin()) {
    --write;
    if (write->at < building.wait.begin) return false;
    if (write->rank == building.wait.rank) continue;
    late(building, write->at, Why::late_sender, write->rank, write->thread);
    moving(building, building.wait.end, write->rank, tap::kNoTraceWorker);
    return true;
  }
  return false;
}

// It is known which rank had to act, but not when it did.
void Blamer::for_peer(Building& building, const AwaitedThing& awaited) {
  std::size_t rank = debtor(building.wait, awaited);
  if (rank == kNoRank && diagnosis::duty_of(awaited.cause) == Duty::write) {
    if (for_word(building)) return;
    constexpr std::array<std::uint32_t, 2> kBoth = {0, 1};
    if (story_.size == 2) rank = debtor(building.wait, awaited, kBoth);
  }
  if (rank == kNoRank || story_.ranks[rank].threads.empty()) return;
  late(building, building.wait.end, Why::late_sender, rank, program_thread(rank));
}

}  // namespace

std::vector<std::vector<Blame>> blame_all(const Story& story) {
  return Blamer(story).take_all();
}

}  // namespace heddle::observe::explain
