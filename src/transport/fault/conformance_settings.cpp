// The faults for the conformance suite, one by one and together, over the reference.
#include "transport/conformance_settings.hpp"

namespace heddle::transport::conformance::fault_settings {
namespace {

const Variables kStorms = {{"HEDDLE_FAULT_AGAIN", "50"}};
const Variables kDelays = {{"HEDDLE_FAULT_DELAY", "9"}};
const Variables kLatency = {{"HEDDLE_FAULT_LATENCY", "20us"}};
const Variables kShuffles = {{"HEDDLE_FAULT_REORDER", "1"}};

const Given kGiven([]() -> std::vector<Setting> {
  return {
      {"fault loopback quiet", "fault+loopback", {}},
      {"fault loopback storms", "fault+loopback", kStorms},
      {"fault loopback delays", "fault+loopback", kDelays},
      {"fault loopback latency", "fault+loopback", kLatency},
      {"fault loopback shuffles", "fault+loopback", kShuffles},
      {"fault loopback everything else", "fault+loopback", both(kEverything, {{"HEDDLE_FAULT_SEED", "7"}})},
      {"fault shm quiet", "fault+shm", {}},
      {"fault shm storms", "fault+shm", kStorms},
      {"fault shm delays", "fault+shm", both({{"HEDDLE_SHM_DIRECT", "0"}}, kDelays)},
      {"fault shm latency", "fault+shm", both({{"HEDDLE_SHM_DIRECT", "0"}}, kLatency)},
  };
});

}  // namespace
}  // namespace heddle::transport::conformance::fault_settings
