// Limits set by the transfer of single cache lines: ping-pong, rings of small entries,
// fetch-and-add.
#pragma once

#include "harness/session.hpp"

namespace heddle::bench::limit {

int run_lines(harness::Session& session);

inline harness::Figure limit_figure(const std::string& op, const std::string& metric, std::uint64_t size,
                                    double per_iteration) {
  harness::Figure figure;
  figure.key.bench = "limit";
  figure.key.op = op;
  figure.key.transport = "limit";
  figure.key.sharing = "none";
  figure.key.metric = metric;
  figure.key.workers = 0;
  figure.key.size_bytes = size;
  figure.per_iteration = per_iteration;
  return figure;
}

}  // namespace heddle::bench::limit
