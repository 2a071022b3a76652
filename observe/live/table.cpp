#include "observe/live/table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "tap/snapshot.hpp"

namespace heddle::observe::live {
namespace {

using tap::RankCounters;
using tap::WorkerCounters;

constexpr std::array kRates = {&Row::puts,  &Row::gets,  &Row::atomics, &Row::messages,    &Row::sends,
                               &Row::bytes, &Row::again, &Row::polls,   &Row::helper_polls};
constexpr std::array kCounts = {"puts",  "gets",  "atomics", "messages",    "sends",
                                "bytes", "again", "polls",   "helper_polls"};
static_assert(kRates.size() == kCounts.size());

// Null: it was not there, or another process had the number.
const WorkerCounters* worker_before(std::span<const RankCounters> before, const RankCounters& rank,
                                    std::uint32_t index) {
  for (const RankCounters& other : before) {
    if (other.rank != rank.rank || other.pid != rank.pid) continue;
    for (const WorkerCounters& worker : other.workers) {
      if (worker.index == index) return &worker;
    }
  }
  return nullptr;
}

void add_rates(Row& row, const WorkerCounters* before, const WorkerCounters& now, double seconds) {
  for (std::size_t i = 0; i < kRates.size(); ++i) {
    for (const tap::Count& count : tap::counts()) {
      if (count.name != std::string_view(kCounts[i])) continue;
      const std::uint64_t was = before == nullptr ? 0 : count.of(*before);
      // less: the worker was closed, and another one has its number
      const std::uint64_t is = count.of(now);
      row.*kRates[i] += static_cast<double>(is >= was ? is - was : is) / seconds;
    }
  }
}

std::string share(double part, double whole) {
  if (whole <= 0) return "-";
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.0f%%", 100 * std::min(part / whole, 1.0));
  return text.data();
}

std::string seconds_of(std::uint64_t ns) {
  return ns == 0 ? "-" : amount(static_cast<double>(ns) / 1e9) + " s";
}

std::string line_of(const Row& row) {
  std::array<char, 200> text{};
  const std::string helpers = share(row.helper_polls, row.polls);
  std::snprintf(text.data(), text.size(), "%5s %-9.9s %7s %7s %7s %7s %7s %8s %7s %7s %7llu %8s %8s", row.name.c_str(),
                row.transport.c_str(), amount(row.puts).c_str(), amount(row.gets).c_str(), amount(row.atomics).c_str(),
                amount(row.messages).c_str(), amount(row.sends).c_str(), amount(row.bytes).c_str(),
                amount(row.again).c_str(), helpers.c_str(), static_cast<unsigned long long>(row.waiting),
                seconds_of(row.longest_wait_ns).c_str(), amount(static_cast<double>(row.resident_bytes)).c_str());
  return text.data();
}

std::string head() {
  std::array<char, 200> text{};
  std::snprintf(text.data(), text.size(), "%5s %-9s %7s %7s %7s %7s %7s %8s %7s %7s %7s %8s %8s", "rank", "transport",
                "puts/s", "gets/s", "atom./s", "msgs/s", "sends/s", "bytes/s", "again/s", "helpers", "waiting",
                "longest", "memory");
  return text.data();
}

}  // namespace

std::vector<Row> rows_of(std::span<const RankCounters> before, std::span<const RankCounters> now, double seconds) {
  std::vector<Row> rows;
  for (const RankCounters& rank : now) {
    Row& row = rows.emplace_back();
    row.name = std::to_string(rank.rank);
    row.transport = rank.transport;
    row.waiting = rank.waiting;
    row.longest_wait_ns = rank.longest_wait_ns;
    row.resident_bytes = rank.resident_bytes;
    // One that did not answer the last time has no rates yet.
    const auto same = [&](const RankCounters& other) { return other.rank == rank.rank; };
    if (!before.empty() && std::ranges::none_of(before, same)) continue;
    for (const WorkerCounters& worker : rank.workers) {
      add_rates(row, worker_before(before, rank, worker.index), worker, seconds);
    }
  }
  return rows;
}

Row sum_of(std::span<const Row> rows) {
  Row all;
  all.name = "all";
  for (const Row& row : rows) {
    for (double Row::* rate : kRates) all.*rate += row.*rate;
    all.waiting += row.waiting;
    all.longest_wait_ns = std::max(all.longest_wait_ns, row.longest_wait_ns);
    all.resident_bytes += row.resident_bytes;
  }
  return all;
}

std::string answered_text(std::span<const RankCounters> now, std::size_t size) {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    const auto is_it = [&](const RankCounters& one) { return one.rank == rank; };
    if (std::ranges::none_of(now, is_it)) missing.push_back(rank);
  }
  const bool one = now.size() == 1;
  const std::string verb = one ? " has answered" : " have answered";
  if (missing.empty()) return std::to_string(now.size()) + (one ? " rank" : " ranks") + verb;
  return std::to_string(now.size()) + " of " + std::to_string(size) + " ranks" + verb + "; missing: rank" +
         (missing.size() == 1 ? " " : "s ") + tap::list_of(missing);
}

std::vector<std::string> table_of(std::span<const Row> rows, std::size_t most) {
  constexpr std::size_t kBesides = 2;  // the head, and the sum
  std::vector<std::string> lines{head(), line_of(sum_of(rows))};
  const std::size_t room = std::max<std::size_t>(most, kBesides + 2) - kBesides;
  const std::size_t told = rows.size() <= room ? rows.size() : room - 1;
  for (const Row& row : rows.first(told)) lines.push_back(line_of(row));
  if (told < rows.size()) lines.push_back("and " + std::to_string(rows.size() - told) + " more ranks");
  return lines;
}

std::string amount(double value) {
  constexpr std::array kUnits = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  const bool whole = unit == 0 && (value >= 99.95 || value == std::floor(value));
  const int digits = whole ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text.data(), text.size(), "%.*f%s", digits, value, kUnits[unit]);
  return text.data();
}

}  // namespace heddle::observe::live
