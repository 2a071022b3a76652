#include "transport/loopback/loopback.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <new>

#include "base/fence.hpp"
#include "memory/regions.hpp"
#include "transport/common/rejections.hpp"
#include "transport/loopback/node.hpp"

namespace heddle::transport::loopback {

namespace {

template <class Word>
bool is_word(const std::byte* address, std::uint64_t bytes) {
  return bytes == sizeof(Word) && reinterpret_cast<std::uintptr_t>(address) % sizeof(Word) == 0;
}

template <class Word>
void store_word(std::byte* target, const void* source) {
  Word value = 0;
  std::memcpy(&value, source, sizeof value);
  base::show_release(target);
  std::atomic_ref<Word>(*reinterpret_cast<Word*>(target)).store(value, std::memory_order_release);
}

template <class Word>
void load_word(void* destination, std::byte* source) {
  const Word value = std::atomic_ref<Word>(*reinterpret_cast<Word*>(source)).load(std::memory_order_acquire);
  std::memcpy(destination, &value, sizeof value);
}

base::Status put(std::byte* target, const Command& command) {
  if (is_word<std::uint64_t>(target, command.bytes)) {
    store_word<std::uint64_t>(target, command.local);
  } else if (is_word<std::uint32_t>(target, command.bytes)) {
    store_word<std::uint32_t>(target, command.local);
  } else if (command.bytes != 0) {
    std::memmove(target, command.local, command.bytes);  // in one process the two may overlap
  }
  return HEDDLE_DONE;
}

base::Status get(std::byte* source, const Command& command) {
  if (is_word<std::uint64_t>(source, command.bytes)) {
    load_word<std::uint64_t>(command.local, source);
  } else if (is_word<std::uint32_t>(source, command.bytes)) {
    load_word<std::uint32_t>(command.local, source);
  } else if (command.bytes != 0) {
    std::memmove(command.local, source, command.bytes);
  }
  return HEDDLE_DONE;
}

template <class Word>
base::Status change(std::byte* target, const Command& command) {
  const Word old = memory::execute(command.atomic_op, target, static_cast<Word>(command.operand),
                                   static_cast<Word>(command.compare));
  if (command.local != nullptr) std::memcpy(command.local, &old, sizeof old);
  return HEDDLE_DONE;
}

base::Status update(std::byte* target, const Command& command) {
  const std::uint64_t begin = reinterpret_cast<std::uintptr_t>(target) - command.offset;
  if (const base::Status status = check_atomic(command, begin); status != HEDDLE_DONE) return status;
  return command.bytes == 8 ? change<std::uint64_t>(target, command) : change<std::uint32_t>(target, command);
}

}  // namespace

Port::Port(Ranks& ranks, Node& node, std::uint32_t index, std::uint32_t opcodes)
    : ranks_(ranks),
      mailbox_(node.mailbox(index)),
      rank_(node.rank()),
      index_(index),
      opcodes_(opcodes),
      failed_(ranks.size()) {
  lent_.reserve(kMailboxPackets);
}

// False: not accepted.
bool Port::post_one(Command& command) {
  if (failures_.full()) return false;
  const base::Status status = execute(command);
  if (status != HEDDLE_DONE) return failures_.reject(command, status);
  command.done = true;
  command.source_free = true;
  return true;
}

std::size_t Port::post(std::span<Command> batch) {
  std::size_t accepted = 0;
  try {
    while (accepted < batch.size() && post_one(batch[accepted])) ++accepted;
  } catch (const std::bad_alloc&) {
    if (accepted == 0) throw;
  }
  return accepted;
}

base::Status Port::execute(Command& command) {
  if ((opcodes_ & bit(command.opcode)) == 0) {
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "this transport has no such command; see its capabilities");
  }
  if (command.rank < failed_.size() && failed_[command.rank] != 0) return HEDDLE_ERR_PEER_FAILED;
  const auto node = ranks_.get(command.rank);
  if (!node) return node.status();
  return command.opcode == Opcode::message ? send(**node, command) : access(**node, command);
}

base::Status Port::send(Node& node, const Command& command) {
  if (node.closed()) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has left the job", node.rank());
  if (command.worker >= node.workers()) {
    return base::fail(HEDDLE_ERR_RANK, "worker %u of rank %u; there are at most %u", command.worker, node.rank(),
                      node.workers());
  }
  if (const base::Status status = check_message(command, kMaxMessage, "loopback"); status != HEDDLE_DONE) return status;
  return node.mailbox(command.worker).put(command, {rank_, index_}, &node.bell()) ? HEDDLE_DONE : HEDDLE_AGAIN;
}

base::Status Port::access(Node& node, const Command& command) {
  if (const base::Status status = check_remote(command); status != HEDDLE_DONE) return status;
  return node.with(command.remote->handle[0], command.offset, command.bytes, [&](std::byte* address) {
    if (command.opcode == Opcode::put) return put(address, command);
    if (command.opcode == Opcode::get) return get(address, command);
    return update(address, command);
  });
}

std::size_t Port::poll(std::span<Completion> completions) {
  lent_.clear();
  const std::size_t failures = failures_.drain(completions);
  mailbox_.take(completions.size() - failures, &lent_);
  for (std::size_t i = 0; i < lent_.size(); ++i) {
    const Packet& packet = lent_[i];
    Completion& completion = completions[failures + i];
    completion = Completion{};
    completion.event = Event::message;
    completion.data = reinterpret_cast<const std::byte*>(packet.words.get());
    completion.bytes = packet.bytes;
    completion.immediate = packet.immediate;
    completion.rank = packet.rank;
    completion.worker = packet.worker;
  }
  return failures + lent_.size();
}

bool Port::closed(Target target) {
  Node* node = ranks_.find(target.rank);
  return node != nullptr && target.worker < node->workers() && node->mailbox(target.worker).closed();
}

std::size_t Port::unopened(std::span<Unopened> found) {
  std::size_t count = 0;
  for (std::uint32_t rank = 0; rank < failed_.size(); ++rank) {
    Node* node = failed_[rank] == 0 ? ranks_.find(rank) : nullptr;
    for (std::uint32_t worker = 0; node != nullptr && worker < node->workers(); ++worker) {
      const std::uint64_t messages = node->mailbox(worker).unopened({rank_, index_});
      if (messages == 0) continue;
      if (count == found.size()) return count;
      found[count++] = {{rank, worker}, messages};
    }
  }
  return count;
}

void Port::peer_failed(std::uint32_t rank) {
  if (rank < failed_.size()) failed_[rank] = 1;
}

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
    return std::unique_ptr<TransportWorker>(std::make_unique<Port>(ranks_, *node_, index, capabilities_.opcodes));
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
