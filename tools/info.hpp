// The facts of `heddle info`, before they are written as text or as JSON.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/topology.hpp"
#include "bootstrap/bootstrap.hpp"
#include "protocol/way.hpp"
#include "transport/transport.hpp"

namespace heddle::tools {

// The sections that can be selected by name.
enum class Section { version, machine, engine, transports, messages, launchers, settings };
inline constexpr std::array kSections = {"version",  "machine",   "engine",  "transports",
                                         "messages", "launchers", "settings"};

struct TransportFacts {
  std::string name;
  std::string help;
  // why it cannot be used here; empty: it can, and the members below are valid
  std::string problem;
  std::string set_up;  // its description of itself
  transport::Capabilities can;
  bool for_tests = false;
};

// How messages of one kind go over one transport.
struct MessageFacts {
  std::string transport;
  const char* kind = "";
  protocol::WayLimits limits;
  bool may_be_matched = false;  // a sender may wait for the receive
};

struct SettingFacts {
  const base::Variable* variable = nullptr;
  std::optional<std::string> set;  // its value in the environment
};

struct UnknownFacts {
  std::string name;
  std::string meant;  // the setting of which it may be a misspelling; empty: none is similar
};

struct Facts {
  std::string heddle;
  std::string compiler;
  std::string build;
  std::optional<base::Topology> machine;
  std::string machine_problem;
  std::string modes;       // names of the sharing modes
  bool hand_over = false;  // HEDDLE_PROGRESS can help exclusive workers
  std::vector<TransportFacts> transports;
  std::vector<MessageFacts> messages;
  std::string settings_problem;  // an invalid value: transports were not opened
  // no job can join here with these HEDDLE_TRANSPORT and HEDDLE_TRANSPORTS
  std::string choice_problem;
  // between nodes, of a job whose machines are all as this one; if none: why
  std::string network;
  std::string network_problem;
  std::vector<bootstrap::KnownLauncher> launchers;
  std::vector<SettingFacts> settings;
  std::vector<UnknownFacts> unknown;  // HEDDLE_… variables in the environment that are no settings
};

// The errors in the settings; empty: there are none.
inline const std::string& problem_of(const Facts& facts) {
  return facts.settings_problem.empty() ? facts.choice_problem : facts.settings_problem;
}

// Collects the facts for the sections. Transports and settings are included only if their names
// match `pattern`: with * and ? it must match the whole name, without them a part; case does not
// count. If no setting's name matches, the descriptions are searched.
Facts find_facts(const std::vector<Section>& sections, const std::string& pattern);

// Print text for people: one screen about everything, or all facts of the sections.
void print_brief(const Facts& facts);
void print_sections(const Facts& facts, const std::vector<Section>& sections);
// One object with a member for each section.
std::string json_of(const Facts& facts, const std::vector<Section>& sections);

const char* type_text(base::Type type);
// The names of a transport's commands.
std::vector<std::string> opcode_names(std::uint32_t opcodes);

}  // namespace heddle::tools
