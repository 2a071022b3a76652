// The settings of UCX for the conformance suite. CMakeLists.txt runs them one by one.
#include "transport/conformance_settings.hpp"
#include "transport/test_ucx.hpp"

namespace heddle::transport::conformance::ucx_settings {
namespace {

const Variables kTcp = {{"HEDDLE_UCX_TLS", "tcp"}};
const Variables kSysv = {{"HEDDLE_UCX_TLS", "sysv,self"}};
const Variables kPosix = {{"HEDDLE_UCX_TLS", "posix,self"}};
const Variables kRcVerbs = {{"HEDDLE_UCX_TLS", "rc_v"}};  // tests/roce
const Variables kUdVerbs = {{"HEDDLE_UCX_TLS", "ud_v"}};
const Variables kSmallWindow = {{"HEDDLE_UCX_WINDOW_BYTES", "24K"}};

const Given kGiven([]() -> std::vector<Setting> {
  const std::string no_ucx = ucx::why_no_ucx();
  const std::string no_verbs = ucx::why_no_verbs();
  return {
      {"ucx tcp", "ucx", kTcp, no_ucx},
      {"ucx small window", "ucx", both(kTcp, kSmallWindow), no_ucx},
      {"ucx posix", "ucx", kPosix, no_ucx},
      {"ucx sysv", "ucx", kSysv, no_ucx},
      {"ucx rc verbs", "ucx", kRcVerbs, no_verbs},
      {"ucx ud verbs", "ucx", kUdVerbs, no_verbs},
      {"joint shm ucx", "shm,ucx", both(kPairs, kTcp), no_ucx},
      {"joint shm ucx alone", "shm,ucx", both(kAlone, kTcp), no_ucx},
      {"fault ucx everything", "fault+ucx", both(kTcp, kEverything), no_ucx},
  };
});

}  // namespace
}  // namespace heddle::transport::conformance::ucx_settings
