// heddle info: facts about this installation and this machine. This file parses the arguments;
// info.hpp has the rest.

#include "tools/info.hpp"

#include <fnmatch.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/config.hpp"
#include "base/fence.hpp"
#include "bootstrap/bootstrap.hpp"
#include "heddle/heddle.h"
#include "tools/commands.hpp"
#include "transport/names.hpp"
#include "worker/sharing.hpp"

namespace heddle::tools {

namespace {

constexpr const char* kInfoHelp = R"(usage: heddle info [SECTION…] [--all] [--json]
       heddle info --job
       heddle info --schedule NAME [options]

Tells about this installation and this machine. Without a section: what there is, on one screen.

Sections:

  version              version, compiler, kind of build
  machine              processor, cores and caches that this process may use
  engine               what the kernel allows the engine
  transports [NAME]    how memory and messages of other ranks are reached, and what is missing for it
  messages             how messages go, by their length, with the settings of now
  launchers            what may start ranks, and what is missing for it
  settings [PATTERN]   the HEDDLE_* variables: all, those with PATTERN in their names (or that match it, if it has * or ?), or,
                       if there are none, in their descriptions

Options:

  --all                all sections
  --json               the sections (without any: all) as one JSON object
  --job                in a job: who talks to whom by what (heddle run -n 4 heddle info --job)
  --schedule NAME      the schedule of a collective algorithm; list: their names; see --schedule --help
  -h, --help           show this text

Examples:

  heddle info                               what there is
  heddle info settings HEDDLE_AM            the settings of active messages
  heddle info transports ucx                why the transport ucx is available, or not
)";

struct Words {
  std::vector<Section> sections;
  std::string pattern;
  bool all = false;
  bool json = false;
};

constexpr std::array kAll = {Section::version,  Section::machine,   Section::engine,  Section::transports,
                             Section::messages, Section::launchers, Section::settings};

int reject(const std::string& text) {
  std::fprintf(stderr, "heddle info: %s\n`heddle info --help` lists sections and options\n", text.c_str());
  return kUsageCode;
}

bool takes_pattern(Section section) {
  return section == Section::transports || section == Section::settings;
}

// Returns an error message; empty: all arguments are valid.
std::string read_words(int argc, char** argv, Words* words) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto* section = std::find(kSections.begin(), kSections.end(), word);
    if (word == "--all") {
      words->all = true;
    } else if (word == "--json") {
      words->json = true;
    } else if (section != kSections.end()) {
      words->sections.push_back(static_cast<Section>(section - kSections.begin()));
    } else if (word == "--job" || word == "--schedule") {
      return std::string(word) + " stands first: heddle info " + std::string(word);
    } else if (word.starts_with("-")) {
      return "unknown option " + std::string(word) + base::did_you_mean(word, base::options_in(kInfoHelp));
    } else if (words->sections.size() == 1 && takes_pattern(words->sections.front()) && words->pattern.empty()) {
      words->pattern = word;
    } else {
      return "there is no section \"" + std::string(word) + "\"" +
             base::did_you_mean(word, {kSections.begin(), kSections.end()});
    }
  }
  if (!words->pattern.empty() && (words->sections.size() != 1 || words->all)) {
    return "\"" + words->pattern + "\" is a pattern for one section only";
  }
  return "";
}

// Reports a pattern that matches nothing.
int nothing_found(const Words& words) {
  std::vector<std::string_view> names;
  if (words.sections.front() == Section::settings) {
    for (const base::Variable& variable : base::variables()) names.emplace_back(variable.name);
  } else {
    for (const transport::TransportRow& entry : transport::table()) names.emplace_back(entry.name);
  }
  const char* what = words.sections.front() == Section::settings ? "setting" : "transport";
  return reject(std::string("no ") + what + " matches \"" + words.pattern + "\"" +
                base::did_you_mean(words.pattern, names));
}

}  // namespace

int info_command(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--schedule" || first.starts_with("--schedule=")) return info_schedule_command(argc, argv);
  if (first == "--job") {
    return argc == 2 ? info_job_command()
                     : reject(std::string("--job takes no further words, and ") + argv[2] + " is one");
  }
  if (std::any_of(argv + 1, argv + argc, [](std::string_view word) { return word == "--help" || word == "-h"; })) {
    std::fputs(kInfoHelp, stdout);
    return 0;
  }
  Words words;
  if (const std::string wrong = read_words(argc, argv, &words); !wrong.empty()) return reject(wrong);
  const bool brief = words.sections.empty() && !words.all && !words.json;
  if (words.sections.empty() || words.all) words.sections.assign(kAll.begin(), kAll.end());
  const Facts facts = find_facts(words.sections, words.pattern);
  if (!words.pattern.empty() && facts.settings_problem.empty() && facts.transports.empty() && facts.settings.empty()) {
    return nothing_found(words);
  }
  if (words.json) {
    std::fputs(json_of(facts, words.sections).c_str(), stdout);
  } else if (brief) {
    print_brief(facts);
  } else {
    print_sections(facts, words.sections);
  }
  const std::string& problem = problem_of(facts);
  if (!problem.empty()) std::fprintf(stderr, "heddle info: %s\n", problem.c_str());
  return problem.empty() ? 0 : 1;
}

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

TransportFacts try_transport(const transport::TransportRow& entry, const base::Environment& environment) {
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
  for (const transport::TransportRow& entry : transport::table()) {
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
  const transport::WantedTransports wanted(named);
  const std::string problem = try_transport(*transport::find(wanted.near), environment).problem;
  const char* const variable = by_one ? "HEDDLE_TRANSPORT" : "HEDDLE_TRANSPORTS";
  if (!problem.empty()) {
    facts->choice_problem = std::string(variable) + "=" + named + " cannot be used here: " + problem;
  } else if (!network && !wanted.far.empty()) {
    facts->choice_problem = std::string(variable) + "=" + named + ": " + facts->network_problem;
  }
}

// Of the transports that can be used here; those of tests are left out.
void find_messages(const base::Config& config, Facts* facts) {
  base::Environment environment;
  base::SystemClock clock;
  environment.clock = &clock;
  environment.config = config;
  for (const transport::TransportRow& entry : transport::table()) {
    if (entry.for_tests) continue;
    const TransportFacts found = try_transport(entry, environment);
    if (!found.problem.empty()) continue;
    facts->messages.push_back({found.name, "tagged, MPI", protocol::tagged_limits(found.can, config, true), true});
    facts->messages.push_back({found.name, "active", protocol::active_limits(found.can, config), false});
  }
}

// `config`: null: a value is wrong, so that parts of variables are not known.
void find_settings(const std::string& pattern, const base::Config* config, Facts* facts) {
  const auto add = [facts, config](const base::Variable& variable) {
    std::optional<std::string> set;
    if (const char* value = std::getenv(variable.name); value != nullptr) set = value;
    if (variable.is_part() && config != nullptr && config->is_set(variable.var)) set = config->text(variable.var);
    facts->settings.push_back({&variable, set});
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
    facts.modes = worker::mode_names();
    facts.hand_over = base::membarrier_private_ready();
  }
  const auto config = base::Config::read();
  if (wanted(Section::transports) || wanted(Section::messages) || wanted(Section::settings)) {
    if (!config) facts.settings_problem = base::last_message();
    if (config && wanted(Section::transports)) {
      find_choice(*config, &facts);
      find_transports(pattern, *config, &facts);
    }
    if (config && wanted(Section::messages)) find_messages(*config, &facts);
    if (config && wanted(Section::settings)) {
      for (const std::string& name : config->unknown()) {
        facts.unknown.push_back({name, base::nearest_variable(name)});
      }
    }
  }
  if (wanted(Section::launchers)) facts.launchers = bootstrap::launchers();
  if (wanted(Section::settings)) find_settings(pattern, config ? &*config : nullptr, &facts);
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
