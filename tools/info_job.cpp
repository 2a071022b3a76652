// heddle info --job: the ranks of the job in which this process was started, their hosts, and the
// transport between each two ranks.
//
// Every rank joins, opens the transport that a program would open, and sends a row: its host, and
// for each rank the transport that reaches it. Rank 0 prints the rows, and combines equal ones.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/wait.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/nodes.hpp"
#include "tools/commands.hpp"
#include "tools/info_job.hpp"
#include "transport/transport.hpp"

namespace heddle::tools {
namespace {

// A row as bytes: host, problem and the names of the transports, each followed by a newline.
std::string encode(const JobRow& row) {
  std::string text = row.host + "\n" + row.problem + "\n";
  for (const std::string& way : row.ways) text += way + "\n";
  return text;
}

JobRow decode(const std::vector<std::byte>& bytes) {
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> parts;
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    parts.emplace_back(rest.substr(0, end));
  }
  parts.resize(std::max<std::size_t>(parts.size(), 2));
  return {0, parts[0], parts[1], {parts.begin() + 2, parts.end()}};
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// Returns the problem, on one line; empty: there is none.
std::string fill_ways(bootstrap::Bootstrap& member, const base::Environment& environment, JobRow* row,
                      std::string* set_up) {
  const auto problem = [] {
    std::string text = base::last_message();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  };
  const auto choice = transport::choose(nullptr, member, environment);
  if (!choice) return problem();
  const auto opened = transport::open(choice->name, member, environment);
  if (!opened) return problem();
  *set_up = (*opened)->describe() + "\n        chosen because " + choice->why;
  for (std::uint32_t rank = 0; rank < member.size(); ++rank) row->ways.emplace_back((*opened)->way_to(rank));
  return "";
}

base::Status tell_all(bootstrap::Bootstrap& member, const std::string& mine, std::vector<std::vector<std::byte>>* all) {
  base::Status status = member.exchange_start(std::as_bytes(std::span(mine)));
  if (status != HEDDLE_DONE) return status;
  base::Nap nap;
  while ((status = member.exchange_test(all)) == HEDDLE_AGAIN) nap.take();
  return status;
}

}  // namespace

int info_job_command() {
  base::Environment environment;
  base::SystemClock clock;
  environment.clock = &clock;
  auto config = base::Config::read();
  if (!config) {
    std::fprintf(stderr, "heddle info: %s\n", base::last_message());
    return 1;
  }
  environment.config = std::move(*config);
  auto opened = bootstrap::open({}, environment);
  if (!opened) {
    std::fprintf(stderr, "heddle info: %s\n", base::last_message());
    return 1;
  }
  bootstrap::Bootstrap& member = **opened;
  environment.log = base::Log(base::Level::warn, member.rank());
  JobRow mine;
  mine.host = host_name();
  std::string set_up;
  mine.problem = fill_ways(member, environment, &mine, &set_up);
  std::vector<std::vector<std::byte>> all;
  const base::Status status = tell_all(member, encode(mine), &all);
  if (status != HEDDLE_DONE) std::fprintf(stderr, "heddle info: %s\n", base::last_message());
  const auto nodes = bootstrap::nodes_of(member, environment.config.number(base::Var::node_ranks));
  bool good = status == HEDDLE_DONE;
  std::vector<JobRow> rows;
  for (const auto& bytes : all) {
    rows.push_back(decode(bytes));
    rows.back().node = nodes[rows.size() - 1];
    good = good && rows.back().problem.empty();
  }
  if (member.rank() == 0 && status == HEDDLE_DONE) {
    const std::uint32_t count = *std::max_element(nodes.begin(), nodes.end()) + 1;
    std::printf("job of %u rank%s on %u node%s, joined by %s\n%s", member.size(), member.size() == 1 ? "" : "s", count,
                count == 1 ? "" : "s", member.name(), job_text(rows).c_str());
    if (!set_up.empty()) std::printf("rank 0: %s\n", set_up.c_str());
    std::fflush(stdout);
  }
  member.leave();
  return good ? 0 : 1;
}

}  // namespace heddle::tools
