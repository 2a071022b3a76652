// For tests: whether UCX can be tried here.
#pragma once

#include <dlfcn.h>

#include <string>

#include "base/fence.hpp"
#include "base/test_sanitizer.hpp"

namespace heddle::transport::ucx {

// Why not, or nothing.
inline std::string why_no_ucx() {
  if (base::kAddressSanitizer) return "skipped: UCX's library leaks 56 bytes with some connections that are cut off";
  if (!HEDDLE_HAS_UCX) return "skipped: built without UCX";
  if (base::kThreadSanitizer) return "skipped: ThreadSanitizer does not see how UCX's library synchronises its threads";
  if (dlopen("libucp.so.0", RTLD_NOW | RTLD_NODELETE) == nullptr) return "skipped: there is no libucp.so.0";
  return "";
}

}  // namespace heddle::transport::ucx
