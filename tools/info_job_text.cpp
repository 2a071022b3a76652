#include "tools/info_job.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace heddle::tools {
namespace {

// The first line of a row.
constexpr std::string_view kTag = "heddle info --job";
constexpr std::size_t kTexts = 7;  // before the ways: the tag, and the texts of a row

std::string on_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::string encode(const JobRow& row) {
  std::string text;
  for (const std::string& part :
       {std::string(kTag), row.host, row.problem, row.uses, row.rejection, row.probe, row.copies})
    text += on_one_line(part) + "\n";
  for (const std::string& way : row.ways) text += way + "\n";
  return text;
}

std::optional<JobRow> decode(const std::vector<std::byte>& bytes) {
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> parts;
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    parts.emplace_back(rest.substr(0, end));
  }
  if (parts.size() < kTexts || parts[0] != kTag) return std::nullopt;
  return JobRow{0, parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], {parts.begin() + kTexts, parts.end()}};
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string copies_text(const std::vector<JobRow>& rows) {
  constexpr const char* kCopies = "kernel's copies between ranks of a node (process_vm_readv, process_vm_writev): ";
  std::vector<std::pair<std::string, std::vector<std::uint32_t>>> found;
  for (std::uint32_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank].copies.empty()) continue;
    const auto known = std::ranges::find_if(found, [&](const auto& one) { return one.first == rows[rank].copies; });
    known != found.end() ? known->second.push_back(rank) : found.push_back({rows[rank].copies, {rank}});
  }
  std::string text;
  for (const auto& [result, ranks] : found) {
    if (result == kWork) {
      text += kCopies + (found.size() > 1 ? "work from rank " + ranks_text(ranks) : result) + '\n';
      continue;
    }
    text += std::string(kCopies) + "not from rank " + ranks_text(ranks) + ": " + result +
            "\n        so puts, gets and long messages of memory that peers do not map are copied twice, and a peer "
            "has to make progress for them; memory of heddle_region_alloc and adopted memory is not concerned\n";
  }
  return text;
}

std::string job_text(const std::vector<JobRow>& rows) {
  const auto equal = [](JobRow one, JobRow other) {
    for (JobRow* row : {&one, &other}) row->probe = row->copies = "";
    return one == other;
  };
  std::vector<std::vector<std::uint32_t>> groups;
  for (std::uint32_t rank = 0; rank < rows.size(); ++rank) {
    const auto alike = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& group) { return equal(rows[group.front()], rows[rank]); });
    alike != groups.end() ? alike->push_back(rank) : groups.push_back({rank});
  }
  std::vector<std::array<std::string, 4>> lines = {{"ranks", "node", "host", "reach ranks by transport"}};
  for (const auto& group : groups) {
    const JobRow& row = rows[group.front()];
    std::vector<std::pair<std::string, std::vector<std::uint32_t>>> ways;
    std::vector<std::uint32_t> rejected;
    for (std::uint32_t to = 0; to < row.ways.size(); ++to) {
      if (row.ways[to].empty()) {
        rejected.push_back(to);
        continue;
      }
      const auto known =
          std::find_if(ways.begin(), ways.end(), [&](const auto& way) { return way.first == row.ways[to]; });
      known != ways.end() ? known->second.push_back(to) : ways.push_back({row.ways[to], {to}});
    }
    std::string by = row.problem.empty() ? "" : "not at all: " + row.problem;
    for (const auto& [name, to] : ways) by += (by.empty() ? "" : "; ") + ranks_text(to) + " by " + name;
    if (!rejected.empty()) by += (by.empty() ? "" : "; ") + ranks_text(rejected) + " not at all: " + row.rejection;
    lines.push_back({ranks_text(group), std::to_string(row.node), row.host, by});
  }
  std::array<std::size_t, 3> widths{};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i) text += line[i] + std::string(widths[i] + 2 - line[i].size(), ' ');
    text += line.back() + "\n";
  }
  return text;
}

}  // namespace heddle::tools
