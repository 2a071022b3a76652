#include "transport/network/symbols.hpp"

#include <dlfcn.h>

namespace heddle::transport::network {

Symbol Symbols::find(const char* name) {
  void* symbol = library_ != nullptr ? dlsym(library_, name) : nullptr;
  if (symbol == nullptr) complete_ = false;
  return {symbol};
}

}  // namespace heddle::transport::network
