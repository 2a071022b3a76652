// Rank 0 against strangers: a connection that proves nothing is closed, counted, and harms nobody.
#include "bootstrap/hosted/host.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <random>

#include "base/test_support.hpp"
#include "bootstrap/hosted/connect.hpp"
#include "bootstrap/hosted/hosted.hpp"
#include "bootstrap/local/local.hpp"

namespace heddle::bootstrap::hosted::host_test {
namespace {

ProcessFd visit(const Contact& contact) {
  ProcessFd socket = make_socket(AF_UNIX);
  const LocalName name(contact.socket_name());
  EXPECT_EQ(::connect(socket.get(), name.address(), name.length()), 0);
  return socket;
}

void say(const ProcessFd& socket, const void* bytes, std::size_t count) {
  EXPECT_EQ(::send(socket.get(), bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
}

void expect_cut_off(const ProcessFd& socket) {
  std::array<char, 256> bytes;
  ssize_t got = 0;
  while ((got = ::recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0) {
  }
  EXPECT_LE(got, 0);
}

// A rank that knows the secret joins as if nobody else had connected.
void expect_open(const Contact& contact, std::uint32_t rank, std::uint32_t size) {
  const auto connection = connect(contact, rank);
  ASSERT_TRUE(connection.ok()) << base::last_message();
  local::Reader reader(local::Direction::to_rank, size);
  const auto greeting = local::greet({connection->socket.get(), rank, size}, reader);
  ASSERT_TRUE(greeting.ok()) << base::last_message();
  EXPECT_EQ(greeting->welcome.secret, JobSecret{});  // not over a wire
  EXPECT_EQ(greeting->board.bytes().size(), connection->local ? kBoardBytes : 0);
}

std::unique_ptr<Host> open_host(std::uint32_t size, bool other_machines = false) {
  auto host = Host::open({size, other_machines, base::Log()});
  EXPECT_TRUE(host.ok()) << base::last_message();
  return std::move(*host);
}

testing::AssertionResult rejected(const Host& host, std::uint64_t count) {
  if (test::within_time([&] { return host.rejected() == count; }, [] {})) return testing::AssertionSuccess();
  return testing::AssertionFailure() << host.rejected() << " were refused instead of " << count;
}

TEST(host, garbage_is_rejected) {
  const auto host = open_host(2);
  std::mt19937 random(5);
  for (std::uint64_t i = 1; i <= 50; ++i) {
    const ProcessFd stranger = visit(host->contact());
    std::array<std::uint32_t, 64> garbage;
    for (std::uint32_t& word : garbage) word = static_cast<std::uint32_t>(random());
    say(stranger, garbage.data(), sizeof garbage);
    expect_cut_off(stranger);
    EXPECT_TRUE(rejected(*host, i));
  }
  expect_open(host->contact(), 1, 2);
}

TEST(host, a_wrong_secret_is_rejected_by_both_sides) {
  const auto host = open_host(2);
  Contact wrong = host->contact();
  wrong.secret[7] ^= 1;
  EXPECT_EQ(connect(wrong, 1).status(), HEDDLE_ERR_BOOTSTRAP);
  EXPECT_NE(std::strstr(base::last_message(), "secret"), nullptr) << base::last_message();
  EXPECT_TRUE(rejected(*host, 1));
  // A stranger that does not check whether the host knows the secret.
  const ProcessFd stranger = visit(host->contact());
  Knock knock;
  knock.rank = 1;
  say(stranger, &knock, sizeof knock);
  Answer answer;
  ASSERT_EQ(::recv(stranger.get(), &answer, sizeof answer, MSG_WAITALL), static_cast<ssize_t>(sizeof answer));
  // the host's own proof is no proof of its guest
  say(stranger, answer.code.data(), answer.code.size());
  expect_cut_off(stranger);
  EXPECT_TRUE(rejected(*host, 2));
  expect_open(host->contact(), 1, 2);
}

TEST(host, another_version_is_told_and_rejected) {
  const auto host = open_host(2);
  const ProcessFd stranger = visit(host->contact());
  Knock knock;
  knock.rank = 1;
  knock.version = kKnockVersion + 1;
  say(stranger, &knock, sizeof knock);
  Answer answer;
  ASSERT_EQ(::recv(stranger.get(), &answer, sizeof answer, MSG_WAITALL), static_cast<ssize_t>(sizeof answer));
  EXPECT_EQ(answer.version, kKnockVersion);
  EXPECT_EQ(answer.code, Code{});
  expect_cut_off(stranger);
  EXPECT_TRUE(rejected(*host, 1));
  expect_open(host->contact(), 1, 2);
}

TEST(host, a_rank_is_seated_once) {
  const auto host = open_host(3);
  const auto first = connect(host->contact(), 1);
  ASSERT_TRUE(first.ok());
  local::Reader reader(local::Direction::to_rank, 3);
  ASSERT_TRUE(local::greet({first->socket.get(), 1, 3}, reader).ok());
  for (const std::uint32_t rank : {0U, 1U, 3U, ~0U}) {
    const auto again = connect(host->contact(), rank);
    // the proof was good: the rejection shows by the end of the connection
    if (again) expect_cut_off(again->socket);
  }
  EXPECT_TRUE(rejected(*host, 4));
  expect_open(host->contact(), 2, 3);
}

// Many connections that say nothing cost a bounded number of descriptors, and keep nobody out.
TEST(host, silent_guests_keep_nobody_out) {
  const auto host = open_host(2);
  std::vector<ProcessFd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(visit(host->contact()));
  EXPECT_TRUE(rejected(*host, 200 - (2 + 64)));
  expect_open(host->contact(), 1, 2);
  EXPECT_TRUE(rejected(*host, 200 - (2 + 63)));
}

// A rank that proves itself in two steps.
struct Visitor {
  ProcessFd socket;
  Knock knock;
};

void finish_proof(const Contact& contact, const Visitor& visitor) {
  Answer answer;
  ASSERT_EQ(::recv(visitor.socket.get(), &answer, sizeof answer, MSG_WAITALL), static_cast<ssize_t>(sizeof answer));
  const Code code = proof(contact.secret, Side::rank, visitor.knock, answer.nonce);
  say(visitor.socket, code.data(), code.size());
}

// Ranks connect when the launcher lets them go on: all at once.
TEST(host, all_ranks_may_knock_before_one_has_proved_itself) {
  constexpr std::uint32_t kSize = 150;
  const auto host = open_host(kSize);
  std::vector<Visitor> ranks;
  for (std::uint32_t rank = 1; rank < kSize; ++rank) {
    ranks.push_back({visit(host->contact()), {}});
    ranks.back().knock.rank = rank;
    say(ranks.back().socket, &ranks.back().knock, sizeof(Knock));
  }
  for (const Visitor& rank : ranks) finish_proof(host->contact(), rank);
  for (const Visitor& rank : ranks) {
    local::Reader reader(local::Direction::to_rank, kSize);
    ASSERT_TRUE(local::greet({rank.socket.get(), rank.knock.rank, kSize}, reader).ok()) << base::last_message();
  }
  EXPECT_EQ(host->rejected(), 0U);
}

// The next frame that rank 0 receives after its welcome; false: none within the time that only a
// fault takes.
bool next_frame(int socket, local::Reader& reader, local::Frame* frame) {
  while (reader.next(frame) != HEDDLE_DONE) {
    pollfd readable{socket, POLLIN, 0};
    if (::poll(&readable, 1, 60'000) <= 0 || reader.fill(socket, 0) != local::Reader::Fill::data) return false;
  }
  return true;
}

void expect_told_gone(int socket, local::Reader& reader, std::uint32_t rank) {
  local::Frame frame;
  ASSERT_TRUE(next_frame(socket, reader, &frame));
  EXPECT_EQ(frame.header.type, local::FrameType::gone);
  EXPECT_EQ(frame.header.rank, rank);
}

TEST(host, a_rank_that_ends_before_it_joins_is_told_to_the_others) {
  const auto host = open_host(3);
  const ProcessFd own = host->own_end();
  local::Reader reader(local::Direction::to_rank, 3);
  ASSERT_TRUE(local::greet({own.get(), 0, 3}, reader).ok());
  {
    ASSERT_TRUE(connect(host->contact(), 2).ok());
  }  // it has proved itself, and says nothing more
  expect_told_gone(own.get(), reader, 2);
  expect_open(host->contact(), 1, 3);
}

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    reads.reset(ends[0]);
    writes.reset(ends[1]);
  }
  base::Fd reads;
  base::Fd writes;
};

// The pipes to and from a process that is killed. Its child lives until the test closes `until`.
struct Pipes {
  Pipe where;
  Pipe go;
  Pipe until;
};

Contact read_contact(const Pipe& where) {
  std::string text(kMaxValueBytes, '\0');
  const ssize_t got = ::read(where.reads.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  auto contact = decode_contact(text);
  EXPECT_TRUE(contact.ok()) << base::last_message();
  return contact ? std::move(*contact) : Contact();
}

void write_contact(const Pipe& where, const Contact& contact) {
  const std::string text = encode(contact);
  EXPECT_EQ(::write(where.writes.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// The child has all descriptors of this process.
[[noreturn]] void die_with_a_child(const Pipes& pipes) {
  const pid_t child = ::fork();
  char none = 0;
  if (child == 0) {
    [[maybe_unused]] const auto ended = ::read(pipes.until.reads.get(), &none, 1);
    ::_exit(0);
  }
  if (child > 0) ::kill(::getpid(), SIGKILL);
  ::_exit(1);
}

// Joins as rank 1 when it is told the contact.
[[noreturn]] void be_rank_with_child(Pipes& pipes) {
  pipes.until.writes.reset();
  const auto connection = connect(read_contact(pipes.where), 1);
  local::Reader reader(local::Direction::to_rank, 2);
  if (!connection || !local::greet({connection->socket.get(), 1, 2}, reader)) ::_exit(1);
  die_with_a_child(pipes);
}

// Rank 0 of two, until it is told to go.
[[noreturn]] void be_host_with_child(Pipes& pipes) {
  pipes.until.writes.reset();
  const auto host = open_host(2);
  const ProcessFd own = host->own_end();
  local::Reader reader(local::Direction::to_rank, 2);
  if (!local::greet({own.get(), 0, 2}, reader)) ::_exit(1);
  write_contact(pipes.where, host->contact());
  char none = 0;
  if (::read(pipes.go.reads.get(), &none, 1) != 1) ::_exit(1);
  die_with_a_child(pipes);
}

void expect_killed(pid_t process) {
  int status = 0;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
}

class DeathWithAChild : public testing::TestWithParam<bool> {};

// For a rank of this machine the host knows the process. For a rank of another machine it knows
// only the connection, so a child of that rank must not keep it.
TEST_P(DeathWithAChild, of_a_rank_is_told) {
  const bool apart = GetParam();
  const base::Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!apart && !self.valid()) GTEST_SKIP() << "skipped: this kernel, or what stands for it, has no pidfd_open";
  Pipes pipes;
  const pid_t rank = ::fork();  // before this process has threads
  ASSERT_GE(rank, 0);
  if (rank == 0) be_rank_with_child(pipes);
  const auto host = open_host(2, apart);
  const ProcessFd own = host->own_end();
  local::Reader reader(local::Direction::to_rank, 2);
  ASSERT_TRUE(local::greet({own.get(), 0, 2}, reader).ok());
  Contact contact = host->contact();
  if (apart) {
    contact.machine[0] ^= 1;
    contact.addresses = {{"127.0.0.1", contact.addresses.front().port}};
  }
  write_contact(pipes.where, contact);
  expect_killed(rank);
  expect_told_gone(own.get(), reader, 1);
}

// No process watches rank 0's process: its connections end with it.
TEST_P(DeathWithAChild, of_rank_0_ends_its_connections) {
  const bool joins = GetParam();
  Pipes pipes;
  const pid_t first = ::fork();
  ASSERT_GE(first, 0);
  if (first == 0) be_host_with_child(pipes);
  const Contact contact = read_contact(pipes.where);
  const auto connection = connect(contact, 1);
  ASSERT_TRUE(connection.ok()) << base::last_message();
  local::Reader reader(local::Direction::to_rank, 2);
  if (joins) {
    ASSERT_TRUE(local::greet({connection->socket.get(), 1, 2}, reader).ok());
  }
  ASSERT_EQ(::write(pipes.go.writes.get(), "!", 1), 1);
  expect_killed(first);
  pollfd readable{connection->socket.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, 60'000), 1) << "rank 0's child keeps the connection";
  EXPECT_EQ(reader.fill(connection->socket.get(), 0), local::Reader::Fill::closed);
  EXPECT_EQ(connect(contact, 1).status(), HEDDLE_ERR_BOOTSTRAP) << "rank 0's child keeps the door open";
}

INSTANTIATE_TEST_SUITE_P(host, DeathWithAChild, testing::Bool());

// A rank that is stopped while it leaves (here: never leaves) does not hold up rank 0 once all have
// met to leave.
TEST(host, who_does_not_leave_although_all_have_met_to_is_waited_for_so_long_only) {
  auto opened = Host::open({3, false, base::Log(), 1'000'000});
  ASSERT_TRUE(opened.ok());
  const ProcessFd own = (*opened)->own_end();
  local::Reader own_reader(local::Direction::to_rank, 3);
  ASSERT_TRUE(local::greet({own.get(), 0, 3}, own_reader).ok());
  const auto stays = connect((*opened)->contact(), 2);
  ASSERT_TRUE(stays.ok());
  local::Reader reader(local::Direction::to_rank, 3);
  ASSERT_TRUE(local::greet({stays->socket.get(), 2, 3}, reader).ok());
  ASSERT_EQ(local::send_frame(own.get(), {local::FrameType::leave}, {}), HEDDLE_DONE);
  (*opened)->leave(true);
  testing::internal::CaptureStderr();
  std::atomic<bool> gone{false};
  std::thread goes([&] {
    opened->reset();
    gone.store(true);
  });
  EXPECT_TRUE(test::within_time([&] { return gone.load(); }));
  ::shutdown(stays->socket.get(), SHUT_RDWR);  // whatever the result, it ends
  goes.join();
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("rank 2 has not left"), std::string::npos) << told;
}

rlimit descriptors() {
  rlimit limit{};
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit;
}

TEST(host, a_large_job_is_allowed_its_descriptors) {
  const rlimit before = descriptors();
  if (before.rlim_max < 4 * 400 + 256) GTEST_SKIP() << "skipped: the hard limit of descriptors is " << before.rlim_max;
  rlimit few = before;
  few.rlim_cur = 200;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto host = open_host(400);
  EXPECT_GE(descriptors().rlim_cur, 400U + 32U);
  expect_open(host->contact(), 399, 400);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

// poll counts its descriptors against the limit; for a rank that has not connected there is none to
// watch.
TEST(host, ranks_that_have_not_come_count_for_nothing) {
  const rlimit before = descriptors();
  const auto host = open_host(400);
  rlimit few = before;
  few.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  expect_open(host->contact(), 399, 400);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(host, a_job_that_is_too_large_for_the_hard_limit_is_rejected) {
  const auto attempt = [] {
    rlimit few = descriptors();
    few.rlim_cur = few.rlim_max = 200;
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(1);
    const auto host = Host::open({400, false, base::Log()});
    if (host.status() != HEDDLE_ERR_SYSTEM) ::_exit(2);
    ::_exit(std::strstr(base::last_message(), "ulimit -Hn") != nullptr ? 0 : 3);
  };
  EXPECT_EXIT(attempt(), testing::ExitedWithCode(0), "");
}

TEST(host, a_proof_in_pieces_is_a_proof) {
  const auto host = open_host(2);
  const ProcessFd guest = visit(host->contact());
  Knock knock;
  knock.rank = 1;
  for (std::size_t i = 0; i < sizeof knock; ++i) say(guest, reinterpret_cast<const char*>(&knock) + i, 1);
  Answer answer;
  ASSERT_EQ(::recv(guest.get(), &answer, sizeof answer, MSG_WAITALL), static_cast<ssize_t>(sizeof answer));
  const Code code = proof(host->contact().secret, Side::rank, knock, answer.nonce);
  for (const std::uint8_t byte : code) say(guest, &byte, 1);
  local::Reader reader(local::Direction::to_rank, 2);
  EXPECT_TRUE(local::greet({guest.get(), 1, 2}, reader).ok()) << base::last_message();
  EXPECT_EQ(host->rejected(), 0U);
}

TEST(host, listens_to_the_network_only_where_it_must) {
  EXPECT_TRUE(open_host(2, false)->contact().addresses.empty());
  const auto host = open_host(2, true);
  ASSERT_FALSE(host->contact().addresses.empty());
  Contact elsewhere = host->contact();
  elsewhere.machine[0] ^= 1;
  elsewhere.addresses = {{"127.0.0.1", 1}, {"127.0.0.1", host->contact().addresses.front().port}};
  expect_open(elsewhere, 1, 2);  // the first address does not answer, the second does
}

}  // namespace
}  // namespace heddle::bootstrap::hosted::host_test
