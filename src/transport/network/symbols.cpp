#include "transport/network/symbols.hpp"

#include <dlfcn.h>

namespace heddle::transport::network {

Symbol Symbols::find(const char* name, const char* version) {
  void* symbol = nullptr;
  if (library_ != nullptr) symbol = version != nullptr ? dlvsym(library_, name, version) : dlsym(library_, name);
  if (symbol == nullptr) complete_ = false;
  return {symbol};
}

base::Result<void*> load_library(const std::string& name, const char* install, const char* setting) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle != nullptr) return handle;
  return base::fail(HEDDLE_ERR_CONFIG, "%s cannot be loaded: %s; install %s, or set %s to the file", name.c_str(),
                    dlerror(), install, setting);
}

}  // namespace heddle::transport::network
