#include "tools/run/other_end.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/fd.hpp"

namespace heddle::tools::run {
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
