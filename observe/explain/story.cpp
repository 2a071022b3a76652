#include "observe/explain/story.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <string_view>
#include <tuple>

#include "observe/trace/picture.hpp"

namespace heddle::observe::explain {
namespace {

using tap::TraceEvent;
using tap::TraceRecord;
using trace::Moment;

// Sender, receiver and message: the same at both ends.
using MessageKey = std::tuple<std::uint32_t, std::uint8_t, std::uint32_t, std::uint8_t, std::uint64_t>;
struct Sent {
  std::int64_t at;
  std::size_t thread;
};
using SentMessages = std::map<MessageKey, Sent>;

Slice::What call_of(std::string_view name) {
  return name.starts_with("MPI_") || name.starts_with("shmem") ? Slice::What::call : Slice::What::own;
}

// It may have written the word that another rank waits for.
bool writes_words(std::string_view name) {
  return name.starts_with("shmem_") && (name.find("put") != name.npos || name.ends_with("_p") ||
                                        name.find("atomic") != name.npos || name.find("signal") != name.npos);
}
bool waits_for_words(std::string_view name) {
  return name.find("wait_until") != name.npos || name == "shmem_signal_wait_until";
}

// Collective calls of all ranks. Calls of only some ranks are not told apart, and not counted.
bool is_collective(std::string_view name) {
  return name == "shmem_barrier_all" || name == "shmem_sync_all" || name == "shmem_init" || name == "shmem_finalize";
}
// In the place of a team. No team has that bit.
constexpr std::uint64_t kByName = std::uint64_t{1} << 63;
std::uint64_t by_name(std::string_view name) {
  return std::hash<std::string_view>()(name) | kByName;
}

// Reads the records of one process.
class Reader {
 public:
  Reader(const trace::Process& process, std::size_t index, Story& story, SentMessages& sent)
      : process_(process), index_(index), story_(story), rank_(story.ranks[index]), sent_(sent) {}

  void read(const std::vector<trace::Thread>& threads);

 private:
  struct State {  // of a thread
    std::vector<Slice> open;
    std::vector<WaitStory> waits;    // one within the other
    std::optional<Message> arrival;  // the last
    std::int64_t awaited_at = 0;     // of the set that is being noted
    // a collective that has not been begun: team, number
    std::pair<std::uint64_t, std::uint64_t> entered;
    TimeSpan slept;                          // last
    std::vector<std::size_t> waits_in_call;  // those of the call that the thread is in
    // the last call of an interface in which it waited
    std::int64_t waited_in = 0;
  };
  struct Receive {
    std::int64_t at;
    std::size_t thread;
    TraceRecord record;
  };

  void take(std::size_t thread, const Moment& moment);
  bool take_slice(std::size_t thread, const Moment& moment);
  void open(std::size_t thread, Slice::What what, std::string name, std::int64_t at);
  void close(std::size_t thread, Slice::What what, std::int64_t at);
  void end_call(std::size_t thread, const Slice& call);
  void begin_wait(std::size_t thread, const Moment& moment);
  void take_awaited(std::size_t thread, const Moment& moment);
  void end_wait(std::size_t thread, std::int64_t at);
  void push_wait(std::size_t thread, WaitStory&& wait);
  bool brings_message(const EndedOperation& get);
  void take_posted(std::size_t thread, const Moment& moment);
  void take_ended(const Moment& moment);
  void take_away(std::size_t thread, const Moment& moment);
  void take_arrived(std::size_t thread, const Moment& moment);
  void take_matched(std::size_t thread, const Moment& moment);
  void take_kept(const Moment& moment);

  const trace::Process& process_;
  const std::size_t index_;
  Story& story_;
  Rank& rank_;
  SentMessages& sent_;
  std::vector<State> states_;
  bool cut_off_ = false;  // all was read: what is still open has not ended
  std::map<std::string, std::uint64_t> collective_calls_;
  // collectives: team, number
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> by_number_;
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> runs_;
  std::map<std::uint8_t, std::deque<Receive>> receives_;
  std::map<std::pair<std::uint8_t, std::uint64_t>, std::deque<EndedOperation>> operations_;
};

void Reader::read(const std::vector<trace::Thread>& threads) {
  std::vector<std::pair<const Moment*, std::size_t>> all;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    ThreadStory& thread = rank_.threads.emplace_back();
    thread.number = threads[i].number;
    thread.name = threads[i].name;
    rank_.lost += threads[i].lost;
    if (threads[i].moments.empty()) continue;
    for (const Moment& moment : threads[i].moments) all.emplace_back(&moment, i);
  }
  states_.resize(threads.size());
  std::ranges::sort(all, [](const auto& a, const auto& b) {
    return std::tuple(a.first->ns, a.second, a.first) < std::tuple(b.first->ns, b.second, b.first);
  });
  if (all.empty()) return;
  rank_.seen = {all.front().first->ns, all.back().first->ns};
  for (const auto& [moment, thread] : all) take(thread, *moment);
  for (std::size_t thread = 0; thread < states_.size(); ++thread) {
    cut_off_ = true;
    while (!states_[thread].waits.empty()) {
      states_[thread].waits.back().ended = false;
      end_wait(thread, rank_.seen.end);
    }
    while (!states_[thread].open.empty()) close(thread, states_[thread].open.back().what, rank_.seen.end);
    std::ranges::sort(rank_.threads[thread].slices, {}, &Slice::begin);
  }
}

void Reader::take(std::size_t thread, const Moment& moment) {
  const TraceRecord& record = moment.record;
  if (take_slice(thread, moment)) return;
  switch (record.event) {
    case TraceEvent::posted:
      return take_posted(thread, moment);
    case TraceEvent::ended:
      return take_ended(moment);
    case TraceEvent::arrived:
      return take_arrived(thread, moment);
    case TraceEvent::away:
      return take_away(thread, moment);
    case TraceEvent::receive: {
      // Entries whose ends are missing must not be searched for ever.
      constexpr std::size_t kMostOpen = 4096;
      std::deque<Receive>& receives = receives_[record.worker];
      if (receives.size() == kMostOpen) receives.pop_front();
      receives.push_back({moment.ns, thread, record});
      return;
    }
    case TraceEvent::matched:
      return take_matched(thread, moment);
    case TraceEvent::kept:
      return take_kept(moment);
    case TraceEvent::entered:
      story_.entries[{record.id, record.bytes}].push_back({moment.ns, index_, thread});
      story_.members[{record.id, record.bytes}] = record.rank;
      states_[thread].entered = {record.id, record.bytes};
      by_number_[record.bytes] = {record.id, record.bytes};
      return;
    case TraceEvent::schedule_begin: {
      // A run of a persistent one is entered by its thread right before; another may be begun
      // later, by any thread: it has the number of its call.
      const auto call = by_number_.find(record.rank);
      const bool own = states_[thread].entered.second != 0;
      runs_[record.bytes] = own || call == by_number_.end() ? states_[thread].entered : call->second;
      states_[thread].entered = {};
      return;
    }
    case TraceEvent::schedule_end:
      if (const auto run = runs_.find(record.bytes); run != runs_.end()) {
        rank_.ended_collectives.push_back({moment.ns, run->second.first, run->second.second});
      }
      return;
    case TraceEvent::core_time:
      rank_.threads[thread].core_time.push_back({moment.ns, static_cast<std::int64_t>(record.id)});
      return;
    default:
      return;
  }
}

// ---- what threads are in ------------------------------------------------------------------------

void Reader::open(std::size_t thread, Slice::What what, std::string name, std::int64_t at) {
  Slice slice;
  slice.begin = at;
  slice.what = what;
  slice.name = std::move(name);
  states_[thread].open.push_back(std::move(slice));
}

void Reader::close(std::size_t thread, Slice::What what, std::int64_t at) {
  std::vector<Slice>& open = states_[thread].open;
  const auto found = std::ranges::find(open.rbegin(), open.rend(), what, &Slice::what);
  if (found == open.rend()) return;
  for (auto count = found - open.rbegin() + 1; count > 0; --count) {
    open.back().end = at;
    if (open.back().what == Slice::What::call) end_call(thread, open.back());
    rank_.threads[thread].slices.push_back(std::move(open.back()));
    open.pop_back();
  }
}

// An interface that waits by itself notes no wait. So a long call in which no wait was noted counts
// as one. Collective calls of all ranks are counted by their names.
void Reader::end_call(std::size_t thread, const Slice& call) {
  if (is_collective(call.name)) {
    const std::uint64_t number = ++collective_calls_[call.name];
    story_.entries[{by_name(call.name), number}].push_back({call.begin, index_, thread});
  }
  for (const std::size_t wait : states_[thread].waits_in_call) {
    story_.waits[wait].until = call.end;
    story_.waits[wait].ended = !cut_off_;
  }
  states_[thread].waits_in_call.clear();
  if (writes_words(call.name)) story_.writes.push_back({call.begin, index_, thread});
  constexpr std::int64_t kLongNs = 50'000;
  if (call.length() < kLongNs || states_[thread].waited_in == call.begin) return;
  WaitStory wait;
  wait.begin = call.begin;
  wait.end = call.end;
  wait.rank = index_;
  wait.thread = thread;
  wait.call = call.name;
  wait.in_call = call.begin;
  wait.until = call.end;
  wait.ended = !cut_off_;
  if (is_collective(call.name)) {
    AwaitedThing all;
    all.cause = tap::Cause::collective;
    all.team = by_name(call.name);
    all.number = collective_calls_[call.name];
    wait.awaited.push_back(all);
  }
  if (waits_for_words(call.name)) {
    AwaitedThing word;
    word.cause = tap::Cause::word;
    wait.awaited.push_back(word);
  }
  story_.waits.push_back(std::move(wait));
}

bool Reader::take_slice(std::size_t thread, const Moment& moment) {
  const TraceRecord& record = moment.record;
  switch (record.event) {
    case TraceEvent::call_begin:
      open(thread, call_of(process_.name(record.id)), process_.name(record.id), moment.ns);
      return true;
    case TraceEvent::call_end:
      close(thread, call_of(process_.name(record.id)), moment.ns);
      return true;
    case TraceEvent::task_begin:
      open(thread, Slice::What::task, "", moment.ns);
      return true;
    case TraceEvent::task_end:
      close(thread, Slice::What::task, moment.ns);
      return true;
    case TraceEvent::sleep_begin:
      open(thread, Slice::What::sleep, "", moment.ns);
      return true;
    case TraceEvent::sleep_end:
      if (const auto& open = states_[thread].open; !open.empty() && open.back().what == Slice::What::sleep)
        states_[thread].slept = {states_[thread].open.back().begin, moment.ns};
      close(thread, Slice::What::sleep, moment.ns);
      return true;
    case TraceEvent::wait_begin:
      begin_wait(thread, moment);
      return true;
    case TraceEvent::awaited:
      take_awaited(thread, moment);
      return true;
    case TraceEvent::wait_end:
      end_wait(thread, moment.ns);
      close(thread, Slice::What::wait, moment.ns);
      return true;
    default:
      return false;
  }
}

// A wait inside a call of an interface above belongs to that call.
void Reader::begin_wait(std::size_t thread, const Moment& moment) {
  State& state = states_[thread];
  const std::string name = process_.name(moment.record.id);
  if (name == "heddle_run_tasks") return;  // it serves
  WaitStory wait;
  wait.begin = moment.ns;
  wait.rank = index_;
  wait.thread = thread;
  wait.worker = moment.record.worker;
  const auto call = std::ranges::find(state.open.rbegin(), state.open.rend(), Slice::What::call, &Slice::what);
  wait.call = call != state.open.rend() ? call->name : name;
  wait.in_call = call != state.open.rend() ? call->begin : 0;
  state.waited_in = wait.in_call;
  open(thread, Slice::What::wait, name, moment.ns);
  state.waits.push_back(std::move(wait));
}

// All that is noted at once belongs together.
void Reader::take_awaited(std::size_t thread, const Moment& moment) {
  State& state = states_[thread];
  if (state.waits.empty()) return;
  constexpr std::int64_t kAtOnceNs = 20'000;
  if (moment.ns - state.awaited_at > kAtOnceNs) state.waits.back().awaited.clear();
  state.awaited_at = moment.ns;
  const TraceRecord& record = moment.record;
  AwaitedThing awaited;
  awaited.cause =
      static_cast<tap::Cause>(std::min<std::uint8_t>(record.detail, static_cast<std::uint8_t>(tap::kLastCause)));
  awaited.rank = record.rank;
  awaited.worker = record.peer;
  if (awaited.cause == tap::Cause::collective) {
    awaited.team = record.id;
    awaited.number = record.bytes;
  }
  state.waits.back().awaited.push_back(awaited);
}

void Reader::end_wait(std::size_t thread, std::int64_t at) {
  State& state = states_[thread];
  if (state.waits.empty()) return;
  WaitStory wait = std::move(state.waits.back());
  state.waits.pop_back();
  // The event that ends a heddle_worker_wait is found in what the program does next.
  constexpr std::int64_t kSoonNs = 1'000'000;
  wait.end = at;
  wait.until = at + (wait.call == "heddle_worker_wait" ? kSoonNs : 0);
  // The time of a wait within another one belongs to the inner one.
  if (!state.waits.empty()) {
    WaitStory rest = state.waits.back();
    state.waits.back().ended = !cut_off_;
    state.waits.back().end = wait.begin;
    state.waits.back().until = wait.begin;
    if (state.waits.back().length() > 0) push_wait(thread, std::move(state.waits.back()));
    rest.begin = at;
    state.waits.back() = std::move(rest);
  }
  if (!cut_off_ || wait.length() > 0) push_wait(thread, std::move(wait));
}

void Reader::push_wait(std::size_t thread, WaitStory&& wait) {
  if (wait.in_call != 0) states_[thread].waits_in_call.push_back(story_.waits.size());
  story_.waits.push_back(std::move(wait));
}

// ---- messages and operations --------------------------------------------------------------------

// The get is, or is a part of, the data of a long message that was matched before.
bool Reader::brings_message(const EndedOperation& get) {
  constexpr std::size_t kMostLooked = 64;
  std::size_t looked = 0;
  for (auto match = rank_.matches.rbegin(); match != rank_.matches.rend() && looked < kMostLooked; ++match, ++looked) {
    if (match->rank != get.rank || match->worker != get.worker || match->left < get.bytes) continue;
    match->left -= get.bytes;
    return true;
  }
  return false;
}

void Reader::take_posted(std::size_t thread, const Moment& moment) {
  const TraceRecord& record = moment.record;
  if (record.kind != 0) {
    sent_[{process_.rank, record.worker, record.rank, record.peer, record.id}] = {moment.ns, thread};
  }
  if (trace::slot_of(record) == 0) return;
  EndedOperation operation;
  operation.begin = moment.ns;
  operation.rank = record.rank;
  operation.peer = record.peer;
  operation.worker = record.worker;
  operation.opcode = record.detail == tap::kTraceWord ? tap::kTraceMessage : static_cast<std::uint8_t>(record.detail);
  operation.bytes = trace::bytes_of(record);
  if (operation.opcode == tap::kTraceGet) operation.of_message = brings_message(operation);
  // A slot is used again once its operation has ended. So if it is used again, the record of the
  // earlier end was lost. Long operations without a completion share their slot.
  std::deque<EndedOperation>& under_way = operations_[{record.worker, trace::slot_of(record) - 1}];
  if (trace::slot_of(record) - 1 != tap::kTraceLongSlot) under_way.clear();
  under_way.push_back(operation);
}

void Reader::take_ended(const Moment& moment) {
  if (moment.record.detail == 1) return;  // its source is free; the end follows
  const auto found = operations_.find({moment.record.worker, moment.record.id});
  if (found == operations_.end() || found->second.empty()) return;
  found->second.front().end = moment.ns;
  rank_.operations.push_back(found->second.front());
  found->second.pop_front();
}

// A thread that slept for arrivals would have been woken by them, so its sleep is no time in which
// nobody looked.
void Reader::take_away(std::size_t thread, const Moment& moment) {
  constexpr std::int64_t kLeastNs = 20'000;
  TimeSpan span{process_.at(moment.record.id), moment.ns};
  const TimeSpan& slept = states_[thread].slept;
  if (slept.end > span.begin) {
    const TimeSpan before{span.begin, slept.begin};
    if (before.length() >= kLeastNs) rank_.away[moment.record.worker].push_back(before);
    span.begin = slept.end;
  }
  if (span.length() >= kLeastNs) rank_.away[moment.record.worker].push_back(span);
}

void Reader::take_arrived(std::size_t thread, const Moment& moment) {
  const TraceRecord& record = moment.record;
  Message message;
  message.at = moment.ns;
  message.thread = thread;
  message.rank = record.rank;
  message.peer = record.peer;
  message.worker = record.worker;
  message.word = record.detail == tap::kTraceWord;
  message.active = trace::is_active(record.kind);
  // The sender's record may be read later: its place is kept here until then.
  message.posted = static_cast<std::int64_t>(record.id);
  states_[thread].arrival = message;
  rank_.messages.push_back(message);
}

void Reader::take_kept(const Moment& moment) {
  const TraceRecord& record = moment.record;
  const auto copy_ns =
      static_cast<std::int64_t>(static_cast<double>(trace::copy_ticks(record)) * process_.clock.ns_per_tick);
  rank_.kept.push_back({moment.ns, copy_ns, trace::bytes_of(record), record.rank});
}

void Reader::take_matched(std::size_t thread, const Moment& moment) {
  const TraceRecord& record = moment.record;
  Match match;
  match.at = moment.ns;
  match.thread = match.receiver = thread;
  match.rank = record.rank;
  match.worker = record.worker;
  match.left = record.bytes;
  std::deque<Receive>& receives = receives_[record.worker];
  const auto from = [&](const Receive& one) {
    return one.record.rank == record.rank || one.record.rank == tap::kAnyRank;
  };
  auto receive =
      std::ranges::find_if(receives, [&](const Receive& one) { return from(one) && one.record.id == record.id; });
  if (receive == receives.end()) {
    receive = std::ranges::find_if(receives, [&](const Receive& one) { return from(one) && one.record.detail == 1; });
  }
  if (receive != receives.end()) {
    match.received = receive->at;
    match.receiver = receive->thread;
    receives.erase(receive);
  }
  if (record.detail == 1) {
    match.received = moment.ns;
  } else if (const auto& arrival = states_[thread].arrival; arrival && arrival->rank == record.rank) {
    match.message = arrival;
  }
  rank_.matches.push_back(match);
}

// The moments at which messages were posted, once all ranks were read. Until then `posted` is the
// message's number.
void set_posted(const SentMessages& sent, const Rank& rank, Message& message) {
  const auto found =
      sent.find({message.rank, message.peer, rank.number, message.worker, static_cast<std::uint64_t>(message.posted)});
  message.posted = found == sent.end() ? 0 : found->second.at;
  message.sender_thread = found == sent.end() ? 0 : found->second.thread;
}

// Two waits of a thread, one after the other, are one: pieces within a call of an interface, or
// calls of heddle_worker_wait right after each other, of which the first brought no message.
bool goes_on(const Story& story, const WaitStory& before, const WaitStory& wait) {
  if (wait.in_call != 0 || before.in_call != 0) return wait.in_call == before.in_call;
  constexpr std::int64_t kBetweenNs = 500'000;
  if (wait.call != "heddle_worker_wait" || wait.call != before.call || wait.begin - before.end > kBetweenNs)
    return false;
  const std::vector<Message>& came = story.ranks[wait.rank].messages;
  const auto last = std::ranges::upper_bound(came, wait.begin, {}, &Message::at);
  return last == came.begin() || std::prev(last)->at < before.begin;
}

// A call may wait in pieces, one right after the other.
void join_pieces(Story& story) {
  std::vector<WaitStory>& waits = story.waits;
  std::ranges::sort(waits, [](const WaitStory& a, const WaitStory& b) {
    return std::tuple(a.rank, a.thread, a.begin) < std::tuple(b.rank, b.thread, b.begin);
  });
  std::vector<WaitStory> joined;
  for (WaitStory& wait : waits) {
    WaitStory* const last = joined.empty() ? nullptr : &joined.back();
    if (last == nullptr || last->rank != wait.rank || last->thread != wait.thread || !goes_on(story, *last, wait)) {
      wait.longest_piece_ns = wait.length();
      joined.push_back(std::move(wait));
      continue;
    }
    last->end = wait.end;
    last->until = wait.until;
    last->ended = wait.ended;
    // The longest piece decides what the whole wait is for.
    if (wait.length() > last->longest_piece_ns && !wait.awaited.empty()) last->awaited = std::move(wait.awaited);
    last->longest_piece_ns = std::max(last->longest_piece_ns, wait.length());
  }
  waits = std::move(joined);
  std::ranges::sort(waits, {}, &WaitStory::begin);
}

}  // namespace

const Rank* Story::of(std::uint32_t number) const {
  const auto found = std::ranges::find(ranks, number, &Rank::number);
  return found == ranks.end() ? nullptr : &*found;
}

base::Result<Story> tell(const std::vector<trace::Process>& processes) {
  Story story;
  SentMessages sent;
  std::map<std::uint32_t, const trace::Process*> first;  // of each rank
  for (const trace::Process& process : processes) {
    if (!first.emplace(process.rank, &process).second) ++story.left_out;
  }
  story.ranks.resize(first.size());
  std::size_t index = 0;
  for (const auto& [number, process] : first) {
    auto threads = trace::read(*process);
    if (!threads) return threads.status();
    Rank& rank = story.ranks[index];
    story.size = std::max(story.size, process->size);
    rank.number = number;
    rank.machine = process->machine;
    rank.lost = process->untraced;
    Reader(*process, index++, story, sent).read(*threads);
  }
  for (Rank& rank : story.ranks) {
    for (Message& message : rank.messages) set_posted(sent, rank, message);
    for (Match& match : rank.matches) {
      if (match.message) set_posted(sent, rank, *match.message);
    }
  }
  join_pieces(story);
  std::ranges::sort(story.writes, {}, &CollectiveEntry::at);
  // If records are missing, calls cannot be counted.
  if (std::ranges::any_of(story.ranks, [](const Rank& rank) { return rank.lost != 0; })) {
    std::erase_if(story.entries, [](const auto& entry) { return (entry.first.first & kByName) != 0; });
  }
  return story;
}

const Slice* slice_at(const ThreadStory& thread, std::int64_t at) {
  const auto after = std::ranges::upper_bound(thread.slices, at, {}, &Slice::begin);
  // Slices nest: a slice that began earlier and is not over encloses those that began later.
  constexpr int kMostSiblings = 4096;
  int looked = 0;
  for (auto slice = after; slice != thread.slices.begin() && looked < kMostSiblings; ++looked) {
    --slice;
    if (slice->end >= at) return &*slice;
  }
  return nullptr;
}

std::int64_t without_core(const ThreadStory& thread, const TimeSpan& span) {
  const std::vector<CoreTime>& all = thread.core_time;
  std::int64_t total = 0;
  auto after = std::ranges::upper_bound(all, span.begin, {}, &CoreTime::at);
  if (after == all.begin() && after != all.end()) ++after;
  for (; after != all.end() && std::prev(after)->at < span.end; ++after) {
    const CoreTime& before = *std::prev(after);
    const TimeSpan between{before.at, after->at};
    const std::int64_t without = after->without_ns - before.without_ns;
    // Less than before: another thread has the ring of one that has ended.
    if (between.length() == 0 || without < 0) continue;
    const double part = static_cast<double>(between.within(span).length()) / static_cast<double>(between.length());
    total += static_cast<std::int64_t>(part * static_cast<double>(without));
  }
  return std::min(total, span.length());
}

}  // namespace heddle::observe::explain
