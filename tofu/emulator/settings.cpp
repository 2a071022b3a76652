#include "tofu/emulator/settings.hpp"

#include <unistd.h>

#include <bit>
#include <charconv>
#include <optional>
#include <utility>

namespace tofu_emulator {
namespace {

// the hardware's smallest queue, which strict mode provides
constexpr unsigned kDepth = 2048;
constexpr unsigned kLeastToq = 8;

std::optional<std::uint64_t> number(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) return std::nullopt;
  return value;
}

template <class Field>
bool set(std::string_view text, std::uint64_t least, std::uint64_t most, Field* field) {
  const auto value = number(text, least, most);
  if (value) *field = static_cast<Field>(*value);
  return value.has_value();
}

bool set_flag(std::string_view text, bool* field) {
  if (text != "0" && text != "1") return false;
  *field = text == "1";
  return true;
}

bool set_depth(std::string_view text, std::uint32_t least, std::uint32_t* field) {
  return set(text, least, kMostDepth, field) && std::has_single_bit(*field);
}

bool set_shape(std::string_view text, EmulatorSettings* settings) {
  Shape shape = {1, 1, 1, 1, 1, 1};
  std::size_t axis = 0;
  for (bool more = true; more; ++axis) {
    if (axis == shape.size()) return false;
    const std::size_t end = text.find('x');
    if (!set(text.substr(0, end), 1, kLargestShape.at(axis), &shape.at(axis))) return false;
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
  }
  settings->shape = shape;
  return true;
}

bool set_mode(std::string_view text, EmulatorSettings* settings) {
  if (text != "plain" && text != "strict") return false;
  settings->mode = text == "strict" ? Mode::strict : Mode::plain;
  return true;
}

bool set_numbering(std::string_view text, EmulatorSettings* settings) {
  if (text != "vendor" && text != "random") return false;
  settings->numbering = text == "vendor" ? Numbering::vendor : Numbering::random;
  return true;
}

bool set_rules(std::string_view text, EmulatorSettings* settings) {
  if (text != "abort" && text != "report") return false;
  settings->rules = text == "report" ? Rules::report : Rules::end_job;
  return true;
}

bool set_model(std::string_view text, EmulatorSettings* settings) {
  if (text != "0" && text != "1" && text != "2") return false;
  settings->model = text != "0";
  settings->spinners = text == "2";
  return true;
}

bool set_world(std::string_view text, EmulatorSettings* settings) {
  settings->world_path = text;
  return !text.empty();
}

constexpr SettingVariable kVariables[] = {
    {"UTOFU_EMU_FD", "a descriptor number", "inherited descriptor of the world's memory; the launcher sets it",
     [](std::string_view text, EmulatorSettings* to) { return set(text, 0, 1U << 30U, &to->world_fd); }},
    {"UTOFU_EMU_WORLD", "a path", "file of the world's memory, made by the process that comes first", set_world},
    {"UTOFU_EMU_RANK", "0-255", "number of this process in the world",
     [](std::string_view text, EmulatorSettings* to) { return set(text, 0, kMaxProcesses - 1, &to->process); }},
    {"UTOFU_EMU_PROCESSES", "1-256", "processes of the world",
     [](std::string_view text, EmulatorSettings* to) { return set(text, 1, kMaxProcesses, &to->processes); }},
    {"UTOFU_EMU_SHAPE", "XxYxZxAxBxC, at most 32x32x32x2x3x2", "nodes along each axis of the torus", set_shape},
    {"UTOFU_EMU_PPN", "1-48", "processes on one node, which share its network interfaces",
     [](std::string_view text, EmulatorSettings* to) { return set(text, 1, kMaxPerNode, &to->per_node); }},
    {"UTOFU_EMU_SEED", "a whole number", "of ids, addresses, orders and delays",
     [](std::string_view text, EmulatorSettings* to) { return set(text, 0, ~std::uint64_t{0}, &to->seed); }},
    {"UTOFU_EMU_MODE", "plain or strict", "strict: as unkind as the documents permit", set_mode},
    {"UTOFU_EMU_NUMBERING", "vendor or random", "layout of ids and steering addresses; plain: vendor, strict: random",
     set_numbering},
    {"UTOFU_EMU_RULES", "abort or report", "what follows when strict mode finds a broken rule", set_rules},
    {"UTOFU_EMU_TOQ", "a power of two from 8 to 2097152", "slots of a transmit order queue",
     [](std::string_view text, EmulatorSettings* to) { return set_depth(text, kLeastToq, &to->toq_depth); }},
    {"UTOFU_EMU_MRQ", "a power of two from 2 to 2097152", "notices that a message receive queue holds",
     [](std::string_view text, EmulatorSettings* to) { return set_depth(text, 2, &to->mrq_depth); }},
    {"UTOFU_EMU_STEP", "0 or 1", "no engine thread: each call advances this process's engine",
     [](std::string_view text, EmulatorSettings* to) { return set_flag(text, &to->step); }},
    {"UTOFU_EMU_ONE_THREAD", "0 or 1", "a call by another thread than that of the first call ends the job",
     [](std::string_view text, EmulatorSettings* to) { return set_flag(text, &to->one_thread); }},
    {"UTOFU_EMU_WATCHDOG", "0-86400", "seconds for which a queue's commands may wait before that is told; 0: for ever",
     [](std::string_view text, EmulatorSettings* to) { return set(text, 0, 86'400, &to->watchdog_s); }},
    {"UTOFU_EMU_MODEL", "0, 1 or 2",
     "the timing model runs along; 2: threads that poll a common VCQ queue for its lock", set_model},
};

const SettingVariable* find(std::string_view name) {
  for (const SettingVariable& variable : kVariables) {
    if (name == variable.name) return &variable;
  }
  return nullptr;
}

std::uint64_t nodes_of(const Shape& shape) {
  std::uint64_t nodes = 1;
  for (const std::uint8_t along : shape) nodes *= along;
  return nodes;
}

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const std::uint8_t along : shape) text += (text.empty() ? "" : "x") + std::to_string(along);
  return text;
}

using Variable = std::pair<const std::string, std::string>;
std::string not_ours(const Variable& rank, const Variable& size) {
  return rank.first + "=" + rank.second + " and " + size.first + "=" + size.second +
         ", by which the launcher says who this is, are not a rank of at most " + std::to_string(kMaxProcesses) +
         " processes; start fewer";
}

// Started by an MPI launcher, which does not know the emulator: its own variables give the rank and
// the number of processes. They are used only if a world is named, so that a program that is not
// meant to join one runs alone.
bool take_from_launcher(const std::map<std::string, std::string>& variables, EmulatorSettings* settings,
                        std::string* problem) {
  if (settings->world_path.empty() || variables.contains("UTOFU_EMU_RANK") || variables.contains("UTOFU_EMU_PROCESSES"))
    return true;
  static constexpr const char* kNames[][2] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (const auto& [rank, size] : kNames) {
    const auto own = variables.find(rank);
    const auto all = variables.find(size);
    if (own == variables.end() || all == variables.end()) continue;
    if (set(own->second, 0, kMaxProcesses - 1, &settings->process) &&
        set(all->second, 1, kMaxProcesses, &settings->processes))
      return true;
    *problem = not_ours(*own, *all);
    return false;
  }
  return true;
}

// Sets defaults that depend on other settings and checks combinations. Returns an error; empty:
// none.
std::string complete(EmulatorSettings* settings) {
  if (settings->process >= settings->processes) {
    return "UTOFU_EMU_RANK=" + std::to_string(settings->process) +
           " is not below UTOFU_EMU_PROCESSES=" + std::to_string(settings->processes) + "; ranks count from 0";
  }
  const std::uint32_t nodes = (settings->processes + settings->per_node - 1) / settings->per_node;
  if (settings->shape[0] == 0) settings->shape = smallest_shape(nodes);
  if (nodes_of(settings->shape) < nodes) {
    return "UTOFU_EMU_SHAPE=" + shape_text(settings->shape) +
           " has too few nodes for UTOFU_EMU_PROCESSES=" + std::to_string(settings->processes) +
           " with UTOFU_EMU_PPN=" + std::to_string(settings->per_node) + "; " + std::to_string(nodes) + " are needed";
  }
  if (settings->toq_depth == 0) settings->toq_depth = kDepth;
  if (settings->mrq_depth == 0) settings->mrq_depth = kDepth;
  if (settings->numbering == Numbering::of_mode)
    settings->numbering = settings->strict() ? Numbering::random : Numbering::vendor;
  return "";
}

}  // namespace

std::span<const SettingVariable> setting_variables() {
  return kVariables;
}

Shape smallest_shape(std::uint32_t nodes) {
  static constexpr Shape kUnits[] = {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 2, 1, 1}, {1, 1, 1, 1, 3, 1},
                                     {1, 1, 1, 2, 1, 2}, {1, 1, 1, 2, 3, 1}, {1, 1, 1, 2, 3, 2}};
  for (const Shape& unit : kUnits) {
    if (nodes_of(unit) >= nodes) return unit;
  }
  Shape shape = {1, 1, 1, 2, 3, 2};
  for (std::size_t axis = 0; nodes_of(shape) < nodes; axis = (axis + 1) % 3) ++shape.at(axis);
  return shape;
}

bool parse_settings(const std::map<std::string, std::string>& variables, EmulatorSettings* settings,
                    std::string* problem) {
  for (const auto& [name, value] : variables) {
    if (!name.starts_with("UTOFU_EMU_")) continue;
    const SettingVariable* variable = find(name);
    if (variable == nullptr) {
      *problem = name + " is no setting of the emulator; remove it, or correct its name";
      return false;
    }
    if (!variable->parse(value, settings)) {
      *problem = name + "=\"" + value + "\" is not " + variable->accepted + " (" + variable->help + ")";
      return false;
    }
  }
  if (!take_from_launcher(variables, settings, problem)) return false;
  *problem = complete(settings);
  return problem->empty();
}

bool read_settings(EmulatorSettings* settings, std::string* problem) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::size_t name = line.find('=');
    if (name != std::string_view::npos) variables.emplace(line.substr(0, name), line.substr(name + 1));
  }
  return parse_settings(variables, settings, problem);
}

}  // namespace tofu_emulator
