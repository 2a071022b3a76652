// What a port knows of one worker of a peer: a queue pair, and both directions of the stream of
// messages.
//
// Invariants of a stream, in bytes by cost_of(), modulo 2^32:
//   sender:   sent - credit <= window;  receiver: told <= consumed <= arrived <= told + window
//   Who sends more is disconnected, when a message that exceeds it is taken.
//   A message begins at the end of the one before it, or at 0 if that end is at a window or beyond;
//   the ring is longer than a window by one message. Both ends count alike: nothing is said of it.
// Invariants of the queue pair:
//   completed <= signalled <= posted <= completed + kDepth; requests complete in the order of
//   posting, so the completion of one that is signalled tells of all before it
//   signalled < signal_at; if all that was signalled is complete, the next request is signalled, or
//   a flush is due
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "transport/network/patience.hpp"
#include "transport/network/peer.hpp"
#include "transport/verbs/mailboxes.hpp"
#include "transport/verbs/wire.hpp"

namespace heddle::transport::verbs {

// A message that is copied: it waits for a connection, or the adapter reads it. Its bytes are at
// `data`.
struct Packet {
  Packet* next = nullptr;
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  Token token = 0;
};

// A work request that may not be complete.
struct Request {
  enum class Kind : std::uint8_t { silent, message, transfer };
  struct Shape {
    std::uint16_t packet = 0;  // that it reads: its number, plus one; 0: none
    Kind kind = Kind::silent;
    bool owes_source = false;  // source_free was asked for and not reported yet
  };
  static constexpr std::uint32_t kNoLease = 0;
  Token token = 0;
  std::uint32_t lease = kNoLease;  // of the registration cache, plus one
  Shape shape;

  // Nothing has to be done at its end but to report that.
  [[nodiscard]] bool is_plain(Kind kind) const {
    return std::bit_cast<std::uint32_t>(shape) == std::bit_cast<std::uint32_t>(Shape{.kind = kind});
  }
};
static_assert(sizeof(Request) == 16);

struct PeerState final : network::Peer {
  // Requests under way: what an executor takes out of its queue at once, and those that credits and
  // flushes need.
  static constexpr std::uint32_t kSpare = 2;
  static constexpr std::uint32_t kSpareForFlush = 1;  // of these
  static constexpr std::uint32_t kDepth = 64 + kSpare;
  static constexpr std::uint32_t kRequests = 128;  // a power of two
  // While so many requests are under way, or more, one of so many is signalled. With fewer each is:
  // else the end of the last ones would be told by a flush, a round trip later.
  static constexpr std::uint32_t kPeriod = 8;

  // The connection.
  ibv_qp* pair = nullptr;
  std::uint32_t pair_number = 0;
  std::uint64_t number_above = 0;  // its number in the port, in the upper half of a wr_id
  Address address;
  Mailboxes::Slot mine;
  Hello theirs;  // .kind 0: it has not come
  bool said_open = false;
  bool said_up = false;
  bool connected = false;        // the pair can send and receive
  bool is_up = false;            // so can the peer's
  network::Patience patience;    // with its handshake
  std::uint64_t connect_at = 0;  // ns; not before
  // The peer has not been told of the end: by a note of this kind. 0: there is nothing to tell.
  Hello::Kind owes_end{};
  bool told_end = false;  // by the peer
  // At the last round (Port::ask_silent()).
  std::uint32_t seen_completed = 0;
  std::uint32_t seen_consumed = 0;

  // Towards the peer.
  std::uint32_t sent = 0;
  std::uint32_t write_at = 0;
  std::uint32_t posted = 0;
  std::uint32_t signalled = 0;  // the last request that will tell of its completion
  std::uint32_t signal_at = 1;  // a request with this number, or behind it, is signalled
  std::uint32_t completed = 0;
  std::array<Request, kRequests> requests;
  network::List<Packet> packets;  // that wait; `waiting` is their number
  std::uint8_t rkey_at = 0;       // of the keys of a region, that of its worker's adapter: a shift
  bool by_value = false;          // ready, and no message waits
  bool untold = false;            // in Sending::untold_: a flush is due

  // From the peer.
  std::uint32_t read_at = 0;
  // as far as it was taken; what is not consumed of it, the last poll has handed out
  std::uint32_t arrived = 0;
  std::uint32_t consumed = 0;
  std::uint32_t told_consumed = 0;
  bool owing = false;  // it must be told of credit

  void update_by_value() { by_value = ready() && waiting == 0; }
  [[nodiscard]] std::uint32_t under_way() const { return posted - completed; }
  // The one that is posted, or completes, as the number `at`.
  [[nodiscard]] Request& request(std::uint32_t at) { return requests[at % kRequests]; }
  [[nodiscard]] bool has_transfers() const {
    for (std::uint32_t at = completed; at != posted; ++at) {
      if (requests[at % kRequests].shape.kind == Request::Kind::transfer) return true;
    }
    return false;
  }
};

// With its mailbox, a peer takes less than 16 KiB.
static_assert(sizeof(PeerState) <= 3 << 10);

inline PeerState& state(network::Peer& peer) {
  return static_cast<PeerState&>(peer);
}

}  // namespace heddle::transport::verbs
