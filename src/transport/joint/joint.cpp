#include "transport/joint/joint.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "bootstrap/nodes.hpp"
#include "transport/joint/share.hpp"
#include "transport/joint/worker.hpp"

namespace heddle::transport::joint {
namespace {

constexpr std::size_t kNear = 0;
constexpr std::size_t kFar = 1;
constexpr std::size_t kPartBytes = kWideKeyBytes / kWays;

class Joint final : public Transport {
 public:
  Joint(const Entry& near, const Entry& far, bootstrap::Bootstrap& bootstrap, const base::Environment& environment);

  ~Joint() override { bootstrap_.set_bell(nullptr); }

  base::Status open(const Entry& near, const Entry& far);

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] const char* way_to(std::uint32_t rank) const override { return of(rank).way_to(rank); }
  [[nodiscard]] bool direct_to(std::uint32_t rank) const override { return of(rank).direct_to(rank); }
  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const override { return of(rank).lost(rank); }
  [[nodiscard]] bool disconnected(std::uint32_t rank) const override { return of(rank).disconnected(rank); }
  [[nodiscard]] base::Status check_peer(std::uint32_t rank) override { return of(rank).check_peer(rank); }
  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override;
  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override;
  void free(const LocalMemory& memory) override;
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) override;
  [[nodiscard]] base::Result<LocalMemory> register_for(std::uint32_t rank, void* address, std::uint64_t bytes) override;
  void deregister(const LocalMemory& memory) override;
  [[nodiscard]] base::Result<LocalMemory> adopt(void* address, std::uint64_t bytes) override;
  [[nodiscard]] MemoryKey key_for(std::uint32_t rank, const WideKey& key) const override;
  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    return of(rank).try_import(rank, key);
  }
  [[nodiscard]] bool imports_late(std::uint32_t rank) const override { return of(rank).imports_late(rank); }
  void prepare_import(std::uint32_t rank) override { of(rank).prepare_import(rank); }
  // Both get their cards by one bootstrap.
  [[nodiscard]] const queue::Bell<>* card_bell() const override { return inner_[kNear]->card_bell(); }
  void release(const RemoteMemory& memory) override { of(memory.rank).release(memory); }
  [[nodiscard]] std::span<std::atomic<std::uint64_t>> common_words() override;
  // Both ring NEAR's bell.
  [[nodiscard]] std::uint32_t bell() override { return inner_[kNear]->bell(); }
  void settle() override {
    for (const auto& transport : inner_) transport->settle();
  }
  void wait(std::uint32_t seen, std::int64_t timeout_ns, queue::Places places) override {
    inner_[kNear]->wait(seen, timeout_ns, places);
  }
  void ring() override { inner_[kNear]->ring(); }

 private:
  // The parts of memory that is registered with one of the two, or with both.
  using Parts = std::array<const LocalMemory*, kWays>;

  [[nodiscard]] std::size_t way(std::uint32_t rank) const { return rank < ways_.size() ? ways_[rank] : kNear; }
  [[nodiscard]] Transport& of(std::uint32_t rank) const { return *inner_[way(rank)]; }
  base::Status combine_capabilities();
  base::Result<LocalMemory> add_far(base::Result<LocalMemory> near);
  static LocalMemory together(const Parts& parts);
  static LocalMemory part_of(const LocalMemory& memory, std::size_t way);
  static bool has_part(const LocalMemory& memory, std::size_t way);

  bootstrap::Bootstrap& bootstrap_;
  const base::Environment& environment_;
  Settings settings_;
  std::string name_;
  std::vector<std::uint8_t> ways_;  // by rank
  std::array<Share, kWays> shares_;
  std::array<std::unique_ptr<Transport>, kWays> inner_;  // destroyed before their shares
  Capabilities capabilities_;
};

Joint::Joint(const Entry& near, const Entry& far, bootstrap::Bootstrap& bootstrap, const base::Environment& environment)
    : bootstrap_(bootstrap),
      environment_(environment),
      settings_{{near.name, far.name},
                environment.config.number(base::Var::node_ranks),
                bootstrap::nodes_of(bootstrap, environment.config.number(base::Var::node_ranks))},
      name_(std::string(near.name) + "," + far.name),
      ways_(bootstrap.size()),
      shares_{Share(bootstrap, settings_, kNear), Share(bootstrap, settings_, kFar)} {
  for (std::uint32_t rank = 0; rank < ways_.size(); ++rank) {
    const bool here = settings_.nodes[rank] == settings_.nodes[bootstrap.rank()];
    ways_[rank] = static_cast<std::uint8_t>(here ? kNear : kFar);
  }
}

base::Status Joint::open(const Entry& near, const Entry& far) {
  const std::array<const Entry*, kWays> entries = {&near, &far};
  for (std::size_t way = 0; way < kWays; ++way) {
    auto opened = entries[way]->open(shares_[way], environment_);
    if (!opened) return opened.status();
    inner_[way] = std::move(*opened);
    if (way == kNear) shares_[kFar].set_common_bell(shares_[kNear].bell());
  }
  bootstrap_.set_bell(shares_[kNear].bell());
  if (const base::Status status = combine_capabilities(); status != HEDDLE_DONE) return status;
  return publish_both(bootstrap_, settings_, shares_[kNear], shares_[kFar]);
}

base::Status Joint::combine_capabilities() {
  const Capabilities& near = inner_[kNear]->capabilities();
  const Capabilities& far = inner_[kFar]->capabilities();
  for (const Capabilities* can : {&near, &far}) {
    if (can->key_bytes <= kPartBytes) continue;
    return base::fail(HEDDLE_ERR_CONFIG,
                      "%s cannot be joined with another transport: its keys have %u bytes, and %zu go in", can->name,
                      can->key_bytes, kPartBytes);
  }
  // 0: it has no such commands.
  const auto least = [](std::uint64_t a, std::uint64_t b) {
    return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
  };
  capabilities_.name = name_.c_str();
  // of some memory: each region says what it accepts
  capabilities_.opcodes = near.opcodes | far.opcodes;
  capabilities_.direct = near.direct || far.direct;
  capabilities_.copies_messages = near.copies_messages && far.copies_messages;
  capabilities_.ordered_messages = near.ordered_messages && far.ordered_messages;
  capabilities_.max_message = std::min(near.max_message, far.max_message);
  capabilities_.max_transfer = least(near.max_transfer, far.max_transfer);
  capabilities_.fetch_bytes = std::max(near.fetch_bytes, far.fetch_bytes);
  capabilities_.max_workers = std::min(near.max_workers, far.max_workers);
  static_assert(Sleeping::impossible < Sleeping::fenced && Sleeping::fenced < Sleeping::free);
  capabilities_.sleeping = std::min(near.sleeping, far.sleeping);
  capabilities_.one_thread = near.one_thread || far.one_thread;
  capabilities_.memory_per_peer = std::max(near.memory_per_peer, far.memory_per_peer);
  capabilities_.key_bytes = kWideKeyBytes;
  return HEDDLE_DONE;
}

std::string Joint::describe() const {
  const auto near = std::count(ways_.begin(), ways_.end(), std::uint8_t{kNear});
  return std::to_string(near) + " ranks of this node by " + inner_[kNear]->describe() + "; " +
         std::to_string(static_cast<long>(ways_.size()) - near) + " others by " + inner_[kFar]->describe();
}

base::Result<std::unique_ptr<TransportWorker>> Joint::open_worker(std::uint32_t index) {
  std::array<std::unique_ptr<TransportWorker>, kWays> workers;
  for (std::size_t way = 0; way < kWays; ++way) {
    auto opened = inner_[way]->open_worker(index);
    if (!opened) return opened.status();
    workers[way] = std::move(*opened);
  }
  return std::unique_ptr<TransportWorker>(
      std::make_unique<Worker>(std::move(workers), ways_, capabilities_.max_message, *environment_.clock));
}

// ---- memory: what the two know of it, in one record

LocalMemory Joint::together(const Parts& parts) {
  LocalMemory memory;
  for (std::size_t way = 0; way < kWays; ++way) {
    const LocalMemory* part = parts[way];
    if (part == nullptr) continue;
    memory.address = part->address;
    memory.bytes = part->bytes;
    (way == kNear ? memory.id : memory.second_id) = part->id;
    std::copy_n(part->key.bytes.begin(), kPartBytes, memory.key.bytes.begin() + way * kPartBytes);
  }
  return memory;
}

LocalMemory Joint::part_of(const LocalMemory& memory, std::size_t way) {
  LocalMemory part;
  part.address = memory.address;
  part.bytes = memory.bytes;
  part.id = way == kNear ? memory.id : memory.second_id;
  std::copy_n(memory.key.bytes.begin() + way * kPartBytes, kPartBytes, part.key.bytes.begin());
  return part;
}

// A key is never all zeros.
bool Joint::has_part(const LocalMemory& memory, std::size_t way) {
  const auto begin = memory.key.bytes.begin() + way * kPartBytes;
  return std::any_of(begin, begin + kPartBytes, [](std::byte byte) { return byte != std::byte{0}; });
}

MemoryKey Joint::key_for(std::uint32_t rank, const WideKey& key) const {
  MemoryKey narrow;
  std::copy_n(key.bytes.begin() + way(rank) * kPartBytes, kPartBytes, narrow.bytes.begin());
  return narrow;
}

base::Result<LocalMemory> Joint::allocate(std::uint64_t bytes) {
  auto near = inner_[kNear]->allocate(bytes);
  if (!near) return near.status();
  const auto far = inner_[kFar]->register_memory(near->address, near->bytes);
  if (far) return together({&*near, &*far});
  inner_[kNear]->free(*near);
  return far.status();
}

void Joint::free(const LocalMemory& memory) {
  inner_[kFar]->deregister(part_of(memory, kFar));
  inner_[kNear]->free(part_of(memory, kNear));
}

base::Result<LocalMemory> Joint::register_memory(void* address, std::uint64_t bytes) {
  return add_far(inner_[kNear]->register_memory(address, bytes));
}

base::Result<LocalMemory> Joint::adopt(void* address, std::uint64_t bytes) {
  return add_far(inner_[kNear]->adopt(address, bytes));
}

// FAR registers the memory last and deregisters it first: it may hold the pages that NEAR has put
// there.
base::Result<LocalMemory> Joint::add_far(base::Result<LocalMemory> near) {
  if (!near) return near.status();
  const auto far = inner_[kFar]->register_memory(near->address, near->bytes);
  if (far) return together({&*near, &*far});
  inner_[kNear]->deregister(*near);
  return far.status();
}

base::Result<LocalMemory> Joint::register_for(std::uint32_t rank, void* address, std::uint64_t bytes) {
  auto part = of(rank).register_for(rank, address, bytes);
  if (!part) return part.status();
  Parts parts{};
  parts[way(rank)] = &*part;
  return together(parts);
}

void Joint::deregister(const LocalMemory& memory) {
  for (const std::size_t way : {kFar, kNear}) {
    if (has_part(memory, way)) inner_[way]->deregister(part_of(memory, way));
  }
}

// Every rank has such a word, so there are words only if all ranks are near.
std::span<std::atomic<std::uint64_t>> Joint::common_words() {
  const bool all_near = std::all_of(ways_.begin(), ways_.end(), [](std::uint8_t way) { return way == kNear; });
  if (!all_near) return {};
  return inner_[kNear]->common_words();
}

}  // namespace

base::Result<std::unique_ptr<Transport>> open(const Entry& near, const Entry& far, bootstrap::Bootstrap& bootstrap,
                                              const base::Environment& environment) {
  if (far.one_node) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "%s reaches ranks of its own node only, and ranks are on others (or HEDDLE_NODE_RANKS says so); "
                      "name another transport behind the comma of HEDDLE_TRANSPORTS",
                      far.name);
  }
  auto joint = std::make_unique<Joint>(near, far, bootstrap, environment);
  if (const base::Status status = joint->open(near, far); status != HEDDLE_DONE) return status;
  return std::unique_ptr<Transport>(std::move(joint));
}

}  // namespace heddle::transport::joint
