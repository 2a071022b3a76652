#include "tools/run/options.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/config.hpp"
#include "bootstrap/common.hpp"
#include "heddle/heddle.h"

namespace heddle::tools::run {
namespace {

constexpr double kMaxSeconds = 1e9;

// The help of `heddle run`; in_words_of() derives that of oshrun.
constexpr const char* kRunHelp = R"(usage: heddle run [options] program [arguments]

Starts a program as the ranks of a job on this machine, or any program that many times.

Options:

  -n, -np, --np N    processes, 1 to 1024 (default 1)
  -t T               threads per process: a hint, given as HEDDLE_THREADS
  --bind core|none   core: each process on cores of its own, T of them; none (default)
  --timeout S        end the job after S seconds, and tell what its ranks wait for in the library; the exit code is then
                     124
  --grace S|unlimited
                     after a failure: time for the other ranks to end by themselves (default 5); then they are ended.
                     A job that goes on after a death needs more, or unlimited
  --exit-code first|survivors
                     first: that of the first rank that failed (default); survivors: deaths are told but do not count
                     if a rank ends well
  --env NAME=VALUE   set a variable for the processes; may be repeated
  --utofu SHAPE[:P]  emulate a Tofu machine: nodes along X Y Z A B C, as 2x3x1, P processes on each (default: as many
                     as are needed); the processes find libtofucom.so, and UTOFU_EMU_* variables say the rest
  --trace FILE       note what happens to each operation, and make one picture of it for https://ui.perfetto.dev
  --trace-calls yes|no
                     in the picture, also the calls of MPI and OpenSHMEM with their arguments (default yes); no: their
                     wrappers are not loaded into the processes
  --metrics PORT     serve the ranks' counters as OpenMetrics text at http://127.0.0.1:PORT/metrics; 0: at a free port,
                     which is told
  --metrics-for user|all
                     who may read them: the job's user, and root (default); all: every user of this machine
  --tag              put [rank] before each line of output
  --version          show the version
  -h, -help, --help  show this text
  --                 what follows is the program, even if it begins with -, and its arguments, even if one of them is :

Environment of the processes:

  HEDDLE_LOCAL_RANK  the number of the process, 0 to N-1
  HEDDLE_LOCAL_SIZE  N

Input, output and signals:

Standard input: rank 0 reads that of heddle run, unless it is a terminal; all others, and rank 0 at a terminal, read
nothing.

Signals are passed on to the processes. After Ctrl-C heddle run waits for them; a second Ctrl-C kills them. Output
with --tag is waited for until it is read, after a signal or the time limit only as long as somebody reads.

A rank dies if a signal kills it, or if it ends without leaving the job; it ends well if it ends with 0 otherwise. With
--exit-code survivors the exit code is 0 if one rank at least ends well and the others die; waits of OpenSHMEM for
words that any PE may write then go on after a death (SHMEM_DEATHS=ignore).

Exit code:

  0        all processes ended with 0
  of the first process that failed
           otherwise: 128 + S if signal S killed it, the code of heddle_context_abort, or 1 if it ended without
           leaving the job
  2        wrong options
  124      time limit
  125      heddle run itself failed
  126      the program cannot be started
  127      there is no such program

Examples:

  heddle run -n 4 ./app                     four ranks
  heddle run -n 2 --bind core -t 2 ./app    two ranks, each on two cores of its own
  heddle run -n 8 --utofu 2x2x2 ./app       eight nodes of an emulated Tofu machine
)";

// The arguments as the user gave them.
struct Words {
  std::string ranks = "1";
  std::string threads;
  std::string bind = "none";
  std::string timeout;
  std::string grace = "5";
  std::string exit_code = "first";
  std::string utofu;
  std::string trace;
  std::string metrics;
  std::string metrics_for = "user";
  std::string trace_calls = "yes";
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
                      zero ? " (0 or more), or unlimited" : " (more than 0)");
  }
  *value_ns = static_cast<std::uint64_t>(seconds * 1e9);
  return HEDDLE_DONE;
}

base::Status read_failures(const Words& words, RunOptions* options) {
  options->forgives_deaths = words.exit_code == "survivors";
  if (words.exit_code != "first" && words.exit_code != "survivors") {
    return base::fail(HEDDLE_ERR_ARGUMENT, "--exit-code %s is neither first nor survivors", words.exit_code.c_str());
  }
  // PEs go on, too, unless the user says otherwise; --env comes after this.
  if (options->forgives_deaths && std::getenv("SHMEM_DEATHS") == nullptr)
    options->environment.emplace_back("SHMEM_DEATHS", "ignore");
  if (words.grace != "unlimited") return read_seconds("--grace", words.grace, true, &options->grace_ns);
  options->grace_ns = kUnlimited;
  return HEDDLE_DONE;
}

base::Status read_metrics(const Words& words, RunOptions* options) {
  if (words.metrics_for != "user" && words.metrics_for != "all") {
    return base::fail(HEDDLE_ERR_ARGUMENT, "--metrics-for %s is neither user nor all", words.metrics_for.c_str());
  }
  options->metrics_for = words.metrics_for == "all" ? MetricsPort::For::all : MetricsPort::For::user;
  const std::string& text = words.metrics;
  if (text.empty()) return HEDDLE_DONE;
  std::uint16_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "--metrics %s is not a port; 0 to 65535 are possible", text.c_str());
  }
  options->metrics = value;
  return HEDDLE_DONE;
}

// Checks, before the job runs, the file that is written after it, as far as possible.
base::Status check_trace_file(const std::string& given) {
  namespace fs = std::filesystem;
  const char* const name = given.c_str();
  std::error_code error;
  const fs::path folder = fs::absolute(given, error).parent_path();
  if (fs::is_directory(given, error)) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "--trace %s is a directory; name a file in it, as %s", name,
                      (fs::path(given) / "job.pftrace").c_str());
  }
  if (fs::exists(given, error) && !fs::is_regular_file(given, error)) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "--trace %s is there already and is no ordinary file; name another one",
                      name);
  }
  if (!fs::is_directory(folder, error)) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "--trace %s: there is no folder %s; make it, or name a file elsewhere", name,
                      folder.c_str());
  }
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_ARGUMENT, "--trace %s: no file can be made in %s; name a file elsewhere", name,
                          folder.c_str());
}

base::Status read_environment(const Words& words, RunOptions* options) {
  for (const std::string& entry : words.environment) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "--env %s is not of the form NAME=VALUE", entry.c_str());
    }
    options->environment.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return HEDDLE_DONE;
}

// Options of other launchers, and what to use instead.
struct Hint {
  std::array<const char*, 6> options;
  const char* instead;
};
constexpr const char* kOtherMachines =
    "all processes run on this machine; for several the same program is started by the cluster's launcher, as in `srun "
    "--mpi=pmix -w HOSTS -n N PROGRAM`, `mpirun -H HOSTS -n N PROGRAM`, `prterun -H HOSTS -n N PROGRAM` or "
    "`mpiexec.hydra "
    "-hosts HOSTS -n N PROGRAM` (docs/clusters.md)";
constexpr Hint kHints[] = {
    {{"-c", "--n", "-N", "-ppn", "--ntasks"}, "-n N gives the number of processes"},
    {{"-x", "-E", "-env", "-genv", "-export"},
     "the processes inherit the environment, and --env NAME=VALUE adds to it"},
    {{"--oversubscribe", "--allow-run-as-root"}, "it is allowed without it"},
    {{"-H", "--hosts", "--host", "-host", "-hosts", "--hostfile"}, kOtherMachines},
    {{"-hostfile", "-f", "-machinefile", "--machinefile", "-w", "--nodelist"}, kOtherMachines},
    {{"--bind-to", "-bind-to", "--bind-to-core", "--map-by", "--cpu-bind"},
     "--bind core gives each process its own cores"},
    {{"--tag-output", "-l", "-prepend-rank", "--label"}, "--tag puts the number before each line of output"},
    {{"-mca", "--mca"}, "settings are variables HEDDLE_...; `heddle info settings` lists them"},
    {{"-v", "-V", "-version"}, "--version shows the version"},
    {{"-?"}, "--help shows the options"},
};

base::Status unknown_option(const std::string& word, const Names& names) {
  const std::string option = word.substr(0, word.find('='));
  const char* instead = nullptr;
  for (const Hint& hint : kHints) {
    for (const char* known : hint.options) {
      if (known != nullptr && option == known) instead = hint.instead;
    }
  }
  const std::string meant = instead == nullptr ? base::did_you_mean(option, base::options_in(kRunHelp)) : "";
  return base::fail(HEDDLE_ERR_ARGUMENT, "unknown option %s%s%s%s; `%s --help` lists the options", word.c_str(),
                    instead != nullptr ? ": " : "", instead != nullptr ? instead : "", meant.c_str(), names.command);
}

base::Status read_command(std::vector<std::string> rest, RunOptions* options) {
  const Names& names = *options->names;
  if (!rest.empty() && rest.front() == "--") {
    rest.erase(rest.begin());
  } else if (!rest.empty() && rest.front().size() > 1 && rest.front().front() == '-') {
    return unknown_option(rest.front(), names);
  } else if (std::find(rest.begin(), rest.end(), ":") != rest.end()) {
    return base::fail(
        HEDDLE_ERR_ARGUMENT,
        "a lone : would begin another program of the same job, which %s cannot do; start one program that "
        "chooses by its number, or put -- before the program if : is an argument of it",
        names.command);
  }
  if (rest.empty()) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "no program given; usage: %s -n N ./program arguments", names.command);
  }
  options->command = std::move(rest);
  return HEDDLE_DONE;
}

base::Status interpret(const Words& words, RunOptions* options) {
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
  if (status == HEDDLE_DONE) status = read_failures(words, options);
  if (status == HEDDLE_DONE && !words.utofu.empty()) {
    auto machine = read_utofu(words.utofu, options->ranks);
    status = machine.status();
    if (machine) options->utofu = std::move(*machine);
  }
  if (status == HEDDLE_DONE) status = read_metrics(words, options);
  if (status == HEDDLE_DONE) status = read_environment(words, options);
  if (status == HEDDLE_DONE && !words.trace.empty()) status = check_trace_file(words.trace);
  if (status == HEDDLE_DONE && !words.trace.empty()) {
    // ranks may change their directories before they join
    options->trace = std::filesystem::absolute(words.trace).string();
    options->environment.emplace_back("HEDDLE_TRACE", options->trace);
  }
  if (status == HEDDLE_DONE && words.trace_calls != "yes" && words.trace_calls != "no") {
    status = base::fail(HEDDLE_ERR_ARGUMENT, "--trace-calls %s is neither yes nor no", words.trace_calls.c_str());
  }
  options->trace_calls = words.trace_calls == "yes";
  return status;
}

// An option whose value is missing or empty. CLI's type of the option says what the value is.
base::Status no_value(const CLI::Option& option, const std::string& word, bool empty, const Names& names) {
  const std::string what = option.get_type_name();
  return base::fail(HEDDLE_ERR_ARGUMENT, "%s needs %s%s; `%s --help` lists the options", word.c_str(), what.c_str(),
                    empty ? ", and its value is empty" : "", names.command);
}

// The arguments in the order of CLI::App::parse, last first. -np, which other launchers have,
// becomes -n: CLI does not allow names of two letters after one dash. -n=2 becomes -n 2: for a name
// of one letter, CLI takes "=2" as the value. This is done only where an option may stand: not for
// a value, not after the program's name. Nor may CLI read -hosts as -h and more: an option of other
// launchers would show the help, and nothing would run. ARGUMENT: it is such a one, or a value is
// missing.
base::Status reversed_words(int argc, char** argv, const std::vector<const CLI::Option*>& with_value,
                            const Names& names, std::vector<std::string>* reversed) {
  std::vector<std::string> all(argv + std::min(argc, 1), argv + argc);
  for (std::size_t i = 0; i < all.size() && all[i].starts_with('-') && all[i] != "--"; ++i) {
    for (const std::string_view name : {"-np=", "-n=", "-t="}) {
      if (!all[i].starts_with(name)) continue;
      all.insert(all.begin() + static_cast<std::ptrdiff_t>(i) + 1, all[i].substr(name.size()));
      all[i].resize(name.size() - 1);
    }
    if (all[i] == "-np") all[i] = "-n";
    if (all[i] == "-help") all[i] = "--help";
    if (all[i].starts_with("-h") && all[i].size() > 2) return unknown_option(all[i], names);
    const bool ends_empty = all[i].ends_with('=');
    const std::string name = all[i].substr(0, all[i].size() - (ends_empty ? 1 : 0));
    const auto is_it = [&](const CLI::Option* option) { return option->check_name(name); };
    const auto option = std::ranges::find_if(with_value, is_it);
    if (option == with_value.end()) continue;
    const bool missing = !ends_empty && i + 1 == all.size();
    if (missing || ends_empty || all[i + 1].empty()) return no_value(**option, name, !missing, names);
    ++i;
  }
  reversed->assign(all.rbegin(), all.rend());
  return HEDDLE_DONE;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string in_words_of(const Names& names, std::string text) {
  text = replaced(std::move(text), kRunNames.command, names.command);
  text = replaced(std::move(text), kRunNames.aborting, names.aborting);
  text = replaced(std::move(text), kRunNames.leaving, names.leaving);
  return replaced(std::move(text), kRunNames.rank, names.rank);
}

std::string version_of(const Names& names) {
  return std::string(names.version) + ' ' + std::to_string(HEDDLE_VERSION_MAJOR) + '.' +
         std::to_string(HEDDLE_VERSION_MINOR) + '.' + std::to_string(HEDDLE_VERSION_PATCH) + '\n';
}

}  // namespace

base::Result<RunOptions> parse(int argc, char** argv, const Names& names, std::string* answer) {
  Words words;
  RunOptions options;
  options.names = &names;
  CLI::App app("", names.command);
  app.prefix_command();
  std::vector<const CLI::Option*> with_value = {
      app.add_option("-n,--np", words.ranks)->type_name("a number of processes"),
      app.add_option("-t", words.threads)->type_name("a number of threads"),
      app.add_option("--bind", words.bind)->type_name("core or none"),
      app.add_option("--timeout", words.timeout)->type_name("a time in seconds"),
      app.add_option("--grace", words.grace)->type_name("a time in seconds, or unlimited"),
      app.add_option("--exit-code", words.exit_code)->type_name("first or survivors"),
      app.add_option("--utofu", words.utofu)->type_name("a SHAPE, as 2x3x1"),
      app.add_option("--trace", words.trace)->type_name("a FILE"),
      app.add_option("--metrics", words.metrics)->type_name("a PORT"),
      app.add_option("--metrics-for", words.metrics_for)->type_name("user or all"),
      app.add_option("--trace-calls", words.trace_calls)->type_name("yes or no"),
      app.add_option("--env", words.environment)
          ->type_name("NAME=VALUE")
          ->expected(1)
          ->allow_extra_args(false)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll),
  };
  app.add_flag("--tag", options.tag);
  app.set_version_flag("--version", version_of(names));
  std::vector<std::string> reversed;
  if (const base::Status status = reversed_words(argc, argv, with_value, names, &reversed); status != HEDDLE_DONE)
    return status;
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    *answer = in_words_of(names, kRunHelp);
    return options;
  } catch (const CLI::CallForVersion&) {
    *answer = version_of(names);
    return options;
  } catch (const CLI::ArgumentMismatch& error) {  // its text begins with the option
    const std::string text = error.what();
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s is given more than once; `%s --help` lists the options",
                      text.substr(0, text.find(':')).c_str(), names.command);
  } catch (const CLI::ParseError& error) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s; `%s --help` lists the options", error.what(), names.command);
  }
  base::Status status = interpret(words, &options);
  if (status == HEDDLE_DONE) status = read_command(app.remaining(), &options);
  if (status != HEDDLE_DONE) return status;
  return options;
}

}  // namespace heddle::tools::run
