// What a port knows of one worker of a peer: a queue pair, and both directions of the stream of
// messages.
//
// Invariants of a stream, in bytes by cost_of(), modulo 2^32:
//   sender:   sent - credit <= window
//   receiver: told_consumed <= consumed <= arrived <= told_consumed + window
//   A peer that sends more is disconnected, when the message that exceeds the window is taken.
//   A message begins at the end of the one before it, or at 0 if that end is at a window or beyond;
//   the ring is longer than a window by one message. Both ends count in the same way, so no
//   position is sent.
// Invariants of the queue pair:
//   completed <= signalled <= posted <= completed + kDepth; requests complete in the order of
//   posting, so the completion of one that is signalled tells of all before it
//   signalled < signal_at; if all that were signalled are complete, the next request is signalled,
//   or a flush is due
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

// A work request that was posted, and is not known to be complete.
struct Request {
  enum class Kind : std::uint8_t {
    silent,  // nobody is told of its end: credit, a flush
    message,
    transfer,
    half  // the first one of a transfer that is split: see Stripes
  };
  struct Shape {
    // The number, from 1, of the packet that it reads; 0: it reads none. half: of the transfer.
    std::uint16_t packet = 0;
    Kind kind = Kind::silent;
    bool owes_source = false;  // source_free was asked for and not reported yet
  };
  static constexpr std::uint32_t kNoLease = 0;
  Token token = 0;
  std::uint32_t lease = kNoLease;  // of the registration cache, plus one
  Shape shape;

  // At its end there is nothing to do but to report it, and to release its lease.
  [[nodiscard]] bool is_plain(Kind kind) const {
    return std::bit_cast<std::uint32_t>(shape) == std::bit_cast<std::uint32_t>(Shape{.kind = kind});
  }
};
static_assert(sizeof(Request) == 16);

struct PeerState final : network::Peer {
  // Requests under way: as many as an executor takes out of its queue at once, and those that
  // credits and flushes need.
  static constexpr std::uint32_t kSpare = 2;
  static constexpr std::uint32_t kSpareForFlush = 1;  // of these
  static constexpr std::uint32_t kDepth = 64 + kSpare;
  static constexpr std::uint32_t kRequests = 128;  // a power of two
  // While kPeriod requests or more are under way, one in kPeriod is signalled. With fewer, each one
  // is: otherwise only a flush would tell of the last ones, a round trip later.
  static constexpr std::uint32_t kPeriod = 8;

  // The connection.
  ibv_qp* pair = nullptr;
  std::uint32_t pair_number = 0;
  std::uint64_t number_above = 0;  // the peer's number in the port, in the upper half of a wr_id
  Address address;
  Mailboxes::Slot mine;
  Hello theirs;              // its `opens`; kind 0: that has not come yet
  ibv_qp* stripe = nullptr;  // the second queue pair: see Stripes. Null: there is none
  bool stripe_connected = false;
  bool said_open = false;
  bool said_up = false;
  bool connected = false;        // the pair can send and receive
  bool is_up = false;            // so can the peer's
  network::Patience patience;    // with its handshake
  std::uint64_t connect_at = 0;  // ns; not before
  // The peer must still be told that the connection has ended, or that there is no second pair any
  // more, by a note of this kind. 0: nothing is to be told.
  Hello::Kind owes{};
  bool told_end = false;  // the peer has told that the connection has ended
  // Their values in the last round: see Port::ask_silent().
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
  // The shift that takes the rkey for the adapter of the peer's worker from the rkeys of a region.
  std::uint8_t rkey_at = 0;
  std::uint32_t stripes_under_way = 0;
  std::uint32_t most_whole = 0;  // bytes; longer transfers are split: see Stripes
  bool by_value = false;         // ready, and no message waits: a command is posted at once
  bool flush_due = false;        // in Sending::flushes_due_

  // From the peer.
  std::uint32_t read_at = 0;
  // Up to here messages were taken. Those behind `consumed` were handed out by the last poll.
  std::uint32_t arrived = 0;
  std::uint32_t consumed = 0;
  std::uint32_t told_consumed = 0;
  bool owing = false;  // it must be told of credit

  void update_by_value() { by_value = ready() && waiting == 0; }
  // The same shift for the second pair: the rkey is that for the other adapter.
  [[nodiscard]] unsigned stripe_rkey_at() const { return 32U - rkey_at; }
  [[nodiscard]] std::uint32_t under_way() const { return posted - completed; }
  // Number `at`, as `posted` and `completed` count.
  [[nodiscard]] Request& request(std::uint32_t at) { return requests[at % kRequests]; }
  [[nodiscard]] bool has_transfers() const {
    for (std::uint32_t at = completed; at != posted; ++at) {
      const Request::Kind kind = requests[at % kRequests].shape.kind;
      if (kind == Request::Kind::transfer || kind == Request::Kind::half) return true;
    }
    return stripes_under_way != 0;
  }
};

// With its mailbox, a peer takes less than 16 KiB.
static_assert(sizeof(PeerState) <= 3 << 10);

inline PeerState& state(network::Peer& peer) {
  return static_cast<PeerState&>(peer);
}

}  // namespace heddle::transport::verbs
