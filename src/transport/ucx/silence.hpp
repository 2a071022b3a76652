// How long UCX's TCP connections may be silent. What nobody acknowledges the kernel sends again for a quarter of an hour, and UCX 1.13 has no
// setting for that; so its sockets are found behind the descriptors on which its workers sleep, and the kernel is asked about each.
#pragma once

#include <netinet/tcp.h>

#include <cstddef>
#include <cstdint>

#include "base/log.hpp"

namespace heddle::transport::ucx {

// Nothing has come from the other end's kernel for `ns`, although it was asked again and again for at least half of that time: what was sent is
// sent again, or questions go unanswered. A process that is stopped, or takes nothing, is not silent: its kernel answers. Up to kMostSilence.
// `asks`: the connection asks by itself, and did so at a look before, where nothing is under way.
bool silent_for(const tcp_info& about, bool asks, std::uint64_t ns);
inline constexpr std::uint64_t kLeastSilence =
    1'000'000'000;  // what the kernel tells is in ms, and it sends again after 200
inline constexpr std::uint64_t kMostSilence = 240'000'000'000;  // the kernel's pauses grow to 120 s

// Looks at every TCP connection that `descriptor`, an epoll, watches, itself or through epolls that it watches, and ends those that are silent for
// `ns`: UCX finds them closed, and `log` is told of each. Keepalive is turned on, with times that are no longer than that, so that who has nothing
// under way asks, too. Any thread, now and then: seven system calls for each. Returns how many were ended. What cannot be looked at (no memory,
// no descriptor left, no /proc) stays as it is until the next look.
std::size_t end_silent(int descriptor, std::uint64_t ns, const base::Log& log);

}  // namespace heddle::transport::ucx
