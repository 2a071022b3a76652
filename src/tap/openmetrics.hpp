// A job's counters as OpenMetrics text, which Prometheus and others read.
#pragma once

#include <span>
#include <string>

#include "tap/counters.hpp"

namespace heddle::tap {

inline constexpr const char* kOpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8";

// All families, also those without samples, and the end mark.
[[nodiscard]] std::string openmetrics(std::span<const RankCounters> ranks);

}  // namespace heddle::tap
