// A network that is cut: a rank that only waits to receive gets the error, though the process at
// the other end lives. The tests' way to cut it is to shut down the connections, all of which are
// in this process. Networks: tests/hosts.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>

#include "api/test_job.hpp"
#include "transport/test/ucx_available.hpp"

namespace heddle::test::given_up_test {
namespace {

bool is_connection(int descriptor) {
  int protocol = 0;
  socklen_t bytes = sizeof protocol;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) != 0 || protocol != IPPROTO_TCP)
    return false;
  tcp_info about{};
  bytes = sizeof about;
  return ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &about, &bytes) == 0 && about.tcpi_state == TCP_ESTABLISHED;
}

void cut_all_connections() {
  int cut = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    if (is_connection(descriptor) && ::shutdown(descriptor, SHUT_RDWR) == 0) ++cut;
  }
  EXPECT_GT(cut, 0);
}

class GivenUp : public testing::TestWithParam<Setting> {};

TEST_P(GivenUp, AReceiveEndsThoughItsSenderLives) {
  if (const std::string why = transport::ucx::why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
  const Variables variables(GetParam().variables);
  const Job job(2, GetParam().transport);
  auto joined = std::async(std::launch::async, [&] { return job.join(1); });
  Context mine = job.join(0);
  Context theirs = joined.get();
  Worker receiver = mine.open_worker();
  Worker sender = theirs.open_worker();
  const auto both = [&] {
    turn(receiver);
    turn(sender);
  };
  std::uint64_t number = 7;
  std::uint64_t got = 0;
  heddle_receive receive{};
  const heddle_wanted wanted{{1, HEDDLE_ANY}, 5, UINT64_MAX};
  ASSERT_EQ(heddle_try_recv(receiver.handle(), &wanted, &got, sizeof got, &receive, nullptr), HEDDLE_POSTED);
  ASSERT_TRUE(within_time(
      [&] { return heddle_try_send(sender.handle(), {0, 0}, 5, &number, sizeof number, nullptr) != HEDDLE_AGAIN; },
      both));
  ASSERT_TRUE(within_time([&] { return receive.status == HEDDLE_DONE; }, both));
  EXPECT_EQ(got, 7U);
  ASSERT_TRUE(within_time([&] { return heddle_try_quiet(sender.handle()) == HEDDLE_DONE; }, both));

  // Matched, so that only an action of its sender can end it.
  std::array<std::uint64_t, 2> parts{};
  std::array<std::uint64_t, 2> to_parts{};
  heddle_partitioned send{};
  heddle_partitioned partitioned{};
  ASSERT_EQ(heddle_psend_init(sender.handle(), parts.data(), 2, 8, {0, 0}, 9, &send), HEDDLE_DONE);
  ASSERT_EQ(heddle_precv_init(receiver.handle(), to_parts.data(), 2, 8, {1, 0}, 9, &partitioned), HEDDLE_DONE);
  ASSERT_EQ(heddle_partitioned_start(send), HEDDLE_DONE);
  ASSERT_EQ(heddle_partitioned_start(partitioned), HEDDLE_DONE);
  ASSERT_EQ(heddle_pready(send, 0), HEDDLE_DONE);
  ASSERT_TRUE(within_time([&] { return heddle_parrived(partitioned, 0) == HEDDLE_DONE; }, both));

  heddle_receive next{};
  heddle_receive anybody{};
  const heddle_wanted any{{HEDDLE_ANY, HEDDLE_ANY}, 5, UINT64_MAX};
  ASSERT_EQ(heddle_try_recv(receiver.handle(), &wanted, &got, sizeof got, &next, nullptr), HEDDLE_POSTED);
  ASSERT_EQ(heddle_try_recv(receiver.handle(), &any, &got, sizeof got, &anybody, nullptr), HEDDLE_POSTED);
  cut_all_connections();
  EXPECT_TRUE(within_time([&] { return next.status != HEDDLE_POSTED; }, [&] { turn(receiver); }));
  EXPECT_EQ(next.status, HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(anybody.status, HEDDLE_POSTED) << "others may send";
  heddle_status run = HEDDLE_AGAIN;
  EXPECT_TRUE(within_time([&] { return (run = heddle_partitioned_test(partitioned)) != HEDDLE_AGAIN; }, [] {}));
  EXPECT_EQ(run, HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(heddle_context_peer_status(mine.handle(), 1), HEDDLE_DONE) << "it lives";
  EXPECT_EQ(heddle_try_recv(receiver.handle(), &wanted, &got, sizeof got, &next, nullptr), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(heddle_recv_cancel(receiver.handle(), &anybody), HEDDLE_DONE);
  std::thread other([&] {
    sender = {};
    theirs = {};
  });
  receiver = {};
  mine = {};
  other.join();
}

INSTANTIATE_TEST_SUITE_P(
    All, GivenUp,
    testing::Values(Setting{"ucx", "ucx", {{"HEDDLE_UCX_TLS", "tcp"}, {"HEDDLE_NETWORK_TIMEOUT", "1s"}}},
                    Setting{"joint",
                            "shm,ucx",
                            {{"HEDDLE_NODE_RANKS", "1"}, {"HEDDLE_UCX_TLS", "tcp"}, {"HEDDLE_NETWORK_TIMEOUT", "1s"}}}),
    name_of);

}  // namespace
}  // namespace heddle::test::given_up_test
