#include "transport/verbs/mailboxes.hpp"

#include <sys/mman.h>

#include <new>

namespace heddle::transport::verbs {

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
  auto* mailbox = new (chunk.memory + stride_ * used_++) Mailbox;
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

}  // namespace heddle::transport::verbs
