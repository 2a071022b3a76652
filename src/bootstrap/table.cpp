// All bootstraps. A new one is a folder and a row here.
#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/common.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "bootstrap/local/local.hpp"
#include "bootstrap/pmi/pmi.hpp"
#include "bootstrap/pmix/pmix.hpp"

namespace heddle::bootstrap {
namespace {

using Opened = base::Result<std::unique_ptr<Bootstrap>>;

Opened open_inproc(const Options& options, const base::Environment&) {
  if (options.inproc_job == nullptr) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "bootstrap \"inproc\" needs a job; give the one that its ranks share");
  }
  return inproc::open(*static_cast<inproc::ThreadJob*>(options.inproc_job), options.rank);
}
Opened open_local(const Options&, const base::Environment&) {
  return local::open();
}
Opened open_single(const Options&, const base::Environment&) {
  return single::open();
}
Opened open_pmix(const Options&, const base::Environment& environment) {
  return pmix::open(environment);
}
Opened open_pmi(const Options&, const base::Environment& environment) {
  return pmi::open(environment);
}

// The number of processes that another launcher says it has started, if no bootstrap has found that
// launcher; *variable: the variable that says it.
long others_started(const char** variable) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}) {
    const char* text = std::getenv(name);
    const long count = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
    if (count <= 1) continue;
    *variable = name;
    return count;
  }
  return 0;
}

// Without the warning, a program that mpirun or srun has started many times would silently be many
// jobs of one.
void warn_of_other_launchers(const base::Log& log) {
  static std::atomic<bool> warned{false};  // relaxed: publishes nothing else
  const char* variable = nullptr;
  const long count = others_started(&variable);
  if (count == 0 || warned.exchange(true, std::memory_order_relaxed)) return;
  log.line(
      base::Level::warn,
      "this process joins a job of one, although %s is %ld: of the launcher's interfaces, PMIx (PMIX_RANK) and PMI-1 "
      "(PMI_FD), neither is there; with srun add --mpi=pmix or --mpi=pmi2, with others use mpirun, prterun, "
      "mpiexec.hydra or `heddle run -n %ld`",
      variable, count, count);
}

struct Entry {
  std::string_view name;
  // For "auto": the first row of the table whose function says yes is used. Always false: only by
  // name.
  bool (*applies)();
  Opened (*open)(const Options& options, const base::Environment& environment);
};

constexpr std::array kTable = {
    Entry{"local", local::started_by_launcher, open_local}, Entry{"pmix", pmix::started_by_launcher, open_pmix},
    Entry{"pmi", pmi::started_by_launcher, open_pmi},       Entry{"inproc", [] { return false; }, open_inproc},
    Entry{"single", [] { return true; }, open_single},
};

}  // namespace

Opened open(const Options& options, const base::Environment& environment) {
  open_standard_streams();
  std::string_view name = options.name != nullptr ? options.name : "auto";
  // Empty if the configuration was not read.
  const std::string& set = environment.config.text(base::Var::bootstrap);
  if (name == "auto" && !set.empty()) name = set;
  for (const Entry& entry : kTable) {
    if (name != entry.name && (name != "auto" || !entry.applies())) continue;
    if (name == "auto" && entry.open == open_single) warn_of_other_launchers(environment.log);
    return entry.open(options, environment);
  }
  std::string names = "auto";
  for (const Entry& entry : kTable) names += ", " + std::string(entry.name);
  return base::fail(HEDDLE_ERR_ARGUMENT, "there is no bootstrap \"%s\"; there are %s", std::string(name).c_str(),
                    names.c_str());
}

std::vector<KnownLauncher> launchers() {
  std::vector<KnownLauncher> all = {{"local", "heddle run, oshrun: on this machine", "", ""},
                                    {"pmix", "mpirun (Open MPI), prterun, srun --mpi=pmix", "", ""},
                                    {"pmi", "mpiexec.hydra (MPICH, Intel MPI), srun --mpi=pmi2", "", ""}};
  auto library = pmix::library_version();
  if (library) {
    all[1].library = std::move(*library);
  } else {
    all[1].problem = base::last_message();
  }
  return all;
}

}  // namespace heddle::bootstrap
