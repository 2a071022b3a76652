// For decorators: forwards every call unchanged to the inner transport; a decorator overrides what
// it changes.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "transport/transport.hpp"

namespace heddle::transport {

class ForwardingWorker : public TransportWorker {
 public:
  [[nodiscard]] std::size_t post(std::span<Command> batch) override { return inner_->post(batch); }
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override { return inner_->poll(completions); }
  void peer_failed(std::uint32_t rank) override { inner_->peer_failed(rank); }
  [[nodiscard]] bool closed(Target target) override { return inner_->closed(target); }
  [[nodiscard]] bool ended(Target target) override { return inner_->ended(target); }
  [[nodiscard]] bool arm() override { return inner_->arm(); }
  [[nodiscard]] bool armed() const override { return inner_->armed(); }
  [[nodiscard]] bool has_arrivals() override { return inner_->has_arrivals(); }
  [[nodiscard]] bool has_untaken() override { return inner_->has_untaken(); }
  [[nodiscard]] std::size_t unopened(std::span<Unopened> found) override { return inner_->unopened(found); }
  [[nodiscard]] PortCounters counters() const override { return inner_->counters(); }

 protected:
  explicit ForwardingWorker(std::unique_ptr<TransportWorker> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<TransportWorker> inner_;
};

class ForwardingTransport : public Transport {
 public:
  [[nodiscard]] const Capabilities& capabilities() const override { return inner_->capabilities(); }
  [[nodiscard]] std::string describe() const override { return inner_->describe(); }
  [[nodiscard]] const char* way_to(std::uint32_t rank) const override { return inner_->way_to(rank); }
  [[nodiscard]] bool direct_to(std::uint32_t rank) const override { return inner_->direct_to(rank); }
  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const override { return inner_->lost(rank); }
  [[nodiscard]] bool disconnected(std::uint32_t rank) const override { return inner_->disconnected(rank); }
  [[nodiscard]] base::Status check_peer(std::uint32_t rank) override { return inner_->check_peer(rank); }
  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    return inner_->open_worker(index);
  }
  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override { return inner_->allocate(bytes); }
  void free(const LocalMemory& memory) override { inner_->free(memory); }
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) override {
    return inner_->register_memory(address, bytes);
  }
  void deregister(const LocalMemory& memory) override { inner_->deregister(memory); }
  [[nodiscard]] base::Result<LocalMemory> adopt(void* address, std::uint64_t bytes) override {
    return inner_->adopt(address, bytes);
  }
  [[nodiscard]] base::Result<LocalMemory> register_for(std::uint32_t rank, void* address,
                                                       std::uint64_t bytes) override {
    return inner_->register_for(rank, address, bytes);
  }
  [[nodiscard]] MemoryKey key_for(std::uint32_t rank, const WideKey& key) const override {
    return inner_->key_for(rank, key);
  }
  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    return inner_->try_import(rank, key);
  }
  [[nodiscard]] bool imports_late(std::uint32_t rank) const override { return inner_->imports_late(rank); }
  void prepare_import(std::uint32_t rank) override { inner_->prepare_import(rank); }
  [[nodiscard]] const queue::Bell<>* card_bell() const override { return inner_->card_bell(); }
  void release(const RemoteMemory& memory) override { inner_->release(memory); }
  [[nodiscard]] std::span<std::atomic<std::uint64_t>> common_words() override { return inner_->common_words(); }
  [[nodiscard]] SessionQueues* sessions() override { return inner_->sessions(); }
  [[nodiscard]] BarrierGates* gates() override { return inner_->gates(); }
  [[nodiscard]] std::uint32_t bell() override { return inner_->bell(); }
  void settle() override { inner_->settle(); }
  [[nodiscard]] bool arm_stores() override { return inner_->arm_stores(); }
  [[nodiscard]] std::optional<queue::BellPull> stores_bell(std::uint32_t rank) override {
    return inner_->stores_bell(rank);
  }
  void wait(std::uint32_t seen, std::int64_t timeout_ns, queue::Places places) override {
    inner_->wait(seen, timeout_ns, places);
  }
  void ring() override { inner_->ring(); }

 protected:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<Transport> inner_;
};

}  // namespace heddle::transport
