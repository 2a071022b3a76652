// The formats that are this transport's own: addresses, keys, and the handshakes of two workers
// that connect. All ranks have one byte order: otherwise their cards differ.
//
// A message has no head: its queue pair says who has sent it, the completion says how long it is,
// and the immediate data is the caller's.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "transport/network/wire.hpp"

namespace heddle::transport::verbs {

// The address of a port of an adapter.
struct PortAddress {
  std::uint8_t gid[16] = {};
  std::uint32_t mtu = 0;        // ibv_mtu
  std::uint16_t lid = 0;        // 0: it is reached by its GID
  std::uint16_t reads = 0;      // RDMA reads that it answers at a time, of one queue pair
  std::uint32_t datagrams = 0;  // number of the device's queue pair for notes
  std::uint32_t qkey = 0;       // of that
};
static_assert(sizeof(PortAddress) == 32);

// Adapters of a rank, whose workers take turns on them. More do not fit into a key.
inline constexpr std::size_t kMostAdapters = 2;

// The contents of a packed region.
struct KeyBytes {
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint64_t address = 0;  // in its owner
  std::uint64_t bytes = 0;
  std::uint32_t rkeys[kMostAdapters] = {};  // of its owner's adapters
  std::uint64_t seal = 0;
  std::uint64_t zero = 0;
  static constexpr std::uint32_t kMagic = 0x31425648;  // "HVB1"
  static constexpr std::uint32_t kUsed = 40;           // bytes
};
static_assert(sizeof(KeyBytes) == kKeyBytes && offsetof(KeyBytes, zero) == KeyBytes::kUsed);

// A handshake between two workers (network::Note::handshake).
struct Handshake {
  enum Kind : std::uint32_t {
    opens = 1,  // my queue pair, and where you write
    is_up,      // I have yours: write. With stripe_pair, as far as that is connected
    ended,      // I have disconnected, and my queue pair is gone
    closed      // the same, since my worker was closed
  };
  std::uint32_t kind = 0;
  std::uint32_t worker = 0;  // the sender
  // opens:
  std::uint32_t queue_pair = 0;
  std::uint32_t adapter = 0;  // the worker's adapter, in the order of its rank
  std::uint64_t mailbox = 0;  // see Mailbox
  std::uint32_t rkey = 0;
  std::uint32_t stripe_pair = 0;  // the second queue pair: see Stripes; 0: there is none
  PortAddress address;
  PortAddress stripe_address;  // of the adapter of the second queue pair
};
static_assert(sizeof(Handshake) == 96);

inline constexpr std::uint32_t kMostMessage = 4096;  // header + payload

// The bytes that a message takes in the receiver's ring.
constexpr std::uint32_t cost_of(std::uint32_t bytes) {
  return bytes == 0 ? 8 : (bytes + 7U) & ~7U;
}

// A note between device queues: this, then the note. Datagrams may be lost: each is sent again
// until it is acknowledged, and a rank sends one at a time to another.
struct NoteFrame {
  std::uint32_t rank = 0;          // the sender
  std::uint32_t number = 0;        // of the note, from 1; 0: there is none
  std::uint32_t acknowledged = 0;  // the last number that the sender has from the other
  std::uint32_t bytes = 0;         // that follow
  std::uint64_t seal = 0;
};
static_assert(sizeof(NoteFrame) == 24);
// what every network carries in one packet, and less
inline constexpr std::uint32_t kMostFrame = 512;

}  // namespace heddle::transport::verbs
