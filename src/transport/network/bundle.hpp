// Several short messages of one stream that leave together: the library and the kernel are called
// once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "transport/network/undelivered.hpp"

namespace heddle::transport::network {

// How many messages from the front of the batch, all to `peer`, fit into one bundle. Fewer than 2:
// it is better done one by one.
std::size_t bundle_of(std::span<const Command> batch, const StreamPeer& peer, std::uint32_t window,
                      const Undelivered& undelivered);
// Writes them as parts to `to`, which has room for kMostBundle less a head, and remembers them as
// sent. Returns how many bytes it has written. Their sources are free.
std::uint32_t write_bundle(std::span<Command> batch, StreamPeer& peer, Undelivered& undelivered, std::byte* to);

// Posts a batch from its front. `bundle` posts short messages to one worker together, if it takes
// any; `one` posts each other command. Both return how many they have accepted, and so does this
// function.
template <class One, class Bundle>
std::size_t post_several(std::span<Command> batch, One one, Bundle bundle) {
  std::size_t accepted = 0;
  try {
    while (accepted < batch.size()) {
      const bool several = batch[accepted].opcode == Opcode::message && batch.size() - accepted > 1;
      const std::size_t bundled = several ? bundle(batch.subspan(accepted)) : 0;
      if (bundled == 0 && one(batch[accepted]) == 0) break;
      accepted += std::max<std::size_t>(bundled, 1);
    }
  } catch (const std::bad_alloc&) {  // the first use of a worker connects to it
    if (accepted == 0) throw;
  }
  return accepted;
}

}  // namespace heddle::transport::network
