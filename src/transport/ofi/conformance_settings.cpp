// The settings of libfabric for the conformance suite. CMakeLists.txt runs them one by one.
#include "transport/conformance_settings.hpp"
#include "transport/test_ofi.hpp"

// libfabric 1.17 loses a fi_info with some connections that are cut off.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libfabric.so";
}

namespace heddle::transport::conformance::ofi_settings {
namespace {

// The connections of messages (1.17), or those of the provider itself (newer).
const Variables kTcp = {{"HEDDLE_OFI_DOMAIN", "lo"}};
const Variables kRxm = {{"HEDDLE_OFI_DOMAIN", "lo"}, {"HEDDLE_OFI_PROVIDER", "tcp;ofi_rxm"}};
const Variables kSmallWindow = {{"HEDDLE_OFI_WINDOW_BYTES", "24K"}};

const Variables kShared = {{"HEDDLE_OFI_DOMAINS", "shared"}};
const Variables kVerbs = {{"HEDDLE_OFI_PROVIDER", "verbs;ofi_rxm"}};

const Given kGiven([]() -> std::vector<Setting> {
  const std::string no_ofi = ofi::why_no_ofi();
  const std::string no_verbs = ofi::why_no_verbs();
  const std::string not_strict = ofi::why_not_strict();
  return {
      {"ofi tcp", "ofi", kTcp, no_ofi},
      {"ofi rxm", "ofi", kRxm, no_ofi},
      {"ofi shared", "ofi", both(kTcp, kShared), no_ofi},
      {"ofi verbs", "ofi", kVerbs, no_verbs},
      {"ofi strict", "ofi", {}, not_strict},
      {"ofi strict uncached", "ofi", {{"HEDDLE_REG_CACHE", "0"}}, not_strict},
      {"ofi small window", "ofi", both(kTcp, kSmallWindow), no_ofi},
      {"joint shm ofi", "shm,ofi", both(kPairs, kTcp), no_ofi},
      {"fault ofi everything", "fault+ofi", both(kTcp, kEverything), no_ofi},
  };
});

}  // namespace
}  // namespace heddle::transport::conformance::ofi_settings
