#include "tools/run/metrics_port.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "tools/live/openmetrics.hpp"

namespace heddle::tools::run {
namespace {

constexpr std::string_view kPlain = "text/plain; charset=utf-8";

bool would_wait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

// "GET /metrics HTTP/1.1": the words of the request's first line.
struct RequestLine {
  std::string_view method;
  std::string_view path;  // without what follows a question mark
};
RequestLine request_line(std::string_view request) {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return {};
  std::string_view path = line.substr(space + 1);
  path = path.substr(0, path.find(' '));
  return {line.substr(0, space), path.substr(0, path.find('?'))};
}

// Not a name that a page of another machine has made mean this one, in a browser here.
bool names_this_machine(std::string_view request) {
  std::string head(request.substr(0, request.find("\r\n\r\n")));
  std::ranges::transform(head, head.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const std::size_t at = head.find("\r\nhost:");
  if (at == std::string::npos) return true;  // no browser
  std::string host = head.substr(at + 7, head.find("\r\n", at + 7) - (at + 7));
  std::erase(host, ' ');
  host = host.substr(0, host.find(':'));
  return host == "127.0.0.1" || host == "localhost";
}

// As the kernel's tables of TCP sockets write an address and its port; in_six: as one of IPv6,
// which a socket of IPv6 has that reaches 127.0.0.1.
std::string in_table(const sockaddr_in& address, bool in_six) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s%08X:%04X", in_six ? "0000000000000000FFFF0000" : "",
                address.sin_addr.s_addr, ntohs(address.sin_port));
  return text.data();
}

// The user of the process at the other end of this connection, which is on this machine. Nobody: it
// has gone, or the kernel does not tell.
std::optional<uid_t> user_at_other_end(int connection) {
  sockaddr_in there{};
  sockaddr_in here{};
  socklen_t length = sizeof there;
  if (::getpeername(connection, reinterpret_cast<sockaddr*>(&there), &length) != 0) return std::nullopt;
  length = sizeof here;
  if (::getsockname(connection, reinterpret_cast<sockaddr*>(&here), &length) != 0) return std::nullopt;
  for (const bool in_six : {false, true}) {
    std::ifstream table(in_six ? "/proc/net/tcp6" : "/proc/net/tcp");
    for (std::string line; std::getline(table, line);) {
      std::istringstream words(line);
      // number, local and remote address, state, queues, timer, retransmits
      std::array<std::string, 7> first;
      uid_t user = 0;
      std::uint64_t timeout = 0;
      std::uint64_t inode = 0;
      for (std::string& word : first) words >> word;
      words >> user >> timeout >> inode;
      // inode 0: no process has it any more, and the user is not told
      if (!words || inode == 0) continue;
      if (first[1] == in_table(there, in_six) && first[2] == in_table(here, in_six)) return user;
    }
  }
  return std::nullopt;
}

bool is_of_this_user(int connection) {
  const auto user = user_at_other_end(connection);
  return user && (*user == ::geteuid() || *user == 0);
}

}  // namespace

base::Result<std::unique_ptr<MetricsPort>> MetricsPort::open(std::uint16_t port, For whom, Ask ask) {
  std::unique_ptr<MetricsPort> made(new MetricsPort(whom, std::move(ask)));
  made->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  made->listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  socklen_t length = sizeof address;
  epoll_event wanted{EPOLLIN, {}};
  const int listener = made->listener_.get();
  errno = 0;
  // Connections of an earlier job that has ended do not keep the port.
  if (!made->epoll_.valid() || listener < 0 || ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(listener, reinterpret_cast<const sockaddr*>(&address), length) != 0 || ::listen(listener, 16) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::epoll_ctl(made->epoll_.get(), EPOLL_CTL_ADD, listener, &wanted) != 0) {
    const char* instead = errno == EADDRINUSE ? " (--metrics 0 takes one that is free)" : "";
    return base::fail(HEDDLE_ERR_SYSTEM, "cannot serve metrics at port %u of 127.0.0.1: %s%s", port,
                      std::strerror(errno), instead);
  }
  made->port_ = ntohs(address.sin_port);
  return made;
}

void MetricsPort::accept_guests() {
  for (;;) {
    base::Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) return;
    epoll_event wanted{EPOLLIN, {}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.get(), &wanted) != 0) continue;
    if (guests_.size() == kMostGuests) guests_.erase(guests_.begin());
    guests_.push_back(std::make_shared<Guest>(std::move(connection)));
  }
}

void MetricsPort::serve() {
  accept_guests();
  std::erase_if(guests_, [this](const std::shared_ptr<Guest>& guest) { return !hear(guest) || !send(*guest); });
}

bool MetricsPort::hear(const std::shared_ptr<Guest>& guest) {
  std::array<char, 2048> bytes{};
  const ssize_t got = ::recv(guest->socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got == 0) return false;
  if (got < 0) return would_wait();
  if (guest->asked) return true;  // one connection, one request
  guest->request.append(bytes.data(), static_cast<std::size_t>(got));
  if (guest->request.find("\r\n\r\n") != std::string::npos) {
    guest->asked = true;
    reply(guest);
  }
  return guest->request.size() <= kMostRequest;
}

void MetricsPort::reply(const std::shared_ptr<Guest>& guest) {
  const RequestLine asked = request_line(guest->request);
  guest->head_only = asked.method == "HEAD";
  if (for_ == For::user && !is_of_this_user(guest->socket.get())) {
    return tell(
        *guest, "403 Forbidden", kPlain,
        "the counters are for the user of the job; `heddle run --metrics-for all` serves all of this machine\n");
  }
  if (asked.method != "GET" && asked.method != "HEAD") {
    return tell(*guest, "405 Method Not Allowed", kPlain, "only GET and HEAD\n");
  }
  if (!names_this_machine(guest->request)) {
    return tell(*guest, "403 Forbidden", kPlain, "ask 127.0.0.1 or localhost\n");
  }
  if (asked.path != "/metrics" && asked.path != "/") {
    return tell(*guest, "404 Not Found", kPlain, "the counters are at /metrics\n");
  }
  ask_([this, weak = std::weak_ptr(guest)](const std::string& text) {
    const auto still = weak.lock();
    if (still == nullptr) return;
    tell(*still, "200 OK", live::kOpenMetricsType, live::openmetrics(diagnosis::read_counters(text)));
  });
}

// Its socket takes bytes: serve() sends, and ends it.
void MetricsPort::tell(Guest& guest, std::string_view status, std::string_view type, const std::string& body) const {
  guest.answer = "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + std::string(type) +
                 "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
  if (!guest.head_only) guest.answer += body;
  epoll_event wanted{EPOLLIN | EPOLLOUT, {}};
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, guest.socket.get(), &wanted));
}

bool MetricsPort::send(Guest& guest) {
  if (guest.answer.empty()) return true;
  while (guest.sent < guest.answer.size()) {
    const ssize_t sent = ::send(guest.socket.get(), guest.answer.data() + guest.sent, guest.answer.size() - guest.sent,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return would_wait();
    guest.sent += static_cast<std::size_t>(sent);
  }
  return false;
}

}  // namespace heddle::tools::run
