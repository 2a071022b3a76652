// What a port knows of one worker of a peer: both directions of its stream of messages, and the
// transfers under way to it.
//
// Invariants of a stream, in bytes by cost_of(), modulo 2^32:
//   sender:   sent - acked <= window;  receiver: told <= consumed <= arrived <= consumed + window
//   acked (here) <= told (there) and arrived (there) <= sent (here)
//   acked <= delivered <= sent; messages before `delivered` are in the receiver's memory, and
//   completed
//   A record begins at the end of the one before it, or at 0 if that end is at a window or beyond;
//   the ring is longer than a window by one record, so a record never overlaps one that is not
//   consumed.
//
// sent (as `position`), consumed and arrived are in `next`: a message carries their values at the
// time it leaves.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "transport/ucx/common.hpp"
#include "transport/ucx/wire.hpp"

namespace heddle::transport::ucx {

class Port;
struct PeerState;

// Linked by `next`.
template <class T>
struct List {
  T* first = nullptr;
  T* last = nullptr;
  [[nodiscard]] bool empty() const { return first == nullptr; }
  void append(T* item) {
    item->next = nullptr;
    (last == nullptr ? first : last->next) = item;
    last = item;
  }
  T* take() {
    T* item = first;
    first = item->next;
    if (first == nullptr) last = nullptr;
    return item;
  }
};

// Items of one kind that are taken and given back.
template <class T>
class Pool {
 public:
  explicit Pool(std::uint32_t count) : items_(new T[count]), count_(count) {
    for (std::uint32_t i = count; i-- > 0;) give_back(&items_[i]);
  }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] std::span<T> all() const { return {items_.get(), count_}; }
  // The item that take() returns next; null: there is none.
  [[nodiscard]] T* front() const { return free_; }
  T* take() {
    T* item = free_;
    free_ = item->next;
    return item;
  }
  void give_back(T* item) {
    item->next = free_;
    free_ = item;
  }

 private:
  std::unique_ptr<T[]> items_;
  std::uint32_t count_;
  T* free_ = nullptr;
};

// A put, get or atomic under way.
struct Transfer {
  enum : std::uint32_t {
    active = 1,
    local_done = 2,  // UCX has finished with the caller's memory
    flushed = 4,     // it is in the target's memory; set from the start for gets and atomics
    is_put = 8,
    orphan = 16,       // reported as failed; UCX still has it
    owes_source = 32,  // source_free was asked for and not reported yet
    failed = 64        // `status` says how
  };
  Transfer* next = nullptr;  // in the pool, or in a peer state's puts
  PeerState* peer = nullptr;
  Port* port = nullptr;
  Token token = 0;
  void* request = nullptr;  // UCX's, until local_done
  std::uint32_t flags = 0;  // 0: free
  // How many puts it stands for: those with one token share a slot once their source is free.
  std::uint32_t count = 1;
  base::Status status = HEDDLE_DONE;
  // For atomics. UCX writes the result here and not to the caller's memory, so that an atomic can
  // complete whatever UCX does with it.
  std::uint64_t operand = 0;  // UCX reads it until the end
  std::uint64_t result = 0;
  void* local = nullptr;  // where the caller wants the result; null: nowhere
  std::uint32_t local_bytes = 0;
  // A bitwise atomic by compare-and-swap; see Transfers::change().
  struct Change {
    bool active = false;
    std::uint8_t op = 0;
    std::uint64_t operand = 0;
    std::uint64_t address = 0;
    ucp_rkey_h key = nullptr;
  };
  Change change;

  [[nodiscard]] bool has(std::uint32_t flag) const { return (flags & flag) != 0; }
  [[nodiscard]] bool is_of(const PeerState& of) const { return has(active) && peer == &of; }
};

// A message on its way whose bytes UCX still reads, or that waits for its connection.
struct Packet {
  Packet* next = nullptr;
  PeerState* peer = nullptr;
  std::uint32_t bytes = 0;  // head included
  unsigned id = kMessageId;
  alignas(8) std::byte data[sizeof(Head) + kMostMessage];
};

// Sent messages whose arrival the peer has not told yet: one after the other in their stream, with
// one token and of one length.
struct Sending {
  Sending* next = nullptr;
  Token token = 0;
  std::uint32_t end = 0;   // where the first of them ends in the stream
  std::uint32_t cost = 0;  // of each
  std::uint32_t count = 0;
};

// A message that goes by value: `packet` is its packet.
struct ShortMessage : Head {
  alignas(8) std::byte packet[Command::kInlineBytes];  // NOLINT(cppcoreguidelines-pro-type-member-init)
};
static_assert(sizeof(ShortMessage) <= 104);  // what networks take by value

struct PeerState {
  enum class Stage : std::uint8_t { unopened, connecting, greeting, ready, closed, broken };
  Port* port = nullptr;
  std::uint32_t rank = 0;  // and the worker behind it, as in Completion
  std::uint32_t worker = 0;
  Stage stage = Stage::unopened;
  base::Status status = HEDDLE_DONE;  // broken: with which everything sent fails
  ucp_ep_h endpoint = nullptr;
  // something was sent through it: its greeting is not on the way any more
  bool used = false;
  bool has_gap = false;            // its stream has a gap: disconnected by us, not by UCX
  bool greeted = false;            // our greeting has left: our connection is made
  bool heard = false;              // the peer has sent something: its connection is made
  std::uint64_t dies_at = 0;       // ns; while it is in Endpoints::dying_
  std::uint64_t greets_since = 0;  // ns

  // Towards the peer.
  ShortMessage next;  // its head is the next message's: where the streams are
  std::uint32_t acked = 0;
  std::uint32_t delivered = 0;
  std::uint32_t in_flight = 0;  // packets and credits that UCX has
  bool by_value = false;        // ready, and UCX has none: a short message may leave at once
  std::uint32_t waiting_count = 0;
  List<Packet> waiting;  // accepted before there was a connection
  List<Sending> undelivered;

  // From the peer.
  std::unique_ptr<std::byte[]> ring;  // null: nothing has arrived yet
  std::uint32_t pass = 0;             // that its messages must carry
  std::uint32_t told = 0;             // `consumed`, as the peer knows it
  std::uint32_t told_arrived = 0;
  std::uint32_t write_at = 0;
  std::uint32_t read_at = 0;
  std::uint32_t records = 0;  // queued, not handed out yet
  std::uint32_t lent = 0;     // cost of what the last poll has handed out
  bool queued = false;        // there is something to hand out
  bool owing = false;         // the peer must be told of credit
  bool telling = false;       // the peer may not know of arrivals
  Head credit;                // while UCX reads it: see Outgoing::send_credit()

  // Transfers.
  Transfer* unflushed = nullptr;  // puts, linked by `next`
  Transfer* joinable = nullptr;   // the last of these, if its source is free: others share its slot
  Transfer* flushing = nullptr;
  bool dirty = false;  // there are puts that are not flushed
  bool flush_flies = false;
  void* flush_request = nullptr;  // UCX's, while the flush is under way

  [[nodiscard]] bool ready() const { return stage == Stage::ready; }
  // What was posted before may still be flushed: its worker may be closed, the connection stays.
  [[nodiscard]] bool flushable() const { return ready() || (stage == Stage::closed && endpoint != nullptr); }
  // To be called when its stage or in_flight has changed.
  void note_way() { by_value = ready() && in_flight == 0; }
  [[nodiscard]] bool over() const { return stage == Stage::broken || stage == Stage::closed; }
  // The peer now knows this of the stream from it.
  void has_told(std::uint32_t consumed, std::uint32_t arrived) {
    told = consumed;
    told_arrived = arrived;
  }
  // A head that says this of the stream to the peer says nothing new.
  [[nodiscard]] bool knows(std::uint32_t consumed, std::uint32_t arrived) const {
    return (std::uint64_t{arrived} << 32 | consumed) == (std::uint64_t{delivered} << 32 | acked);
  }
  [[nodiscard]] bool all_told() const { return told == next.consumed && told_arrived == next.arrived; }
};

}  // namespace heddle::transport::ucx
