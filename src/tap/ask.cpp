#include "tap/ask.hpp"

#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "base/fd.hpp"

namespace heddle::tap {
namespace {

std::string prefix_of_user() {
  return "heddle.job." + std::to_string(::getuid()) + '.';
}

}  // namespace

// An abstract name begins with a 0.
DoorName::DoorName(pid_t pid) {
  const std::string text = prefix_of_user() + std::to_string(pid);
  address.sun_family = AF_UNIX;
  const std::size_t bytes = std::min(text.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, text.data(), bytes);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

bool is_of_this_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::getuid();
}

std::vector<pid_t> find_doors() {
  const std::string prefix = '@' + prefix_of_user();
  std::vector<pid_t> found;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t at = line.rfind(' ');
    const std::string_view name = std::string_view(line).substr(at == std::string::npos ? 0 : at + 1);
    if (!name.starts_with(prefix)) continue;
    pid_t pid = 0;
    const std::string_view number = name.substr(prefix.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), pid);
    if (error == std::errc() && end == number.data() + number.size()) found.push_back(pid);
  }
  std::ranges::sort(found);
  const auto repeated = std::ranges::unique(found);  // a connection has its listener's name
  found.erase(repeated.begin(), repeated.end());
  return found;
}

base::Result<std::string> ask_door(pid_t pid, std::string_view request, int timeout_ms) {
  const base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const DoorName name(pid);
  // If the listener's queue is full, connect() waits as well.
  const timeval limit{timeout_ms / 1000, std::int64_t{timeout_ms} % 1000 * 1000};
  if (socket.valid()) ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "process %d watches no job of Heddle: %s", static_cast<int>(pid),
                      std::strerror(errno));
  }
  if (!is_of_this_user(socket.get())) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "who answers for process %d is another user's", static_cast<int>(pid));
  }
  const std::string line = std::string(request) + '\n';
  if (::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    return base::fail_errno(HEDDLE_ERR_BOOTSTRAP, "cannot ask the job");
  }
  std::string answer;
  for (;;) {
    pollfd readable{socket.get(), POLLIN, 0};
    const int ready = ::poll(&readable, 1, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0)
      return base::fail(HEDDLE_ERR_TIMEOUT, "process %d does not answer (is it stopped?)", static_cast<int>(pid));
    std::array<char, 4096> bytes{};
    const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::fail_errno(HEDDLE_ERR_BOOTSTRAP, "the job does not answer");
    if (got == 0) return answer;
    answer.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace heddle::tap
