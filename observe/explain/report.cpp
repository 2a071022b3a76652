#include "observe/explain/blame.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <tuple>

#include "diagnosis/owed.hpp"
#include "observe/trace/picture.hpp"
#include "tap/snapshot.hpp"

namespace heddle::observe::explain {
namespace {

constexpr std::array<const char*, kWhys> kNames = {
    "late sender",    "late receiver", "late in a collective", "no progress",        "no free core", "asleep",
    "credit used up", "lock",          "unexpected copy",      "copied, not mapped", "never came",   "data under way",
    "not known"};

// A shorter time gets no sentence.
constexpr std::int64_t kLeastToldNs = 10'000;

// The thread's activity at that moment.
std::string where_of(const Rank& rank, std::size_t thread, std::int64_t at) {
  if (thread >= rank.threads.size()) return "";
  const Slice* const slice = slice_at(rank.threads[thread], at);
  if (slice == nullptr) return "was outside the library";
  switch (slice->what) {
    case Slice::What::call:
      return "was in " + slice->name;
    case Slice::What::own:
      return "was in \"" + slice->name + '"';
    case Slice::What::wait:
      return "waited in " + slice->name;
    case Slice::What::sleep:
      return "was asleep in a call of the library";
    case Slice::What::task:
      return "ran a handler of class USER";
  }
  return "";
}

template <class Value>
void add_once(std::vector<Value>& list, const Value& value) {
  const auto at = std::ranges::lower_bound(list, value);
  if (at == list.end() || *at != value) list.insert(at, value);
}

class Sum {
 public:
  explicit Sum(const Story& story) : story_(story) {}

  void add(std::size_t number, const Blame& part) {
    const WaitStory& wait = story_.waits[number];
    const bool known = part.rank != kNoRank;
    const bool says_where = known && part.why != Why::under_way && part.why != Why::credit && part.why != Why::lock &&
                            part.why != Why::no_core && part.why != Why::asleep;
    const std::int64_t middle = part.begin + part.length() / 2;
    std::string where = says_where ? where_of(story_.ranks[part.rank], part.thread, middle) : "";
    Loss& loss = losses_[{part.why, part.rank, where, wait.call}];
    loss.why = part.why;
    loss.rank = part.rank;
    loss.where = std::move(where);
    loss.ns += part.length();
    Part& last = last_[&loss];  // parts of one wait are one
    if (loss.times == 0 || last.wait != number) {
      ++loss.times;
      last = {number, 0};
    }
    last.ns += part.length();
    loss.longest_ns = std::max(loss.longest_ns, last.ns);
    loss.worker = part.worker;
    add_once(loss.waiting, wait.rank);
    loss.call = wait.call;
  }
  void add_copy(Why why, std::size_t rank, std::int64_t ns, std::uint64_t bytes) {
    Loss& loss = losses_[{why, rank, "", ""}];
    loss.why = why;
    loss.rank = rank;
    loss.ns += ns;
    loss.longest_ns = std::max(loss.longest_ns, ns);
    ++loss.times;
    loss.bytes += bytes;
  }
  std::vector<Loss> take() {
    std::vector<Loss> all;
    for (auto& [key, loss] : losses_) all.push_back(std::move(loss));
    std::ranges::sort(all, [](const Loss& a, const Loss& b) {
      return std::tuple(-a.ns, a.why, a.rank) < std::tuple(-b.ns, b.why, b.rank);
    });
    return all;
  }

 private:
  struct Part {
    std::size_t wait = 0;
    std::int64_t ns = 0;
  };
  const Story& story_;
  std::map<const Loss*, Part> last_;
  std::map<std::tuple<Why, std::size_t, std::string, std::string>, Loss> losses_;
};

// Operations to ranks of the same machine whose memory is not mapped: while several are under way
// the time counts once.
void add_mapping_copies(const Story& story, std::size_t index, Sum& sum) {
  constexpr std::uint64_t kLeastBytes = 16384;
  const Rank& rank = story.ranks[index];
  std::int64_t counted = 0;
  for (const EndedOperation& one : rank.operations) {
    if ((one.opcode != tap::kTracePut && one.opcode != tap::kTraceGet) || one.bytes < kLeastBytes || one.of_message)
      continue;
    const Rank* const peer = story.of(one.rank);
    if (peer == nullptr || peer->machine != rank.machine || peer == &rank) continue;
    const std::int64_t begin = std::max(one.begin, counted);
    if (one.end > begin) sum.add_copy(Why::mapping_copy, index, one.end - begin, one.bytes);
    counted = std::max(counted, one.end);
  }
}

std::string time_text(std::int64_t ns) {
  std::array<char, 32> text{};
  const auto value = static_cast<double>(ns);
  if (ns >= 1'000'000'000) {
    std::snprintf(text.data(), text.size(), "%.2f s", value / 1e9);
  } else if (ns >= 1'000'000) {
    std::snprintf(text.data(), text.size(), "%.1f ms", value / 1e6);
  } else {
    std::snprintf(text.data(), text.size(), "%.1f us", value / 1e3);
  }
  return text.data();
}

std::string numbers_of(const Story& story, const std::vector<std::size_t>& ranks) {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(ranks.size());
  for (const std::size_t rank : ranks) numbers.push_back(story.ranks[rank].number);
  return (ranks.size() == 1 ? "rank " : "ranks ") + tap::list_of(numbers);
}

std::string count_of(std::uint64_t count, const std::string& what) {
  if (count == 1) return "1 " + what;
  return std::to_string(count) + ' ' + (what == "copy" ? "copies" : what + 's');
}

// "in 12 waits, at most 3.1 ms".
std::string times_of(const Loss& loss) {
  const bool copies = loss.why == Why::unexpected_copy || loss.why == Why::mapping_copy;
  const std::string times = copies ? count_of(loss.times, "copy") : "in " + count_of(loss.times, "wait");
  return loss.times == 1 ? times : times + ", at most " + time_text(loss.longest_ns);
}

bool has_helper(const Rank& rank) {
  return std::ranges::any_of(rank.threads, [](const ThreadStory& thread) { return thread.name == "heddle-progress"; });
}

// Threads of a rank of that rank's machine were ready to run, and had no core, for a twentieth of
// its time or more.
bool shares_cores(const Rank& rank, const Story& story) {
  return std::ranges::any_of(story.ranks, [&](const Rank& other) {
    if (other.machine != rank.machine) return false;
    std::int64_t without = 0;
    for (const ThreadStory& thread : other.threads) without += without_core(thread, other.seen);
    return without > other.seen.length() / 20;
  });
}

std::string why_asleep(const Rank& rank, const Story& story) {
  return shares_cores(rank, story)
             ? "its machine has more busy threads than cores, so a wait gives its core away and sleeps"
             : "nothing had come for 1 ms or more, after which a wait sleeps for a sixteenth of its time so far";
}

std::string sentence(const Loss& loss, const Story& story) {
  const std::string who = loss.rank == kNoRank ? "" : "rank " + std::to_string(story.ranks[loss.rank].number);
  const std::string waiting = loss.waiting.empty() ? "" : numbers_of(story, loss.waiting);
  const std::string waits = waiting + (loss.waiting.size() == 1 ? " waits" : " wait") + " in " + loss.call;
  const std::string meanwhile = loss.where.empty() ? "" : ", which " + loss.where + " meanwhile";
  switch (loss.why) {
    case Why::late_sender:
      return waits + " for what " + who + " sends later" + meanwhile;
    case Why::late_receiver:
      return waits + " for a receive that " + who + " posts later" + meanwhile;
    case Why::late_member:
      return waits + " for " + who + ", which comes last" +
             (loss.where.empty() ? "" : " and " + loss.where + " before");
    case Why::no_progress: {
      const std::string worker = loss.worker == tap::kNoTraceWorker ? "" : " of worker " + std::to_string(loss.worker);
      return waits + " for progress" + worker + " of " + who + ": nobody looked there, and the thread of " + who + ' ' +
             loss.where;
    }
    case Why::no_core:
      if (loss.waiting == std::vector<std::size_t>{loss.rank}) return waits + ", ready to run, and had no core";
      return waits + " for " + who + ", whose thread was ready to run and had no core";
    case Why::asleep: {
      const bool itself = loss.waiting == std::vector<std::size_t>{loss.rank};
      const std::string slept = itself ? " and slept" : " for " + who + ", whose thread waited itself and slept";
      return waits + slept + " while nobody was late: " + why_asleep(story.ranks[loss.rank], story);
    }
    case Why::credit:
      return waits + " for credit" + (who.empty() ? "" : ": " + who + " has not taken what was sent before");
    case Why::lock:
      if (loss.rank != kNoRank && loss.waiting == std::vector<std::size_t>{loss.rank}) {
        return waits + " for other threads of its own, which are in the same worker";
      }
      return waits + " for " + diagnosis::lock_of(who);
    case Why::unexpected_copy:
      return who + " copied " + trace::size_text(loss.bytes) + " of messages that came before their receives";
    case Why::mapping_copy:
      return who + " moved " + trace::size_text(loss.bytes) +
             " to and from ranks of its machine whose memory is not mapped";
    case Why::never:
      return waits + " for what " + (who.empty() ? "somebody" : who) + " had not done when the trace ended" +
             (loss.where.empty() ? "" : "; the thread of " + who + ' ' + loss.where);
    case Why::under_way:
      return waits + " while data is under way";
    case Why::unknown:
      return waits + "; the trace does not tell for what";
  }
  return "";
}

// Says what would have helped, and by how much. Empty: the library has no advice.
std::string advice(const Loss& loss, const Story& story) {
  const std::string most = "up to " + time_text(loss.ns);
  switch (loss.why) {
    case Why::no_progress:
      if (has_helper(story.ranks[loss.rank])) {
        return most + " less if its helper had looked there: it needs a core, and a worker that helpers may advance";
      }
      return most +
             " less with a thread of Heddle that makes progress there (HEDDLE_PROGRESS=adaptive), or with calls of "
             "heddle_worker_progress between";
    case Why::late_receiver:
      return most + " less if the receives were posted earlier, by " + time_text(loss.longest_ns) + " at most";
    case Why::no_core:
      return most +
             " less with a core for each thread that is busy: fewer ranks, threads or helpers, or other bindings";
    case Why::asleep:
      if (!shares_cores(story.ranks[loss.rank], story)) return "";
      return most + " less with a core for each thread that is busy: fewer ranks, threads or helpers";
    case Why::credit:
      return most +
             " less if messages were received, and handlers of class USER run, as they come; HEDDLE_TAG_CREDIT_BYTES "
             "lets more tagged messages lie";
    case Why::unexpected_copy:
      return most + " less if the receives were posted before the messages come";
    case Why::mapping_copy:
      return "memory that the library allocates (heddle_region_alloc, shmem_malloc) is mapped, and written directly";
    case Why::lock:
      if (loss.rank != kNoRank && loss.waiting == std::vector<std::size_t>{loss.rank}) {
        return most +
               " less in a sharing mode that does not make threads wait (HEDDLE_SHARING=auto), or with a worker for "
               "each thread";
      }
      return "the lock is held for too long, or by too many in turn";
    default:
      return "";
  }
}

std::string json_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + '"';
}

}  // namespace

Report sum_up(const Story& story) {
  Report report;
  Sum sum(story);
  const auto parts = blame_all(story);
  for (std::size_t i = 0; i < story.waits.size(); ++i) {
    for (const Blame& part : parts[i]) sum.add(i, part);
    report.waited_ns += story.waits[i].length();
  }
  report.waits = story.waits.size();
  for (std::size_t i = 0; i < story.ranks.size(); ++i) {
    const Rank& rank = story.ranks[i];
    for (const KeptCopy& kept : rank.kept) {
      if (kept.copy_ns > 0) sum.add_copy(Why::unexpected_copy, i, kept.copy_ns, kept.bytes);
    }
    add_mapping_copies(story, i, sum);
    report.traced_ns += rank.seen.length();
    report.lost_records += rank.lost;
  }
  report.losses = sum.take();
  return report;
}

std::string text_of(const Report& report, const Story& story, std::size_t most) {
  std::string text = std::to_string(story.ranks.size()) + " of " + std::to_string(story.size) + " ranks, " +
                     time_text(report.traced_ns) + " of them together; " + time_text(report.waited_ns) + " in " +
                     count_of(report.waits, "wait");
  if (report.traced_ns > 0)
    text += " (" +
            std::to_string(static_cast<int>(100.0 * static_cast<double>(report.waited_ns) /
                                            static_cast<double>(report.traced_ns))) +
            " %)";
  text += "\n";
  if (report.lost_records != 0) {
    text += std::to_string(report.lost_records) +
            " older records had no room (HEDDLE_TRACE_BYTES makes more): what they told is missing\n";
  }
  if (story.left_out != 0) {
    text +=
        std::to_string(story.left_out) + " more contexts of these ranks are left out: of each the first is explained\n";
  }
  std::int64_t rest = 0;
  std::size_t smaller = 0;
  for (std::size_t i = 0; i < report.losses.size(); ++i) {
    const Loss& loss = report.losses[i];
    if (i >= most || loss.ns < kLeastToldNs) {
      rest += loss.ns;
      ++smaller;
      continue;
    }
    text += "\n" + time_text(loss.ns) + "  " + kNames[static_cast<std::size_t>(loss.why)] + ", " + times_of(loss) +
            "\n    " + sentence(loss, story) + ".\n";
    if (const std::string help = advice(loss, story); !help.empty()) text += "    " + help + ".\n";
  }
  if (smaller > 0) text += "\n" + time_text(rest) + "  for " + count_of(smaller, "smaller cause") + "\n";
  return text;
}

std::string json_of(const Report& report, const Story& story) {
  std::string text = "{\"ranks\":" + std::to_string(story.ranks.size()) + ",\"size\":" + std::to_string(story.size) +
                     ",\"traced_ns\":" + std::to_string(report.traced_ns) +
                     ",\"waited_ns\":" + std::to_string(report.waited_ns) +
                     ",\"waits\":" + std::to_string(report.waits) +
                     ",\"lost_records\":" + std::to_string(report.lost_records) + ",\"losses\":[";
  for (std::size_t i = 0; i < report.losses.size(); ++i) {
    const Loss& loss = report.losses[i];
    text += std::string(i == 0 ? "" : ",") + "{\"cause\":" + json_string(kNames[static_cast<std::size_t>(loss.why)]);
    if (loss.rank != kNoRank) text += ",\"rank\":" + std::to_string(story.ranks[loss.rank].number);
    text += ",\"ns\":" + std::to_string(loss.ns) + ",\"longest_ns\":" + std::to_string(loss.longest_ns) +
            ",\"times\":" + std::to_string(loss.times) + ",\"bytes\":" + std::to_string(loss.bytes) +
            ",\"call\":" + json_string(loss.call) + ",\"where\":" + json_string(loss.where) +
            ",\"says\":" + json_string(sentence(loss, story)) + ",\"helps\":" + json_string(advice(loss, story)) + "}";
  }
  return text + "]}\n";
}

}  // namespace heddle::observe::explain
