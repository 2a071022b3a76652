// The settings of transports for the conformance suite. A new transport: a few rows here.
#include "transport/conformance.hpp"
#include "transport/test_ucx.hpp"

namespace heddle::transport::conformance {
namespace {

using Variables = base::Config::Overrides;

const Variables kStorms = {{"HEDDLE_FAULT_AGAIN", "50"}};
const Variables kDelays = {{"HEDDLE_FAULT_DELAY", "9"}};
const Variables kLatency = {{"HEDDLE_FAULT_LATENCY", "20us"}};
const Variables kShuffles = {{"HEDDLE_FAULT_REORDER", "1"}};
const Variables kEverything = {
    {"HEDDLE_FAULT_AGAIN", "30"}, {"HEDDLE_FAULT_DELAY", "5"}, {"HEDDLE_FAULT_REORDER", "1"}};

Variables both(Variables left, const Variables& right) {
  left.insert(right.begin(), right.end());
  return left;
}

const Variables kNotDirect = {{"HEDDLE_SHM_DIRECT", "0"}};
const Variables kBounceOnly = {
    {"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_CMA", "0"}, {"HEDDLE_SHM_BOUNCE_MIN_BYTES", "0"}};
const Variables kCmaOnly = {{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_BOUNCE_POOL_BYTES", "0"}};
// Bounce and CMA, with a short patience, so that transfers switch to CMA in the middle.
const Variables kBounceThenCma = {
    {"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_BOUNCE_MIN_BYTES", "0"}, {"HEDDLE_SHM_BOUNCE_PATIENCE_NS", "1ns"}};
const Variables kTinyPool =
    both(kBounceOnly, {{"HEDDLE_SHM_BOUNCE_POOL_BYTES", "64K"}, {"HEDDLE_SHM_BOUNCE_CHUNK_BYTES", "4K"}});
const Variables kFenced = both(kBounceOnly, {{"HEDDLE_SHM_MEMBARRIER", "0"}});
const Variables kTinyRing = {{"HEDDLE_SHM_RING_BYTES", "4K"}};

// On the emulator, whose mode holds for the process: ctest runs these in plain and in strict mode
// (CMakeLists.txt).
const Variables kUtofu = {{"HEDDLE_UTOFU_LIBRARY", HEDDLE_TOFUCOM}};
const Variables kUtofuSharedCqs = both(kUtofu, {{"HEDDLE_UTOFU_EXCLUSIVE", "0"}, {"HEDDLE_UTOFU_MRQ_DEPTH", "4096"}});
// A job of 4 ranks has as many senders as such a queue supports.
const Variables kUtofuSmallQueue = both(kUtofu, {{"HEDDLE_UTOFU_MRQ_DEPTH", "512"}});
const Variables kUtofuUncached = both(kUtofu, {{"HEDDLE_REG_CACHE", "0"}});
const Variables kUtofuUnwatched = both(kUtofu, {{"HEDDLE_REG_CACHE_WATCH", "0"}});

const Variables kUcxTcp = {{"HEDDLE_UCX_TLS", "tcp"}};
const Variables kUcxSysv = {{"HEDDLE_UCX_TLS", "sysv,self"}};
const Variables kUcxSmallWindow = both(kUcxTcp, {{"HEDDLE_UCX_WINDOW_BYTES", "24K"}});
const Variables kUcxRcVerbs = {{"HEDDLE_UCX_TLS", "rc_v"}};  // tests/roce
const Variables kUcxUdVerbs = {{"HEDDLE_UCX_TLS", "ud_v"}};
const Variables kUcxPosix = {{"HEDDLE_UCX_TLS", "posix,self"}};

// Pairs: ranks 0 and 1 are one node, 2 and 3 the next. Alone: each rank is a node by itself.
const Variables kPairs = {{"HEDDLE_NODE_RANKS", "2"}};
const Variables kAlone = {{"HEDDLE_NODE_RANKS", "1"}};

std::vector<Setting> settings() {
  return {
      {"loopback", "loopback", {}},
      {"loopback messages", "loopback-messages", {}},
      {"fault loopback quiet", "fault+loopback", {}},
      {"fault loopback storms", "fault+loopback", kStorms},
      {"fault loopback delays", "fault+loopback", kDelays},
      {"fault loopback latency", "fault+loopback", kLatency},
      {"fault loopback shuffles", "fault+loopback", kShuffles},
      {"fault loopback everything", "fault+loopback", kEverything},
      {"fault loopback everything else", "fault+loopback", both(kEverything, {{"HEDDLE_FAULT_SEED", "7"}})},
      {"fault loopback messages everything", "fault+loopback-messages", kEverything},
      {"shm", "shm", {}},
      {"shm not direct", "shm", kNotDirect},
      {"shm bounce only", "shm", kBounceOnly},
      {"shm CMA only", "shm", kCmaOnly, true},
      {"shm bounce then CMA", "shm", kBounceThenCma},
      {"shm tiny pool", "shm", kTinyPool},
      {"shm tiny ring", "shm", kTinyRing},
      {"shm fenced", "shm", kFenced},
      {"fault shm quiet", "fault+shm", {}},
      {"fault shm storms", "fault+shm", kStorms},
      {"fault shm delays", "fault+shm", both(kNotDirect, kDelays)},
      {"fault shm latency", "fault+shm", both(kNotDirect, kLatency)},
      {"fault shm everything", "fault+shm", kEverything},
      {"fault shm bounce everything", "fault+shm", both(kBounceOnly, kEverything)},
      {"joint", "loopback,loopback", kPairs},
      {"joint alone", "loopback,loopback", kAlone},
      {"joint with messages", "loopback,loopback-messages", kPairs},
      {"joint messages first", "loopback-messages,loopback", kPairs},
      {"joint shm", "shm,loopback", kPairs},
      {"joint shm alone", "shm,loopback", kAlone},
      {"joint shm not direct", "shm,loopback", both(kPairs, kNotDirect)},
      {"fault joint everything", "fault+loopback,loopback", both(kPairs, kEverything)},
      {"utofu", "utofu", kUtofu},
      {"utofu shared CQs", "utofu", kUtofuSharedCqs},
      {"utofu small queue", "utofu", kUtofuSmallQueue},
      {"utofu uncached", "utofu", kUtofuUncached},
      {"utofu unwatched", "utofu", kUtofuUnwatched},
      {"fault utofu everything", "fault+utofu", both(kUtofu, kEverything)},
      {"ucx tcp", "ucx", kUcxTcp, false, ucx::why_no_ucx()},
      {"ucx small window", "ucx", kUcxSmallWindow, false, ucx::why_no_ucx()},
      {"ucx posix", "ucx", kUcxPosix, false, ucx::why_no_ucx()},
      {"ucx sysv", "ucx", kUcxSysv, false, ucx::why_no_ucx()},
      {"ucx rc verbs", "ucx", kUcxRcVerbs, false, ucx::why_no_verbs()},
      {"ucx ud verbs", "ucx", kUcxUdVerbs, false, ucx::why_no_verbs()},
      {"joint shm ucx", "shm,ucx", both(kPairs, kUcxTcp), false, ucx::why_no_ucx()},
      {"joint shm ucx alone", "shm,ucx", both(kAlone, kUcxTcp), false, ucx::why_no_ucx()},
      {"fault ucx everything", "fault+ucx", both(kUcxTcp, kEverything), false, ucx::why_no_ucx()},
  };
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance, testing::ValuesIn(settings()),
                         [](const auto& setting) { return name_of(setting.param); });

}  // namespace
}  // namespace heddle::transport::conformance
