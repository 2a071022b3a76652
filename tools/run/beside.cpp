#include "tools/run/beside.hpp"

#include <sys/mman.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>

namespace heddle::tools::run {

std::string beside_program(const std::string& in_build, const std::string& installed, const std::string& file) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  for (const std::string& from_here : {in_build, HEDDLE_BIN_TO_LIB "/" + installed}) {
    const std::filesystem::path folder = (program.parent_path() / from_here).lexically_normal();
    if (std::filesystem::exists(folder / file, error)) return folder.string();
  }
  return {};
}

namespace {

constexpr std::uint32_t kMostProcesses = 256;
constexpr std::uint32_t kMostPerNode = 48;
constexpr std::array<std::uint32_t, 6> kLargest{32, 32, 32, 2, 3, 2};

bool read_number(std::string_view text, std::uint32_t most, std::uint32_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc{} && end == text.data() + text.size() && *value >= 1 && *value <= most;
}

// The number of nodes; 0: not a shape.
std::uint64_t nodes_of(std::string_view shape) {
  std::uint64_t nodes = 1;
  for (const std::uint32_t largest : kLargest) {
    const std::size_t end = shape.find('x');
    std::uint32_t along = 0;
    if (!read_number(shape.substr(0, end), largest, &along)) return 0;
    nodes *= along;
    if (end == std::string_view::npos) return nodes;
    shape.remove_prefix(end + 1);
  }
  return 0;
}

}  // namespace

base::Result<UtofuMachine> read_utofu(std::string_view text, std::uint32_t ranks) {
  const std::size_t colon = text.find(':');
  const std::string_view shape = text.substr(0, colon);
  UtofuMachine machine{std::string(shape), 1};
  const std::uint64_t nodes = nodes_of(shape);
  if (nodes == 0) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "--utofu %.*s: nodes along X, Y, Z, A, B, C are numbers with x between, as 2x3x1, at most "
                      "32x32x32x2x3x2",
                      static_cast<int>(text.size()), text.data());
  }
  if (ranks > kMostProcesses)
    return base::fail(HEDDLE_ERR_ARGUMENT, "--utofu: the emulator has at most %u processes", kMostProcesses);
  machine.per_node = static_cast<std::uint32_t>((ranks + nodes - 1) / nodes);
  if (colon != std::string_view::npos && !read_number(text.substr(colon + 1), kMostPerNode, &machine.per_node)) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "--utofu %.*s: processes on a node are 1 to %u",
                      static_cast<int>(text.size()), text.data(), kMostPerNode);
  }
  if (machine.per_node > kMostPerNode || nodes * machine.per_node < ranks) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "--utofu %.*s has no room for %u processes; name more nodes, or up to %u on each as %.*s:%u",
                      static_cast<int>(text.size()), text.data(), ranks, kMostPerNode, static_cast<int>(shape.size()),
                      shape.data(), kMostPerNode);
  }
  return machine;
}

base::Result<base::Fd> make_utofu_world() {
  base::Fd world(::memfd_create("utofu-world", MFD_CLOEXEC));
  if (!world.valid()) return base::fail_errno(HEDDLE_ERR_SYSTEM, "memfd_create for --utofu");
  return world;
}

std::vector<std::pair<std::string, std::string>> utofu_environment(const UtofuMachine& machine, std::uint32_t ranks,
                                                                   int world) {
  std::vector<std::pair<std::string, std::string>> variables{{"UTOFU_EMU_FD", std::to_string(world)},
                                                             {"UTOFU_EMU_PROCESSES", std::to_string(ranks)},
                                                             {"UTOFU_EMU_SHAPE", machine.shape},
                                                             {"UTOFU_EMU_PPN", std::to_string(machine.per_node)}};
  const std::string folder = beside_program("../tofu/emulator", "heddle/utofu", "libtofucom.so");
  if (!folder.empty()) {
    const char* before = std::getenv("LD_LIBRARY_PATH");
    const bool has = before != nullptr && *before != '\0';
    variables.emplace_back("LD_LIBRARY_PATH", has ? std::string(before) + ":" + folder : folder);
  }
  return variables;
}

}  // namespace heddle::tools::run
