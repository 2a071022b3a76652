// Limits how long a library's TCP connections may be silent. The kernel retransmits what nobody
// acknowledges for a quarter of an hour, and neither UCX 1.13 nor libfabric has a setting for that.
// So we find the sockets behind the descriptors on which their workers sleep, and ask the kernel
// about each.
#pragma once

#include <netinet/tcp.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"

namespace heddle::transport::network {

// Nothing has arrived from the other end's kernel for `ns`, although it was asked repeatedly for at
// least half of that time: with retransmissions, or with probes, which it did not answer. A process
// that is stopped, or reads nothing, is not silent: its kernel answers. Up to kMostSilence. `asks`:
// keepalive is on, and was so at an earlier check, so the connection sends probes while it is idle.
bool silent_for(const tcp_info& about, bool asks, std::uint64_t ns);
// the kernel reports in ms, and retransmits after 200
inline constexpr std::uint64_t kLeastSilence = 1'000'000'000;
inline constexpr std::uint64_t kMostSilence = 240'000'000'000;  // the kernel's pauses grow to 120 s

// 0 is no limit, else it is at least kLeastSilence. CONFIG, with the name of the setting.
base::Status check_silence(std::uint64_t ns, const char* setting);

// Checks connections, a bounded number at a time: each costs seven system calls. One thread at a
// time.
class Silence {
 public:
  // A connection that is silent for `ns` is shut down; `log` is told of each, with the name of the
  // setting that says so.
  Silence(std::uint64_t ns, const char* setting, const base::Log& log) : ns_(ns), setting_(setting), log_(log) {}

  [[nodiscard]] std::uint64_t limit() const { return ns_; }
  // Finds the sockets that `descriptor`, an epoll, watches, directly or through epolls that it
  // watches: look() checks them next. A few system calls for each of these epolls. Sockets that
  // cannot be found (no memory, no descriptor left, no /proc) are not checked.
  void gather(int descriptor);
  // Checks up to `most` of the gathered sockets, and shuts down the TCP connections that are
  // silent: the library finds them closed. Turns keepalive on, with times that are no longer than
  // that, so that idle connections send probes too. A descriptor that is another file's by now is
  // left alone. Returns how many were shut down.
  std::size_t look(std::size_t most);
  // Nothing is left to check.
  [[nodiscard]] bool done() const { return found_.empty(); }

 private:
  // A descriptor, and the file that it named when it was found.
  struct Watched {
    int descriptor;
    unsigned long long file;
  };
  static void add_watched_by(int descriptor, std::vector<Watched>* to);
  static base::Fd copy_of(const Watched& one, struct stat* about);

  const std::uint64_t ns_;
  const char* setting_;
  const base::Log log_;
  std::vector<Watched> found_;
};

}  // namespace heddle::transport::network
