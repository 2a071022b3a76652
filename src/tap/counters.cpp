#include "tap/counters.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace heddle::tap {

namespace {

using Stats = heddle_worker_stats;

constexpr std::size_t kMostWord = 64;

constexpr std::array kCounts = {
    Count{"puts", nullptr, &Stats::puts, "puts accepted"},
    Count{"gets", nullptr, &Stats::gets, "gets accepted"},
    Count{"atomics", nullptr, &Stats::atomics, "atomic operations accepted"},
    Count{"messages", nullptr, &Stats::messages, "active messages accepted"},
    Count{"sends", nullptr, &Stats::sends, "tagged messages accepted"},
    Count{"received", nullptr, &Stats::received, "active messages whose handler ran in progress"},
    Count{"tasks", nullptr, &Stats::tasks, "active messages of class USER whose handler ran"},
    Count{"receives", nullptr, &Stats::receives, "receives that got a message"},
    Count{"kept", nullptr, &Stats::kept, "tagged messages that came before their receive was posted"},
    Count{"bytes", nullptr, &Stats::bytes, "bytes of data of all accepted operations"},
    Count{"direct", nullptr, &Stats::direct, "operations done as loads and stores of the caller"},
    Count{"again", nullptr, &Stats::again, "operations that were not accepted (HEDDLE_AGAIN)"},
    Count{"polls", nullptr, &Stats::polls, "calls of progress"},
    Count{"helper_polls", &WorkerCounters::helper_polls, nullptr, "calls of progress by helpers"},
    Count{"registered", nullptr, &Stats::registered, "messages that were left to a helper"},
    Count{"helped", nullptr, &Stats::helped, "messages that a helper has sent"},
    Count{"dropped", nullptr, &Stats::dropped, "arrivals that were dropped"},
    Count{"failed", nullptr, &Stats::failed, "operations that completed with an error"},
};

std::string_view next_word(std::string_view& line) {
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t end = std::min(line.find(' ', begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

template <class T>
bool read_number(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

// Names go to terminals, and into labels.
std::string read_name(std::string_view word) {
  std::string name(word.substr(0, kMostWord));
  std::ranges::replace_if(name, [](char c) { return c <= ' ' || c > '~' || c == '"' || c == '\\'; }, '?');
  return name;
}

void read_pair(RankCounters& rank, std::string_view name, std::string_view value) {
  if (name == "pid") static_cast<void>(read_number(value, rank.pid));
  if (name == "transport") rank.transport = read_name(value);
  if (name == "waiting") static_cast<void>(read_number(value, rank.waiting));
  if (name == "longest_wait_ns") static_cast<void>(read_number(value, rank.longest_wait_ns));
  if (name == "resident_bytes") static_cast<void>(read_number(value, rank.resident_bytes));
}

void read_pair(WorkerCounters& worker, std::string_view name, std::string_view value) {
  if (name == "mode") worker.mode = read_name(value);
  if (name == "internal") worker.internal = value != "0";
  if (name == "stored") static_cast<void>(read_number(value, worker.stats.stored));
  for (const Count& count : kCounts) {
    if (name != count.name) continue;
    static_cast<void>(read_number(value, count.own != nullptr ? worker.*count.own : worker.stats.*count.field));
  }
}

template <class T>
void read_pairs(T& of, std::string_view line) {
  for (std::string_view name = next_word(line); !name.empty(); name = next_word(line)) {
    read_pair(of, name, next_word(line));
  }
}

// A rank, or a worker of the one before.
void read_line(std::vector<RankCounters>& ranks, std::string_view line) {
  const std::string_view kind = next_word(line);
  std::uint32_t rank = 0;
  if ((kind != "rank" && kind != "worker") || !read_number(next_word(line), rank)) return;
  if (kind == "rank") {
    ranks.emplace_back().rank = rank;
    read_pairs(ranks.back(), line);
    return;
  }
  std::uint32_t index = 0;
  if (ranks.empty() || ranks.back().rank != rank || !read_number(next_word(line), index)) return;
  WorkerCounters& worker = ranks.back().workers.emplace_back();
  worker.index = index;
  worker.stats.size = sizeof worker.stats;
  read_pairs(worker, line);
}

void add(std::string& text, const char* name, std::uint64_t value) {
  text += ' ';
  text += name;
  text += ' ' + std::to_string(value);
}

std::string word(const std::string& text) {
  return text.empty() ? "-" : read_name(text);
}

}  // namespace

std::span<const Count> counts() {
  return kCounts;
}

std::string to_text(const RankCounters& rank) {
  const std::string number = std::to_string(rank.rank);
  std::string text = "rank " + number + " pid " + std::to_string(rank.pid) + " transport " + word(rank.transport);
  add(text, "waiting", rank.waiting);
  add(text, "longest_wait_ns", rank.longest_wait_ns);
  add(text, "resident_bytes", rank.resident_bytes);
  text += '\n';
  for (const WorkerCounters& worker : rank.workers) {
    text += "worker " + number + ' ' + std::to_string(worker.index) + " mode " + word(worker.mode);
    add(text, "internal", worker.internal ? 1 : 0);
    add(text, "stored", worker.stats.stored);
    for (const Count& count : kCounts) add(text, count.name, count.of(worker));
    text += '\n';
  }
  return text;
}

std::vector<RankCounters> read_counters(std::string_view text) {
  std::vector<RankCounters> ranks;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    read_line(ranks, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::ranges::sort(ranks, [](const RankCounters& a, const RankCounters& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.pid < b.pid;
  });
  return ranks;
}

namespace {

// A family of samples. A counter's samples have the suffix _total; a unit is the name's last word.
struct Family {
  const char* name;
  const char* unit;  // null: none
  const char* help;
};

// One count of each worker, in its family: those of a family follow each other.
struct Sample {
  Family family;
  const char* count;  // the name in counts()
  const char* kind;   // the label; null: none
};
constexpr Family kOperations{"heddle_operations", nullptr, "Operations that were accepted."};
constexpr Family kArrivals{"heddle_arrivals", nullptr, "Messages that were handled or received."};
constexpr Family kData{"heddle_data_bytes", "bytes", "Data of all accepted operations."};
constexpr Family kDirect{"heddle_direct_operations", nullptr, "Operations done as loads and stores of the caller."};
constexpr Family kAgain{"heddle_again", nullptr, "Operations that were not accepted (HEDDLE_AGAIN)."};
constexpr Family kPolls{"heddle_polls", nullptr, "Calls of progress; helper: of these, those by helpers."};
constexpr Family kUnexpected{"heddle_unexpected_messages", nullptr,
                             "Tagged messages that came before their receive was posted."};
constexpr Family kOffloaded{"heddle_offloaded_messages", nullptr,
                            "Messages that were left to helpers (left), and that these have sent (sent)."};
constexpr Family kDropped{"heddle_dropped", nullptr, "Arrivals that were dropped."};
constexpr Family kFailed{"heddle_failed_operations", nullptr, "Operations that completed with an error."};

constexpr std::array kSamples = {
    Sample{kOperations, "puts", "put"},       Sample{kOperations, "gets", "get"},
    Sample{kOperations, "atomics", "atomic"}, Sample{kOperations, "messages", "message"},
    Sample{kOperations, "sends", "send"},     Sample{kArrivals, "received", "message"},
    Sample{kArrivals, "tasks", "task"},       Sample{kArrivals, "receives", "receive"},
    Sample{kData, "bytes", nullptr},          Sample{kDirect, "direct", nullptr},
    Sample{kAgain, "again", nullptr},         Sample{kPolls, "polls", "all"},
    Sample{kPolls, "helper_polls", "helper"}, Sample{kUnexpected, "kept", nullptr},
    Sample{kOffloaded, "registered", "left"}, Sample{kOffloaded, "helped", "sent"},
    Sample{kDropped, "dropped", nullptr},     Sample{kFailed, "failed", nullptr},
};

void begin(std::string& text, const Family& family, const char* type) {
  text += std::string("# TYPE ") + family.name + ' ' + type + '\n';
  if (family.unit != nullptr) text += std::string("# UNIT ") + family.name + ' ' + family.unit + '\n';
  text += std::string("# HELP ") + family.name + ' ' + family.help + '\n';
}

// The names have no characters that a label would have to escape.
std::string label(const char* name, std::string_view value) {
  return std::string(name) + "=\"" + std::string(value) + '"';
}

std::string of_rank(const RankCounters& rank) {
  return label("rank", std::to_string(rank.rank)) + ',' + label("transport", rank.transport);
}

std::string of_worker(const RankCounters& rank, const WorkerCounters& worker) {
  return of_rank(rank) + ',' + label("worker", std::to_string(worker.index));
}

void add(std::string& text, const std::string& name, const std::string& labels, const std::string& value) {
  text += name + '{' + labels + "} " + value + '\n';
}

void add_sample(std::string& text, const Sample& sample, std::span<const RankCounters> ranks) {
  const Count* found = nullptr;
  for (const Count& count : counts()) {
    if (std::string_view(count.name) == sample.count) found = &count;
  }
  for (const RankCounters& rank : ranks) {
    for (const WorkerCounters& worker : rank.workers) {
      std::string labels = of_worker(rank, worker);
      if (sample.kind != nullptr) labels += ',' + label("kind", sample.kind);
      add(text, std::string(sample.family.name) + "_total", labels, std::to_string(found->of(worker)));
    }
  }
}

std::string seconds(std::uint64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9f", static_cast<double>(ns) / 1e9);
  return text.data();
}

void add_gauges(std::string& text, std::span<const RankCounters> ranks) {
  const auto each_rank = [&](const Family& family, auto&& value) {
    begin(text, family, "gauge");
    for (const RankCounters& rank : ranks) add(text, family.name, of_rank(rank), value(rank));
  };
  each_rank({"heddle_waiting_threads", nullptr, "Threads that wait in the library, in vain so far."},
            [](const RankCounters& rank) { return std::to_string(rank.waiting); });
  each_rank({"heddle_longest_wait_seconds", "seconds", "For how long the one has waited that has waited longest."},
            [](const RankCounters& rank) { return seconds(rank.longest_wait_ns); });
  each_rank({"heddle_resident_memory_bytes", "bytes", "Memory of the rank's process."},
            [](const RankCounters& rank) { return std::to_string(rank.resident_bytes); });
  constexpr Family kStored{"heddle_stored_messages", nullptr, "Messages that wait for heddle_run_tasks."};
  begin(text, kStored, "gauge");
  for (const RankCounters& rank : ranks) {
    for (const WorkerCounters& worker : rank.workers) {
      add(text, kStored.name, of_worker(rank, worker), std::to_string(worker.stats.stored));
    }
  }
}

void add_facts(std::string& text, std::span<const RankCounters> ranks) {
  begin(text, {"heddle_rank", nullptr, "The ranks that have answered."}, "info");
  for (const RankCounters& rank : ranks) {
    add(text, "heddle_rank_info", of_rank(rank) + ',' + label("pid", std::to_string(rank.pid)), "1");
  }
  begin(text, {"heddle_worker", nullptr, "Their workers; internal: the library's own."}, "info");
  for (const RankCounters& rank : ranks) {
    for (const WorkerCounters& worker : rank.workers) {
      const std::string what = label("mode", worker.mode) + ',' + label("internal", worker.internal ? "1" : "0");
      add(text, "heddle_worker_info", of_worker(rank, worker) + ',' + what, "1");
    }
  }
}

}  // namespace

std::string openmetrics(std::span<const RankCounters> ranks) {
  std::string text;
  const char* family = "";
  for (const Sample& sample : kSamples) {
    if (std::string_view(sample.family.name) != family) begin(text, sample.family, "counter");
    family = sample.family.name;
    add_sample(text, sample, ranks);
  }
  add_gauges(text, ranks);
  add_facts(text, ranks);
  text += "# EOF\n";
  return text;
}

}  // namespace heddle::tap
