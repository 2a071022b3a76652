#include "transport/loopback/loopback.hpp"

#include <cstring>
#include <limits>

#include "transport/common/checks.hpp"
#include "transport/loopback/key.hpp"
#include "transport/loopback/node.hpp"
#include "transport/loopback/ranks.hpp"
#include "transport/loopback/worker.hpp"

namespace heddle::transport::loopback {

namespace {

constexpr std::uint64_t kFetchBytes = std::uint64_t{32} << 10;

class Loopback final : public Transport {
 public:
  Loopback(bootstrap::Bootstrap& bootstrap, std::uint32_t workers, const Agreed& agreed, bool messages_only)
      : node_(std::make_shared<Node>(bootstrap.rank(), workers, bootstrap.common_bell())),
        ranks_(bootstrap, node_, agreed),
        secret_(bootstrap.secret()),
        bootstrap_(bootstrap) {
    const std::uint32_t memory_opcodes = messages_only ? 0 : bit(Opcode::put) | bit(Opcode::get) | bit(Opcode::atomic);
    capabilities_.name = messages_only ? "loopback-messages" : "loopback";
    capabilities_.opcodes = bit(Opcode::message) | memory_opcodes;
    capabilities_.copies_messages = true;
    capabilities_.ordered_messages = true;
    capabilities_.max_message = kMaxMessage;
    capabilities_.max_transfer = messages_only ? 0 : std::numeric_limits<std::uint64_t>::max();
    capabilities_.fetch_bytes = messages_only ? 0 : kFetchBytes;
    capabilities_.max_workers = workers;
    // of a mailbox, which all its senders share
    capabilities_.memory_per_peer = kMailboxPackets * kMaxMessage;
    // nothing more than the mutex that every message takes here
    capabilities_.sleeping = Sleeping::free;
    capabilities_.key_bytes = kRegionKeyBytes;
    memory_opcodes_ = memory_opcodes;
    bootstrap_.set_bell(&node_->bell());
  }
  ~Loopback() override {
    bootstrap_.set_bell(nullptr);
    node_->close();
  }

  [[nodiscard]] base::Status publish() { return ranks_.publish(); }

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

  [[nodiscard]] base::Result<std::unique_ptr<TransportWorker>> open_worker(std::uint32_t index) override {
    if (index >= node_->workers()) {
      return base::fail(HEDDLE_ERR_RANK, "worker %u; HEDDLE_MAX_WORKERS allows 0 to %u", index, node_->workers() - 1);
    }
    if (!node_->mailbox(index).open()) {
      return base::fail(HEDDLE_ERR_STATE, "worker %u was opened before; numbers are not reused", index);
    }
    return std::unique_ptr<TransportWorker>(std::make_unique<Worker>(ranks_, *node_, index, capabilities_.opcodes));
  }

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes) override {
    if (bytes == 0) return base::fail(HEDDLE_ERR_ARGUMENT, "a region of 0 bytes; at least 1 is needed");
    // An impossible length must not reach operator new, which would take it for a bug.
    constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
    Pages pages(bytes > kMost ? nullptr
                              : static_cast<std::byte*>(
                                    ::operator new(bytes, std::align_val_t{base::kLargestPage}, std::nothrow)));
    if (pages == nullptr) {
      return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for a region of %llu bytes",
                        static_cast<unsigned long long>(bytes));
    }
    std::memset(pages.get(), 0, bytes);
    std::byte* address = pages.get();
    return enter(address, bytes, std::move(pages));
  }
  void free(const LocalMemory& memory) override { node_->remove(memory.id); }

  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes) override {
    if (address == nullptr || bytes == 0) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "a region of %llu bytes at %p; give memory of at least 1 byte",
                        static_cast<unsigned long long>(bytes), address);
    }
    return enter(static_cast<std::byte*>(address), bytes, nullptr);
  }
  void deregister(const LocalMemory& memory) override { node_->remove(memory.id); }

  [[nodiscard]] base::Result<RemoteMemory> try_import(std::uint32_t rank, const MemoryKey& key) override {
    if (rank >= ranks_.size()) {
      return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %zu", rank, ranks_.size() - 1);
    }
    const auto name = decode_key(key, secret_);
    if (!name || name->rank != rank) {
      return fail_key("loopback", rank);
    }
    if (ranks_.failed(rank)) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
    const auto node = ranks_.get(rank);
    if (!node) return node.status();
    if ((*node)->bytes_of(name->id) != name->bytes) {
      return base::fail(HEDDLE_ERR_PROTOCOL, "rank %u has no region with this key; it may have been released", rank);
    }
    RemoteMemory memory;
    memory.opcodes = memory_opcodes_;
    memory.rank = rank;
    memory.bytes = name->bytes;
    memory.handle[0] = name->id;
    return memory;
  }
  void release(const RemoteMemory&) override {}  // it holds nothing

  [[nodiscard]] std::uint32_t bell() override { return node_->bell().rings(); }
  void wait(std::uint32_t seen, std::int64_t timeout_ns, queue::Places places) override {
    node_->bell().wait(seen, timeout_ns, places);
  }
  void ring() override { node_->bell().ring(); }

 private:
  base::Result<LocalMemory> enter(std::byte* address, std::uint64_t bytes, Pages pages) {
    LocalMemory memory;
    memory.address = address;
    memory.bytes = bytes;
    memory.id = node_->add(address, bytes, std::move(pages));
    memory.key = encode_key({node_->rank(), memory.id, bytes}, secret_);
    return memory;
  }

  std::shared_ptr<Node> node_;
  Ranks ranks_;
  bootstrap::JobSecret secret_;
  bootstrap::Bootstrap& bootstrap_;
  Capabilities capabilities_;
  std::uint32_t memory_opcodes_ = 0;
};

base::Result<std::unique_ptr<Transport>> open_as(bootstrap::Bootstrap& bootstrap, const base::Environment& environment,
                                                 bool messages_only) {
  const auto workers = static_cast<std::uint32_t>(environment.config.number(base::Var::max_workers));
  auto transport = std::make_unique<Loopback>(bootstrap, workers, agreed_of(environment.config), messages_only);
  if (const base::Status status = transport->publish(); status != HEDDLE_DONE) return status;
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  return open_as(bootstrap, environment, false);
}

base::Result<std::unique_ptr<Transport>> open_messages_only(bootstrap::Bootstrap& bootstrap,
                                                            const base::Environment& environment) {
  return open_as(bootstrap, environment, true);
}

}  // namespace heddle::transport::loopback
