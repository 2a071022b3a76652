#include "transport/verbs/verbs.hpp"

#include "transport/network/transport.hpp"
#include "transport/verbs/port.hpp"

namespace heddle::transport::verbs {
namespace {

class VerbsTransport final : public network::NetworkTransport {
 public:
  // Owns the device.
  explicit VerbsTransport(Device* device)
      : NetworkTransport(std::unique_ptr<network::Device>(device), bit(Opcode::put) | bit(Opcode::get),
                         KeyBytes::kUsed),
        device_(*device) {
    capabilities_.max_message = kMostMessage;
    capabilities_.max_transfer = device->adapter().most_bytes();
    capabilities_.memory_per_peer = std::uint64_t{sizeof(Mailbox)} + device->window() + kMostMessage;
  }

  [[nodiscard]] std::string describe() const override { return device_.describe(); }

  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    auto port = Port::create(device_, index);
    if (!port) return port.status();
    return std::unique_ptr<TransportWorker>(std::make_unique<network::Worker<Port>>(std::move(*port)));
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
  // an import keeps nothing
  void release(const RemoteMemory& memory) override { static_cast<void>(memory); }

 private:
  Device& device_;  // the base has it
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto device = Device::create(bootstrap, environment);
  if (!device) return device.status();
  return std::unique_ptr<Transport>(std::make_unique<VerbsTransport>(device->release()));
}

base::Status probe(const base::Environment& environment) {
  const auto library = Library::open(environment.config.text(base::Var::verbs_library));
  if (!library) return library.status();
  return Adapter::open(**library, environment.config).status();
}

}  // namespace heddle::transport::verbs
