#include "bootstrap/local/local.hpp"

#include <cstdlib>

namespace heddle::bootstrap::local {

bool started_by_launcher() {
  return std::getenv(kFdVariable) != nullptr || std::getenv(kRankVariable) != nullptr ||
         std::getenv(kSizeVariable) != nullptr;
}

base::Result<std::unique_ptr<Bootstrap>> open() {
  return base::fail(HEDDLE_ERR_UNSUPPORTED, "bootstrap \"local\" is being built");
}

}  // namespace heddle::bootstrap::local
