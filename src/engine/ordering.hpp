// A worker of a program that was compiled with -fsanitize=thread. It tells ThreadSanitizer the
// order of messages within this process: what a thread did before it posted a message happens
// before what the receiving thread does after it has taken the message in. The library's writes
// into its rings are hidden from ThreadSanitizer: the rings' own atomics order them, and
// ThreadSanitizer does not see these.
//
// It stands between a worker and its transport, as TracingWorker does. It is only there if the
// process has ThreadSanitizer.
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
