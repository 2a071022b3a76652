#include "bootstrap/hosted/connect.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/clock.hpp"
#include "bootstrap/common.hpp"
#include "bootstrap/hosted/proof.hpp"
#include "bootstrap/hosted/sockets.hpp"

namespace heddle::bootstrap::hosted {
namespace {

constexpr int kConnectTimeoutMs = 10'000;  // each address
constexpr int kAnswerTimeoutMs = 30'000;

base::Result<ProcessFd> connect_locally(const Contact& contact) {
  ProcessFd socket = make_socket(AF_UNIX);
  const LocalName name(contact.socket_name());
  int result = 0;
  do {
    result = socket.valid() ? ::connect(socket.get(), name.address(), name.length()) : -1;
  } while (result != 0 && errno == EINTR);
  if (result != 0)
    return base::fail_errno(HEDDLE_ERR_BOOTSTRAP, "rank 0's local socket cannot be reached (has it died?)");
  if (!same_user(socket.get())) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "who listens at rank 0's local socket is another user's process");
  }
  return socket;
}

// False: errno says why.
bool connect_within(int socket, const sockaddr_in& address, int timeout_ms) {
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd writable{socket, POLLOUT, 0};
  int ready = 0;
  do {
    ready = ::poll(&writable, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  int error = ETIMEDOUT;
  socklen_t length = sizeof error;
  if (ready > 0) ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

base::Result<ProcessFd> connect_by_network(const Contact& contact) {
  std::string tried;
  for (const Address& one : contact.addresses) {
    ProcessFd socket = make_socket(AF_INET, SOCK_NONBLOCK);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(one.port);
    ::inet_pton(AF_INET, one.host.c_str(), &address.sin_addr);
    if (socket.valid() && connect_within(socket.get(), address, kConnectTimeoutMs)) {
      ::fcntl(socket.get(), F_SETFL, 0);  // blocking from here on
      prepare_stream(socket.get());
      return socket;
    }
    tried += " " + one.host + ":" + std::to_string(one.port) + " (" + std::strerror(errno) + ")";
  }
  return base::fail(
      HEDDLE_ERR_BOOTSTRAP,
      "rank 0 is on another machine and cannot be reached at%s; the machines must reach each other by TCP",
      tried.empty() ? " any address: it does not listen for other machines" : tried.c_str());
}

bool receive(int socket, void* to, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    pollfd readable{socket, POLLIN, 0};
    const int ready = ::poll(&readable, 1, kAnswerTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// Sends a few bytes over a new connection. The connection takes them at once.
bool give(int socket, const void* from, std::size_t bytes) {
  return ::send(socket, from, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

base::Status prove(int socket, const Contact& contact, std::uint32_t rank) {
  Knock knock;
  knock.rank = rank;
  const auto nonce = make_secret();
  if (!nonce) return nonce.status();
  knock.nonce = *nonce;
  Answer answer;
  if (!give(socket, &knock, sizeof knock) || !receive(socket, &answer, sizeof answer)) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "rank 0 does not answer, or has cut the connection");
  }
  if (answer.magic != kKnockMagic) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "who answers at rank 0's address is not a process of Heddle");
  }
  if (answer.version != kKnockVersion) {
    return base::fail(HEDDLE_ERR_VERSION,
                      "rank 0 speaks version %u of the meeting protocol (Heddle %u.%u.%u), this process version %u "
                      "(Heddle %d.%d.%d); start all ranks with the same version of Heddle",
                      answer.version, answer.library >> 16, answer.library >> 8 & 255U, answer.library & 255U,
                      kKnockVersion, HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR, HEDDLE_VERSION_PATCH);
  }
  if (!equal(answer.code, proof(contact.secret, Side::host, knock, answer.nonce))) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "who answers at rank 0's address does not know the job's secret");
  }
  const Code code = proof(contact.secret, Side::rank, knock, answer.nonce);
  if (!give(socket, code.data(), code.size())) {
    return base::fail_errno(HEDDLE_ERR_BOOTSTRAP, "rank 0 has cut the connection");
  }
  return HEDDLE_DONE;
}

}  // namespace

base::Result<Connection> connect(const Contact& contact, std::uint32_t rank) {
  const auto machine = this_machine();
  if (!machine) return machine.status();
  const bool local = *machine == contact.machine;
  auto socket = local ? connect_locally(contact) : connect_by_network(contact);
  if (!socket) return socket.status();
  if (const base::Status status = prove(socket->get(), contact, rank); status != HEDDLE_DONE) return status;
  return Connection{std::move(*socket), local};
}

}  // namespace heddle::bootstrap::hosted
