// For tests: whether UCX can be tried here.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/fence.hpp"
#include "base/test_support.hpp"

namespace heddle::transport::ucx {

// Why it cannot be tried, or an empty string.
inline std::string why_no_ucx() {
  if (base::kAddressSanitizer) return "skipped: UCX's library leaks 56 bytes with some connections that are cut off";
  if (!HEDDLE_HAS_UCX) return "skipped: built without UCX";
  if (base::kThreadSanitizer) return "skipped: ThreadSanitizer does not see how UCX's library synchronises its threads";
  if (dlopen("libucp.so.0", RTLD_NOW | RTLD_NODELETE) == nullptr) return "skipped: there is no libucp.so.0";
  return "";
}

// The same for tests that need a device of InfiniBand or RoCE.
inline std::string why_no_verbs() {
  if (std::string no_ucx = why_no_ucx(); !no_ucx.empty()) return no_ucx;
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  return devices == end(devices) ? "skipped: there is no RDMA device" : "";
}

}  // namespace heddle::transport::ucx
