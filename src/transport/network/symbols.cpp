#include "transport/network/symbols.hpp"

#include <dlfcn.h>

namespace heddle::transport::network {

Symbol Symbols::find(const char* name, const char* version) {
  void* symbol = nullptr;
  if (library_ != nullptr) symbol = version != nullptr ? dlvsym(library_, name, version) : dlsym(library_, name);
  if (symbol == nullptr) complete_ = false;
  return {symbol};
}

}  // namespace heddle::transport::network
