// heddle info --job: the ranks of the job in which this process was started, their hosts, and the
// transport between each two ranks.
//
// Every rank joins, opens the transport that a program would open, and tells the others whether it
// could. Then it looks at the card of each, as the first operation of a program would, and sends a
// row: its host, and for each rank the transport that reaches it. Rank 0 prints the rows, and
// combines equal ones.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/common.hpp"
#include "tools/commands.hpp"
#include "tools/info_job.hpp"
#include "transport/transport.hpp"

namespace heddle::tools {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

base::Status tell_all(bootstrap::Bootstrap& member, const JobRow& mine, std::vector<JobRow>* rows) {
  const std::string text = encode(mine);
  base::Status status = member.exchange_start(std::as_bytes(std::span(text)));
  if (status != HEDDLE_DONE) return status;
  std::vector<std::vector<std::byte>> all;
  base::Nap nap;
  while ((status = member.exchange_test(&all)) == HEDDLE_AGAIN) nap.take();
  rows->clear();
  for (const auto& bytes : all) {
    auto row = decode(bytes);
    if (!row) {
      return base::fail(HEDDLE_ERR_CONFIG,
                        "rank %zu runs another program than `heddle info --job`, or has another HEDDLE_NODE_RANKS or "
                        "version of Heddle; give all ranks the same",
                        rows->size());
    }
    rows->push_back(std::move(*row));
  }
  return status;
}

// Null: there is none, and the row says why.
std::unique_ptr<transport::Transport> open_transport(bootstrap::Bootstrap& member, const base::Environment& environment,
                                                     JobRow* row, std::string* set_up) {
  const auto choice = transport::choose(nullptr, member, environment);
  if (!choice) {
    row->problem = base::last_message();
    return nullptr;
  }
  auto opened = transport::open(choice->name, member, environment);
  if (!opened) {
    row->problem = base::last_message();
    return nullptr;
  }
  row->uses = choice->name;
  *set_up = (*opened)->describe() + "\n        chosen because " + choice->why;
  return std::move(*opened);
}

// Why this rank and that one do not talk to each other; empty: they do.
std::string why_not(bootstrap::Bootstrap& member, transport::Transport& transport, std::uint32_t rank,
                    const JobRow& mine, const JobRow& theirs) {
  const std::string name = "rank " + std::to_string(rank);
  if (!theirs.problem.empty()) return name + " has no transport";
  if (theirs.uses != mine.uses) {
    return name + " uses " + theirs.uses + ", this rank " + mine.uses +
           "; give all ranks the same HEDDLE_TRANSPORT and HEDDLE_TRANSPORTS";
  }
  bootstrap::CardWait wait(member.card_bell());
  for (;;) {
    const base::Status status = transport.check_peer(rank);
    if (status == HEDDLE_DONE) return "";
    if (status == HEDDLE_ERR_PEER_FAILED) return name + " has died or left the job";
    if (status != HEDDLE_AGAIN) return base::last_message();
    wait.take();
  }
}

// `first`: what the ranks have told so far, by rank.
void fill_ways(bootstrap::Bootstrap& member, transport::Transport& transport, const std::vector<JobRow>& first,
               JobRow* row) {
  for (std::uint32_t rank = 0; rank < first.size(); ++rank) {
    const std::string why = why_not(member, transport, rank, *row, first[rank]);
    row->ways.emplace_back(why.empty() ? transport.way_to(rank) : "");
    if (row->rejection.empty()) row->rejection = why;
  }
}

// A word that the rank before this one of the node reads and writes. It is random: by it that rank
// knows this process, since one with the same number in another namespace is another process.
volatile std::uint64_t g_probed = 0;

std::string own_probe() {
  std::random_device random;
  g_probed = std::uint64_t{random()} << 32 | random();
  return std::to_string(::getpid()) + ' ' + std::to_string(reinterpret_cast<std::uintptr_t>(&g_probed)) + ' ' +
         std::to_string(g_probed);
}

// The next rank of this node that this rank reaches by shm.
std::optional<std::uint32_t> next_of_node(const std::vector<std::uint32_t>& nodes, std::uint32_t rank,
                                          const JobRow& mine) {
  const auto size = static_cast<std::uint32_t>(nodes.size());
  for (std::uint32_t next = (rank + 1) % size; next != rank; next = (next + 1) % size) {
    if (nodes[next] == nodes[rank] && mine.ways.size() == size && mine.ways[next] == "shm") return next;
  }
  return std::nullopt;
}

// Whether the kernel copies from and to that process: it reads the word, and writes the same.
std::string try_copies(const JobRow& theirs, const base::Config& config) {
  if (!config.flag(base::Var::shm_cma)) return "switched off by HEDDLE_SHM_CMA";
  std::istringstream probe(theirs.probe);
  pid_t pid = 0;
  std::uintptr_t address = 0;
  std::uint64_t expected = 0;
  if (!(probe >> pid >> address >> expected)) return "";
  std::uint64_t word = 0;
  const iovec here{&word, sizeof word};
  const iovec there{reinterpret_cast<void*>(address), sizeof word};  // NOLINT(performance-no-int-to-ptr)
  const char* call = "process_vm_readv";
  bool works = ::process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof word;
  if (works && word != expected) return "process " + std::to_string(pid) + " is another one here: namespaces differ";
  if (works) {
    call = "process_vm_writev";
    works = ::process_vm_writev(pid, &here, 1, &there, 1, 0) == sizeof word;
  }
  if (works) return kWork;
  std::string why = std::string(call) + ": " + std::strerror(errno);
  std::string scope;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  return why + " (a container's filter of system calls, or yama: /proc/sys/kernel/yama/ptrace_scope is " +
         (scope.empty() ? "not there" : scope) + ")";
}

void print_job(const bootstrap::Bootstrap& member, const std::vector<JobRow>& rows, const std::string& set_up) {
  std::uint32_t count = 0;
  for (const JobRow& row : rows) count = std::max(count, row.node + 1);
  std::printf("job of %u rank%s on %u node%s, joined by %s\n%s", member.size(), member.size() == 1 ? "" : "s", count,
              count == 1 ? "" : "s", member.name(), job_text(rows).c_str());
  if (!set_up.empty()) std::printf("rank 0: %s\n", set_up.c_str());
  std::fputs(copies_text(rows).c_str(), stdout);
  std::fflush(stdout);
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
  mine.probe = own_probe();
  std::string set_up;
  std::vector<JobRow> rows;
  auto transport = open_transport(member, environment, &mine, &set_up);
  base::Status status = tell_all(member, mine, &rows);
  if (status == HEDDLE_DONE) {
    if (transport != nullptr) fill_ways(member, *transport, rows, &mine);
    const auto next = next_of_node(bootstrap::nodes_of(member, environment.config.number(base::Var::node_ranks)),
                                   member.rank(), mine);
    if (next) mine.copies = try_copies(rows[*next], environment.config);
    status = tell_all(member, mine, &rows);
  }
  bool good = status == HEDDLE_DONE;
  if (!good)
    std::fprintf(stderr, "heddle info: %s\n", mine.problem.empty() ? base::last_message() : mine.problem.c_str());
  transport.reset();
  const auto nodes = bootstrap::nodes_of(member, environment.config.number(base::Var::node_ranks));
  for (std::uint32_t rank = 0; rank < rows.size(); ++rank) {
    rows[rank].node = nodes[rank];
    good = good && rows[rank].problem.empty() && rows[rank].rejection.empty();
  }
  if (member.rank() == 0 && status == HEDDLE_DONE) print_job(member, rows, set_up);
  member.leave();
  return good ? 0 : 1;
}

}  // namespace heddle::tools
