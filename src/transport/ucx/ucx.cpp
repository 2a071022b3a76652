#include "transport/ucx/ucx.hpp"

#include "transport/network/transport.hpp"
#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

std::uint32_t opcodes_of(const Device& device) {
  return bit(Opcode::put) | bit(Opcode::get) | (device.has_atomics() ? bit(Opcode::atomic) : 0);
}

class UcxTransport final : public network::NetworkTransport {
 public:
  // `device`: the one that is owned.
  UcxTransport(Device& device, std::unique_ptr<Device> owned)
      : NetworkTransport(std::move(owned), opcodes_of(device), KeyBytes::kUsed),
        device_(device),
        memory_opcodes_(opcodes_of(device)) {}

  [[nodiscard]] std::string describe() const override {
    const auto named = [](const std::string& text) { return text.empty() ? std::string("as UCX chooses") : text; };
    const base::Config& config = device_.environment().config;
    return "ucx (UCX " + device_.library().version() + ", transports " + named(config.text(base::Var::ucx_tls)) +
           ", devices " + named(config.text(base::Var::ucx_net_devices)) + ", windows of " +
           std::to_string(device_.window()) + " bytes)";
  }

  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    auto port = device_.open_port(index);
    if (!port) return port.status();
    return std::unique_ptr<TransportWorker>(std::make_unique<network::Worker<Port>>(std::move(*port)));
  }

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override {
    return device_.regions().allocate(bytes);
  }
  void free(const LocalMemory& memory) override { device_.regions().deregister(memory.id); }
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) override {
    return device_.regions().register_memory(address, bytes);
  }
  void deregister(const LocalMemory& memory) override { device_.regions().deregister(memory.id); }

  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    if (rank >= device_.size()) {
      return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", rank, device_.size() - 1);
    }
    auto memory = device_.regions().import(rank, key);
    if (memory) memory->opcodes = memory_opcodes_;
    return memory;
  }
  void release(const RemoteMemory& memory) override { device_.regions().release(memory); }

 private:
  Device& device_;
  const std::uint32_t memory_opcodes_;
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto made = Device::create(bootstrap, environment);
  if (!made) return made.status();
  Device& device = **made;
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(device, std::move(*made)));
}

base::Status probe(const base::Environment& environment) {
  return Library::open(environment.config.text(base::Var::ucx_library)).status();
}

}  // namespace heddle::transport::ucx
