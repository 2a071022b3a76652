// HEDDLE_PROGRESS: the threads that make progress besides the application.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle::engine {

enum class PolicyKind : std::uint8_t {
  none,       // nobody
  dedicated,  // threads of normal priority that never sleep
  idle,       // a thread for each core this process may use, under SCHED_IDLE, that never sleeps
  adaptive    // one thread of the lowest nice value that sleeps when nothing happens
};

struct Policy {
  PolicyKind kind = PolicyKind::none;
  std::uint32_t threads = 0;  // dedicated

  static constexpr std::uint32_t kMostDedicated = 256;
  [[nodiscard]] bool helps() const { return kind != PolicyKind::none; }
};

// "none", "dedicated:N" (N from 1), "dedicated" (1), "idle", "adaptive".
std::optional<Policy> policy_named(std::string_view text);

}  // namespace heddle::engine
