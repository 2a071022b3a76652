// The two interfaces of a transport, as far as transports over a library of networks share them,
// and the memory of its regions and their keys.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "transport/common/rejections.hpp"
#include "transport/network/device.hpp"
#include "transport/network/port.hpp"
#include "transport/network/wire.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::network {

// Whole pages of zeros, at least `bytes`. ARGUMENT: 0 bytes. NO_MEMORY.
[[nodiscard]] base::Result<void*> map_memory(std::uint64_t bytes);
void unmap_memory(void* address, std::uint64_t bytes);

// The same, registered with the regions of a transport. It adds the errors of register_memory().
template <class Regions>
[[nodiscard]] base::Result<LocalMemory> map_region(Regions& regions, std::uint64_t bytes) {
  const auto address = map_memory(bytes);
  if (!address) return address.status();
  auto memory = regions.register_memory(*address, bytes);
  if (!memory) unmap_memory(*address, bytes);
  return memory;
}

// ARGUMENT: no memory that could be registered.
[[nodiscard]] base::Status check_memory(const void* address, std::uint64_t bytes);

// The packed keys of regions, by which peers name them. KeyBytes is a transport's format: it has
// magic, rank, address, bytes, seal and zero, and what the transport adds.

// Describes a region of this rank, with its packed key. The caller has filled what its transport
// adds to the key.
template <class KeyBytes>
[[nodiscard]] LocalMemory describe_region(const Device& device, void* address, std::uint64_t bytes, std::uint64_t id,
                                          KeyBytes key) {
  static_assert(sizeof key <= kKeyBytes);
  key.rank = device.rank();
  key.address = reinterpret_cast<std::uintptr_t>(address);
  key.bytes = bytes;
  seal(&key, device.secret());
  LocalMemory local;
  local.address = address;
  local.bytes = bytes;
  local.id = id;
  std::memcpy(local.key.bytes.data(), &key, sizeof key);
  return local;
}

// Reads a packed key, which comes from the network. PROTOCOL: it is no key of that rank.
// PEER_FAILED.
template <class KeyBytes>
[[nodiscard]] base::Result<KeyBytes> read_key(const Device& device, std::uint32_t rank, const MemoryKey& packed) {
  KeyBytes key;
  std::memcpy(&key, packed.bytes.data(), sizeof key);
  if (key.magic != KeyBytes::kMagic || !sealed(key, device.secret()) || key.rank != rank || key.zero != 0)
    return fail_key(device.names().transport, rank);
  if (device.failed(rank)) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
  return key;
}

// The two interfaces of a transport, as far as transports over a library of networks share them.

// Its port goes to the device when this object is destroyed. PortOf has post() and poll().
template <class PortOf>
class PortWorker final : public TransportWorker {
 public:
  explicit PortWorker(std::unique_ptr<PortOf> port) : port_(std::move(port)) {}
  ~PortWorker() override {
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
  // For a worker that nobody polls, the helper takes messages from the library.
  [[nodiscard]] bool has_untaken() override {
    const Port::Turn turn(*port_);
    return port_->has_untaken();
  }
  [[nodiscard]] std::size_t unopened(std::span<Unopened> found) override {
    const Port::Turn turn(*port_);
    return port_->peers().unopened(found);
  }
  [[nodiscard]] PortCounters counters() const override {
    const Port::Turn turn(*port_);
    return {port_->malformed()};
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
  [[nodiscard]] base::Status check_peer(std::uint32_t rank) override { return device_->directory().check(rank); }
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

// Memory and workers of a device. PortOf has create(); DeviceOf has describe(), and regions() with
// allocate(), free(), register_memory(), deregister() and import(). Imports keep nothing, unless
// the transport has a release() of its own.
template <class DeviceOf, class PortOf>
class TransportOf : public NetworkTransport {
 public:
  [[nodiscard]] std::string describe() const override { return device_.describe(); }

  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    auto port = PortOf::create(device_, index);
    if (!port) return port.status();
    return std::unique_ptr<TransportWorker>(std::make_unique<PortWorker<PortOf>>(std::move(*port)));
  }

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override {
    return device_.regions().allocate(bytes);
  }
  void free(const LocalMemory& memory) override { device_.regions().free(memory); }
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) override {
    return device_.regions().register_memory(address, bytes);
  }
  void deregister(const LocalMemory& memory) override { device_.regions().deregister(memory.id); }

  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    if (rank >= device_.size()) {
      return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", rank, device_.size() - 1);
    }
    return device_.regions().import(rank, key);
  }
  void release(const RemoteMemory& memory) override { static_cast<void>(memory); }

 protected:
  // Owns the device. `opcodes`: of memory.
  TransportOf(DeviceOf* device, std::uint32_t opcodes, std::uint32_t key_bytes)
      : NetworkTransport(std::unique_ptr<Device>(device), opcodes, key_bytes), device_(*device) {}

 private:
  DeviceOf& device_;  // the base has it
};

}  // namespace heddle::transport::network
