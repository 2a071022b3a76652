// The two interfaces of a transport, as far as transports over a library of networks share them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "transport/network/device.hpp"
#include "transport/network/port.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::network {

// Its port goes to the device when this object is destroyed. PortOf has post() and poll().
template <class PortOf>
class Worker final : public TransportWorker {
 public:
  explicit Worker(std::unique_ptr<PortOf> port) : port_(std::move(port)) {}
  ~Worker() override {
    port_->retire();
    Device& device = port_->device();
    device.take_over(std::move(port_));
  }

  [[nodiscard]] std::size_t post(std::span<Command> batch) override { return port_->post(batch); }
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override { return port_->poll(completions); }
  void peer_failed(std::uint32_t rank) override {
    const Port::Turn turn(*port_);
    port_->peer_failed(rank);
  }
  [[nodiscard]] bool closed(Target target) override {
    const Port::Turn turn(*port_);
    return port_->peers().closed(target);
  }
  [[nodiscard]] bool arm() override {
    const Port::Turn turn(*port_);
    return port_->arm();
  }
  [[nodiscard]] bool armed() const override { return port_->armed(); }
  [[nodiscard]] bool has_arrivals() override { return !port_->armed(); }
  // The helper takes them from the library, for a worker that nobody polls.
  [[nodiscard]] bool has_untaken() override {
    const Port::Turn turn(*port_);
    return port_->has_untaken();
  }
  [[nodiscard]] WorkerCounters counters() const override {
    const Port::Turn turn(*port_);
    return {port_->incoming().malformed()};
  }

 private:
  std::unique_ptr<PortOf> port_;
};

// A transport adds workers and memory.
class NetworkTransport : public Transport {
 public:
  ~NetworkTransport() override { bootstrap_.set_bell(nullptr); }

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const override {
    return rank < device_->size() ? device_->losses().lost(rank) : 0;
  }
  [[nodiscard]] bool disconnected(std::uint32_t rank) const override {
    return rank < device_->size() && device_->losses().disconnected(rank);
  }
  [[nodiscard]] std::uint32_t bell() override { return device_->helper().bell().rings(); }
  void wait(std::uint32_t seen, std::int64_t timeout_ns, queue::Places places) override {
    device_->helper().bell().wait(seen, timeout_ns, places);
  }
  void ring() override { device_->helper().bell().ring(); }

 protected:
  // `opcodes`: of memory.
  NetworkTransport(std::unique_ptr<Device> device, std::uint32_t opcodes, std::uint32_t key_bytes);

  Capabilities capabilities_;

 private:
  bootstrap::Bootstrap& bootstrap_;
  std::unique_ptr<Device> device_;
};

}  // namespace heddle::transport::network
