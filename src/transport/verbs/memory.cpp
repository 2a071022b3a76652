#include "transport/verbs/memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <utility>

#include "transport/network/transport.hpp"
#include "transport/verbs/device.hpp"

namespace heddle::transport::verbs {

base::Status OwnMemory::open(const Adapter& adapter, std::size_t bytes, int rights) {
  const auto mapped = network::map_memory(bytes);
  if (!mapped) return mapped.status();
  adapter_ = &adapter;
  begin_ = static_cast<std::byte*>(*mapped);
  bytes_ = bytes;
  registered_ = (adapter.call().reg_mr)(adapter.domain(), begin_, bytes, rights);
  if (registered_ != nullptr) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_NO_MEMORY, "%s registers no memory (ulimit -l says how much it may)",
                          adapter.name().c_str());
}

void OwnMemory::close() {
  if (registered_ != nullptr) adapter_->call().dereg_mr(std::exchange(registered_, nullptr));
  if (begin_ != nullptr) network::unmap_memory(std::exchange(begin_, nullptr), bytes_);
}

void CallersMemory::open(const Adapter& adapter, const base::Environment& environment) {
  adapter_ = &adapter;
  const auto options = memory::RegistrationCache::Options::from(environment.config);
  cache_.emplace(static_cast<memory::Registrar&>(*this), memory::RegistrationCache::watch_for(options, environment.log),
                 options);
}

base::Status CallersMemory::register_memory(std::byte* begin, std::uint64_t bytes, memory::Access access,
                                            std::uint64_t* handle) {
  const int rights = access == memory::Access::write ? IBV_ACCESS_LOCAL_WRITE : 0;
  ibv_mr* registered = (adapter_->call().reg_mr)(adapter_->domain(), begin, bytes, rights);
  if (registered == nullptr) {
    return base::fail_errno(errno == ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                            "%llu bytes at %p cannot be registered with %s", static_cast<unsigned long long>(bytes),
                            static_cast<void*>(begin), adapter_->name().c_str());
  }
  *handle = reinterpret_cast<std::uintptr_t>(registered);
  return HEDDLE_DONE;
}

void CallersMemory::deregister(std::uint64_t handle) {
  adapter_->call().dereg_mr(registration(handle));
}

bool Mailboxes::add_chunk() try {
  chunks_.reserve(chunks_.size() + 1);
  const std::size_t bytes = stride_ * kChunk;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  ibv_mr* registered =
      (adapter_->call().reg_mr)(adapter_->domain(), memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (registered == nullptr) {
    ::munmap(memory, bytes);
    return false;
  }
  chunks_.push_back({static_cast<std::byte*>(memory), registered});
  used_ = 0;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

Mailboxes::Slot Mailboxes::take() {
  if (used_ == kChunk && !add_chunk()) return {};
  const Chunk& chunk = chunks_.back();
  auto* mailbox = new (chunk.memory + stride_ * used_++) MailboxHead;
  mailbox->credit.store(0, std::memory_order_relaxed);
  mailbox->consumed = 0;
  return {mailbox, chunk.registered->lkey, chunk.registered->rkey};
}

void Mailboxes::close() {
  for (const Chunk& chunk : chunks_) {
    adapter_->call().dereg_mr(chunk.registered);
    ::munmap(chunk.memory, stride_ * kChunk);
  }
  chunks_.clear();
  used_ = kChunk;
}

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

base::Result<LocalMemory> Regions::allocate(std::uint64_t bytes) {
  return network::map_region(*this, bytes);
}

void Regions::free(const LocalMemory& memory) {
  deregister(memory.id);
  network::unmap_memory(memory.address, memory.bytes);
}

base::Result<LocalMemory> Regions::register_memory(void* address, std::uint64_t bytes) {
  if (const base::Status status = network::check_memory(address, bytes); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  Registered& registered = regions_[next_];  // its memory first
  for (std::size_t i = 0; i < device_.adapters().size(); ++i) {
    const Adapter& adapter = *device_.adapters()[i];
    if (device_.goes_on_without(adapter)) continue;
    registered[i] = (adapter.call().reg_mr)(adapter.domain(), address, bytes, kAccess);
    if (registered[i] != nullptr) continue;
    const int why = errno;
    deregister(registered);
    regions_.erase(next_);
    errno = why;
    return base::fail_errno(why == ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                            "%llu bytes at %p cannot be registered with %s (ulimit -l says how much may be)",
                            static_cast<unsigned long long>(bytes), address, adapter.name().c_str());
  }
  KeyBytes key;
  for (std::size_t i = 0; i < device_.adapters().size(); ++i)
    key.rkeys[i] = registered[i] != nullptr ? registered[i]->rkey : 0;
  return network::describe_region(device_, address, bytes, next_++, key);
}

void Regions::deregister(const Registered& registered) const {
  for (ibv_mr* mr : registered) {
    if (mr != nullptr) device_.adapter().call().dereg_mr(mr);
  }
}

void Regions::deregister(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  deregister(found->second);
  regions_.erase(found);
}

void Regions::deregister_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, registered] : regions_) deregister(registered);
  regions_.clear();
}

base::Result<RemoteMemory> Regions::import(std::uint32_t rank, const MemoryKey& packed) const {
  const auto key = network::read_key<KeyBytes>(device_, rank, packed);
  if (!key) return key.status();
  RemoteMemory memory;
  memory.rank = rank;
  memory.bytes = key->bytes;
  memory.opcodes = bit(Opcode::put) | bit(Opcode::get);
  memory.handle = {std::uint64_t{key->rkeys[1]} << 32 | key->rkeys[0], key->address, 0, 0};
  return memory;
}

}  // namespace heddle::transport::verbs
