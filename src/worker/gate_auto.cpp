#include "worker/gate_auto.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace heddle::engine {
namespace {

// A helper that is inside, or another thread that takes over, may have lost its core.
constexpr std::int64_t kFetchNs = 50'000;

}  // namespace

bool AutoGate::enter_first() {
  const auto number = static_cast<std::uint32_t>(::syscall(SYS_gettid)) | queue::SystemHandover::kStays;
  if (bias_.take_over(base::thread_mark(), number)) return enter_own() || (bias_.shared() && SharedGate::let_in());
  bias_.fetch_helper(kFetchNs);
  return false;
}

}  // namespace heddle::engine
