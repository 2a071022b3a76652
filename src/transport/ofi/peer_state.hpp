// What a port knows of one worker of a peer, besides the streams of messages.
#pragma once

#include <cstdint>

#include "transport/network/patience.hpp"
#include "transport/network/peer.hpp"
#include "transport/ofi/endpoint.hpp"

namespace heddle::transport::ofi {

struct PeerState;

// A message whose bytes libfabric reads until its completion, or that waits for its turn.
struct Packet : Operation {
  Packet* next = nullptr;
  PeerState* peer = nullptr;
  std::uint32_t bytes = 0;  // head included
  alignas(8) std::byte data[sizeof(network::Head) + network::kMostMessage];
  Packet() : Operation(Kind::packet) {}  // NOLINT(cppcoreguidelines-pro-type-member-init)
};

// A put, get or atomic under way.
struct Transfer : Operation {
  // The duties at its end, besides reporting it.
  enum Duty : std::uint8_t {
    owes_source = 1,  // source_free was asked for and not reported yet
    has_lease = 2,    // of the caller's memory
    has_result = 4    // of an atomic, for the caller
  };
  std::uint8_t duties = 0;
  bool orphan = false;  // reported as failed; libfabric still has it
  bool is_get = false;
  std::uint32_t lease = 0;
  Transfer* next = nullptr;
  PeerState* peer = nullptr;  // null: free
  Token token = 0;
  // The values of an atomic, which libfabric reads and writes.
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  std::uint64_t result = 0;
  void* result_to = nullptr;  // the caller's
  std::uint64_t result_bytes = 0;
  Transfer() : Operation(Kind::transfer) {}
  void owe(Duty duty) {
    duties |= duty;
    usual_transfer = false;
  }
};

struct PeerState final : network::StreamPeer {
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  // The endpoint by which its rank's regions are reached: with FI_MR_ENDPOINT the device's, else
  // the worker's.
  fi_addr_t memory = FI_ADDR_NOTAVAIL;
  // ready, and no message waits or is gathered: a short message may leave at once
  bool by_value = false;
  // Whether libfabric has taken anything for this peer, which shows whether there is a connection.
  enum class Taken : std::uint8_t { nothing_yet, some, nothing_lately };
  Taken taken = Taken::nothing_yet;
  network::Patience patience;     // while libfabric takes nothing
  std::uint64_t dies_at = 0;      // ns; while it is in Port::dying_
  network::List<Packet> packets;  // that wait; `waiting` is their number
  Packet* gathered = nullptr;     // see network::Gathering

  void update_by_value() { by_value = ready() && waiting == 0 && gathered == nullptr; }
};

inline PeerState& state(network::Peer& peer) {
  return static_cast<PeerState&>(peer);
}

}  // namespace heddle::transport::ofi
