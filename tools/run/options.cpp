#include "tools/run/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "bootstrap/gather.hpp"

namespace heddle::tools::run {
namespace {

constexpr double kMaxSeconds = 1e9;

constexpr const char* kHelp = R"(usage: heddle run [options] program [arguments]

Starts a program as the ranks of a job on this machine, or any program that many times.

  -n, -np N          processes, 1 to 1024 (default 1)
  -t T               threads per process: a hint, given as HEDDLE_THREADS
  --bind core|none   core: each process on cores of its own, T of them; none (default)
  --timeout S        end the job after S seconds; the exit code is then 124
  --grace S          after a failure: time for the other ranks to end by themselves (default 5)
  --env NAME=VALUE   set a variable for the processes; may be repeated
  --tag              put [rank] before each line of output
  -h, --help         show this text
  --                 what follows is the program, even if it begins with -

The processes find HEDDLE_LOCAL_RANK (0 to N-1) and HEDDLE_LOCAL_SIZE (N) in their environment.

Standard input: rank 0 reads that of heddle run, unless it is a terminal; all others, and rank 0 at a terminal, read
nothing.

Signals are passed on to the processes. After Ctrl-C heddle run waits for them; a second Ctrl-C kills them. Output
with --tag is waited for until it is read, after a signal or the time limit only as long as somebody reads.

Exit code: 0 if all processes ended with 0; otherwise that of the first process that failed, 128 + S if signal S
killed it, the code of heddle_context_abort, or 1 if it left its job without heddle_context_leave. 2: wrong options;
124: time limit; 125: heddle run itself failed; 126: the program cannot be started; 127: there is no such program.
)";

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

// The words as CLI::App::parse takes them, last first. -np, which other launchers have, becomes -n: a name of two letters
// after one dash is none for CLI. Only where an option may stand: not as a value, not after the program's name.
std::vector<std::string> reversed_words(int argc, char** argv, const std::vector<const CLI::Option*>& with_value) {
  std::vector<std::string> all(argv + std::min(argc, 1), argv + argc);
  for (std::size_t i = 0; i < all.size() && all[i].starts_with('-') && all[i] != "--"; ++i) {
    if (all[i] == "-np") all[i] = "-n";
    const auto takes_next = [&](const CLI::Option* option) { return option->get_name() == all[i]; };
    if (std::any_of(with_value.begin(), with_value.end(), takes_next)) ++i;
  }
  std::reverse(all.begin(), all.end());
  return all;
}

}  // namespace

base::Result<Options> parse(int argc, char** argv, std::string* help) {
  Words words;
  Options options;
  CLI::App app("", "heddle run");
  app.prefix_command();
  std::vector<const CLI::Option*> with_value = {
      app.add_option("-n", words.ranks),
      app.add_option("-t", words.threads),
      app.add_option("--bind", words.bind),
      app.add_option("--timeout", words.timeout),
      app.add_option("--grace", words.grace),
      app.add_option("--env", words.environment)
          ->expected(1)
          ->allow_extra_args(false)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll),
  };
  app.add_flag("--tag", options.tag);
  try {
    app.parse(reversed_words(argc, argv, with_value));
  } catch (const CLI::CallForHelp&) {
    *help = kHelp;
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
