#include "bootstrap/pmix/library.hpp"

#include <dlfcn.h>

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

base::Result<const Library*> Library::load() {
  // Global, since its components use its symbols without being linked to it.
  void* handle = ::dlopen(kFile, RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "%s cannot be loaded: %s; Debian: libpmix2", kFile, ::dlerror());
  }
  static Library library;
  const bool whole = find(handle, "PMIx_Init", &library.init) && find(handle, "PMIx_Finalize", &library.finalize) &&
                     find(handle, "PMIx_Abort", &library.abort) && find(handle, "PMIx_Put", &library.put) &&
                     find(handle, "PMIx_Commit", &library.commit) && find(handle, "PMIx_Fence", &library.fence) &&
                     find(handle, "PMIx_Get", &library.get) &&
                     find(handle, "PMIx_Error_string", &library.error_string) &&
                     find(handle, "PMIx_Get_version", &library.version);
  if (!whole) return HEDDLE_ERR_BOOTSTRAP;
  library.value_destruct = reinterpret_cast<decltype(library.value_destruct)>(::dlsym(handle, "PMIx_Value_destruct"));
  return static_cast<const Library*>(&library);
}

}  // namespace heddle::bootstrap::pmix
