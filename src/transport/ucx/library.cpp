#include "transport/ucx/library.hpp"

#include <dlfcn.h>
#include <ucs/debug/log_def.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "base/sanitizer.hpp"

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
  const auto handle = network::load_library(name, "UCX (Debian: libucx0)", "HEDDLE_UCX_LIBRARY");
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

}  // namespace heddle::transport::ucx
