#include "transport/fault/fault.hpp"

#include <atomic>
#include <string>

#include "transport/fault/worker.hpp"

namespace heddle::transport::fault {
namespace {

class FaultTransport final : public ForwardingTransport {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, std::uint32_t rank, const Settings& settings, base::Clock& clock)
      : ForwardingTransport(std::move(inner)),
        rank_(rank),
        clock_(clock),
        settings_(settings),
        name_(std::string("fault+") + inner_->capabilities().name),
        capabilities_(inner_->capabilities()) {
    capabilities_.name = name_.c_str();
    capabilities_.direct = capabilities_.direct && !settings.any();
    capabilities_.copies_messages = false;  // commands that it holds back are not posted yet
    capabilities_.ordered_messages = capabilities_.ordered_messages && !settings.reorder;
  }

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

  [[nodiscard]] std::string describe() const override { return "fault+" + inner_->describe(); }
  [[nodiscard]] bool direct_to(std::uint32_t rank) const override {
    return capabilities_.direct && inner_->direct_to(rank);
  }

  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    auto inner = inner_->open_worker(index);
    if (!inner) return inner.status();
    // Far apart, so that ranks and workers do not share their random choices.
    const std::uint64_t seed = (settings_.seed * 65537 + rank_) * 65537 + index;
    return std::unique_ptr<TransportWorker>(std::make_unique<Worker>(std::move(*inner), settings_, seed, clock_));
  }

  // Direct memory of the inner transport becomes memory without commands: the protocol layer
  // reaches it by messages, to which the faults apply. With HEDDLE_FAULT_AGAIN every other import
  // gets AGAIN, as if the card were under way.
  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    if (settings_.again_percent > 0 && imports_.fetch_add(1, std::memory_order_relaxed) % 2 == 0) return HEDDLE_AGAIN;
    auto memory = inner_->try_import(rank, key);
    if (memory && settings_.any()) memory->direct = nullptr;
    return memory;
  }
  // These would bypass the decorator, as direct memory does.
  [[nodiscard]] SessionQueues* sessions() override { return settings_.any() ? nullptr : inner_->sessions(); }
  [[nodiscard]] BarrierGates* gates() override { return settings_.any() ? nullptr : inner_->gates(); }

 private:
  const std::uint32_t rank_;
  base::Clock& clock_;
  const Settings settings_;
  const std::string name_;
  Capabilities capabilities_;
  std::atomic<std::uint32_t> imports_{0};
};

}  // namespace

base::Result<std::unique_ptr<Transport>> decorate(std::unique_ptr<Transport> inner, std::uint32_t rank,
                                                  const base::Environment& environment) {
  const base::Config& config = environment.config;
  const Settings settings{config.number(base::Var::fault_seed), config.number(base::Var::fault_again),
                          config.number(base::Var::fault_delay), config.flag(base::Var::fault_reorder),
                          config.number(base::Var::fault_latency)};
  return std::unique_ptr<Transport>(
      std::make_unique<FaultTransport>(std::move(inner), rank, settings, *environment.clock));
}

}  // namespace heddle::transport::fault
