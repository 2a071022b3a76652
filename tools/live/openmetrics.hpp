// A job's counters as OpenMetrics text, which Prometheus and others read.
#pragma once

#include <span>
#include <string>

#include "diagnosis/counters.hpp"

namespace heddle::tools::live {

inline constexpr const char* kOpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8";

// All families, also those without samples, and the end mark.
[[nodiscard]] std::string openmetrics(std::span<const diagnosis::RankCounters> ranks);

}  // namespace heddle::tools::live
