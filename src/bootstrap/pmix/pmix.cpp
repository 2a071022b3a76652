#include "bootstrap/pmix/pmix.hpp"

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "bootstrap/hosted/connect.hpp"

#if HEDDLE_HAS_PMIX
#include <dlfcn.h>
#include <pmix.h>

#include <atomic>
#include <cstring>
#include <memory>

#include "bootstrap/hosted/hosted.hpp"
#endif

namespace heddle::bootstrap::pmix {
namespace {

// The launcher's values for this process; null: it gives none.
struct Told {
  const char* name_space = std::getenv("PMIX_NAMESPACE");
  const char* rank = std::getenv("PMIX_RANK");
  [[nodiscard]] bool all() const { return name_space != nullptr && rank != nullptr; }
};

// A socket's name is cut at 107 bytes, and PMIx allows namespaces of 255: so the part that tells
// two marks apart comes first. FNV-1a.
std::string mark_name(const std::string& name_space, const std::string& rank) {
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (const char c : name_space) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, digest);
  return "heddle-pmix-" + rank + "-" + text.data() + "-" + name_space;
}

base::Status fail_marked(pid_t process) {
  const std::string who = process > 0 ? "process " + std::to_string(process) : std::string("another process");
  return base::fail(HEDDLE_ERR_STATE,
                    "%s has joined the launcher's job as this rank; a rank is one process (was this one started "
                    "by the rank? then unset PMIX_* for it, or set HEDDLE_BOOTSTRAP=single)",
                    who.c_str());
}

}  // namespace

base::Status mark_process(const std::string& name_space, const std::string& rank) {
  // No thread accepts connections: a process that finds the queue full must not wait in connect().
  ProcessFd mark = hosted::make_socket(AF_UNIX, SOCK_NONBLOCK);
  const hosted::LocalName name(mark_name(name_space, rank));
  if (!mark.valid()) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot mark this process as a rank");
  if (::bind(mark.get(), name.address(), name.length()) == 0) {
    if (::listen(mark.get(), SOMAXCONN) != 0) {
      return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot mark this process as a rank");
    }
    mark.stay_open();  // until the process ends
    return HEDDLE_DONE;
  }
  if (::connect(mark.get(), name.address(), name.length()) != 0) {
    return errno == EAGAIN ? fail_marked(0) : HEDDLE_DONE;
  }
  return hosted::same_user(mark.get()) ? fail_marked(hosted::process_of(mark.get())) : HEDDLE_DONE;
}

bool started_by_launcher() {
  return Told().all();
}

#if HEDDLE_HAS_PMIX

namespace {

constexpr const char* kFile = "libpmix.so.2";  // of PMIx 3 to 5
constexpr const char* kContactKey = "heddle.contact";

// The few functions of libpmix that joining needs.
struct PmixLibrary {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Abort) abort = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence) fence = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
  decltype(&PMIx_Get_version) version = nullptr;
  // From PMIx 4.2 on; null: there is none.
  void (*value_destruct)(pmix_value_t* value) = nullptr;

  // Stays loaded until the process ends. BOOTSTRAP: not found, or it lacks a function.
  static base::Result<const PmixLibrary*> load();
};

// The rank's side of PMIx: the part that joining needs.
class Client final : public hosted::ForeignLauncher {
 public:
  // BOOTSTRAP: no library, no server, or it does not tell the size of the job.
  static base::Result<std::unique_ptr<Client>> open();

  [[nodiscard]] const char* name() const override { return "pmix"; }
  [[nodiscard]] std::uint32_t rank() const override { return self_.rank; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  [[nodiscard]] bool one_host() override;
  base::Result<std::string> share(const std::string& value) override;
  void finish() override;
  void abort(int code, const char* message) override;

 private:
  explicit Client(const PmixLibrary& library) : library_(library) {}
  base::Status greet();
  base::Status failed(const char* call, pmix_status_t status) const;
  [[nodiscard]] pmix_proc_t whole_job() const;
  void release(pmix_value_t* value) const;
  base::Result<std::uint32_t> number(const char* key);

  const PmixLibrary& library_;
  pmix_proc_t self_{};
  std::uint32_t size_ = 0;
};

template <class Function>
bool find(void* handle, const char* name, Function* function) {
  void* symbol = ::dlsym(handle, name);
  *function = reinterpret_cast<Function>(symbol);
  if (symbol == nullptr) base::fail(HEDDLE_ERR_BOOTSTRAP, "%s has no %s; PMIx 4 or later is needed", kFile, name);
  return symbol != nullptr;
}

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

#else  // without PMIx's header

base::Result<std::unique_ptr<Bootstrap>> open(const base::Environment&) {
  return base::fail(
      HEDDLE_ERR_BOOTSTRAP,
      "this process is to join by PMIx (mpirun, prterun, srun --mpi=pmix), and this Heddle was built without it: "
      "install libpmix-dev and build anew, or start with `heddle run`, mpiexec.hydra or srun --mpi=pmi2, or set "
      "HEDDLE_BOOTSTRAP=single for jobs of one");
}

base::Result<std::string> library_version() {
  return base::fail(HEDDLE_ERR_BOOTSTRAP, "this Heddle was built without PMIx; install libpmix-dev and build anew");
}

#endif

}  // namespace heddle::bootstrap::pmix
