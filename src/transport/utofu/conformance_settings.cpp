// The settings of utofu for the conformance suite, on the emulator. Its mode holds for the process:
// CMakeLists.txt runs these in plain and in strict mode.
#include "transport/conformance_settings.hpp"

namespace heddle::transport::conformance::utofu_settings {
namespace {

const Variables kUtofu = {{"HEDDLE_UTOFU_LIBRARY", HEDDLE_TOFUCOM}};
const Variables kSharedCqs = {{"HEDDLE_UTOFU_EXCLUSIVE", "0"}, {"HEDDLE_UTOFU_MRQ_DEPTH", "4096"}};
// A job of 4 ranks has as many senders as such a queue supports.
const Variables kSmallQueue = {{"HEDDLE_UTOFU_MRQ_DEPTH", "512"}};

const Given kGiven([]() -> std::vector<Setting> {
  return {
      {"utofu", "utofu", kUtofu},
      {"utofu shared CQs", "utofu", both(kUtofu, kSharedCqs)},
      {"utofu small queue", "utofu", both(kUtofu, kSmallQueue)},
      {"utofu uncached", "utofu", both(kUtofu, {{"HEDDLE_REG_CACHE", "0"}})},
      {"utofu unwatched", "utofu", both(kUtofu, {{"HEDDLE_REG_CACHE_WATCH", "0"}})},
      {"fault utofu everything", "fault+utofu", both(kUtofu, kEverything)},
  };
});

}  // namespace
}  // namespace heddle::transport::conformance::utofu_settings
