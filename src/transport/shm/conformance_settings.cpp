// The ways of data through shm, for the conformance suite.
#include "transport/conformance_settings.hpp"

namespace heddle::transport::conformance::shm_settings {
namespace {

const Variables kNotDirect = {{"HEDDLE_SHM_DIRECT", "0"}};
const Variables kBounceOnly = {
    {"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_CMA", "0"}, {"HEDDLE_SHM_BOUNCE_MIN_BYTES", "0"}};
const Variables kCmaOnly = {{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_BOUNCE_POOL_BYTES", "0"}};
// Bounce and CMA, with a short patience, so that transfers switch to CMA in the middle.
const Variables kBounceThenCma = {
    {"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_BOUNCE_MIN_BYTES", "0"}, {"HEDDLE_SHM_BOUNCE_PATIENCE_NS", "1ns"}};
const Variables kTinyPool = {{"HEDDLE_SHM_BOUNCE_POOL_BYTES", "64K"}, {"HEDDLE_SHM_BOUNCE_CHUNK_BYTES", "4K"}};
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
