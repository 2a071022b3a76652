// How long UCX's TCP connections may be silent. What nobody acknowledges the kernel sends again for
// a quarter of an hour, and UCX 1.13 has no setting for that; so its sockets are found behind the
// descriptors on which its workers sleep, and the kernel is asked about each.
#pragma once

#include <netinet/tcp.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fd.hpp"
#include "base/log.hpp"

namespace heddle::transport::ucx {

// Nothing has come from the other end's kernel for `ns`, although it was asked again and again for
// at least half of that time: what was sent is sent again, or questions go unanswered. A process
// that is stopped, or takes nothing, is not silent: its kernel answers. Up to kMostSilence. `asks`:
// the connection asks by itself, and did so at a look before, where nothing is under way.
bool silent_for(const tcp_info& about, bool asks, std::uint64_t ns);
inline constexpr std::uint64_t kLeastSilence =
    1'000'000'000;  // what the kernel tells is in ms, and it sends again after 200
inline constexpr std::uint64_t kMostSilence = 240'000'000'000;  // the kernel's pauses grow to 120 s

// Looks at connections, a bounded number at a time: each costs seven system calls. One thread at a
// time.
class Silence {
 public:
  // What is silent for `ns` is ended; `log` is told of each.
  Silence(std::uint64_t ns, const base::Log& log) : ns_(ns), log_(log) {}

  [[nodiscard]] std::uint64_t limit() const { return ns_; }
  // Finds what `descriptor`, an epoll, watches, itself or through epolls that it watches: look()
  // looks at it next. A few system calls for each of these epolls. What cannot be found (no memory,
  // no descriptor left, no /proc) is not looked at.
  void gather(int descriptor);
  // Looks at up to `most` of what was gathered, and ends the TCP connections that are silent: UCX
  // finds them closed. Keepalive is turned on, with times that are no longer than that, so that who
  // has nothing under way asks, too. What is another file's by now is left alone. Returns how many
  // were ended.
  std::size_t look(std::size_t most);
  // Nothing is left to look at.
  [[nodiscard]] bool done() const { return found_.empty(); }

 private:
  // A number, and which file had it when it was told of.
  struct Watched {
    int descriptor;
    unsigned long long file;
  };
  static void add_watched_by(int descriptor, std::vector<Watched>* to);
  static base::Fd copy_of(const Watched& one, struct stat* about);

  const std::uint64_t ns_;
  const base::Log log_;
  std::vector<Watched> found_;
};

}  // namespace heddle::transport::ucx
