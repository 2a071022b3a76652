// Several short messages of one stream that leave together: the library and the kernel are called
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/network/undelivered.hpp"

namespace heddle::transport::network {

// How many messages from the front of the batch, all to `peer`, fit into one bundle. Fewer than 2:
// it is better done one by one.
std::size_t bundle_of(std::span<const Command> batch, const Peer& peer, std::uint32_t window,
                      const Undelivered& undelivered);
// Writes them as parts to `to`, which has room for kMostBundle less a head, and remembers them as
// sent. Returns how many bytes it has written. Their sources are free.
std::uint32_t write_bundle(std::span<Command> batch, Peer& peer, Undelivered& undelivered, std::byte* to);

}  // namespace heddle::transport::network
