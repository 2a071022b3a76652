// For tests: whether the verbs transport can be tried here.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include "base/fence.hpp"
#include "base/test_support.hpp"

namespace heddle::transport::verbs {

// Why it cannot be tried, or an empty string.
inline std::string why_no_verbs() {
  if (!HEDDLE_HAS_VERBS) return "skipped: built without libibverbs";
  if (base::kThreadSanitizer) return "skipped: ThreadSanitizer does not see what an adapter writes";
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  return devices == end(devices) ? "skipped: there is no RDMA device" : "";
}

}  // namespace heddle::transport::verbs
