#include "tap/counters.hpp"

#include <algorithm>
#include <array>
#include <charconv>

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
    Count{"aggregated", nullptr, &Stats::aggregated, "messages that left in packets of several"},
    Count{"packets", nullptr, &Stats::packets, "packets of several messages"},
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

}  // namespace heddle::tap
