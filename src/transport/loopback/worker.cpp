#include "transport/loopback/worker.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/tsan_order.hpp"
#include "memory/atomics.hpp"
#include "transport/common/checks.hpp"

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

Worker::Worker(Ranks& ranks, Node& node, std::uint32_t index, std::uint32_t opcodes)
    : ranks_(ranks),
      mailbox_(node.mailbox(index)),
      rank_(node.rank()),
      index_(index),
      opcodes_(opcodes),
      failed_(ranks.size()) {
  lent_.reserve(kMailboxPackets);
}

// False: not accepted.
bool Worker::post_one(Command& command) {
  if (failures_.full()) return false;
  const base::Status status = execute(command);
  if (status != HEDDLE_DONE) return failures_.refuse(command, status);
  command.done = true;
  command.source_free = true;
  return true;
}

std::size_t Worker::post(std::span<Command> batch) {
  std::size_t accepted = 0;
  try {
    while (accepted < batch.size() && post_one(batch[accepted])) ++accepted;
  } catch (const std::bad_alloc&) {
    if (accepted == 0) throw;
  }
  return accepted;
}

base::Status Worker::execute(Command& command) {
  if ((opcodes_ & bit(command.opcode)) == 0) {
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "this transport has no such command; see its capabilities");
  }
  if (command.rank < failed_.size() && failed_[command.rank] != 0) return HEDDLE_ERR_PEER_FAILED;
  const auto node = ranks_.get(command.rank);
  if (!node) return node.status();
  return command.opcode == Opcode::message ? send(**node, command) : access(**node, command);
}

base::Status Worker::send(Node& node, const Command& command) {
  if (node.closed()) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has left the job", node.rank());
  if (command.worker >= node.workers()) {
    return base::fail(HEDDLE_ERR_RANK, "worker %u of rank %u; there are at most %u", command.worker, node.rank(),
                      node.workers());
  }
  if (const base::Status status = check_message(command, kMaxMessage, "loopback"); status != HEDDLE_DONE) return status;
  return node.mailbox(command.worker).put(command, {rank_, index_}, &node.bell()) ? HEDDLE_DONE : HEDDLE_AGAIN;
}

base::Status Worker::access(Node& node, const Command& command) {
  if (const base::Status status = check_remote(command); status != HEDDLE_DONE) return status;
  return node.with(command.remote->handle[0], command.offset, command.bytes, [&](std::byte* address) {
    if (command.opcode == Opcode::put) return put(address, command);
    if (command.opcode == Opcode::get) return get(address, command);
    return update(address, command);
  });
}

std::size_t Worker::poll(std::span<Completion> completions) {
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

bool Worker::closed(Target target) {
  Node* node = ranks_.find(target.rank);
  return node != nullptr && target.worker < node->workers() && node->mailbox(target.worker).closed();
}

std::size_t Worker::unopened(std::span<Unopened> found) {
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

void Worker::peer_failed(std::uint32_t rank) {
  if (rank < failed_.size()) failed_[rank] = 1;
}

}  // namespace heddle::transport::loopback
