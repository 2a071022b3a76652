// The verbs transport for the conformance suite: over the idle libibverbs, and where there is an
// adapter (tests/roce).
#include "transport/conformance_settings.hpp"
#include "transport/test_verbs.hpp"

namespace heddle::transport::conformance::verbs_settings {
namespace {

#ifdef HEDDLE_IDLE_VERBS
const Variables kIdle = {{"HEDDLE_VERBS_LIBRARY", HEDDLE_IDLE_VERBS}};
#endif

const Given kGiven([]() -> std::vector<Setting> {
  const std::string no_verbs = verbs::why_no_verbs();
  return {
#ifdef HEDDLE_IDLE_VERBS
      {"verbs idle", "verbs", kIdle},
      {"verbs idle two adapters", "verbs", both(kIdle, {{"HEDDLE_VERBS_DEVICES", "idle0,idle1"}})},
      {"verbs idle stripes", "verbs",
       both(kIdle, {{"HEDDLE_VERBS_DEVICES", "idle0,idle1"}, {"HEDDLE_VERBS_STRIPE_BYTES", "8K"}})},
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
