// For tests: whether libfabric can be tried here.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/config.hpp"
#include "base/fence.hpp"
#include "base/test_support.hpp"

namespace heddle::transport::ofi {

// Why it cannot be tried, or an empty string.
inline std::string why_no_ofi() {
  if (!HEDDLE_HAS_OFI) return "skipped: built without libfabric";
  if (base::kThreadSanitizer) return "skipped: ThreadSanitizer does not see how libfabric synchronises its threads";
  // As Library does, which comes later: makes the libraries of PSM leave the signals alone.
  setenv("IPATH_NO_BACKTRACE", "1", 0);
  setenv("HFI_NO_BACKTRACE", "1", 0);
  const auto config = base::Config::read();
  if (!config) return std::string("skipped: ") + base::last_message();
  const std::string& library = config->text(base::Var::library_ofi);
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_NODELETE) == nullptr) return "skipped: there is no " + library;
  return "";
}

// The same for tests that need a device of InfiniBand or RoCE.
inline std::string why_no_verbs() {
  if (std::string no_ofi = why_no_ofi(); !no_ofi.empty()) return no_ofi;
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  return devices == end(devices) ? "skipped: there is no RDMA device" : "";
}

// The same for ofi_strict_fabric.cpp, which the tests that CMakeLists.txt lists use.
inline std::string why_not_strict() {
  if (!HEDDLE_HAS_OFI) return "skipped: built without libfabric";
  return std::getenv("STRICT_FABRIC") == nullptr ? "skipped: STRICT_FABRIC says nothing" : "";
}

}  // namespace heddle::transport::ofi
