#include "tools/run/options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>

#include "bootstrap/gather.hpp"

namespace heddle::tools::run {
namespace {

constexpr double kMaxSeconds = 1e9;

// As the user gave them.
struct Words {
  std::string ranks = "1";
  std::string threads;
  std::string bind = "none";
  std::string timeout;
  std::string grace = "5";
  std::vector<std::string> environment;
};

base::Status read_count(const char* option, const std::string& text, std::uint32_t most, const char* what,
                        std::uint32_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error == std::errc{} && end == text.data() + text.size() && *value >= 1 && *value <= most) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_ARGUMENT, "%s %s is not a number of %s; 1 to %u are possible", option, text.c_str(),
                    what, most);
}

base::Status read_seconds(const char* option, const std::string& text, bool zero, std::uint64_t* value_ns) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(seconds) || seconds < 0 ||
      (seconds == 0 && !zero) || seconds > kMaxSeconds) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s %s is not a time in seconds%s", option, text.c_str(),
                      zero ? " (0 or more)" : " (more than 0)");
  }
  *value_ns = static_cast<std::uint64_t>(seconds * 1e9);
  return HEDDLE_DONE;
}

base::Status read_environment(const Words& words, Options* options) {
  for (const std::string& entry : words.environment) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "--env %s is not of the form NAME=VALUE", entry.c_str());
    }
    options->environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return HEDDLE_DONE;
}

base::Status read_command(std::vector<std::string> rest, Options* options) {
  if (!rest.empty() && rest.front() == "--") {
    rest.erase(rest.begin());
  } else if (!rest.empty() && rest.front().size() > 1 && rest.front().front() == '-') {
    return base::fail(HEDDLE_ERR_ARGUMENT, "unknown option %s; `heddle run --help` lists the options",
                      rest.front().c_str());
  }
  if (rest.empty())
    return base::fail(HEDDLE_ERR_ARGUMENT, "no program given; usage: heddle run -n N ./program arguments");
  options->command = std::move(rest);
  return HEDDLE_DONE;
}

base::Status interpret(const Words& words, Options* options) {
  base::Status status = read_count("-n", words.ranks, bootstrap::kMaxRanks, "processes", &options->ranks);
  if (status == HEDDLE_DONE && !words.threads.empty()) {
    status = read_count("-t", words.threads, 4096, "threads per process", &options->threads);
  }
  if (status == HEDDLE_DONE && words.bind != "none" && words.bind != "core") {
    status = base::fail(HEDDLE_ERR_ARGUMENT, "--bind %s is neither core nor none", words.bind.c_str());
  }
  options->bind_cores = words.bind == "core";
  if (status == HEDDLE_DONE && !words.timeout.empty()) {
    status = read_seconds("--timeout", words.timeout, false, &options->timeout_ns);
  }
  if (status == HEDDLE_DONE) status = read_seconds("--grace", words.grace, true, &options->grace_ns);
  if (status == HEDDLE_DONE) status = read_environment(words, options);
  return status;
}

}  // namespace

base::Result<Options> parse(int argc, char** argv, std::string* help) {
  Words words;
  Options options;
  CLI::App app(
      "heddle run [options] program [arguments]\n\nStarts a program as the ranks of a job on this machine, or any "
      "program "
      "that many times.",
      "heddle run");
  app.prefix_command();
  app.add_option("-n", words.ranks, "processes, 1 to 1024 (default 1)")->type_name("N");
  app.add_option("-t", words.threads, "threads per process: a hint, given as HEDDLE_THREADS")->type_name("T");
  app.add_option("--bind", words.bind, "core: each process on cores of its own, T of them; none (default)")
      ->type_name("core|none");
  app.add_option("--timeout", words.timeout, "end the job after this time; the exit code is then 124")->type_name("S");
  app.add_option("--grace", words.grace, "after a failure: time for the other ranks to end by themselves (default 5)")
      ->type_name("S");
  app.add_option("--env", words.environment, "set a variable for the processes; may be repeated")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--tag", options.tag, "put [rank] before each line of output");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    *help = app.help();
    return options;
  } catch (const CLI::ParseError& error) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s; `heddle run --help` lists the options", error.what());
  }
  base::Status status = interpret(words, &options);
  if (status == HEDDLE_DONE) status = read_command(app.remaining(), &options);
  if (status != HEDDLE_DONE) return status;
  return options;
}

}  // namespace heddle::tools::run
