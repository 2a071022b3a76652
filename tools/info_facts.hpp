// What `heddle info` finds, before it is written as text or as JSON.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/topology.hpp"
#include "bootstrap/launchers.hpp"
#include "transport/transport.hpp"

namespace heddle::tools {

// The parts that may be asked for by name.
enum class Section { version, machine, engine, transports, launchers, settings };
inline constexpr std::array kSections = {"version", "machine", "engine", "transports", "launchers", "settings"};

struct TransportFacts {
  std::string name;
  std::string help;
  std::string problem;  // why it cannot be used here; empty: it can, and what follows is filled in
  std::string set_up;   // as it describes itself
  transport::Capabilities can;
};

struct SettingFacts {
  const base::Variable* variable = nullptr;
  std::optional<std::string> set;  // in the environment
};

struct UnknownFacts {
  std::string name;
  std::string meant;  // the setting that it is a misspelling of; empty: none is near
};

struct Facts {
  std::string heddle;
  std::string compiler;
  std::string build;
  std::optional<base::Topology> machine;
  std::string machine_problem;
  bool hand_over = false;  // HEDDLE_PROGRESS can help exclusive workers
  std::vector<TransportFacts> transports;
  std::string settings_problem;  // a value that makes no sense: transports were not opened
  std::vector<bootstrap::Launcher> launchers;
  std::vector<SettingFacts> settings;
  std::vector<UnknownFacts> unknown;  // HEDDLE_… in the environment that are none
};

// Looks at what the sections need; of transports and settings only those whose names match
// `pattern`: with * and ? in it the whole name, else a part of it; case does not count. Settings of
// which no name matches are looked for in the descriptions.
Facts find_facts(const std::vector<Section>& sections, const std::string& pattern);

// As text for people: one screen about everything, or all that was found about the sections.
void print_brief(const Facts& facts);
void print_sections(const Facts& facts, const std::vector<Section>& sections);
// One object with a member for each section.
std::string json_of(const Facts& facts, const std::vector<Section>& sections);

const char* type_text(base::Type type);
// Of the commands that a transport has.
std::vector<std::string> opcode_names(std::uint32_t opcodes);

}  // namespace heddle::tools
