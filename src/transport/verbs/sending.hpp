// The work requests that leave a port. The requests of one post() to one peer are a chain, which
// the adapter gets with one call.
//
// A message is written into its receiver's ring, with the caller's 32 bits as immediate data. It is
// done, as a put is, when the receiver's adapter has acknowledged it. Not each request is
// signalled: see PeerState.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/network/completions.hpp"
#include "transport/verbs/callers_memory.hpp"
#include "transport/verbs/own_memory.hpp"
#include "transport/verbs/peer_state.hpp"
#include "transport/verbs/queue.hpp"

namespace heddle::transport::verbs {

class Port;

class Sending {
 public:
  explicit Sending(Port& port);
  ~Sending() { close(); }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

  // SYSTEM, NO_MEMORY.
  base::Status open(const Channel& channel);
  void close();
  void make_room_for(std::size_t peers);
  [[nodiscard]] ibv_cq* queue() const { return queue_.get(); }
  void arm() const { queue_.arm(); }
  // Bytes that a request of any pair may carry inline: an adapter that is short of room may give a
  // later pair less.
  [[nodiscard]] std::uint32_t inline_bytes() const { return inline_bytes_; }
  void limit_inline(std::uint32_t bytes) { inline_bytes_ = std::min(inline_bytes_, bytes); }
  // The longest transfer that one pair carries, in bytes. `split`: the peer has a second pair, and
  // half of a longer transfer goes by it.
  [[nodiscard]] std::uint32_t most_whole(bool split) const {
    return split ? std::min(split_above_, most_bytes_) : most_bytes_;
  }

  // By the owner, inside a Turn. How many commands from the front were accepted.
  [[nodiscard]] std::size_t post(std::span<Command> batch);
  // Its connection is ready: waiting messages leave.
  void begin(PeerState& peer);
  // Tells the peer up to where it has been consumed. False: not now.
  bool send_credit(PeerState& peer);

  // The peer has written an impossible credit: nothing would ever be sent.
  [[nodiscard]] bool has_impossible_credit(const PeerState& peer) const {
    return peer.sent - peer.mine.mailbox->credit.load(std::memory_order_acquire) > window_;
  }
  // Writes nothing to the peer, to which nothing is under way: that tells whether it is reached.
  void probe(PeerState& peer) { flush(peer); }

  // By polls: takes completions, and sends waiting messages. True: there were completions.
  bool progress();
  // Fails all that is under way to the peer, whose pair does not exist any more.
  void fail(PeerState& peer, base::Status status);
  void drop_waiting(PeerState& peer);
  [[nodiscard]] bool has_waiting() const { return !stuck_.empty(); }

 private:
  static constexpr std::uint32_t kWaitingPackets = 16;  // of one peer state
  static constexpr std::uint32_t kMostWaiting = 32;     // of all: some are left to connected ones
  static constexpr std::uint32_t kPackets = 48;
  static constexpr std::uint32_t kCompletions = 2048;  // requests under way in a port

  // A request alone of the usual kinds: only what differs from the last one is written.
  struct Alone {
    ibv_send_wr work{};
    ibv_sge part{};
  };

  PeerState* ready_peer(const Command& command);
  std::size_t post_message(PeerState& peer, Command& command);
  std::size_t post_put(PeerState& peer, Command& command);
  std::size_t post_get(PeerState& peer, Command& command);
  [[nodiscard]] bool is_usual(const Command& command, std::uint64_t most) const;
  void post_transfer(PeerState& peer, Command& command, Alone& one, std::uint32_t flags, std::uint32_t lease);
  void call(PeerState& peer, ibv_send_wr& first, std::uint32_t flags);
  void refused(PeerState& peer, int error);
  std::size_t post_otherwise(std::span<Command> batch);
  std::size_t post_chain(std::span<Command> batch);
  bool post_alone(Command& command);
  bool post_split(PeerState& peer, Command& command);
  bool wait(PeerState& peer, Command& command);
  base::Status check(const Command& command) const;
  // Adds a request of the usual kinds to the chain. False: it is not usual, or there is no room.
  bool add(PeerState& peer, Command& command);
  bool add_message(PeerState& peer, Command& command);
  bool add_transfer(PeerState& peer, Command& command);
  void add_packet(PeerState& peer, Packet& packet);
  void add_write(PeerState& peer, ibv_send_wr& work, std::uint32_t bytes, std::uint32_t immediate);
  // How many requests more may be under way, if so many are left to others.
  [[nodiscard]] std::uint32_t room(const PeerState& peer, std::uint32_t spare) const;
  ibv_send_wr& next(PeerState& peer, Request request);
  void ring(PeerState& peer);
  [[nodiscard]] std::uint32_t signal(PeerState& peer);
  void flush(PeerState& peer);
  void send_due_flushes();
  void push_all();
  bool push(PeerState& peer);
  void take(const ibv_wc& entry);
  void complete(PeerState& peer, std::uint32_t up_to, base::Status status);
  void end_closed(PeerState& peer, std::uint32_t up_to);
  void end_otherwise(const Request& request, base::Status status);
  base::Status lease(const Command& command, memory::Access access, memory::RegistrationCache::Lease* lease);

  Port& port_;
  const std::uint32_t window_;
  std::uint32_t most_bytes_ = 0;     // of a transfer
  const std::uint32_t split_above_;  // bytes; see Stripes
  std::uint32_t inline_bytes_ = UINT32_MAX;
  network::Room& messages_;
  network::Room& transfers_;
  CompletionQueue queue_;
  CallersMemory memory_;
  OwnMemory packet_memory_;
  network::Pool<Packet> packets_;
  std::uint32_t waiting_ = 0;      // packets that wait for a connection
  std::uint32_t under_way_ = 0;    // requests of all peers
  std::vector<PeerState*> stuck_;  // ready, with messages that wait
  // All that was signalled is complete, and requests are behind it.
  std::vector<PeerState*> flushes_due_;
  PeerState* latest_ = nullptr;  // to which the last commands went
  Alone put_;
  Alone get_;
  Alone message_;
  // The chain that is being made. Each request has its part, and the next one behind it, from the
  // beginning: only what differs is written.
  std::uint32_t chained_ = 0;
  std::array<ibv_send_wr, PeerState::kDepth> work_{};
  std::array<ibv_sge, PeerState::kDepth> parts_{};
};

inline std::uint32_t Sending::room(const PeerState& peer, std::uint32_t spare) const {
  const std::uint32_t here = peer.under_way() + spare;
  if (here >= PeerState::kDepth || under_way_ >= kCompletions) [[unlikely]]
    return 0;
  return std::min(PeerState::kDepth - here, kCompletions - under_way_);
}

// The next request of the chain, of one part; the caller has looked for room.
inline ibv_send_wr& Sending::next(PeerState& peer, Request request) {
  ibv_send_wr& work = work_[chained_++];
  peer.request(peer.posted++) = request;
  work.wr_id = peer.number_above | peer.posted;
  work.num_sge = 1;
  return work;
}

// The flag for the last request, whether it is signalled: see PeerState::kPeriod.
inline std::uint32_t Sending::signal(PeerState& peer) {
  if (static_cast<std::int32_t>(peer.posted - peer.signal_at) < 0) [[likely]]
    return 0;
  peer.signalled = peer.posted;
  peer.signal_at = peer.posted + (peer.under_way() < PeerState::kPeriod ? 1 : PeerState::kPeriod);
  return IBV_SEND_SIGNALED;
}

// Hands the chain to the adapter, with one doorbell.
inline void Sending::ring(PeerState& peer) {
  ibv_send_wr& last = work_[chained_ - 1];
  last.send_flags |= signal(peer);
  ibv_send_wr* const behind = std::exchange(last.next, nullptr);
  under_way_ += std::exchange(chained_, 0U);
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(peer.pair, work_.data(), &bad);
  last.next = behind;
  if (error != 0) [[unlikely]]
    refused(peer, error);
}

}  // namespace heddle::transport::verbs
