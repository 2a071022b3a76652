#include "tools/run/metrics_port.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.hpp"
#include "tap/counters.hpp"

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

namespace {

// The addresses as the socket at the other end has them.
struct Ends {
  sockaddr_in own{};
  sockaddr_in peer{};
};

std::optional<Ends> ends_of(int connection) {
  Ends ends;
  socklen_t length = sizeof ends.own;
  if (::getpeername(connection, reinterpret_cast<sockaddr*>(&ends.own), &length) != 0) return std::nullopt;
  length = sizeof ends.peer;
  if (::getsockname(connection, reinterpret_cast<sockaddr*>(&ends.peer), &length) != 0) return std::nullopt;
  return ends;
}

// As the kernel's tables of TCP sockets write an address and its port; in_six: as one of IPv6,
// which a socket of IPv6 has that reaches 127.0.0.1.
std::string in_table(const sockaddr_in& address, bool in_six) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s%08X:%04X", in_six ? "0000000000000000FFFF0000" : "",
                address.sin_addr.s_addr, ntohs(address.sin_port));
  return text.data();
}

// The fields after the two addresses in a line of the table: state, queues, timer, retransmits,
// user, timeout, inode. inode 0: no process has the socket any more, and the user is not told.
std::optional<uid_t> user_in(const std::string& rest) {
  std::istringstream words(rest);
  std::array<std::string, 4> skipped;
  uid_t user = 0;
  std::uint64_t timeout = 0;
  std::uint64_t inode = 0;
  for (std::string& word : skipped) words >> word;
  words >> user >> timeout >> inode;
  if (!words || inode == 0) return std::nullopt;
  return user;
}

}  // namespace

std::optional<uid_t> ask_user_at_other_end(int connection) {
  const auto ends = ends_of(connection);
  const base::Fd kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!ends || !kernel.valid()) return std::nullopt;
  struct {
    nlmsghdr head;
    inet_diag_req_v2 wanted;
  } question{};
  question.head.nlmsg_len = sizeof question;
  question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  // The kernel finds a socket of IPv6 that reaches 127.0.0.1 by these, too.
  question.wanted.sdiag_family = AF_INET;
  question.wanted.sdiag_protocol = IPPROTO_TCP;
  question.wanted.idiag_states = ~0U;
  question.wanted.id.idiag_sport = ends->own.sin_port;
  question.wanted.id.idiag_src[0] = ends->own.sin_addr.s_addr;
  question.wanted.id.idiag_dport = ends->peer.sin_port;
  question.wanted.id.idiag_dst[0] = ends->peer.sin_addr.s_addr;
  question.wanted.id.idiag_cookie[0] = question.wanted.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (::send(kernel.get(), &question, sizeof question, 0) != static_cast<ssize_t>(sizeof question)) return std::nullopt;
  // The kernel has answered when send() returns.
  alignas(nlmsghdr) std::array<std::byte, 4096> answer{};
  const ssize_t got = ::recv(kernel.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)))) return std::nullopt;
  nlmsghdr head{};
  std::memcpy(&head, answer.data(), sizeof head);
  if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  inet_diag_msg found{};
  std::memcpy(&found, answer.data() + NLMSG_HDRLEN, sizeof found);
  const bool same = found.id.idiag_sport == ends->own.sin_port && found.id.idiag_dport == ends->peer.sin_port;
  if (!same || found.idiag_inode == 0) return std::nullopt;
  return found.idiag_uid;
}

std::optional<uid_t> read_user_at_other_end(int connection) {
  const auto ends = ends_of(connection);
  if (!ends) return std::nullopt;
  for (const bool in_six : {false, true}) {
    const std::string wanted = ": " + in_table(ends->own, in_six) + ' ' + in_table(ends->peer, in_six) + ' ';
    std::ifstream table(in_six ? "/proc/net/tcp6" : "/proc/net/tcp");
    for (std::string line; std::getline(table, line);) {
      const std::size_t at = line.find(wanted);
      if (at == std::string::npos) continue;
      if (const auto user = user_in(line.substr(at + wanted.size()))) return user;
    }
  }
  return std::nullopt;
}

std::optional<uid_t> user_at_other_end(int connection) {
  const auto asked = ask_user_at_other_end(connection);
  return asked ? asked : read_user_at_other_end(connection);
}

}  // namespace heddle::tools::run
