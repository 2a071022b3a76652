#include "transport/ofi/ofi.hpp"

#include <filesystem>
#include <string>
#include <system_error>

#include "transport/network/transport.hpp"
#include "transport/ofi/port.hpp"

namespace heddle::transport::ofi {
namespace {

class OfiTransport final : public network::NetworkTransport {
 public:
  // Owns the device.
  explicit OfiTransport(Device* device)
      : NetworkTransport(std::unique_ptr<network::Device>(device), device->memory_opcodes(), KeyBytes::kUsed),
        device_(*device) {
    capabilities_.max_transfer = device->info()->ep_attr->max_msg_size;
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
  return std::unique_ptr<Transport>(std::make_unique<OfiTransport>(device->release()));
}

base::Status probe(const base::Environment& environment) {
  const auto library = Library::open(environment.config.text(base::Var::ofi_library));
  if (!library) return library.status();
  return choose_provider(**library, environment.config, false).status();
}

base::Status probe_own(const base::Environment& environment) {
  std::error_code none;
  bool own = std::filesystem::exists("/sys/class/cxi", none);
  std::filesystem::directory_iterator adapters("/sys/class/infiniband", none);
  for (; !none && adapters != std::filesystem::directory_iterator(); adapters.increment(none)) {
    const std::string name = adapters->path().filename();
    own = own || name.starts_with("efa") || name.starts_with("hfi1");
  }
  return own ? probe(environment) : base::fail(HEDDLE_ERR_CONFIG, "no adapter that only libfabric drives");
}

}  // namespace heddle::transport::ofi
