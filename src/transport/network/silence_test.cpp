// Which connections are silent, by what the kernel reports; no other connection is shut down.
// Networks that are cut: tests/hosts.
#include "transport/network/losses.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>

#include "base/fd.hpp"

namespace heddle::transport::network::silence_test {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

tcp_info sent_again(unsigned last_ack_ms, unsigned backoff, unsigned pause_us) {
  tcp_info about{};
  about.tcpi_unacked = 1;
  about.tcpi_last_ack_recv = last_ack_ms;
  about.tcpi_backoff = static_cast<std::uint8_t>(backoff);
  about.tcpi_rto = pause_us;
  return about;
}

tcp_info asked(unsigned last_ack_ms, unsigned probes) {
  tcp_info about{};
  about.tcpi_last_ack_recv = last_ack_ms;
  about.tcpi_probes = static_cast<std::uint8_t>(probes);
  return about;
}

TEST(silence, is_what_lasts_although_something_was_sent_again_and_again) {
  // 0.2 + 0.4 + … + 12.8 s have passed, the next pause is 25.6 s.
  EXPECT_TRUE(silent_for(sent_again(30'000, 7, 25'600'000), false, 30 * kSecond));
  EXPECT_FALSE(silent_for(sent_again(29'000, 7, 25'600'000), false, 30 * kSecond));
  // The last acknowledgement was an hour ago, and the retransmissions began only lately.
  EXPECT_FALSE(silent_for(sent_again(3'600'000, 0, 200'000), false, 30 * kSecond));
  EXPECT_FALSE(silent_for(sent_again(3'600'000, 5, 6'400'000), false, 30 * kSecond));
  EXPECT_TRUE(silent_for(sent_again(3'600'000, 7, 25'600'000), false, 30 * kSecond));
  // The kernel's longest pause.
  EXPECT_TRUE(silent_for(sent_again(1'000'000, 12, 120'000'000), false, 3600 * kSecond));
}

// If a router reports that the host is unreachable, the pauses become short again.
TEST(silence, is_what_lasts_while_a_router_answers_in_the_place_of_the_host) {
  tcp_info about = sent_again(60'000, 0, 200'000);
  about.tcpi_retransmits = 40;
  EXPECT_TRUE(silent_for(about, true, 30 * kSecond));
  EXPECT_FALSE(silent_for(about, false, 30 * kSecond));  // it may have had nothing to send for long
  about.tcpi_retransmits = 2;
  EXPECT_FALSE(silent_for(about, true, 30 * kSecond));
  about.tcpi_retransmits = 40;
  about.tcpi_last_ack_recv = 29'000;
  EXPECT_FALSE(silent_for(about, true, 30 * kSecond));
}

TEST(silence, is_questions_that_nobody_answers) {
  EXPECT_TRUE(silent_for(asked(30'000, 2), true, 30 * kSecond));
  EXPECT_FALSE(silent_for(asked(90'000, 1), true, 30 * kSecond));
  EXPECT_FALSE(silent_for(asked(90'000, 0), true, 30 * kSecond));
  EXPECT_FALSE(silent_for(asked(20'000, 3), true, 30 * kSecond));
}

struct Pair {
  base::Fd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  base::Fd here{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  base::Fd there;

  Pair() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), any, bytes), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), any, &bytes), 0);
    EXPECT_EQ(::connect(here.get(), any, bytes), 0);
    there.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(there.valid());
  }
};

base::Fd epoll_of(std::initializer_list<int> descriptors) {
  base::Fd made(::epoll_create1(EPOLL_CLOEXEC));
  for (const int descriptor : descriptors) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    EXPECT_EQ(::epoll_ctl(made.get(), EPOLL_CTL_ADD, descriptor, &event), 0);
  }
  return made;
}

// One check of all of them.
std::size_t end_silent(int descriptor, std::uint64_t ns) {
  Silence silence(ns, base::Log());
  silence.gather(descriptor);
  std::size_t ended = 0;
  while (!silence.done()) ended += silence.look(1);
  return ended;
}

int option(const base::Fd& socket, int name, int level = IPPROTO_TCP) {
  int value = -1;
  socklen_t bytes = sizeof value;
  EXPECT_EQ(::getsockopt(socket.get(), level, name, &value, &bytes), 0);
  return value;
}

TEST(silence, connections_are_found_behind_epolls_and_ask_in_time) {
  Pair pair;
  const int idle = 2;
  EXPECT_EQ(::setsockopt(pair.there.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle), 0);
  const base::Fd event(::eventfd(0, EFD_CLOEXEC));
  const base::Fd inner = epoll_of({pair.here.get(), pair.listener.get(), event.get()});
  const base::Fd outer = epoll_of({inner.get(), pair.there.get()});
  EXPECT_EQ(end_silent(outer.get(), 30 * kSecond), 0U);
  EXPECT_EQ(option(pair.here, SO_KEEPALIVE, SOL_SOCKET), 1);
  EXPECT_EQ(option(pair.here, TCP_KEEPIDLE), 10);
  EXPECT_EQ(option(pair.here, TCP_KEEPINTVL), 5);
  EXPECT_EQ(option(pair.here, TCP_KEEPCNT), 4);
  EXPECT_EQ(option(pair.there, TCP_KEEPIDLE), 2);  // shorter times stay
}

// Another file has its number by now.
TEST(silence, a_descriptor_that_was_opened_anew_is_left_alone) {
  Pair pair;
  const base::Fd epoll = epoll_of({pair.here.get()});
  // so that the epoll still watches it
  const base::Fd kept(::fcntl(pair.here.get(), F_DUPFD_CLOEXEC, 0));
  ASSERT_EQ(::dup3(pair.listener.get(), pair.here.get(), O_CLOEXEC), pair.here.get());
  EXPECT_EQ(end_silent(epoll.get(), 30 * kSecond), 0U);
  EXPECT_EQ(option(pair.here, SO_KEEPALIVE, SOL_SOCKET), 0);
  EXPECT_EQ(option(kept, SO_KEEPALIVE, SOL_SOCKET), 0);
}

// A check has a limit, so that a thread with many connections is not kept from its other work.
TEST(silence, so_many_connections_are_looked_at_in_one_turn) {
  std::array<Pair, 5> pairs;
  const base::Fd inner = epoll_of({pairs[0].here.get(), pairs[1].here.get(), pairs[2].here.get()});
  const base::Fd outer = epoll_of({inner.get(), pairs[3].here.get(), pairs[4].here.get()});
  const auto looked_at = [&] {
    std::size_t count = 0;
    for (const Pair& pair : pairs) count += option(pair.here, SO_KEEPALIVE, SOL_SOCKET) == 1 ? 1 : 0;
    return count;
  };
  Silence silence(30 * kSecond, base::Log());
  EXPECT_TRUE(silence.done());
  silence.gather(outer.get());
  EXPECT_EQ(looked_at(), 0U);
  for (const std::size_t most : {2U, 0U, 1U}) {
    const std::size_t before = looked_at();
    EXPECT_EQ(silence.look(most), 0U);
    EXPECT_EQ(looked_at(), before + most);
    EXPECT_FALSE(silence.done());
  }
  EXPECT_EQ(silence.look(10), 0U);
  EXPECT_EQ(looked_at(), 5U);
  EXPECT_TRUE(silence.done());
}

// Between the turns of one check.
TEST(silence, a_descriptor_that_is_opened_anew_meanwhile_is_left_alone) {
  Pair pair;
  const base::Fd epoll = epoll_of({pair.here.get()});
  Silence silence(30 * kSecond, base::Log());
  silence.gather(epoll.get());
  ASSERT_EQ(::dup3(pair.there.get(), pair.here.get(), O_CLOEXEC), pair.here.get());
  EXPECT_EQ(silence.look(10), 0U);
  EXPECT_TRUE(silence.done());
  EXPECT_EQ(option(pair.there, SO_KEEPALIVE, SOL_SOCKET), 0);
}

// The other end reads nothing, so nothing more can be sent; but its kernel answers.
TEST(silence, who_takes_nothing_is_not_silent) {
  Pair pair;
  ASSERT_EQ(::fcntl(pair.here.get(), F_SETFL, O_NONBLOCK), 0);
  std::array<char, 65536> bytes{};
  while (::send(pair.here.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
  }
  const base::Fd epoll = epoll_of({pair.here.get(), pair.there.get()});
  EXPECT_EQ(end_silent(epoll.get(), 1'000'000), 0U);
  EXPECT_EQ(::recv(pair.there.get(), bytes.data(), bytes.size(), MSG_WAITALL), static_cast<ssize_t>(bytes.size()));
}

TEST(silence, what_is_no_descriptor_is_left_alone) {
  EXPECT_EQ(end_silent(-1, kSecond), 0U);
  const base::Fd event(::eventfd(0, EFD_CLOEXEC));
  EXPECT_EQ(end_silent(event.get(), kSecond), 0U);
}

}  // namespace
}  // namespace heddle::transport::network::silence_test
