// A worker of a program that was compiled with -fsanitize=thread: tells its ThreadSanitizer that
// what a thread did before it posted a message happens before what the thread does that takes the
// message in, where both are of this process. What the library writes into its rings is hidden: it
// is ordered by the rings' own atomics, which ThreadSanitizer does not see.
//
// It stands between a worker and its transport, as TracingWorker does. Where the process has no
// ThreadSanitizer it is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/common/forwarding.hpp"

namespace heddle::engine {

class OrderingWorker final : public transport::ForwardingWorker {
 public:
  // `rank`, `index`: of this worker.
  OrderingWorker(std::unique_ptr<transport::TransportWorker> inner, std::uint32_t rank, std::uint32_t index);

  [[nodiscard]] std::size_t post(std::span<transport::Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<transport::Completion> completions) override;

 private:
  void* const here_;
};

}  // namespace heddle::engine
