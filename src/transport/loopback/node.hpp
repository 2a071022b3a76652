// The part of one rank that the others see: a mailbox for each of its workers, and its regions.
//
// Shared by the rank's own transport and by every peer that has read its card, so it outlives them
// all. close() ends the rank: from then on no command reaches its memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/cache_line.hpp"
#include "base/error.hpp"
#include "base/fence.hpp"
#include "bootstrap/bootstrap.hpp"
#include "queue/bell.hpp"
#include "transport/agreed.hpp"
#include "transport/common/rejections.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::loopback {

inline constexpr std::uint32_t kMaxMessage = 4096;
inline constexpr std::size_t kMailboxPackets = 64;

// A message, owned. Words, so that the data is 8-byte aligned.
struct Packet {
  std::unique_ptr<std::uint64_t[]> words;
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  std::uint32_t rank = 0;
  std::uint32_t worker = 0;
};

struct SenderId {
  std::uint32_t rank;
  std::uint32_t worker;
};

// The messages for one worker, in the order of arrival. Any thread puts, the worker's thread takes.
class Mailbox {
 public:
  // False: full, or no memory. A message for a worker that was closed is dropped. Rings the bell,
  // if there is one, if the mailbox is armed.
  [[nodiscard]] bool put(const Command& message, SenderId from, const queue::Bell<>* bell = nullptr);
  // The next put() rings.
  void arm() {
    const std::lock_guard lock(mutex_);
    armed_ = true;
  }
  [[nodiscard]] bool armed() {
    const std::lock_guard lock(mutex_);
    return armed_;
  }
  [[nodiscard]] bool empty() {
    const std::lock_guard lock(mutex_);
    return count_ == 0;
  }
  // Moves at most `most` packets to the end of `packets`.
  void take(std::size_t most, std::vector<Packet>* packets);
  // False: it was opened before.
  [[nodiscard]] bool open();
  void close();
  [[nodiscard]] bool closed() {
    const std::lock_guard lock(mutex_);
    return state_ == State::closed;
  }
  // If the mailbox was never opened: the number of messages from that sender. 0: it was opened.
  [[nodiscard]] std::uint64_t unopened(SenderId from);

 private:
  enum class State : std::uint8_t { unopened, open, closed };

  std::mutex mutex_;  // guards everything below
  State state_ = State::unopened;
  bool armed_ = false;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::array<Packet, kMailboxPackets> ring_;
};

struct FreePages {
  void operator()(std::byte* pages) const { ::operator delete(pages, std::align_val_t{base::kLargestPage}); }
};
using Pages = std::unique_ptr<std::byte, FreePages>;

// The last holder of a region or a node frees it. The reference count, which tells that it is the
// last, orders what the others did before; a ThreadSanitizer in the user's program is told that
// (base/fence.hpp).
struct HeldRegion {
  HeldRegion() = default;
  HeldRegion(const HeldRegion&) = delete;
  HeldRegion& operator=(const HeldRegion&) = delete;
  ~HeldRegion() { base::show_acquire(this); }  // partner: LetGo

  std::mutex mutex;              // held during every access; guards `address`
  std::byte* address = nullptr;  // null: deregistered
  std::uint64_t bytes = 0;       // constant
  Pages pages;                   // allocated regions
};

// Declare it after a shared pointer to such an object: its destructor then runs before the pointer
// lets go of the object.
template <class T>
class LetGo {
 public:
  explicit LetGo(T* object) : object_(object) {}
  LetGo(const LetGo&) = delete;
  LetGo& operator=(const LetGo&) = delete;
  ~LetGo() {
    if (object_ != nullptr) base::show_release(object_);
  }

 private:
  T* object_;
};

class Node {
 public:
  // `common`: see Bootstrap::common_bell(). It is not rung after close().
  Node(std::uint32_t rank, std::uint32_t workers, const queue::Bell<>* common)
      : rank_(rank), mailboxes_(workers), bell_(common != nullptr ? *common : queue::Bell<>(&bell_words_)) {}

  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() { base::show_acquire(this); }  // partner: Ranks::~Ranks

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t workers() const { return static_cast<std::uint32_t>(mailboxes_.size()); }
  [[nodiscard]] Mailbox& mailbox(std::uint32_t worker) { return mailboxes_[worker]; }
  // The bell that the rank's threads sleep on.
  [[nodiscard]] const queue::Bell<>& bell() const { return bell_; }

  [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_acquire); }
  // The rank is gone: deregisters all regions and closes all mailboxes.
  void close();

  // The new region's number.
  std::uint64_t add(std::byte* address, std::uint64_t bytes, Pages pages);
  // Waits for accesses that are under way; afterwards there is none. An unknown number has no
  // effect.
  void remove(std::uint64_t region);
  // The bytes of the region; 0: there is none with that number.
  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t region);

  // Calls access(address) while [offset, offset + bytes) of the region is held in place. RANGE:
  // that is not inside, or the region was deregistered. PEER_FAILED: the rank is gone.
  template <class Access>
  base::Status with(std::uint64_t number, std::uint64_t offset, std::uint64_t bytes, Access access) {
    const std::shared_ptr<HeldRegion> region = find(number);
    const LetGo let_go(region.get());
    if (region != nullptr) {
      const std::lock_guard lock(region->mutex);
      if (region->address != nullptr) {
        if (offset <= region->bytes && bytes <= region->bytes - offset) return access(region->address + offset);
        return fail_outside(region->bytes, offset, bytes);
      }
    }
    return fail_gone();
  }

 private:
  std::shared_ptr<HeldRegion> find(std::uint64_t number);
  base::Status fail_outside(std::uint64_t size, std::uint64_t offset, std::uint64_t bytes) const;
  base::Status fail_gone() const;

  const std::uint32_t rank_;
  std::vector<Mailbox> mailboxes_;
  queue::BellWords<> bell_words_;  // for a bell of its own
  const queue::Bell<> bell_;
  // release in close(), first; partner: the acquire load in closed()
  std::atomic<bool> closed_{false};
  std::mutex mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, std::shared_ptr<HeldRegion>> regions_;
  std::uint64_t next_ = 0;
};

// How a loopback rank finds the others: through the object in their cards.

// The nodes of the job whose cards this rank has read. Any thread.
class Ranks {
 public:
  Ranks(bootstrap::Bootstrap& bootstrap, std::shared_ptr<Node> self, const Agreed& agreed);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Valid as long as this object. AGAIN: the peer has not published its card yet. RANK,
  // PEER_FAILED, CONFIG, VERSION.
  [[nodiscard]] base::Result<Node*> get(std::uint32_t rank);
  // Null: its card is not read yet, or no such rank.
  [[nodiscard]] Node* find(std::uint32_t rank) const {
    return rank < known_.size() ? known_[rank].load(std::memory_order_acquire) : nullptr;
  }
  // Shows this rank's own node to the others.
  [[nodiscard]] base::Status publish();
  [[nodiscard]] std::size_t size() const { return known_.size(); }
  // Known to have died or left.
  [[nodiscard]] bool failed(std::uint32_t rank) const { return bootstrap_.failed(rank); }

 private:
  base::Result<Node*> meet(std::uint32_t rank);

  bootstrap::Bootstrap& bootstrap_;
  const Agreed agreed_;
  // release in meet(); partner: the acquire loads in get() and find()
  std::vector<std::atomic<Node*>> known_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<Node>> owned_;
};

inline constexpr std::uint32_t kRegionKeyBytes = 32;

// The name of a loopback region as key bytes, sealed with the job's secret so that no other bytes
// pass for a key.
struct RegionName {
  std::uint32_t rank = 0;
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
};

MemoryKey encode_key(const RegionName& name, const bootstrap::JobSecret& secret);

// Empty: not a key of this job, or one whose bits or padding were changed.
std::optional<RegionName> decode_key(const MemoryKey& key, const bootstrap::JobSecret& secret);

// The port of the loopback transport, which is what a worker has of it. One thread at a time.
class Port final : public TransportWorker {
 public:
  Port(Ranks& ranks, Node& node, std::uint32_t index, std::uint32_t opcodes);
  ~Port() override { mailbox_.close(); }

  [[nodiscard]] std::size_t post(std::span<Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override;
  void peer_failed(std::uint32_t rank) override;
  [[nodiscard]] bool closed(Target target) override;
  [[nodiscard]] bool arm() override {
    mailbox_.arm();
    return failures_.empty();
  }
  [[nodiscard]] bool armed() const override { return mailbox_.armed(); }
  // The mailbox's mutex orders arming and putting: nothing is left for settle().
  [[nodiscard]] bool has_arrivals() override { return !mailbox_.empty(); }
  [[nodiscard]] bool has_untaken() override { return !mailbox_.empty(); }
  [[nodiscard]] std::size_t unopened(std::span<Unopened> found) override;

 private:
  static constexpr std::size_t kMostFailures = 256;

  bool post_one(Command& command);
  // DONE, AGAIN (not accepted) or the error that it completes with.
  base::Status execute(Command& command);
  base::Status send(Node& node, const Command& command);
  base::Status access(Node& node, const Command& command);

  Ranks& ranks_;
  Mailbox& mailbox_;
  const std::uint32_t rank_;
  const std::uint32_t index_;
  const std::uint32_t opcodes_;
  std::vector<std::uint8_t> failed_;  // by rank
  Backlog failures_{kMostFailures};
  std::vector<Packet> lent_;  // handed out by the last poll; at most kMailboxPackets
};

}  // namespace heddle::transport::loopback
