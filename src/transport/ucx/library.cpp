#include "transport/ucx/library.hpp"

#include <dlfcn.h>
#include <ucs/debug/log_def.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fence.hpp"

namespace heddle::transport::ucx {

namespace {

struct Buried {
  std::mutex mutex;
  std::vector<void*> objects;  // so that they are not taken for leaks
};

Buried& buried() {
  static Buried* all = new Buried;
  return *all;
}

// depth; read by the log handler, which UCX calls in the thread that logs
thread_local int hushed = 0;

ucs_log_func_rc_t hush(const char*, unsigned, const char*, ucs_log_level_t, const ucs_log_component_config_t*,
                       const char*, va_list) {
  return hushed != 0 ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

// When UCX is loaded, it patches the functions that map memory. If a sanitizer has replaced them,
// the patch jumps into nowhere. The user's own value takes precedence.
void keep_off_replaced_functions() {
  if (base::runs_with_sanitizer()) setenv("UCX_MEM_EVENTS", "no", 0);
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
  Buried& all = buried();
  const std::lock_guard lock(all.mutex);
  all.objects.push_back(object);
}

base::Result<const Library*> Library::open(const std::string& name) {
  return network::open_once<Library>(name, [&]() -> base::Result<std::unique_ptr<Library>> {
    std::unique_ptr<Library> library(new Library);
    if (const base::Status status = library->load(name); status != HEDDLE_DONE) return status;
    return library;
  });
}

base::Status Library::load(const std::string& name) {
  void* const before = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  keep_off_replaced_functions();
  const auto handle = network::load_library(name, "UCX (Debian: libucx0)", "HEDDLE_LIBRARIES=ucx=…");
  if (!handle) return handle.status();
  call_ = Functions(*handle);
  if (!call_.complete()) {
    return base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is no UCX library, or one older than 1.13", name.c_str());
  }
  give_signals_back(*handle, before != nullptr);
  push_hush(*handle);
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  call_.get_version(&major, &minor, &release);
  if (major != 1 || minor < 13) {
    return base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is UCX %u.%u.%u; 1.13 or a newer 1.x is needed", name.c_str(), major,
                      minor, release);
  }
  major_ = major;
  minor_ = minor;
  version_ = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
  return HEDDLE_DONE;
}

base::Status meaning_of(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return HEDDLE_DONE;
    case UCS_ERR_NO_MEMORY:
      return HEDDLE_ERR_NO_MEMORY;
    case UCS_ERR_NO_RESOURCE:
      return HEDDLE_AGAIN;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_INVALID_ADDR:
      return HEDDLE_ERR_SYSTEM;
    default:
      return HEDDLE_ERR_PEER_FAILED;  // UCX's many errors of a connection
  }
}

ucs_status_t create_worker(const Functions& call, ucp_context_h context, ucp_worker_h* worker) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  const ucs_status_t status = call.worker_create(context, &params, worker);
  if (status != UCS_OK) *worker = nullptr;
  return status;
}

base::Status listen(const Functions& call, ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t receive,
                    void* arg) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = id;
  handler.cb = receive;
  handler.arg = arg;
  const ucs_status_t status = call.worker_set_am_recv_handler(worker, &handler);
  if (status == UCS_OK) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "UCX takes no handler: %s", call.status_string(status));
}

base::Status find_descriptor(const Functions& call, ucp_worker_h worker, int* descriptor) {
  const ucs_status_t status = call.worker_get_efd(worker, descriptor);
  if (status == UCS_OK) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no descriptor to sleep on: %s", call.status_string(status));
}

base::Status find_address(const Functions& call, ucp_worker_h worker, Bytes* copy) {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  const ucs_status_t status = call.worker_get_address(worker, &address, &bytes);
  if (status != UCS_OK) return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no address: %s", call.status_string(status));
  const auto* begin = reinterpret_cast<const std::byte*>(address);
  copy->assign(begin, begin + bytes);
  call.worker_release_address(worker, address);
  return HEDDLE_DONE;
}

void* force_close(const Functions& call, ucp_ep_h endpoint) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = call.ep_close_nbx(endpoint, &params);
  return UCS_PTR_IS_ERR(request) ? nullptr : request;
}

}  // namespace heddle::transport::ucx
