// The memory that peers write to: a mailbox for each peer, in registered memory. Mailboxes are made
// by the chunk, and stay until the port ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {

// The ring follows it.
struct Mailbox {
  // Up to where the peer has consumed the stream towards it, in bytes by cost_of(), modulo 2^32.
  // Its adapter writes it, after the peer has consumed; read with acquire, so that the next sends
  // come after it.
  std::atomic<std::uint32_t> credit;
  // The value that the own adapter writes into the peer's `credit`.
  std::uint32_t consumed;
  std::byte unused[56];

  [[nodiscard]] std::byte* ring() { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(sizeof(Mailbox) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

class Mailboxes {
 public:
  // `ring_bytes`: of each, a multiple of 64.
  explicit Mailboxes(std::uint32_t ring_bytes) : stride_(sizeof(Mailbox) + ring_bytes) {}
  ~Mailboxes() { close(); }
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  void open(const Adapter& adapter) { adapter_ = &adapter; }
  // The caller knows that no adapter writes into them any more.
  void close();

  struct Slot {
    Mailbox* mailbox = nullptr;  // null: there is no memory
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
  };
  // A mailbox for one more peer; it is not given back.
  [[nodiscard]] Slot take();

 private:
  static constexpr std::size_t kChunk = 8;
  struct Chunk {
    std::byte* memory;
    ibv_mr* registered;
  };
  bool add_chunk();

  const std::size_t stride_;
  const Adapter* adapter_ = nullptr;
  std::vector<Chunk> chunks_;
  std::size_t used_ = kChunk;  // of the last chunk
};

}  // namespace heddle::transport::verbs
