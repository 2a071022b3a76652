// The receiver's side of memory that a peer lends for one operation (Objects::lend, take_back): how
// it is reached, for as long as that operation lasts. What the peer says about it comes from the
// network and is not trusted.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "engine/objects.hpp"
#include "engine/region.hpp"

namespace heddle::engine {

struct LentName {
  heddle_peer owner{};       // the worker that lends it; exists
  std::uint64_t region = 0;  // the owner's number
  std::uint64_t bytes = 0;
  std::span<const std::uint8_t, transport::kKeyBytes> key;
};

// On DONE *remote is ready for gets of [0, bytes), until let_go(). AGAIN: the owner's card is not
// here yet; call again. PROTOCOL: it is no memory, or not as long; else what the transport says. It
// never waits, and nothing throws.
base::Status reach_lent(Objects& objects, const LentName& name, RemoteRegion* remote) noexcept;
void let_go(const RemoteRegion& remote);

}  // namespace heddle::engine
