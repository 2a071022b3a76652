#include "transport/ucx/ucx.hpp"

#include "transport/network/transport.hpp"
#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

constexpr std::uint32_t kMemoryOpcodes = bit(Opcode::put) | bit(Opcode::get) | bit(Opcode::atomic);

class UcxTransport final : public network::NetworkTransport {
 public:
  // `device`: the one that is owned.
  UcxTransport(Device& device, std::unique_ptr<Device> owned)
      : NetworkTransport(std::move(owned), kMemoryOpcodes, KeyBytes::kUsed), device_(device) {}

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
    if (memory) memory->opcodes = kMemoryOpcodes;
    return memory;
  }
  void release(const RemoteMemory& memory) override { device_.regions().release(memory); }

 private:
  Device& device_;
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto made = Device::create(bootstrap, environment);
  if (!made) return made.status();
  Device& device = **made;
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(device, std::move(*made)));
}

}  // namespace heddle::transport::ucx
