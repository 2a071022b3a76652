#include "transport/ucx/ucx.hpp"

#include <cstring>
#include <limits>

#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

// What does not fit into a few messages is better fetched by its receiver.
constexpr std::uint64_t kFetchBytes = std::uint64_t{32} << 10;
constexpr std::uint32_t kMemoryOpcodes = bit(Opcode::put) | bit(Opcode::get) | bit(Opcode::atomic);

// Its port goes to the device when this object is destroyed.
class Worker final : public TransportWorker {
 public:
  Worker(Device& device, std::unique_ptr<Port> port) : device_(device), port_(std::move(port)) {}
  ~Worker() override {
    port_->retire();
    device_.take_over(std::move(port_));
  }

  [[nodiscard]] std::size_t post(std::span<Command> batch) override { return port_->post(batch); }
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override { return port_->poll(completions); }
  void peer_failed(std::uint32_t rank) override {
    const Port::Turn turn(*port_);
    port_->endpoints().peer_failed(rank);
  }
  [[nodiscard]] bool closed(Target target) override {
    const Port::Turn turn(*port_);
    return port_->endpoints().closed(target);
  }
  [[nodiscard]] bool arm() override {
    const Port::Turn turn(*port_);
    return port_->arm();
  }
  [[nodiscard]] bool armed() const override { return port_->armed(); }
  [[nodiscard]] bool has_arrivals() override { return !port_->armed(); }
  // The helper takes them from UCX, for a worker that nobody polls.
  [[nodiscard]] bool has_untaken() override {
    const Port::Turn turn(*port_);
    return port_->incoming().has_queued();
  }
  [[nodiscard]] WorkerCounters counters() const override {
    const Port::Turn turn(*port_);
    return {port_->incoming().malformed()};
  }

 private:
  Device& device_;
  std::unique_ptr<Port> port_;
};

class UcxTransport final : public Transport {
 public:
  UcxTransport(bootstrap::Bootstrap& bootstrap, std::unique_ptr<Device> device)
      : bootstrap_(bootstrap), device_(std::move(device)) {
    bootstrap_.set_bell(&device_->helper().bell());
    // a wake-up of UCX costs its senders nothing more
    capabilities_.sleeping = Sleeping::free;
    capabilities_.name = "ucx";
    capabilities_.opcodes = bit(Opcode::message) | kMemoryOpcodes;
    capabilities_.copies_messages = true;
    capabilities_.ordered_messages = true;
    capabilities_.max_message = kMostMessage;
    capabilities_.max_transfer = std::numeric_limits<std::int64_t>::max();
    capabilities_.fetch_bytes = kFetchBytes;
    capabilities_.max_workers = device_->max_workers();
    capabilities_.memory_per_peer = std::uint64_t{device_->window()} + cost_of(kMostMessage);
    capabilities_.key_bytes = KeyBytes::kUsed;
  }

  ~UcxTransport() override { bootstrap_.set_bell(nullptr); }

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

  [[nodiscard]] std::string describe() const override {
    const auto named = [](const std::string& text) { return text.empty() ? std::string("as UCX chooses") : text; };
    const base::Config& config = device_->environment().config;
    return "ucx (UCX " + device_->library().version() + ", transports " + named(config.text(base::Var::ucx_tls)) +
           ", devices " + named(config.text(base::Var::ucx_net_devices)) + ", windows of " +
           std::to_string(device_->window()) + " bytes)";
  }

  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const override {
    return rank < device_->size() ? device_->losses().lost(rank) : 0;
  }
  [[nodiscard]] bool disconnected(std::uint32_t rank) const override {
    return rank < device_->size() && device_->losses().disconnected(rank);
  }

  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    auto port = device_->open_port(index);
    if (!port) return port.status();
    return std::unique_ptr<TransportWorker>(std::make_unique<Worker>(*device_, std::move(*port)));
  }

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override {
    return device_->regions().allocate(bytes);
  }
  void free(const LocalMemory& memory) override { device_->regions().deregister(memory.id); }
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) override {
    return device_->regions().register_memory(address, bytes);
  }
  void deregister(const LocalMemory& memory) override { device_->regions().deregister(memory.id); }

  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    if (rank >= device_->size()) {
      return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", rank, device_->size() - 1);
    }
    auto memory = device_->regions().import(rank, key);
    if (memory) memory->opcodes = kMemoryOpcodes;
    return memory;
  }
  void release(const RemoteMemory& memory) override { device_->regions().release(memory); }

  [[nodiscard]] std::uint32_t bell() override { return device_->helper().bell().rings(); }
  void wait(std::uint32_t seen, std::int64_t timeout_ns, queue::Places places) override {
    device_->helper().bell().wait(seen, timeout_ns, places);
  }
  void ring() override { device_->helper().bell().ring(); }

 private:
  bootstrap::Bootstrap& bootstrap_;
  std::unique_ptr<Device> device_;
  Capabilities capabilities_;
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto device = Device::create(bootstrap, environment);
  if (!device) return device.status();
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(bootstrap, std::move(*device)));
}

}  // namespace heddle::transport::ucx
