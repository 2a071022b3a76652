#include "transport/shm/shm.hpp"

#include <algorithm>
#include <optional>

#include "base/fence.hpp"
#include "transport/shm/adoption.hpp"
#include "transport/shm/device.hpp"
#include "transport/shm/port.hpp"

namespace heddle::transport::shm {
namespace {

// A message in many parts takes several turns of the ring, in each of which the sender and the
// receiver must poll. Measured: see docs/decisions/0020.
constexpr std::uint64_t kLeastFetchBytes = std::uint64_t{32} << 10;

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::unique_ptr<Device> device);
  ~ShmTransport() override;

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] base::Status check_peer(std::uint32_t rank) override { return device_->check_peer(rank); }
  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override;
  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override;
  void free(const LocalMemory& memory) override;
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) override;
  void deregister(const LocalMemory& memory) override { deregister(memory.id); }
  [[nodiscard]] base::Result<LocalMemory> adopt(void* address, std::uint64_t bytes) override;
  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override;
  [[nodiscard]] bool imports_late(std::uint32_t) const override { return true; }
  void prepare_import(std::uint32_t rank) override { device_->prepare_peer(rank); }
  [[nodiscard]] const queue::Bell<>* card_bell() const override { return device_->card_bell(); }
  void release(const RemoteMemory& memory) override;
  [[nodiscard]] std::span<std::atomic<std::uint64_t>> common_words() override;
  [[nodiscard]] std::uint32_t bell() override { return device_->bell().rings(); }
  void settle() override;
  [[nodiscard]] bool arm_stores() override {
    device_->arm_stores();
    return true;
  }
  [[nodiscard]] std::optional<queue::BellPull> stores_bell(std::uint32_t rank) override {
    return device_->stores_bell(rank);
  }
  void wait(std::uint32_t seen, std::int64_t timeout_ns, queue::Places places) override {
    device_->bell().wait(seen, timeout_ns, places);
  }
  void ring() override { device_->bell().ring(); }

 private:
  base::Result<LocalMemory> enter(const SegmentRegions::Region& region);
  void deregister(std::uint64_t id);
  base::Result<RemoteMemory> import_own(const RegionKey& key);
  base::Status map(PeerProcess& peer, const RegionKey& key, RemoteMemory* memory) const;

  std::unique_ptr<Device> device_;
  Capabilities capabilities_;
};

ShmTransport::ShmTransport(std::unique_ptr<Device> device) : device_(std::move(device)) {
  const Layout& layout = device_->layout();
  capabilities_.name = "shm";
  capabilities_.opcodes = bit(Opcode::message) | bit(Opcode::put) | bit(Opcode::get);
  capabilities_.direct = device_->environment().config.flag(base::Var::shm_direct);
  capabilities_.copies_messages = true;
  capabilities_.ordered_messages = true;
  capabilities_.max_message = queue::largest_record(layout.ring_capacity);
  capabilities_.max_transfer = std::uint64_t{1} << 46;
  capabilities_.fetch_bytes = std::max<std::uint64_t>(kLeastFetchBytes, capabilities_.max_message);
  capabilities_.max_workers = layout.max_workers;
  capabilities_.memory_per_peer = layout.ring_bytes;
  capabilities_.key_bytes = sizeof(RegionKey);
  capabilities_.sleeping = device_->membarrier() ? Sleeping::free : Sleeping::fenced;
  capabilities_.rings_all = true;
}

// Memory that is still adopted lives on, but not as a part of a segment that nobody owns.
ShmTransport::~ShmTransport() {
  while (const std::uint64_t id = device_->regions().any(RegionKind::adopted)) deregister(id);
}

std::string ShmTransport::describe() const {
  const auto is = [](bool on) { return on ? "on" : "off"; };
  const Layout& layout = device_->layout();
  return std::string("shm (direct ") + is(capabilities_.direct) + ", CMA " +
         (device_->cma_enabled() ? "allowed where the kernel does" : "off") + ", rings of " +
         std::to_string(layout.ring_bytes) + " bytes, membarrier " + is(device_->membarrier()) + ")";
}

// Called between arming and checking. Against senders that execute a fence, our fence is enough;
// the heavy one is for the other senders.
void ShmTransport::settle() {
  base::full_fence();
  Device::heavy_fence_if_wanted();
}

base::Result<std::unique_ptr<TransportWorker>> ShmTransport::open_worker(std::uint32_t index) {
  if (index >= capabilities_.max_workers) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "worker %u: there may be %u; raise HEDDLE_MAX_WORKERS (in all ranks)",
                      index, capabilities_.max_workers);
  }
  return make_worker(*device_, index);
}

base::Result<LocalMemory> ShmTransport::enter(const SegmentRegions::Region& region) {
  LocalMemory memory;
  memory.address = region.address;
  memory.bytes = region.bytes;
  memory.id = device_->regions().add(region);
  if (memory.id == 0) return base::fail(HEDDLE_ERR_NO_MEMORY, "a million regions of this rank are alive; release some");
  RegionKey key;
  key.kind = region.kind;
  key.id = memory.id;
  key.address = reinterpret_cast<std::uintptr_t>(region.address);
  key.bytes = region.bytes;
  key.offset = region.offset;
  memory.key = encode(key);
  return memory;
}

base::Result<LocalMemory> ShmTransport::allocate(std::uint64_t bytes) {
  if (bytes == 0) return base::fail(HEDDLE_ERR_ARGUMENT, "a region of 0 bytes; ask for at least 1");
  const auto extent = device_->segment().allocate(bytes);
  if (!extent) return extent.status();
  auto memory = enter({extent->address, bytes, extent->offset, RegionKind::allocated});
  if (!memory) device_->segment().free(extent->offset, bytes);
  return memory;
}

void ShmTransport::free(const LocalMemory& memory) {
  const auto region = device_->regions().remove(memory.id);
  if (region && region->kind == RegionKind::allocated) device_->segment().free(region->offset, region->bytes);
}

base::Result<LocalMemory> ShmTransport::register_memory(void* address, std::uint64_t bytes) {
  if (address == nullptr || bytes == 0) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "memory at %p of %llu bytes cannot be a region", address,
                      static_cast<unsigned long long>(bytes));
  }
  return enter({static_cast<std::byte*>(address), bytes, 0, RegionKind::registered});
}

base::Result<LocalMemory> ShmTransport::adopt(void* address, std::uint64_t bytes) {
  const WholePages pages = WholePages::of(reinterpret_cast<std::uintptr_t>(address), bytes);
  if (pages.bytes == 0 || !capabilities_.direct) return register_memory(address, bytes);
  const auto offset = move_in(device_->segment(), pages);
  if (!offset) return offset.status();
  try {
    auto memory = enter({static_cast<std::byte*>(address), bytes, *offset, RegionKind::adopted});
    if (!memory) move_out(device_->segment(), *offset, pages);
    return memory;
  } catch (...) {
    move_out(device_->segment(), *offset, pages);
    throw;
  }
}

void ShmTransport::deregister(std::uint64_t id) {
  const auto region = device_->regions().remove(id);
  if (!region || region->kind != RegionKind::adopted) return;
  const WholePages pages = WholePages::of(reinterpret_cast<std::uintptr_t>(region->address), region->bytes);
  if (move_out(device_->segment(), region->offset, pages)) return;
  device_->environment().log.line(base::Level::warn,
                                  "adopted memory at %p of %llu bytes was unmapped, moved, or cannot be put back now: "
                                  "its part of the shared segment is not used again",
                                  static_cast<void*>(region->address), static_cast<unsigned long long>(region->bytes));
}

base::Result<RemoteMemory> ShmTransport::import_own(const RegionKey& key) {
  const auto region = device_->regions().find(key.id);
  if (!region || region->bytes != key.bytes || region->kind != key.kind ||
      key.address != reinterpret_cast<std::uintptr_t>(region->address)) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "this key names no living region of this rank; was it released?");
  }
  RemoteMemory memory;
  memory.rank = device_->rank();
  memory.bytes = key.bytes;
  memory.direct = region->address;  // in our own address space, however it was registered
  return memory;
}

// handle: [0] address in the owner, [1] region id; extent to unmap at release: [2] offset, [3]
// bytes (0: none).
base::Result<RemoteMemory> ShmTransport::try_import(std::uint32_t rank, const MemoryKey& bytes) {
  if (rank >= device_->size()) {
    return base::fail(HEDDLE_ERR_RANK, "rank %u: the job has %u ranks", rank, device_->size());
  }
  const auto key = decode(bytes);
  if (!key) return key.status();
  if (rank == device_->rank()) return import_own(*key);
  if (device_->failed(rank)) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
  const auto peer = device_->peer(rank);
  if (!peer) return peer.status();
  RemoteMemory memory;
  memory.rank = rank;
  memory.bytes = key->bytes;
  memory.opcodes = bit(Opcode::put) | bit(Opcode::get);
  memory.handle = {key->address, key->id, 0, 0};
  if (key->kind == RegionKind::registered || !capabilities_.direct) return memory;

  if (const base::Status status = map(**peer, *key, &memory); status != HEDDLE_DONE) return status;
  return memory;
}

// Maps memory that lies in the peer's segment, wholly or except for its edges.
base::Status ShmTransport::map(PeerProcess& peer, const RegionKey& key, RemoteMemory* memory) const {
  const std::uint64_t page = page_bytes();
  std::uint64_t bytes = (key.bytes + page - 1) / page * page;
  if (key.kind == RegionKind::adopted) {
    const WholePages pages = WholePages::of(key.address, key.bytes);
    bytes = pages.bytes;
    memory->edge_before = pages.edge_before;
    memory->edge_after = pages.edge_after;
  }
  if (key.offset < device_->layout().control_bytes || bytes == 0) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a key of rank %u names its control part, or no whole page", peer.rank);
  }
  const auto mapped = peer.mapping->map(key.offset, bytes);
  if (!mapped) return mapped.status() == HEDDLE_ERR_RANGE ? HEDDLE_ERR_PROTOCOL : mapped.status();
  memory->direct = *mapped - memory->edge_before;
  if (memory->all_direct()) memory->opcodes = 0;
  memory->handle[2] = key.offset;
  memory->handle[3] = bytes;
  return HEDDLE_DONE;
}

std::span<std::atomic<std::uint64_t>> ShmTransport::common_words() {
  const auto first = device_->peer(0);
  if (!first) return {};
  return (*first)->control.common_words();
}

void ShmTransport::release(const RemoteMemory& memory) {
  if (memory.handle[3] == 0 || memory.rank >= device_->size() || memory.rank == device_->rank()) return;
  const auto peer = device_->peer(memory.rank);  // set up when the memory was imported
  if (peer) (*peer)->mapping->unmap(memory.handle[2], memory.handle[3]);
}

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto device = Device::create(bootstrap, environment);
  if (!device) return device.status();
  return std::unique_ptr<Transport>(new ShmTransport(std::move(*device)));
}

}  // namespace heddle::transport::shm
