// The name of a loopback region as key bytes, sealed with the job's secret so that no other bytes
// pass for a key.
#pragma once

#include <cstdint>
#include <optional>

#include "bootstrap/bootstrap.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::loopback {

inline constexpr std::uint32_t kRegionKeyBytes = 32;

struct RegionName {
  std::uint32_t rank = 0;
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
};

MemoryKey encode_key(const RegionName& name, const bootstrap::JobSecret& secret);

// Empty: not a key of this job, or one whose bits or padding were changed.
std::optional<RegionName> decode_key(const MemoryKey& key, const bootstrap::JobSecret& secret);

}  // namespace heddle::transport::loopback
