#include "transport/ucx/silence.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace heddle::transport::ucx {
namespace {

constexpr int kDepth = 3;  // a worker's, its interfaces', their sockets
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kUs = 1'000;

// Empty for what is no epoll.
std::vector<int> watched_by(int descriptor) {
  std::vector<int> found;
  std::ifstream about("/proc/self/fdinfo/" + std::to_string(descriptor));
  for (std::string line; std::getline(about, line);) {
    int watched = -1;
    if (std::sscanf(line.c_str(), "tfd: %d", &watched) == 1) found.push_back(watched);
  }
  return found;
}

int ask(int socket, int level, int option, int otherwise) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return ::getsockopt(socket, level, option, &value, &bytes) == 0 ? value : otherwise;
}

// It only improves matters.
void tell(int socket, int level, int option, int value) {
  [[maybe_unused]] const int ignored = ::setsockopt(socket, level, option, &value, sizeof value);
}

void shorten(int socket, int option, int most) {
  if (ask(socket, IPPROTO_TCP, option, 0) > most) tell(socket, IPPROTO_TCP, option, most);
}

// A third of the time, then four questions in the rest of it.
void ask_in_time(int socket, std::uint64_t ns) {
  const auto seconds = static_cast<int>(ns / (1000 * kMs));
  shorten(socket, TCP_KEEPIDLE, std::max(seconds / 3, 1));
  shorten(socket, TCP_KEEPINTVL, std::max(seconds / 6, 1));
  shorten(socket, TCP_KEEPCNT, 4);
  if (ask(socket, SOL_SOCKET, SO_KEEPALIVE, 1) == 0) tell(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

bool end_if_silent(int socket, std::uint64_t ns) {
  if (ask(socket, SOL_SOCKET, SO_PROTOCOL, -1) != IPPROTO_TCP) return false;
  tcp_info about{};
  socklen_t bytes = sizeof about;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &about, &bytes) != 0 || about.tcpi_state != TCP_ESTABLISHED) {
    return false;
  }
  if (silent_for(about, ns)) return ::shutdown(socket, SHUT_RDWR) == 0;
  ask_in_time(socket, ns);
  return false;
}

std::size_t end_behind(int descriptor, std::uint64_t ns, int depth) {
  const std::vector<int> watched = watched_by(descriptor);
  if (watched.empty()) return end_if_silent(descriptor, ns) ? 1 : 0;
  std::size_t ended = 0;
  if (depth == kDepth) return ended;
  for (const int one : watched) ended += end_behind(one, ns, depth + 1);
  return ended;
}

}  // namespace

// The time since the last acknowledgement alone says nothing where nothing was sent for long before. The pause before the next repetition is
// doubled each time, so it tells for how long there has been no answer: at least as long as it less the first, at most twice as long.
bool silent_for(const tcp_info& about, std::uint64_t ns) {
  ns = std::min(ns, kMostSilence);
  if (std::uint64_t{about.tcpi_last_ack_recv} * kMs < ns) return false;
  if (about.tcpi_unacked != 0) return about.tcpi_backoff != 0 && std::uint64_t{about.tcpi_rto} * kUs >= ns / 2;
  return about.tcpi_probes >= 2;  // of an empty connection, or of one whose end takes nothing for now
}

std::size_t end_silent(int descriptor, std::uint64_t ns) {
  return end_behind(descriptor, ns, 0);
}

}  // namespace heddle::transport::ucx
