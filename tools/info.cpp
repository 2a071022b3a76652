// heddle info: facts about this installation and this machine. This file parses the arguments;
// info_facts.hpp has the rest.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "base/nearest.hpp"
#include "tools/commands.hpp"
#include "tools/info_facts.hpp"

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

constexpr std::array kAll = {Section::version,    Section::machine,   Section::engine,
                             Section::transports, Section::launchers, Section::settings};

int refuse(const std::string& text) {
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
    for (const transport::Entry& entry : transport::table()) names.emplace_back(entry.name);
  }
  const char* what = words.sections.front() == Section::settings ? "setting" : "transport";
  return refuse(std::string("no ") + what + " matches \"" + words.pattern + "\"" +
                base::did_you_mean(words.pattern, names));
}

}  // namespace

int info_command(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--schedule" || first.starts_with("--schedule=")) return info_schedule_command(argc, argv);
  if (first == "--job") {
    return argc == 2 ? info_job_command()
                     : refuse(std::string("--job takes no further words, and ") + argv[2] + " is one");
  }
  if (std::any_of(argv + 1, argv + argc, [](std::string_view word) { return word == "--help" || word == "-h"; })) {
    std::fputs(kInfoHelp, stdout);
    return 0;
  }
  Words words;
  if (const std::string wrong = read_words(argc, argv, &words); !wrong.empty()) return refuse(wrong);
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

}  // namespace heddle::tools
