#include "transport/network/losses.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <new>

namespace heddle::transport::network {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
constexpr std::uint64_t kUs = 1'000;

int ask(int socket, int level, int option, int otherwise) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return ::getsockopt(socket, level, option, &value, &bytes) == 0 ? value : otherwise;
}

// A failure is ignored: the option only helps.
void tell(int socket, int level, int option, int value) {
  [[maybe_unused]] const int ignored = ::setsockopt(socket, level, option, &value, sizeof value);
}

void shorten(int socket, int option, int most) {
  if (ask(socket, IPPROTO_TCP, option, 0) > most) tell(socket, IPPROTO_TCP, option, most);
}

// Turns keepalive on: a probe after a third of the time, four in the rest of it. True if it was so
// already.
bool ask_in_time(int socket, std::uint64_t ns) {
  const auto seconds = static_cast<int>(ns / (1000 * kMillisecondNs));
  const int idle = std::max(seconds / 3, 1);
  if (ask(socket, SOL_SOCKET, SO_KEEPALIVE, 1) != 0 && ask(socket, IPPROTO_TCP, TCP_KEEPIDLE, 0) <= idle) return true;
  shorten(socket, TCP_KEEPIDLE, idle);
  shorten(socket, TCP_KEEPINTVL, std::max(seconds / 6, 1));
  shorten(socket, TCP_KEEPCNT, 4);
  tell(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  return false;
}

using Text = std::array<char, INET6_ADDRSTRLEN + 8>;

// As the helper, which has no memory to spare when all is gone.
Text other_end_of(int socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  std::array<char, INET6_ADDRSTRLEN> text{};
  Text whole{"an unknown address"};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return whole;
  const bool four = address.ss_family == AF_INET;
  const auto& in4 = reinterpret_cast<const sockaddr_in&>(address);
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
  const void* number = four ? static_cast<const void*>(&in4.sin_addr) : &in6.sin6_addr;
  if (::inet_ntop(address.ss_family, number, text.data(), text.size()) != nullptr) {
    std::snprintf(whole.data(), whole.size(), "%s:%u", text.data(), ntohs(four ? in4.sin_port : in6.sin6_port));
  }
  return whole;
}

bool end_if_silent(int socket, std::uint64_t ns, const base::Log& log) {
  if (ask(socket, SOL_SOCKET, SO_PROTOCOL, -1) != IPPROTO_TCP) return false;
  tcp_info about{};
  socklen_t bytes = sizeof about;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &about, &bytes) != 0 || about.tcpi_state != TCP_ESTABLISHED) {
    return false;
  }
  if (!silent_for(about, ask_in_time(socket, ns), ns)) return false;
  const Text other = other_end_of(socket);
  if (::shutdown(socket, SHUT_RDWR) != 0) return false;
  log.line(base::Level::warn, "%s has answered nothing for %u s: its connection is ended (HEDDLE_NETWORK_TIMEOUT)",
           other.data(), about.tcpi_last_ack_recv / 1000);
  return true;
}

}  // namespace

// The time since the last acknowledgement alone says nothing if nothing was sent for long before.
// The kernel doubles the pause before each retransmission, so the pause tells for how long there
// has been no answer: at least the pause less the first one, at most twice the pause. The kernel
// shortens it again only if a router, or this machine, reports that the host is unreachable (RFC
// 6069). Then the keepalive probes that were sent before, a third of the time after the last answer
// at the latest, show that the program itself made no long pause.
bool silent_for(const tcp_info& about, bool asks, std::uint64_t ns) {
  ns = std::min(ns, kMostSilence);
  if (std::uint64_t{about.tcpi_last_ack_recv} * kMillisecondNs < ns) return false;
  if (about.tcpi_unacked != 0) {
    const bool long_pause = about.tcpi_backoff != 0 && std::uint64_t{about.tcpi_rto} * kUs >= ns / 2;
    return long_pause || (asks && about.tcpi_retransmits >= 3);
  }
  // of an idle connection, or of one whose other end reads nothing for now
  return about.tcpi_probes >= 2;
}

// Adds nothing if the descriptor is no epoll.
void Silence::add_watched_by(int descriptor, std::vector<Watched>* to) {
  std::array<char, 32> path;
  std::snprintf(path.data(), path.size(), "/proc/self/fdinfo/%d", descriptor);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> about(std::fopen(path.data(), "re"), std::fclose);
  if (about == nullptr) return;
  std::array<char, 256> line;
  while (std::fgets(line.data(), static_cast<int>(line.size()), about.get()) != nullptr) {
    Watched one{};
    if (std::sscanf(line.data(), "tfd: %d events: %*x data: %*x pos:%*d ino:%llx", &one.descriptor, &one.file) == 2) {
      to->push_back(one);
    }
  }
}

// The library may close a descriptor at any time, and another file may get its number: so we work
// on a copy, and only if it is the file that was found.
base::Fd Silence::copy_of(const Watched& one, struct stat* about) {
  base::Fd copy(::fcntl(one.descriptor, F_DUPFD_CLOEXEC, 0));
  if (copy.valid() && (::fstat(copy.get(), about) != 0 || about->st_ino != one.file)) copy.reset();
  return copy;
}

// A worker's epoll watches the epolls of its interfaces, and these watch the sockets.
void Silence::gather(int descriptor) {
  try {
    std::vector<Watched> of_worker;
    add_watched_by(descriptor, &of_worker);
    for (const Watched& one : of_worker) {
      struct stat about{};
      const base::Fd copy = copy_of(one, &about);
      if (!copy.valid()) continue;
      S_ISSOCK(about.st_mode) ? found_.push_back(one) : add_watched_by(copy.get(), &found_);
    }
  } catch (const std::bad_alloc&) {
    found_.clear();  // the next look may have the memory
  }
}

std::size_t Silence::look(std::size_t most) {
  std::size_t ended = 0;
  for (; most > 0 && !found_.empty(); --most) {
    const Watched one = found_.back();
    found_.pop_back();
    struct stat about{};
    const base::Fd copy = copy_of(one, &about);
    if (copy.valid() && S_ISSOCK(about.st_mode) && end_if_silent(copy.get(), ns_, log_)) ++ended;
  }
  return ended;
}

}  // namespace heddle::transport::network
