// Two transports as one, for the conformance suite. The setting with ucx is in ucx's folder, since
// it needs parts of that folder.
#include "transport/conformance_settings.hpp"

namespace heddle::transport::conformance::joint_settings {
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
