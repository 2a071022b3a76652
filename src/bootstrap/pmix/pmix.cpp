#include "bootstrap/pmix/pmix.hpp"

#include <atomic>
#include <cstdlib>

#include "bootstrap/hosted/hosted.hpp"
#include "bootstrap/pmix/client.hpp"
#include "bootstrap/pmix/mark.hpp"

namespace heddle::bootstrap::pmix {
namespace {

// The launcher's values for this process; null: it gives none.
struct Told {
  const char* name_space = std::getenv("PMIX_NAMESPACE");
  const char* rank = std::getenv("PMIX_RANK");
  [[nodiscard]] bool all() const { return name_space != nullptr && rank != nullptr; }
};

base::Status claim(const Told& told) {
  static std::atomic<bool> claimed{false};  // relaxed: publishes nothing else
  if (claimed.exchange(true, std::memory_order_relaxed)) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP,
                      "this process has joined the launcher's job before; a process joins once (keep the context, or "
                      "open further ones with bootstrap \"single\")");
  }
  return mark_process(told.name_space, told.rank);
}

}  // namespace

bool started_by_launcher() {
  return Told().all();
}

base::Result<std::unique_ptr<Bootstrap>> open(const base::Environment& environment) {
  const Told told;
  if (!told.all()) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP,
                      "PMIX_NAMESPACE and PMIX_RANK are not set: this process was not started by a launcher with PMIx "
                      "(mpirun, prterun, srun --mpi=pmix)");
  }
  if (const base::Status status = claim(told); status != HEDDLE_DONE) return status;
  return hosted::open(
      []() -> base::Result<std::unique_ptr<hosted::Launcher>> {
        auto client = Client::open();
        if (!client) return client.status();
        return std::unique_ptr<hosted::Launcher>(std::move(*client));
      },
      environment);
}

base::Result<std::string> library_version() {
  const auto library = Library::load();
  if (!library) return library.status();
  return std::string((*library)->version());
}

}  // namespace heddle::bootstrap::pmix
