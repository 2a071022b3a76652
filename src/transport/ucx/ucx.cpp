#include "transport/ucx/ucx.hpp"

#include <cstring>
#include <limits>

#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {
namespace {

// What does not fit a few messages is better fetched by its receiver.
constexpr std::uint64_t kFetchBytes = std::uint64_t{32} << 10;
constexpr std::uint32_t kMemoryOpcodes = bit(Opcode::put) | bit(Opcode::get) | bit(Opcode::atomic);

// The station that it works on goes to the home when this ends.
class Worker final : public TransportWorker {
 public:
  Worker(Home& home, std::unique_ptr<Station> station) : home_(home), station_(std::move(station)) {}
  ~Worker() override {
    station_->retire();
    const std::uint32_t index = station_->index();
    home_.close(index, std::move(station_));
  }

  [[nodiscard]] std::size_t post(std::span<Command> batch) override {
    if (!station_->try_enter()) return 0;
    try {
      const std::size_t accepted = station_->post(batch);
      station_->leave();
      return accepted;
    } catch (...) {  // no memory
      station_->leave();
      throw;
    }
  }
  // Waits for the helper to leave: who was not taken comes here.
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override {
    const Station::Turn turn(*station_);
    return station_->poll(completions);
  }
  void peer_failed(std::uint32_t rank) override {
    const Station::Turn turn(*station_);
    station_->peer_failed(rank);
  }
  [[nodiscard]] bool closed(Target target) override {
    const Station::Turn turn(*station_);
    return station_->closed(target);
  }
  [[nodiscard]] bool arm() override {
    const Station::Turn turn(*station_);
    return station_->arm();
  }
  [[nodiscard]] bool armed() const override { return station_->armed(); }
  [[nodiscard]] bool has_arrivals() override { return station_->has_arrivals(); }
  [[nodiscard]] WorkerCounters counters() const override {
    const Station::Turn turn(*station_);
    return {station_->malformed()};
  }

 private:
  Home& home_;
  std::unique_ptr<Station> station_;
};

class UcxTransport final : public Transport {
 public:
  UcxTransport(bootstrap::Bootstrap& bootstrap, std::unique_ptr<Home> home)
      : bootstrap_(bootstrap), home_(std::move(home)) {
    bootstrap_.set_bell(&home_->helper().bell());
    capabilities_.sleeping = Sleeping::free;  // what wakes UCX costs its senders nothing that they do not do anyway
    capabilities_.name = "ucx";
    capabilities_.opcodes = bit(Opcode::message) | kMemoryOpcodes;
    capabilities_.copies_messages = true;
    capabilities_.ordered_messages = true;
    capabilities_.max_message = kMostMessage;
    capabilities_.max_transfer = std::numeric_limits<std::int64_t>::max();
    capabilities_.fetch_bytes = kFetchBytes;
    capabilities_.max_workers = home_->max_workers();
    capabilities_.memory_per_peer = std::uint64_t{home_->window()} + cost_of(kMostMessage);
    capabilities_.key_bytes = KeyBytes::kUsed;
  }

  ~UcxTransport() override { bootstrap_.set_bell(nullptr); }

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

  [[nodiscard]] std::string describe() const override {
    const auto named = [](const std::string& text) { return text.empty() ? std::string("as UCX chooses") : text; };
    const base::Config& config = home_->environment().config;
    return "ucx (UCX " + home_->library().version() + ", transports " + named(config.text(base::Var::ucx_tls)) +
           ", devices " + named(config.text(base::Var::ucx_net_devices)) + ", windows of " +
           std::to_string(home_->window()) + " bytes)";
  }

  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const override {
    return rank < home_->size() ? home_->lost(rank) : 0;
  }
  [[nodiscard]] bool given_up(std::uint32_t rank) const override {
    return rank < home_->size() && home_->given_up(rank);
  }

  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    if (const base::Status status = home_->take_number(index); status != HEDDLE_DONE) return status;
    auto station = Station::create(*home_, index);
    if (!station) return station.status();
    return std::unique_ptr<TransportWorker>(std::make_unique<Worker>(*home_, std::move(*station)));
  }

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override { return home_->allocate(bytes); }
  void free(const LocalMemory& memory) override { home_->withdraw(memory.id); }
  [[nodiscard]] base::Result<LocalMemory> enroll(void* address, std::uint64_t bytes) override {
    return home_->enroll(address, bytes);
  }
  void withdraw(const LocalMemory& memory) override { home_->withdraw(memory.id); }

  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    if (rank >= home_->size()) {
      return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", rank, home_->size() - 1);
    }
    KeyBytes name;
    std::memcpy(&name, key.bytes.data(), sizeof name);
    if (name.magic != KeyBytes::kMagic || !sealed(name, home_->secret()) || name.rank != rank || name.zero != 0) {
      return base::fail(HEDDLE_ERR_PROTOCOL, "the bytes are not the key of a ucx region of rank %u", rank);
    }
    if (home_->failed(rank)) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
    auto memory = home_->import(rank, name);
    if (memory) memory->opcodes = kMemoryOpcodes;
    return memory;
  }
  void release(const RemoteMemory& memory) override { home_->release(memory); }

  [[nodiscard]] std::uint32_t bell() override { return home_->helper().bell().rings(); }
  void wait(std::uint32_t seen, std::int64_t timeout_ns) override { home_->helper().bell().wait(seen, timeout_ns); }
  void ring() override { home_->helper().bell().ring(); }

 private:
  bootstrap::Bootstrap& bootstrap_;
  std::unique_ptr<Home> home_;
  Capabilities capabilities_;
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto home = Home::create(bootstrap, environment);
  if (!home) return home.status();
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(bootstrap, std::move(*home)));
}

}  // namespace heddle::transport::ucx
