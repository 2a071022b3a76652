// A worker whose operations are probed (HEDDLE_PROBES): fires a static probe for each command that
// the transport accepts or refuses, each arrival and each end that it reports (base/probes.hpp).
//
// It stands between a worker and its transport, as TracingWorker does. Without the setting it is
// not there, and costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/handler_table.hpp"
#include "transport/common/forwarding.hpp"

namespace heddle::engine {

class ProbingWorker final : public transport::ForwardingWorker {
 public:
  // `index`: of this worker.
  ProbingWorker(std::unique_ptr<transport::TransportWorker> inner, std::uint32_t index);

  [[nodiscard]] std::size_t post(std::span<transport::Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<transport::Completion> completions) override;

 private:
  const std::uint32_t index_;
};

// A handler that fires the probes of its begin and end around `inner`, which stays where it is.
[[nodiscard]] Handler probed(const Handler& inner);

}  // namespace heddle::engine
