// heddle info: what this installation is and what it finds on this machine.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/config.hpp"
#include "base/membarrier.hpp"
#include "base/topology.hpp"
#include "bootstrap/bootstrap.hpp"
#include "tools/commands.hpp"
#include "transport/transport.hpp"

namespace heddle::tools {
namespace {

std::string size_text(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"", "K", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

void print_version() {
  std::printf("heddle %d.%d.%d\n", HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR, HEDDLE_VERSION_PATCH);
#if defined(__clang__)
  std::printf("  compiler         clang %s\n", __clang_version__);
#else
  std::printf("  compiler         gcc %s\n", __VERSION__);
#endif
  std::printf("  build            %s\n", HEDDLE_BUILD_TYPE);
}

void print_topology() {
  const auto topology = base::read_topology();
  if (!topology) {
    std::printf("\nmachine\n  unknown: %s\n", base::last_message());
    return;
  }
  std::printf("\nmachine (as %s tells)\n", topology->source);
  if (!topology->processor.empty()) std::printf("  processor        %s\n", topology->processor.c_str());
  std::printf("  packages         %u\n  NUMA nodes       %u\n", topology->packages, topology->numa_nodes);
  std::printf("  cores            %zu, %u hardware threads (those this process may use)\n", topology->cores.size(),
              topology->hardware_threads());
  for (const base::Cache& cache : topology->caches) {
    const char* kind = cache.kind == 'd' ? " data" : cache.kind == 'i' ? " instructions" : "";
    std::printf("  L%u%-14s %u x %s, shared by %u cores, lines of %u bytes\n", cache.level, kind, cache.count,
                size_text(cache.bytes).c_str(), cache.shared_by, cache.line_bytes);
  }
}

std::string opcodes_text(std::uint32_t opcodes) {
  static constexpr std::array kNames = {"message", "put", "get", "atomic"};
  static_assert(kNames.size() == static_cast<std::size_t>(transport::Opcode::kCount));
  std::string text;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if ((opcodes >> i & 1U) != 0) text += std::string(text.empty() ? "" : ", ") + kNames[i];
  }
  return text.empty() ? "none" : text;
}

std::string large_text(const transport::Capabilities& can) {
  if (can.fetch_bytes == 0) return "in parts";
  return "fetched by the receiver above " + size_text(can.fetch_bytes) + " bytes (HEDDLE_AM_EAGER_BYTES)";
}

const char* sleeping_text(transport::Sleeping sleeping) {
  switch (sleeping) {
    case transport::Sleeping::impossible:
      return "no: it must be polled";
    case transport::Sleeping::fenced:
      return "yes, and messages between such processes cost a fence";
    case transport::Sleeping::free:
      return "yes, at no cost to senders";
  }
  return "";
}

void print_transport(const transport::Entry& entry, const base::Environment& environment) {
  std::printf("\ntransport %s: %s\n", entry.name, entry.help);
  auto alone = bootstrap::open({"single", nullptr, 0}, environment);
  if (!alone) {
    std::printf("  not available: %s\n", base::last_message());
    return;
  }
  auto opened = entry.open(**alone, environment);
  if (!opened) {
    std::printf("  not available: %s\n", base::last_message());
  } else {
    const transport::Capabilities& can = (*opened)->capabilities();
    if (const std::string set_up = (*opened)->describe(); set_up != can.name)
      std::printf("  set up as        %s\n", set_up.c_str());
    std::printf("  commands         %s\n", opcodes_text(can.opcodes).c_str());
    std::printf("  direct memory    %s\n", can.direct ? "yes" : "no");
    std::printf("  ordered messages %s\n", can.ordered_messages ? "yes" : "no");
    std::printf("  largest message  %s bytes\n", size_text(can.max_message).c_str());
    std::printf("  largest transfer %s bytes\n",
                can.max_transfer == UINT64_MAX ? "any number of" : size_text(can.max_transfer).c_str());
    std::printf("  large messages   %s\n", large_text(can).c_str());
    std::printf("  workers          %u per process\n", can.max_workers);
    std::printf("  sleeping         %s\n", sleeping_text(can.sleeping));
    std::printf("  memory per pair  %s bytes\n", size_text(can.memory_per_peer).c_str());
  }
  opened = base::Status{HEDDLE_ERR_STATE};  // the transport ends before its bootstrap leaves
  (*alone)->leave();
}

const char* type_text(base::Type type) {
  switch (type) {
    case base::Type::text:
      return "text";
    case base::Type::count:
      return "count";
    case base::Type::bytes:
      return "bytes";
    case base::Type::time_ns:
      return "time";
    case base::Type::flag:
      return "flag";
  }
  return "";
}

void print_engine() {
  std::printf("\nengine\n");
  std::printf("  hand-over        %s\n", base::membarrier_private_ready()
                                             ? "yes: HEDDLE_PROGRESS helps exclusive workers, at no barrier of theirs"
                                             : "no, this kernel has no membarrier: exclusive workers are not helped");
}

void print_variables() {
  std::printf("\nvariables (* set in the environment)\n");
  for (const base::Variable& variable : base::variables()) {
    const char* set = std::getenv(variable.name);
    std::printf("%c %-30s %-6s default %-10s", set != nullptr ? '*' : ' ', variable.name, type_text(variable.type),
                variable.default_value);
    if (set != nullptr) std::printf(" now %s", set);
    const std::string range = base::range_text(variable);
    std::printf("\n      %s%s%s%s\n", variable.help, range.empty() ? "" : " (", range.c_str(),
                range.empty() ? "" : ")");
  }
}

}  // namespace

int info_command(int argc, char** argv) {
  if (argc > 1) {
    const std::string_view word = argv[1];
    if (word == "--help" || word == "-h") {
      std::printf(
          "usage: heddle info                    version, machine, transports and every HEDDLE_* variable\n"
          "       heddle info --job             in a job (heddle run -n 4 heddle info --job): who talks to whom by "
          "what\n"
          "       heddle info --schedule NAME …  schedule of a collective algorithm; see --schedule --help\n");
      return 0;
    }
    if (word == "--schedule") return info_schedule_command(argc, argv);
    if (word == "--job" && argc == 2) return info_job_command();
    std::fprintf(stderr, "heddle info: unknown argument %s; it takes none, --job alone, or --schedule\n",
                 word == "--job" ? argv[2] : argv[1]);
    return kUsageCode;
  }
  print_version();
  print_topology();
  print_engine();
  base::Environment environment;
  base::SystemClock clock;
  environment.clock = &clock;
  auto config = base::Config::read();
  const bool readable = config.ok();
  if (readable) {
    environment.config = std::move(*config);
    for (const transport::Entry& entry : transport::table()) print_transport(entry, environment);
  } else {
    std::printf("\ntransports: not opened, because %s\n", base::last_message());
  }
  print_variables();
  for (const std::string& name : environment.config.unknown()) {
    std::printf("! %s is set but is not a variable of Heddle and has no effect\n", name.c_str());
  }
  return readable ? 0 : 1;
}

}  // namespace heddle::tools
