#include "tools/run/metrics_port.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tap/openmetrics.hpp"
#include "tools/run/other_end.hpp"

namespace heddle::tools::run {
namespace {

constexpr int kMostAtOnce = 64;
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

// Whether the request names this machine. A page of another machine, in a browser here, may use a
// name of its own that it has made mean this machine. Such a name does not count.
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

bool is_of_this_user(int connection) {
  const auto user = user_at_other_end(connection);
  return user && (*user == ::geteuid() || *user == 0);
}

}  // namespace

base::Result<std::unique_ptr<MetricsPort>> MetricsPort::open(std::uint16_t port, For whom, std::size_t most_guests,
                                                             Ask ask) {
  std::unique_ptr<MetricsPort> made(new MetricsPort(whom, most_guests, std::move(ask)));
  made->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  made->listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  socklen_t length = sizeof address;
  // Edge-triggered: each arrival is reported once. If no descriptor is free for it, it must not be
  // reported again and again.
  epoll_event wanted{EPOLLIN | EPOLLET, {}};
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

// The oldest guests make room for new ones, also if this process may have no more descriptors. Only
// so many come in per call, so that a guest that comes again and again does not keep the ranks
// waiting.
void MetricsPort::accept_guests() {
  pollfd waiting{listener_.get(), POLLIN, 0};
  for (int accepted = 0; accepted < kMostAtOnce && ::poll(&waiting, 1, 0) > 0; ++accepted) {
    if (guests_.size() == most_guests_) guests_.erase(guests_.begin());
    base::Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      const bool gone = errno == ECONNABORTED || errno == EINTR;
      const bool makes_room = (errno == EMFILE || errno == ENFILE) && !guests_.empty();
      if (!gone && !makes_room) return;  // it waits until somebody else comes
      if (makes_room) guests_.erase(guests_.begin());
      continue;
    }
    epoll_event wanted{EPOLLIN, {}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.get(), &wanted) != 0) continue;
    guests_.push_back(std::make_shared<Guest>(std::move(connection)));
  }
}

void MetricsPort::serve() {
  // Fetches all events, so that an event that is reported once is not reported again.
  std::array<epoll_event, kMostGuests + 1> seen{};
  static_cast<void>(::epoll_wait(epoll_.get(), seen.data(), static_cast<int>(seen.size()), 0));
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
    tell(*still, "200 OK", tap::kOpenMetricsType, tap::openmetrics(tap::read_counters(text)));
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
