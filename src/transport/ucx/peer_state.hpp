// The formats that are this transport's own, and what a port knows of one worker of a peer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/network/peers.hpp"
#include "transport/network/wire.hpp"
#include "transport/ucx/library.hpp"

namespace heddle::transport::ucx {

using network::cost_of;
using network::Head;
using network::kMostMessage;

// The formats that are this transport's own; the others are in ../network/wire.hpp.

// UCX's numbers of active messages.
inline constexpr unsigned kNoteId = 1;
inline constexpr auto kMessageId = static_cast<unsigned>(network::Kind::message);
inline constexpr auto kCreditId = static_cast<unsigned>(network::Kind::credit);
inline constexpr auto kBundleId = static_cast<unsigned>(network::Kind::bundle);

// The contents of a packed region.
struct KeyBytes {
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint64_t id = 0;
  std::uint64_t address = 0;  // in its owner
  std::uint64_t bytes = 0;
  std::uint64_t seal = 0;
  std::uint64_t zero = 0;
  static constexpr std::uint32_t kMagic = 0x32585548;  // "HUX2"
  static constexpr std::uint32_t kUsed = 40;           // bytes
};
static_assert(sizeof(KeyBytes) == kKeyBytes && offsetof(KeyBytes, zero) == KeyBytes::kUsed);

class Port;
struct PeerState;

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

// What a port knows of one worker of a peer: network::Peer, UCX's endpoint, and the transfers under
// way.
struct PeerState final : network::StreamPeer {
  explicit PeerState(Port& port_of_it) : port(&port_of_it) {}

  Port* port;
  ucp_ep_h endpoint = nullptr;
  // something was sent through it: its handshake is not on the way any more
  bool used = false;
  bool handshake_sent = false;  // our handshake has left: our connection is made
  bool disconnected = false;    // see Endpoints::disconnect()
  // ready, UCX has no packet, and none is gathered: a short message may leave at once
  bool by_value = false;
  std::uint32_t in_flight = 0;        // packets and credits that UCX has
  std::uint64_t dies_at = 0;          // ns; while it is in Endpoints::dying_
  std::uint64_t handshake_since = 0;  // ns
  List<Packet> packets;               // `waiting` of them: accepted before there was a connection
  Packet* gathered = nullptr;         // see network::Gathering
  Head credit;                        // while UCX reads it: see Outgoing::send_credit()

  // Transfers.
  Transfer* unflushed = nullptr;  // puts, linked by `next`
  Transfer* joinable = nullptr;   // the last of these, if its source is free: others share its slot
  Transfer* flushing = nullptr;
  bool dirty = false;  // there are puts that are not flushed
  bool flush_flies = false;
  void* flush_request = nullptr;  // UCX's, while the flush is under way

  // Puts that were posted before may still be flushed: the peer's worker may be closed, but the
  // connection stays.
  [[nodiscard]] bool flushable() const { return ready() || (stage == Stage::closed && has_connection()); }
  [[nodiscard]] bool has_connection() const { return endpoint != nullptr && !disconnected; }
  // To be called when its stage, in_flight or gathered has changed.
  void update_by_value() { by_value = ready() && in_flight == 0 && gathered == nullptr; }
};

// All peer states of a port of this transport are of this kind.
inline PeerState& state_of(network::Peer& peer) {
  return static_cast<PeerState&>(peer);
}
inline PeerState* state_of(network::Peer* peer) {
  return static_cast<PeerState*>(peer);
}

}  // namespace heddle::transport::ucx
