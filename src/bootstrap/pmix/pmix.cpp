#include "bootstrap/pmix/pmix.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bootstrap/hosted/hosted.hpp"
#include "bootstrap/pmix/client.hpp"

namespace heddle::bootstrap::pmix {

namespace {

constexpr const char* kFile = "libpmix.so.2";  // of PMIx 3 to 5

template <class Function>
bool find(void* handle, const char* name, Function* function) {
  void* symbol = ::dlsym(handle, name);
  *function = reinterpret_cast<Function>(symbol);
  if (symbol == nullptr) base::fail(HEDDLE_ERR_BOOTSTRAP, "%s has no %s; PMIx 4 or later is needed", kFile, name);
  return symbol != nullptr;
}

}  // namespace

base::Result<const PmixLibrary*> PmixLibrary::load() {
  // Global, since its components use its symbols without being linked to it.
  void* handle = ::dlopen(kFile, RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "%s cannot be loaded: %s; Debian: libpmix2", kFile, ::dlerror());
  }
  static PmixLibrary library;
  const bool whole = find(handle, "PMIx_Init", &library.init) && find(handle, "PMIx_Finalize", &library.finalize) &&
                     find(handle, "PMIx_Abort", &library.abort) && find(handle, "PMIx_Put", &library.put) &&
                     find(handle, "PMIx_Commit", &library.commit) && find(handle, "PMIx_Fence", &library.fence) &&
                     find(handle, "PMIx_Get", &library.get) &&
                     find(handle, "PMIx_Error_string", &library.error_string) &&
                     find(handle, "PMIx_Get_version", &library.version);
  if (!whole) return HEDDLE_ERR_BOOTSTRAP;
  library.value_destruct = reinterpret_cast<decltype(library.value_destruct)>(::dlsym(handle, "PMIx_Value_destruct"));
  return static_cast<const PmixLibrary*>(&library);
}

namespace {

constexpr const char* kContactKey = "heddle.contact";

}  // namespace

base::Result<std::unique_ptr<Client>> Client::open() {
  const auto library = PmixLibrary::load();
  if (!library) {
    return base::fail(
        library.status(),
        "this process was started by a launcher with PMIx, and %s; install it, start with `heddle run`, or "
        "set HEDDLE_BOOTSTRAP=single for jobs of one",
        std::string(base::last_message()).c_str());
  }
  std::unique_ptr<Client> client(new Client(**library));
  if (const base::Status status = client->greet(); status != HEDDLE_DONE) return status;
  return client;
}

base::Status Client::greet() {
  const pmix_status_t begun = library_.init(&self_, nullptr, 0);
  if (begun != PMIX_SUCCESS) return failed("PMIx_Init", begun);
  const auto size = number(PMIX_JOB_SIZE);
  if (!size) return size.status();
  size_ = *size;
  return HEDDLE_DONE;
}

base::Status Client::failed(const char* call, pmix_status_t status) const {
  return base::fail(HEDDLE_ERR_BOOTSTRAP, "%s of the launcher's PMIx fails: %s (%s)", call,
                    library_.error_string(status), library_.version());
}

pmix_proc_t Client::whole_job() const {
  pmix_proc_t all = self_;
  all.rank = PMIX_RANK_WILDCARD;
  return all;
}

// Frees a value that the library has allocated with malloc. Only the library knows what values of
// other types than text hold.
void Client::release(pmix_value_t* value) const {
  if (library_.value_destruct != nullptr) {
    library_.value_destruct(value);
  } else if (value->type == PMIX_STRING) {
    std::free(value->data.string);
  }
  std::free(value);
}

base::Result<std::uint32_t> Client::number(const char* key) {
  const pmix_proc_t all = whole_job();
  pmix_value_t* value = nullptr;
  const pmix_status_t got = library_.get(&all, key, nullptr, 0, &value);
  if (got != PMIX_SUCCESS || value == nullptr) return failed(key, got);
  const bool good = value->type == PMIX_UINT32;
  const std::uint32_t number = good ? value->data.uint32 : 0;
  release(value);
  if (!good) return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher's PMIx gives a \"%s\" that is not a number", key);
  return number;
}

bool Client::one_host() {
  if (const auto nodes = number(PMIX_NUM_NODES)) return *nodes == 1;
  const auto here = number(PMIX_LOCAL_SIZE);
  return here && *here == size_;
}

base::Result<std::string> Client::share(const std::string& value) {
  if (self_.rank == 0) {
    std::string copy = value;
    pmix_value_t given{};
    given.type = PMIX_STRING;
    given.data.string = copy.data();
    const pmix_status_t put = library_.put(PMIX_GLOBAL, kContactKey, &given);
    if (put != PMIX_SUCCESS) return failed("PMIx_Put", put);
    const pmix_status_t sent = library_.commit();
    if (sent != PMIX_SUCCESS) return failed("PMIx_Commit", sent);
  }
  const pmix_proc_t all = whole_job();
  pmix_info_t collect{};
  std::strncpy(collect.key, PMIX_COLLECT_DATA, sizeof collect.key - 1);
  collect.value.type = PMIX_BOOL;
  collect.value.data.flag = true;
  const pmix_status_t met = library_.fence(&all, 1, &collect, 1);
  if (met != PMIX_SUCCESS) return failed("PMIx_Fence", met);
  if (self_.rank == 0) return value;
  pmix_proc_t first = self_;
  first.rank = 0;
  pmix_value_t* told = nullptr;
  const pmix_status_t got = library_.get(&first, kContactKey, nullptr, 0, &told);
  if (got != PMIX_SUCCESS || told == nullptr) return failed("PMIx_Get", got);
  const bool good = told->type == PMIX_STRING && told->data.string != nullptr;
  std::string text = good ? told->data.string : "";
  release(told);
  if (!good) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher's PMIx gives a contact of rank 0 that is not a text");
  }
  return text;
}

void Client::finish() {
  // Nothing can be done about an error any more.
  static_cast<void>(library_.finalize(nullptr, 0));
}

void Client::abort(int code, const char* message) {
  static_cast<void>(library_.abort(code, message, nullptr, 0));
}

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
      []() -> base::Result<std::unique_ptr<hosted::ForeignLauncher>> {
        auto client = Client::open();
        if (!client) return client.status();
        return std::unique_ptr<hosted::ForeignLauncher>(std::move(*client));
      },
      environment);
}

base::Result<std::string> library_version() {
  const auto library = PmixLibrary::load();
  if (!library) return library.status();
  return std::string((*library)->version());
}

}  // namespace heddle::bootstrap::pmix
