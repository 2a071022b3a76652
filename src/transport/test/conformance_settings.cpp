// The settings under which the conformance suite runs, besides those that follow from the table of
// transports. CMakeLists.txt of the transports run some in processes of their own.
#include "transport/test/conformance_settings.hpp"

#include "transport/test/ofi_available.hpp"
#include "transport/test/ucx_available.hpp"
#include "transport/test/verbs_available.hpp"

namespace heddle::transport::conformance::fault_settings {

namespace {

const Variables kStorms = {{"HEDDLE_FAULT", "again=50"}};
const Variables kDelays = {{"HEDDLE_FAULT", "delay=9"}};
const Variables kLatency = {{"HEDDLE_FAULT", "latency=20us"}};
const Variables kShuffles = {{"HEDDLE_FAULT", "reorder=1"}};

const Given kGiven([]() -> std::vector<Setting> {
  return {
      {"fault loopback quiet", "fault+loopback", {}},
      {"fault loopback storms", "fault+loopback", kStorms},
      {"fault loopback delays", "fault+loopback", kDelays},
      {"fault loopback latency", "fault+loopback", kLatency},
      {"fault loopback shuffles", "fault+loopback", kShuffles},
      {"fault loopback everything else", "fault+loopback", {{"HEDDLE_FAULT", "again=30,delay=5,reorder=1,seed=7"}}},
      {"fault shm quiet", "fault+shm", {}},
      {"fault shm storms", "fault+shm", kStorms},
      {"fault shm delays", "fault+shm", both({{"HEDDLE_SHM_DIRECT", "0"}}, kDelays)},
      {"fault shm latency", "fault+shm", both({{"HEDDLE_SHM_DIRECT", "0"}}, kLatency)},
  };
});

}  // namespace

}  // namespace heddle::transport::conformance::fault_settings

namespace heddle::transport::conformance::joint_settings {

// Two transports as one; those with a network are among that network's settings.

namespace {

const Given kGiven([]() -> std::vector<Setting> {
  return {
      {"joint", "loopback,loopback", kPairs},
      {"joint alone", "loopback,loopback", kAlone},
      {"joint with messages", "loopback,loopback-messages", kPairs},
      {"joint messages first", "loopback-messages,loopback", kPairs},
      {"joint shm", "shm,loopback", kPairs},
      {"joint shm alone", "shm,loopback", kAlone},
      {"joint shm not direct", "shm,loopback", both(kPairs, {{"HEDDLE_SHM_DIRECT", "0"}})},
      {"fault joint everything", "fault+loopback,loopback", both(kPairs, kEverything)},
  };
});

}  // namespace

}  // namespace heddle::transport::conformance::joint_settings

namespace heddle::transport::conformance::shm_settings {

// The ways of data through shm, for the conformance suite.

namespace {

const Variables kNotDirect = {{"HEDDLE_SHM_DIRECT", "0"}};
const Variables kBounceOnly = {{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_CMA", "0"}};
const Variables kCmaOnly = {{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_BOUNCE", "pool=0"}};
// Bounce and CMA, with a short patience, so that transfers switch to CMA in the middle.
const Variables kBounceThenCma = {{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_BOUNCE", "patience=1ns"}};
const Variables kTinyPool = {{"HEDDLE_SHM_BOUNCE", "pool=64K,chunk=4K"}};
const Variables kFenced = {{"HEDDLE_SHM_MEMBARRIER", "0"}};
const Variables kTinyRing = {{"HEDDLE_SHM_RING_BYTES", "4K"}};

const Given kGiven([]() -> std::vector<Setting> {
  return {
      {"shm", "shm", {}},
      {"shm not direct", "shm", kNotDirect},
      {"shm bounce only", "shm", kBounceOnly},
      {.label = "shm CMA only", .transport = "shm", .variables = kCmaOnly, .by_kernel = true},
      {"shm bounce then CMA", "shm", kBounceThenCma},
      {"shm tiny pool", "shm", both(kBounceOnly, kTinyPool)},
      {"shm tiny ring", "shm", kTinyRing},
      {"shm fenced", "shm", both(kBounceOnly, kFenced)},
      {"fault shm everything", "fault+shm", kEverything},
      {"fault shm bounce everything", "fault+shm", both(kBounceOnly, kEverything)},
  };
});

}  // namespace

}  // namespace heddle::transport::conformance::shm_settings

namespace heddle::transport::conformance::utofu_settings {

// The settings of utofu for the conformance suite, on the emulator. Its mode holds for the process:
// CMakeLists.txt runs these in plain and in strict mode.

namespace {

const Variables kUtofu = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}};
const Variables kSharedCqs = {{"HEDDLE_UTOFU_EXCLUSIVE", "0"}, {"HEDDLE_UTOFU_MRQ_DEPTH", "4096"}};
// A job of 4 ranks has as many senders as such a queue supports.
const Variables kSmallQueue = {{"HEDDLE_UTOFU_MRQ_DEPTH", "512"}};

const Given kGiven([]() -> std::vector<Setting> {
  return {
      {"utofu", "utofu", kUtofu},
      {"utofu shared CQs", "utofu", both(kUtofu, kSharedCqs)},
      {"utofu small queue", "utofu", both(kUtofu, kSmallQueue)},
      {"utofu uncached", "utofu", both(kUtofu, {{"HEDDLE_REG_CACHE", "0"}})},
      {"utofu unwatched", "utofu", both(kUtofu, {{"HEDDLE_REG_CACHE", "watch=0"}})},
      {"fault utofu everything", "fault+utofu", both(kUtofu, kEverything)},
  };
});

}  // namespace

}  // namespace heddle::transport::conformance::utofu_settings

// The settings of libfabric for the conformance suite. CMakeLists.txt runs them one by one.

// libfabric 1.17 loses a fi_info with some connections that are cut off.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libfabric.so";
}

namespace heddle::transport::conformance::ofi_settings {

namespace {

// The connections of messages (1.17), or those of the provider itself (newer).
const Variables kTcp = {{"HEDDLE_NET_DEVICES", "lo"}};
const Variables kRxm = {{"HEDDLE_NET_DEVICES", "lo"}, {"HEDDLE_OFI_PROVIDER", "tcp;ofi_rxm"}};
const Variables kSmallWindow = {{"HEDDLE_NETWORK_WINDOW_BYTES", "24K"}};

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

namespace heddle::transport::conformance::ucx_settings {

// The settings of UCX for the conformance suite. CMakeLists.txt runs them one by one.

namespace {

const Variables kTcp = {{"HEDDLE_UCX_TLS", "tcp"}};
const Variables kSysv = {{"HEDDLE_UCX_TLS", "sysv,self"}};
const Variables kPosix = {{"HEDDLE_UCX_TLS", "posix,self"}};
const Variables kRcVerbs = {{"HEDDLE_UCX_TLS", "rc_v"}};  // tests/roce
const Variables kUdVerbs = {{"HEDDLE_UCX_TLS", "ud_v"}};
const Variables kSmallWindow = {{"HEDDLE_NETWORK_WINDOW_BYTES", "24K"}};

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

namespace heddle::transport::conformance::verbs_settings {

// The verbs transport for the conformance suite: over the idle libibverbs, and where there is an
// adapter (tests/roce).

namespace {

#ifdef HEDDLE_IDLE_VERBS
const Variables kIdle = {{"HEDDLE_LIBRARIES", "verbs=" HEDDLE_IDLE_VERBS}};
#endif

const Given kGiven([]() -> std::vector<Setting> {
  const std::string no_verbs = verbs::why_no_verbs();
  return {
#ifdef HEDDLE_IDLE_VERBS
      {"verbs idle", "verbs", kIdle},
      {"verbs idle two adapters", "verbs", both(kIdle, {{"HEDDLE_NET_DEVICES", "idle0,idle1"}})},
      {"verbs idle stripes", "verbs",
       both(kIdle, {{"HEDDLE_NET_DEVICES", "idle0,idle1"}, {"HEDDLE_VERBS_STRIPE_BYTES", "8K"}})},
      {"joint shm verbs idle", "shm,verbs", both(kPairs, kIdle)},
      {"fault verbs idle everything", "fault+verbs", both(kEverything, kIdle)},
#endif
      {"verbs", "verbs", {}, no_verbs},
      {"joint shm verbs", "shm,verbs", kPairs, no_verbs},
      {"fault verbs everything", "fault+verbs", kEverything, no_verbs},
  };
});

}  // namespace

}  // namespace heddle::transport::conformance::verbs_settings
