// For tests: a rank of an inproc job with a transport and one worker, but no engine above: it can
// post any command.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/transport.hpp"

namespace heddle::transport {

class BareRank {
 public:
  BareRank(bootstrap::inproc::ThreadJob* job, std::uint32_t rank, const char* transport) {
    environment_.config = *base::Config::read();
    environment_.clock = &clock_;
    bootstrap_ = std::move(*bootstrap::open({"inproc", job, rank}, environment_));
    transport_ = std::move(*open(transport, *bootstrap_, environment_));
    worker_ = std::move(*transport_->open_worker(0));
  }
  ~BareRank() {
    worker_.reset();
    transport_.reset();
    bootstrap_->leave();
  }
  BareRank(const BareRank&) = delete;
  BareRank& operator=(const BareRank&) = delete;

  [[nodiscard]] Transport& transport() { return *transport_; }
  [[nodiscard]] TransportWorker& worker() { return *worker_; }
  [[nodiscard]] LocalMemory register_memory(std::vector<std::byte>* memory) {
    return *transport_->register_memory(memory->data(), memory->size());
  }
  void close_worker() { worker_.reset(); }
  // A message to worker 0 of rank 0.
  [[nodiscard]] bool post(std::uint32_t immediate, const void* bytes, std::uint32_t count) {
    Command command;
    command.immediate = immediate;
    command.header = bytes;
    command.header_bytes = count;
    return worker_->post({&command, 1}) == 1;
  }

 private:
  base::SystemClock clock_;
  base::Environment environment_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<TransportWorker> worker_;
};

}  // namespace heddle::transport
