#include "bootstrap/hosted/sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace heddle::bootstrap::hosted {
namespace {

bool credentials(int socket, ucred* peer) {
  socklen_t length = sizeof *peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, peer, &length) == 0;
}

void set(int socket, int level, int option, int value) {
  // The options only improve matters, so failures do not count.
  [[maybe_unused]] const int ignored = ::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

ProcessFd make_socket(int domain, int flags) {
  return ProcessFd::make([=] { return ::socket(domain, SOCK_STREAM | SOCK_CLOEXEC | flags, 0); });
}

LocalName::LocalName(const std::string& name) {
  address_.sun_family = AF_UNIX;
  const std::size_t count = std::min(name.size(), sizeof address_.sun_path - 1);
  std::memcpy(address_.sun_path + 1, name.data(), count);
  length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
}

bool same_user(int socket) {
  ucred peer{};
  return credentials(socket, &peer) && peer.uid == ::geteuid();
}

pid_t process_of(int socket) {
  ucred peer{};
  return credentials(socket, &peer) ? peer.pid : 0;
}

void prepare_stream(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

}  // namespace heddle::bootstrap::hosted
