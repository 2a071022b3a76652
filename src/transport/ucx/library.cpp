#include "transport/ucx/library.hpp"

#include <dlfcn.h>
#include <ucs/debug/log_def.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace heddle::transport::ucx {
namespace {

struct Opened {
  std::mutex mutex;
  std::map<std::string, const Library*> by_name;  // never freed: live as long as the process
  std::vector<void*> buried;                      // so that they are not taken for leaks
};

Opened& opened() {
  static Opened* all = new Opened;
  return *all;
}

// depth; read by the log handler, which UCX calls in the thread that logs
thread_local int hushed = 0;

ucs_log_func_rc_t hush(const char*, unsigned, const char*, ucs_log_level_t, const ucs_log_component_config_t*,
                       const char*, va_list) {
  return hushed != 0 ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

class Finder {
 public:
  explicit Finder(void* handle) : handle_(handle) {}
  template <class Function>
  Finder& find(const char* name, Function* function) {
    void* symbol = dlsym(handle_, name);
    *function = reinterpret_cast<Function>(symbol);
    if (symbol == nullptr) all_ = false;
    return *this;
  }
  [[nodiscard]] bool all() const { return all_; }

 private:
  void* handle_;
  bool all_ = true;
};

bool find_all(void* handle, Functions* call) {
  Finder finder(handle);
  finder.find("ucp_get_version", &call->get_version)
      .find("ucp_config_read", &call->config_read)
      .find("ucp_config_modify", &call->config_modify)
      .find("ucp_config_release", &call->config_release)
      .find("ucp_init_version", &call->init_version)
      .find("ucp_cleanup", &call->cleanup)
      .find("ucp_worker_create", &call->worker_create)
      .find("ucp_worker_destroy", &call->worker_destroy)
      .find("ucp_worker_get_address", &call->worker_get_address)
      .find("ucp_worker_release_address", &call->worker_release_address)
      .find("ucp_worker_progress", &call->worker_progress)
      .find("ucp_worker_get_efd", &call->worker_get_efd)
      .find("ucp_worker_arm", &call->worker_arm)
      .find("ucp_worker_set_am_recv_handler", &call->worker_set_am_recv_handler)
      .find("ucp_worker_flush_nbx", &call->worker_flush_nbx)
      .find("ucp_ep_create", &call->ep_create)
      .find("ucp_ep_close_nbx", &call->ep_close_nbx)
      .find("ucp_ep_flush_nbx", &call->ep_flush_nbx)
      .find("ucp_ep_rkey_unpack", &call->ep_rkey_unpack)
      .find("ucp_rkey_destroy", &call->rkey_destroy)
      .find("ucp_rkey_pack", &call->rkey_pack)
      .find("ucp_rkey_buffer_release", &call->rkey_buffer_release)
      .find("ucp_mem_map", &call->mem_map)
      .find("ucp_mem_unmap", &call->mem_unmap)
      .find("ucp_mem_query", &call->mem_query)
      .find("ucp_am_send_nbx", &call->am_send_nbx)
      .find("ucp_am_data_release", &call->am_data_release)
      .find("ucp_put_nbx", &call->put_nbx)
      .find("ucp_get_nbx", &call->get_nbx)
      .find("ucp_atomic_op_nbx", &call->atomic_op_nbx)
      .find("ucp_request_check_status", &call->request_check_status)
      .find("ucp_request_free", &call->request_free)
      .find("ucs_status_string", &call->status_string);
  return finder.all();
}

// UCX handles the signals of crashes once it is loaded. This gives them back to the program, unless
// the user has asked UCX to handle them, or another library has loaded UCX before.
void give_signals_back(void* handle, bool loaded_before) {
  if (loaded_before || std::getenv("UCX_HANDLE_ERRORS") != nullptr) return;
  using Disable = void (*)();
  auto* const disable = reinterpret_cast<Disable>(dlsym(handle, "ucs_debug_disable_signals"));
  if (disable != nullptr) disable();
}

void push_hush(void* handle) {
  const auto push = reinterpret_cast<decltype(&::ucs_log_push_handler)>(dlsym(handle, "ucs_log_push_handler"));
  if (push != nullptr) push(hush);
}

}  // namespace

Library::Hush::Hush() {
  ++hushed;
}

Library::Hush::~Hush() {
  --hushed;
}

void Library::bury(void* object) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  all.buried.push_back(object);
}

base::Result<const Library*> Library::open(const std::string& name) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.by_name.find(name); found != all.by_name.end()) return found->second;
  std::unique_ptr<Library> library(new Library);
  if (const base::Status status = library->load(name); status != HEDDLE_DONE) return status;
  return all.by_name[name] = library.release();
}

base::Status Library::load(const std::string& name) {
  void* const before = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  // Never closed: it has threads and exit handlers.
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "%s cannot be loaded: %s; install UCX (Debian: libucx0), or set HEDDLE_UCX_LIBRARY to the file",
                      name.c_str(), dlerror());
  }
  if (!find_all(handle, &call_)) {
    return base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is no UCX library, or one older than 1.13", name.c_str());
  }
  give_signals_back(handle, before != nullptr);
  push_hush(handle);
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  call_.get_version(&major, &minor, &release);
  if (major != 1 || minor < 13) {
    return base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is UCX %u.%u.%u; 1.13 or a newer 1.x is needed", name.c_str(), major,
                      minor, release);
  }
  version_ = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
  return HEDDLE_DONE;
}

}  // namespace heddle::transport::ucx
