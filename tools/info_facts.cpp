#include "tools/info_facts.hpp"

#include <fnmatch.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/membarrier.hpp"
#include "base/nearest.hpp"
#include "bootstrap/bootstrap.hpp"
#include "heddle/heddle.h"
#include "transport/names.hpp"
#include "worker/modes.hpp"

namespace heddle::tools {
namespace {

bool holds(const char* text, const std::string& part) {
  return ::strcasestr(text, part.c_str()) != nullptr;
}

bool matches(const char* name, const std::string& pattern) {
  if (pattern.find_first_of("*?") == std::string::npos) return holds(name, pattern);
  return ::fnmatch(pattern.c_str(), name, FNM_CASEFOLD) == 0;
}

void find_version(Facts* facts) {
  facts->heddle = std::to_string(HEDDLE_VERSION_MAJOR) + "." + std::to_string(HEDDLE_VERSION_MINOR) + "." +
                  std::to_string(HEDDLE_VERSION_PATCH);
#if defined(__clang__)
  facts->compiler = std::string("clang ") + __clang_version__;
#else
  facts->compiler = std::string("gcc ") + __VERSION__;
#endif
  facts->build = HEDDLE_BUILD_TYPE;
}

void find_machine(Facts* facts) {
  auto topology = base::read_topology();
  if (topology) {
    facts->machine = std::move(*topology);
  } else {
    facts->machine_problem = base::last_message();
  }
}

TransportFacts try_transport(const transport::Entry& entry, const base::Environment& environment) {
  TransportFacts found{entry.name, entry.help, "", "", {}, entry.for_tests};
  auto alone = bootstrap::open({"single", nullptr, 0}, environment);
  if (!alone) {
    found.problem = base::last_message();
    return found;
  }
  {
    const auto opened = entry.open(**alone, environment);  // closed before its bootstrap leaves
    if (opened) {
      found.can = (*opened)->capabilities();
      found.set_up = (*opened)->describe();
    } else {
      found.problem = base::last_message();
    }
  }
  (*alone)->leave();
  return found;
}

void find_transports(const std::string& pattern, const base::Config& config, Facts* facts) {
  base::Environment environment;
  base::SystemClock clock;
  environment.clock = &clock;
  environment.config = config;
  for (const transport::Entry& entry : transport::table()) {
    if (matches(entry.name, pattern)) facts->transports.push_back(try_transport(entry, environment));
  }
}

// With the transports that HEDDLE_TRANSPORT and HEDDLE_TRANSPORTS name: the first of a list serves
// the node, one of the others the rest.
void find_choice(const base::Config& config, Facts* facts) {
  if (transport::check_choice(nullptr, config) != HEDDLE_DONE) {
    facts->choice_problem = base::last_message();
    return;
  }
  base::Environment environment;
  base::SystemClock clock;
  environment.clock = &clock;
  environment.config = config;
  const auto network = transport::network_here(environment);
  if (network) {
    facts->network = network->name + " (" + network->why + ")";
  } else {
    facts->network_problem = base::last_message();
  }
  const std::string& list = config.text(base::Var::transports);
  const bool by_one = config.text(base::Var::transport) != "auto";
  const std::string& named = by_one ? config.text(base::Var::transport) : list;
  if (named.empty()) return;
  const transport::Wanted wanted(named);
  const std::string problem = try_transport(*transport::find(wanted.near), environment).problem;
  const char* const variable = by_one ? "HEDDLE_TRANSPORT" : "HEDDLE_TRANSPORTS";
  if (!problem.empty()) {
    facts->choice_problem = std::string(variable) + "=" + named + " cannot be used here: " + problem;
  } else if (!network && !wanted.far.empty()) {
    facts->choice_problem = std::string(variable) + "=" + named + ": " + facts->network_problem;
  }
}

void find_settings(const std::string& pattern, Facts* facts) {
  const auto add = [facts](const base::Variable& variable) {
    const char* set = std::getenv(variable.name);
    facts->settings.push_back({&variable, set != nullptr ? std::optional<std::string>(set) : std::nullopt});
  };
  for (const base::Variable& variable : base::variables()) {
    if (matches(variable.name, pattern)) add(variable);
  }
  if (!facts->settings.empty()) return;
  for (const base::Variable& variable : base::variables()) {
    if (holds(variable.help, pattern)) add(variable);
  }
}

}  // namespace

Facts find_facts(const std::vector<Section>& sections, const std::string& pattern) {
  Facts facts;
  const auto wanted = [&sections](Section section) {
    return std::find(sections.begin(), sections.end(), section) != sections.end();
  };
  if (wanted(Section::version)) find_version(&facts);
  if (wanted(Section::machine)) find_machine(&facts);
  if (wanted(Section::engine)) {
    facts.modes = engine::mode_names();
    facts.hand_over = base::membarrier_private_ready();
  }
  if (wanted(Section::transports) || wanted(Section::settings)) {
    const auto config = base::Config::read();
    if (!config) facts.settings_problem = base::last_message();
    if (config && wanted(Section::transports)) {
      find_choice(*config, &facts);
      find_transports(pattern, *config, &facts);
    }
    if (config && wanted(Section::settings)) {
      for (const std::string& name : config->unknown()) {
        facts.unknown.push_back({name, std::string(base::nearest_variable(name))});
      }
    }
  }
  if (wanted(Section::launchers)) facts.launchers = bootstrap::launchers();
  if (wanted(Section::settings)) find_settings(pattern, &facts);
  return facts;
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

std::vector<std::string> opcode_names(std::uint32_t opcodes) {
  static constexpr std::array kNames = {"message", "put", "get", "atomic"};
  static_assert(kNames.size() == static_cast<std::size_t>(transport::Opcode::kCount));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if ((opcodes >> i & 1U) != 0) names.emplace_back(kNames[i]);
  }
  return names;
}

}  // namespace heddle::tools
