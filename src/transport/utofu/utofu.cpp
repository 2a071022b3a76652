#include "transport/utofu/utofu.hpp"

#include "transport/common/rejections.hpp"
#include "transport/utofu/gates.hpp"
#include "transport/utofu/port.hpp"
#include "transport/utofu/session.hpp"

namespace heddle::transport::utofu {
namespace {

// A longer message is better fetched by its receiver: the NIC moves it without a copy.
constexpr std::uint64_t kFetchBytes = std::uint64_t{8} << 10;

class UtofuTransport final : public Transport {
 public:
  explicit UtofuTransport(std::unique_ptr<Device> device) : device_(std::move(device)) {
    const Sizes sizes = device_->sizes(true);
    capabilities_.name = "utofu";
    capabilities_.opcodes = bit(Opcode::message) | kMemoryOpcodes;
    capabilities_.copies_messages = true;
    capabilities_.ordered_messages = true;
    capabilities_.max_message = kMostMessage;
    capabilities_.max_transfer = kMostTransfer;
    capabilities_.fetch_bytes = kFetchBytes;
    capabilities_.max_workers = device_->max_workers();
    capabilities_.one_thread = one_thread(device_->environment());
    capabilities_.memory_per_peer = sizes.ring_bytes();
    open_offloads();
  }

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

  [[nodiscard]] std::string describe() const override {
    const Sizes sizes = device_->sizes(true);
    return "utofu (" + std::to_string(device_->library().tnis()) + " TNIs, rings of " + std::to_string(sizes.slots) +
           " slots for " + std::to_string(sizes.rings) + " senders, " + std::to_string(sizes.operations) +
           " operations under way per worker)";
  }

  [[nodiscard]] base::Status check_peer(std::uint32_t rank) override { return device_->check_peer(rank); }

  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    Sizes sizes;
    auto own_vcq = device_->open_own_vcq(index, &sizes);
    if (!own_vcq) return own_vcq.status();
    auto worker = std::make_unique<Port>(*device_, std::move(*own_vcq), sizes, index);
    if (const base::Status status = worker->announce(); status != HEDDLE_DONE) return status;
    return std::unique_ptr<TransportWorker>(std::move(worker));
  }

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override {
    auto pages = Pages::create(bytes);
    if (!pages) return pages.status();
    std::byte* address = pages->data();
    return device_->register_memory(address, bytes, std::move(*pages));
  }
  void free(const LocalMemory& memory) override { device_->deregister(memory.id); }

  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) override {
    if (address == nullptr || bytes == 0) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "a region of %llu bytes at %p; give memory of at least 1 byte",
                        static_cast<unsigned long long>(bytes), address);
    }
    return device_->register_memory(address, bytes, {});
  }
  void deregister(const LocalMemory& memory) override { device_->deregister(memory.id); }

  // handle: [0] its ways, [1] the VCQ of the first of them, [2] address in the owner,
  // [3] number of offsets at which a word of 8 bytes is inside it.
  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    if (rank >= device_->size()) {
      return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", rank, device_->size() - 1);
    }
    KeyBytes name;
    std::memcpy(&name, key.bytes.data(), sizeof name);
    if (name.magic != KeyBytes::kMagic || !sealed(name, device_->secret()) || name.rank != rank) {
      return fail_key("utofu", rank);
    }
    if (device_->failed(rank)) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
    const auto peer = device_->peer(rank);
    if (!peer) return peer.status();
    RemoteMemory memory;
    memory.opcodes = kMemoryOpcodes;
    memory.rank = rank;
    memory.bytes = name.bytes;
    std::unique_ptr<Way[]> ways(new (std::nothrow) Way[kWays]);
    if (ways == nullptr) return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory to import a region of rank %u", rank);
    if (device_->ways_to(**peer, name, ways.get()) != HEDDLE_DONE) {
      return base::fail(HEDDLE_ERR_PROTOCOL, "the key names a VCQ or a number that rank %u does not have", rank);
    }
    memory.handle = {0, ways[0].vcq, name.address, name.bytes < 8 ? 0 : name.bytes - 7};
    memory.handle[0] = reinterpret_cast<std::uintptr_t>(ways.release());
    return memory;
  }
  void release(const RemoteMemory& memory) override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): as import() put it there
    delete[] reinterpret_cast<const Way*>(memory.handle[0]);
  }

  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const override { return device_->lost(rank); }

  [[nodiscard]] SessionQueues* sessions() override { return sessions_.get(); }
  [[nodiscard]] BarrierGates* gates() override { return gates_.get(); }

 private:
  // Any thread may poll session queues and gates, so with one_thread there are none.
  void open_offloads() {
    const base::Config& config = device_->environment().config;
    const bool sessions = config.number(base::Var::utofu_sessions) > 0 && device_->library().has_sessions();
    const bool gates = config.number(base::Var::utofu_gates) > 0 && device_->library().gate_words() > 0;
    if (capabilities_.one_thread) {
      if (sessions || gates) {
        device_->environment().log.line(base::Level::info,
                                        "HEDDLE_UTOFU_SINGLE_THREAD: no session queues and no barrier gates, since any "
                                        "thread polls them; software runs what they would");
      }
      return;
    }
    if (sessions) sessions_ = std::make_unique<Sessions>(*device_);
    if (gates) gates_ = std::make_unique<Gates>(*device_);
  }
  static constexpr std::uint32_t kMemoryOpcodes = bit(Opcode::put) | bit(Opcode::get) | bit(Opcode::atomic);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<Gates> gates_;
  Capabilities capabilities_;
};

}  // namespace

bool one_thread(const base::Environment& environment) {
  return environment.config.flag(base::Var::utofu_single_thread);
}

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto device = Device::create(bootstrap, environment);
  if (!device) return device.status();
  return std::unique_ptr<Transport>(std::make_unique<UtofuTransport>(std::move(*device)));
}

}  // namespace heddle::transport::utofu
