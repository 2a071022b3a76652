// The port of counters, and guests that take all that they can get.
#include "tools/run/metrics_port.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "tools/run/spawn.hpp"

namespace heddle::tools::run::metrics_port_test {
namespace {

constexpr int kLongMs = 60'000;
constexpr int kMostRounds = 10'000;  // of a port that is ready again and again, and does nothing
constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\n\r\n";

base::Fd socket_to_connect() {
  return base::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

sockaddr_in at_port(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

bool is_ready(int fd, int wait_ms) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, wait_ms) > 0;
}

class Metrics : public testing::Test {
 protected:
  void open(std::size_t most_guests) {
    auto opened =
        MetricsPort::open(0, MetricsPort::For::all, most_guests, [](const MetricsPort::Answer& answer) { answer(""); });
    ASSERT_TRUE(opened.ok()) << base::last_message();
    port_ = std::move(*opened);
  }
  void connect(const base::Fd& guest) const {
    const sockaddr_in address = at_port(port_->port());
    ASSERT_EQ(::connect(guest.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  // One more, which the port has accepted.
  base::Fd guest() {
    base::Fd made = socket_to_connect();
    connect(made);
    EXPECT_TRUE(is_ready(port_->fd(), kLongMs));
    port_->serve();
    return made;
  }
  // Sends a request, and serves until there is an answer or the connection has ended.
  std::string answer_to(const base::Fd& guest) {
    EXPECT_EQ(::send(guest.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(kRequest.size()));
    for (int rounds = 0; !is_ready(guest.get(), 0); ++rounds) {
      if (rounds == kMostRounds || !is_ready(port_->fd(), kLongMs)) return "nothing happens";
      port_->serve();
    }
    std::array<char, 4096> part{};
    const ssize_t got = ::recv(guest.get(), part.data(), part.size(), MSG_DONTWAIT);
    return got <= 0 ? std::string() : std::string(part.data(), static_cast<std::size_t>(got));
  }
  static bool is_ended(const base::Fd& guest) {
    char byte = 0;
    return is_ready(guest.get(), 0) && ::recv(guest.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  }

  std::unique_ptr<MetricsPort> port_;
};

// No descriptor more than are open now, until it is destroyed.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    // The lowest number that is free is the next: above it none may be.
    const base::Fd next = socket_to_connect();
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next.get());
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~NoMoreDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(Metrics, the_oldest_guest_makes_room_for_one_beyond_the_most) {
  open(2);
  const std::size_t before = open_descriptors();
  const base::Fd first = guest();
  const base::Fd second = guest();
  EXPECT_EQ(open_descriptors(), before + 4);
  EXPECT_FALSE(is_ended(first));
  const base::Fd third = guest();
  EXPECT_TRUE(is_ended(first));
  EXPECT_EQ(open_descriptors(), before + 5) << "three of the guests' own, two of the port";
  EXPECT_TRUE(answer_to(second).starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(answer_to(third).starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_F(Metrics, the_oldest_guest_makes_room_where_no_descriptor_is_free) {
  open(8);
  const base::Fd first = guest();
  const base::Fd second = guest();
  const base::Fd third = socket_to_connect();
  const NoMoreDescriptors none;
  connect(third);
  ASSERT_TRUE(is_ready(port_->fd(), kLongMs));
  port_->serve();
  EXPECT_TRUE(is_ended(first));
  EXPECT_FALSE(is_ended(second));
  EXPECT_TRUE(answer_to(third).starts_with("HTTP/1.1 200 OK\r\n"));
}

// Otherwise a thread that waits for the port would be woken again and again for nothing.
TEST_F(Metrics, a_guest_for_whom_there_is_no_descriptor_is_told_of_once_and_comes_in_later) {
  open(8);
  const base::Fd first = socket_to_connect();
  const base::Fd second = socket_to_connect();
  {
    const NoMoreDescriptors none;
    connect(first);
    ASSERT_TRUE(is_ready(port_->fd(), kLongMs));
    port_->serve();
    EXPECT_FALSE(is_ready(port_->fd(), 0));
  }
  connect(second);
  EXPECT_TRUE(answer_to(second).starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(answer_to(first).starts_with("HTTP/1.1 200 OK\r\n"));
}

// ---- whose process is at the other end

struct Connection {
  base::Fd guest;
  base::Fd host;
};

Connection connection_of(const base::Fd& listener) {
  sockaddr_in address = at_port(0);
  socklen_t length = sizeof address;
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  Connection made{socket_to_connect(), {}};
  EXPECT_EQ(::connect(made.guest.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  made.host.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return made;
}

base::Fd listening() {
  base::Fd listener = socket_to_connect();
  const sockaddr_in address = at_port(0);
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(listener.get(), 16), 0);
  return listener;
}

TEST(OtherEnd, is_of_this_user) {
  const base::Fd listener = listening();
  const Connection one = connection_of(listener);
  EXPECT_EQ(read_user_at_other_end(one.host.get()), ::geteuid());
  EXPECT_EQ(user_at_other_end(one.host.get()), ::geteuid());
  // If the kernel can be asked, it gives the same answer.
  if (const auto asked = ask_user_at_other_end(one.host.get())) {
    EXPECT_EQ(*asked, ::geteuid());
  }
}

TEST(OtherEnd, is_nobody_s_once_it_is_closed) {
  const base::Fd listener = listening();
  Connection one = connection_of(listener);
  one.guest.reset();
  EXPECT_EQ(user_at_other_end(one.host.get()), std::nullopt);
}

TEST(OtherEnd, is_of_another_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "to be another user takes root";
  constexpr uid_t kNobody = 65534;
  const base::Fd listener = listening();
  sockaddr_in address = at_port(0);
  socklen_t length = sizeof address;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  std::array<int, 2> until{};
  ASSERT_EQ(::pipe2(until.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(until[1]);
    char byte = 0;
    const bool changed = ::setgroups(0, nullptr) == 0 && ::setuid(kNobody) == 0;
    const int guest = ::socket(AF_INET, SOCK_STREAM, 0);
    const bool there = ::connect(guest, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::_exit(changed && there && ::read(until[0], &byte, 1) == 0 ? 0 : 1);
  }
  const base::Fd host(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_EQ(user_at_other_end(host.get()), kNobody);
  EXPECT_EQ(read_user_at_other_end(host.get()), kNobody);
  for (const int end : until) ::close(end);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace heddle::tools::run::metrics_port_test
