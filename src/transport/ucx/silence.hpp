// How long UCX's TCP connections may be silent. What nobody acknowledges the kernel sends again for a quarter of an hour, and UCX 1.13 has no
// setting for that; so its sockets are found behind the descriptors on which its workers sleep, and the kernel is asked about each.
#pragma once

#include <netinet/tcp.h>

#include <cstddef>
#include <cstdint>

namespace heddle::transport::ucx {

// Nothing has come from the other end's kernel for `ns`, although it was asked again and again for at least half of that time: what was sent is
// sent again, or questions go unanswered. A process that is stopped, or takes nothing, is not silent: its kernel answers. Up to kMostSilence.
bool silent_for(const tcp_info& about, std::uint64_t ns);
inline constexpr std::uint64_t kMostSilence = 240'000'000'000;  // the kernel's pauses grow to 120 s

// Looks at every TCP connection that `descriptor`, an epoll, watches, itself or through epolls that it watches, and ends those that are silent for
// `ns`: UCX finds them closed. Keepalive is turned on, with times that are no longer than that, so that who has nothing under way asks, too.
// Any thread, often: a system call or three for each. Returns how many were ended. A descriptor that is closed and opened anew meanwhile
// may be looked at though it is not UCX's.
std::size_t end_silent(int descriptor, std::uint64_t ns);

}  // namespace heddle::transport::ucx
