// heddle info --schedule: a collective algorithm's schedule, in words or as a graph, and its proof.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "collective/algorithms/algorithms.hpp"
#include "collective/check.hpp"
#include "collective/schedule.hpp"
#include "tools/commands.hpp"

namespace heddle::tools {
namespace {

using collective::Algorithm;
using collective::AlgorithmRequest;
using collective::Rank;
using collective::Schedule;

constexpr Rank kMostRanks = 200'000;
constexpr Rank kMostRanksOfProof = 64;
constexpr std::uint64_t kMostCommands = 20'000'000;

constexpr const char* kScheduleHelp = R"(usage: heddle info --schedule NAME [options]
       heddle info --schedule list

Shows the schedule of a collective algorithm: what each rank does, in which queue, and what releases it.

Options:

  --ranks N          ranks (default 8)
  --root R           root (default 0)
  --bytes B          bytes of the operation; K, M, G (default 64)
  --segment B        most bytes of one put, in pipelines (default: all at once)
  --shape XxYxZ      sides of the torus, for algorithms that need one
  --rank R           only this rank (default: all)
  --together         of session algorithms: one queue for all children in a tree, as with few bytes and where there
                     are not enough; default: one for each link
  --dot              who puts how many bytes to whom, for Graphviz: … --dot | dot -Tsvg > schedule.svg
  --prove            prove the schedules of all ranks: order, contents, no deadlock, balanced credits. Above 64 ranks or
                     256 bytes with smaller numbers of bytes, which change nothing; above 64 ranks without the order
  -h, --help         show this text
)";

struct Words {
  std::string name;
  AlgorithmRequest request;
  std::string shape;
  std::optional<Rank> rank;
  bool dot = false;
  bool prove = false;
};

int usage_error(const std::string& text) {
  std::fprintf(stderr, "heddle info --schedule: %s; see heddle info --schedule --help\n", text.c_str());
  return kUsageCode;
}

int list() {
  for (const Algorithm& algorithm : collective::algorithms()) std::printf("%-32s %s\n", algorithm.name, algorithm.help);
  return 0;
}

std::vector<std::string_view> algorithm_names() {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : collective::algorithms()) names.emplace_back(algorithm.name);
  return names;
}

std::vector<Schedule> all_schedules(const Algorithm& algorithm, AlgorithmRequest request) {
  std::vector<Schedule> all;
  all.reserve(request.ranks);
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) all.push_back(algorithm.schedule(request));
  return all;
}

// The same schedule with the fewest bytes that give the same pieces.
AlgorithmRequest smaller(const AlgorithmRequest& request) {
  constexpr std::uint64_t kMostBytes = 256;
  AlgorithmRequest small = request;
  if (request.bytes <= kMostBytes) return small;
  const std::uint64_t pieces =
      request.segment_bytes == 0 ? 1 : (request.bytes + request.segment_bytes - 1) / request.segment_bytes;
  small.segment_bytes = request.segment_bytes == 0 ? 0 : 4;
  small.bytes = std::min<std::uint64_t>(pieces * 4, 4 * kMostBytes);
  if (request.segment_bytes == 0) small.bytes = kMostBytes;
  return small;
}

int prove(const Algorithm& algorithm, const AlgorithmRequest& request) {
  const AlgorithmRequest small = smaller(request);
  const bool whole = request.ranks <= kMostRanksOfProof;
  const auto proof = whole ? collective::Proof::whole : collective::Proof::contents_only;
  const collective::CheckResult verdict = collective::check(small, all_schedules(algorithm, small), proof);
  if (!verdict.proved()) {
    std::printf("NOT PROVED:\n%s\n", verdict.text().c_str());
    return 1;
  }
  std::printf("proved for %u ranks, 3 runs, %" PRIu64 " bytes in segments of %" PRIu64 ": %" PRIu64 " commands; %s\n",
              request.ranks, small.bytes, small.segment_bytes == 0 ? small.bytes : small.segment_bytes,
              verdict.commands,
              whole ? "form, credits, no deadlock, order, contents"
                    : "form, credits, no deadlock, contents (the order only up to 64 ranks)");
  return 0;
}

int show(const Algorithm& algorithm, const Words& words) {
  AlgorithmRequest request = words.request;
  if (words.dot) {
    std::fputs(collective::dot_of(algorithm.name, all_schedules(algorithm, request)).c_str(), stdout);
    return 0;
  }
  Rank first = 0;
  Rank last = request.ranks - 1;
  if (words.rank) first = last = *words.rank;
  for (request.rank = first; request.rank <= last; ++request.rank)
    std::fputs(collective::text_of(algorithm.schedule(request)).c_str(), stdout);
  return 0;
}

// Returns an error message; empty: the arguments are valid.
std::string finish(const Algorithm& algorithm, Words* words) {
  AlgorithmRequest& request = words->request;
  request.operation = algorithm.operation;
  if (request.root >= request.ranks) return "--root " + std::to_string(request.root) + " is not one of the ranks";
  if (words->rank && *words->rank >= request.ranks)
    return "--rank " + std::to_string(*words->rank) + " is not one of the ranks";
  if (!words->shape.empty()) {
    int end = 0;
    auto& [x, y, z] = request.shape;
    if (std::sscanf(words->shape.c_str(), "%ux%ux%u%n", &x, &y, &z, &end) != 3 ||
        static_cast<std::size_t>(end) != words->shape.size())
      return "--shape " + words->shape + " is not of the form XxYxZ";
  }
  if (const char* reason = algorithm.rejects(request)) return std::string(algorithm.name) + ": " + reason;
  const std::uint64_t commands = algorithm.schedule(request).commands.size() * request.ranks;
  if (commands > kMostCommands && (words->prove || words->dot || !words->rank))
    return "all ranks together have about " + std::to_string(commands) + " commands, more than " +
           std::to_string(kMostCommands) + "; ask for fewer ranks or longer segments, or for one --rank";
  return "";
}

}  // namespace

int info_schedule_command(int argc, char** argv) {
  Words words;
  words.request.ranks = 8;
  words.request.bytes = 64;
  bool help = false;
  CLI::App app;
  app.set_help_flag();
  app.add_flag("-h,--help", help);
  app.add_option("--schedule", words.name)->expected(0, 1);
  app.add_option("--ranks", words.request.ranks)->check(CLI::Range(1U, kMostRanks));
  app.add_option("--root", words.request.root);
  app.add_option("--bytes", words.request.bytes)->transform(CLI::AsSizeValue(false));
  app.add_option("--segment", words.request.segment_bytes)->transform(CLI::AsSizeValue(false));
  app.add_option("--shape", words.shape);
  app.add_option("--rank", words.rank);
  bool together = false;
  app.add_flag("--together", together);
  app.add_flag("--dot", words.dot);
  app.add_flag("--prove", words.prove);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  words.request.spread = !together;
  if (help) {
    std::fputs(kScheduleHelp, stdout);
    return 0;
  }
  if (words.name.empty() || words.name == "list") return list();
  const Algorithm* algorithm = collective::find_algorithm(words.name);
  if (algorithm == nullptr)
    return usage_error("there is no algorithm " + words.name + base::did_you_mean(words.name, algorithm_names()) +
                       "; heddle info --schedule list names them");
  if (const std::string wrong = finish(*algorithm, &words); !wrong.empty()) return usage_error(wrong);
  return words.prove ? prove(*algorithm, words.request) : show(*algorithm, words);
}

}  // namespace heddle::tools
