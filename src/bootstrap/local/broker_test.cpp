// The broker against ranks that are played by the test over real sockets, good ones and bad ones.
#include "bootstrap/local/broker.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>

#include "base/random.hpp"
#include "bootstrap/board.hpp"

namespace heddle::bootstrap::local::broker_test {
namespace {

using Bytes = std::vector<std::byte>;

// One rank's end of the connection.
class Peer {
 public:
  Peer(Broker& broker, std::uint32_t rank, std::uint32_t size)
      : broker_(broker), rank_(rank), reader_(Direction::to_rank, size) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    broker.attach(rank, ProcessFd(base::Fd(ends[0])));
    socket_.reset(ends[1]);
  }

  void send(Header header, const Bytes& payload = {}, int fd = -1) {
    ASSERT_EQ(send_frame(socket_.get(), header, payload, fd), HEDDLE_DONE);
    broker_.serve(rank_);
  }
  void join() {
    send({FrameType::hello}, encode(Hello{}));
    ASSERT_EQ(next().header.type, FrameType::welcome);
  }
  // The next frame, which the broker must have sent already.
  Frame next() {
    Frame frame;
    base::Status status{};
    while ((status = reader_.next(&frame)) == HEDDLE_AGAIN) {
      broker_.serve(rank_);
      if (reader_.fill(socket_.get(), MSG_DONTWAIT) != Reader::Fill::data) break;
    }
    EXPECT_EQ(status, HEDDLE_DONE);
    return frame;
  }
  bool silent() {
    Frame frame;
    return reader_.next(&frame) == HEDDLE_AGAIN && reader_.fill(socket_.get(), MSG_DONTWAIT) == Reader::Fill::nothing;
  }
  bool cut_off() {
    while (true) {
      const auto fill = reader_.fill(socket_.get(), MSG_DONTWAIT);
      if (fill != Reader::Fill::data) return fill == Reader::Fill::closed;
    }
  }
  void close() {
    socket_.reset();
    broker_.serve(rank_);
  }
  int socket() const { return socket_.get(); }

 private:
  Broker& broker_;
  std::uint32_t rank_;
  Reader reader_;
  base::Fd socket_;
};

class BrokerTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kSize = 3;
  Broker broker_{kSize, JobSecret{7}};
  std::array<Peer, kSize> peers_{Peer(broker_, 0, kSize), Peer(broker_, 1, kSize), Peer(broker_, 2, kSize)};
  void join_all() {
    for (Peer& peer : peers_) peer.join();
  }
};

TEST_F(BrokerTest, welcomes_with_rank_size_and_secret) {
  peers_[1].send({FrameType::hello}, encode(Hello{.pid = 44}));
  const Frame frame = peers_[1].next();
  const auto welcome = decode_welcome(frame.payload);
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(welcome->rank, 1U);
  EXPECT_EQ(welcome->size, kSize);
  EXPECT_EQ(welcome->secret, JobSecret{7});
  EXPECT_EQ(broker_.pid(1), 44);
  EXPECT_EQ(broker_.membership(1), Membership::joined);
  EXPECT_EQ(broker_.membership(0), Membership::outside);
}

TEST_F(BrokerTest, another_version_is_answered_but_not_let_in) {
  Hello hello;
  hello.version = 99;
  peers_[0].send({FrameType::hello}, encode(hello));
  const auto welcome = decode_welcome(peers_[0].next().payload);
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(welcome->secret, JobSecret{}) << "the secret is for members";
  EXPECT_EQ(broker_.membership(0), Membership::outside);
  peers_[0].send({FrameType::leave});
  EXPECT_TRUE(peers_[0].cut_off());
}

TEST_F(BrokerTest, welcomes_come_with_the_board_of_the_node) {
  std::vector<NodeBoard> boards;
  for (Peer& peer : peers_) {
    peer.send({FrameType::hello}, encode(Hello{}));
    boards.push_back(NodeBoard::map(peer.next().fd));
    ASSERT_EQ(boards.back().bytes().size(), kBoardBytes);
  }
  boards[0].bytes()[5] = std::byte{6};
  EXPECT_EQ(boards[1].bytes()[5], std::byte{6});
  EXPECT_EQ(NodeBoard::map(broker_.board()).bytes()[5], std::byte{6});
  peers_[1].close();
  EXPECT_EQ(boards[2].bytes()[5], std::byte{6}) << "a death changes nothing there";
}

// A rank of another version rejects flags of a welcome that it does not know before it reads which
// version the welcome is of.
TEST_F(BrokerTest, who_cannot_use_a_board_gets_none) {
  Hello older;
  older.version = kProtocolVersion - 1;
  peers_[0].send({FrameType::hello}, encode(older));
  const Frame refusal = peers_[0].next();
  EXPECT_EQ(refusal.header.type, FrameType::welcome);
  EXPECT_EQ(refusal.header.flags, 0);
  EXPECT_FALSE(refusal.fd.valid());

  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const base::Fd far(ends[1]);
  broker_.attach(1, ProcessFd(base::Fd(ends[0])), false);
  ASSERT_EQ(send_frame(far.get(), {FrameType::hello}, encode(Hello{})), HEDDLE_DONE);
  broker_.serve(1);
  Reader reader(Direction::to_rank, kSize);
  ASSERT_EQ(reader.fill(far.get(), MSG_DONTWAIT), Reader::Fill::data);
  Frame frame;
  ASSERT_EQ(reader.next(&frame), HEDDLE_DONE);
  EXPECT_EQ(frame.header.type, FrameType::welcome);
  EXPECT_EQ(frame.header.flags, 0) << "its socket passes no descriptors";

  Broker alone(1, JobSecret{});
  EXPECT_FALSE(alone.board().valid());
  Peer only(alone, 0, 1);
  only.send({FrameType::hello}, encode(Hello{}));
  EXPECT_FALSE(only.next().fd.valid());
}

TEST_F(BrokerTest, who_says_hello_after_the_rank_has_left_does_not_undo_that) {
  join_all();
  peers_[1].send({FrameType::leave});
  peers_[1].send({FrameType::hello}, encode(Hello{.pid = 45}));
  EXPECT_TRUE(peers_[1].cut_off());
  EXPECT_EQ(broker_.membership(1), Membership::left);
}

TEST_F(BrokerTest, cards_are_handed_on_when_they_are_there) {
  join_all();
  const base::Fd file(memfd_create("card", MFD_CLOEXEC));
  peers_[0].send({FrameType::fetch, 0, 2});
  EXPECT_TRUE(peers_[0].silent());
  peers_[2].send({FrameType::publish, 0, 0, 55}, Bytes(9, std::byte{3}), file.get());
  peers_[1].send({FrameType::fetch, 0, 2});
  for (Peer* peer : {&peers_[0], &peers_[1]}) {
    const Frame card = peer->next();
    EXPECT_EQ(card.header.type, FrameType::card);
    EXPECT_EQ(card.header.rank, 2U);
    EXPECT_EQ(card.header.value, 55);
    EXPECT_EQ(card.payload, Bytes(9, std::byte{3}));
    EXPECT_TRUE(card.fd.valid());
  }
}

TEST_F(BrokerTest, an_exchange_ends_when_the_last_arrives) {
  join_all();
  peers_[0].send({FrameType::exchange}, Bytes(1, std::byte{1}));
  peers_[2].send({FrameType::exchange}, Bytes(2, std::byte{2}));
  EXPECT_TRUE(peers_[0].silent());
  peers_[1].send({FrameType::exchange});
  for (Peer& peer : peers_) {
    const Frame result = peer.next();
    ASSERT_EQ(result.header.type, FrameType::result);
    EXPECT_EQ(result.header.rank, Gathered::kNobody);
    auto parts = decode_parts(result.payload, kSize);
    ASSERT_TRUE(parts.ok());
    EXPECT_EQ(*parts, (std::vector<Bytes>{Bytes(1, std::byte{1}), {}, Bytes(2, std::byte{2})}));
  }
}

TEST_F(BrokerTest, a_death_is_told_and_ends_the_exchange_that_it_is_missing_from) {
  join_all();
  peers_[0].send({FrameType::exchange});
  peers_[1].close();
  EXPECT_EQ(broker_.membership(1), Membership::lost);
  EXPECT_EQ(peers_[0].next().header.type, FrameType::gone);
  EXPECT_EQ(peers_[2].next().header.rank, 1U);
  EXPECT_TRUE(peers_[0].silent()) << "rank 2 is alive and has not arrived";
  peers_[2].send({FrameType::exchange});
  for (Peer* peer : {&peers_[0], &peers_[2]}) {
    const Frame result = peer->next();
    EXPECT_EQ(result.header.type, FrameType::result);
    EXPECT_EQ(result.header.rank, 1U);
  }
  broker_.ended(1);
  EXPECT_TRUE(peers_[0].silent()) << "a death is told once";
}

TEST_F(BrokerTest, who_never_joined_is_told_as_gone_also_to_those_who_join_later) {
  peers_[0].join();
  peers_[0].send({FrameType::exchange});
  broker_.ended(1);
  EXPECT_EQ(peers_[0].next().header.type, FrameType::gone);
  peers_[2].join();
  const Frame gone = peers_[2].next();
  EXPECT_EQ(gone.header.type, FrameType::gone);
  EXPECT_EQ(gone.header.rank, 1U);
}

TEST_F(BrokerTest, last_words_are_heard) {
  join_all();
  ASSERT_EQ(send_frame(peers_[1].socket(), {FrameType::leave}, {}), HEDDLE_DONE);
  const std::string text = "out of\nyarn\x1b";
  const auto words = std::as_bytes(std::span(text));
  ASSERT_EQ(send_frame(peers_[2].socket(), {FrameType::abort, 0, 0, 9}, words), HEDDLE_DONE);
  broker_.ended(1);
  broker_.ended(2);
  EXPECT_EQ(broker_.membership(1), Membership::left);
  EXPECT_EQ(broker_.membership(2), Membership::lost);
  ASSERT_TRUE(broker_.aborted());
  EXPECT_EQ(broker_.aborted()->rank, 2U);
  EXPECT_EQ(broker_.aborted()->code, 9);
  EXPECT_EQ(broker_.aborted()->message, "out of yarn ") << "control characters do not reach a terminal";
}

TEST_F(BrokerTest, bad_frames_cut_off_who_sent_them_and_nobody_else) {
  struct Bad {
    Header header;
    Bytes payload;
    bool joined;
  };
  const std::vector<Bad> bads = {
      {{FrameType::exchange}, {}, false},
      {{FrameType::hello}, Bytes(24), false},
      {{FrameType::hello}, encode(Hello{}), true},
      {{FrameType::fetch, 0, kSize}, {}, true},
      {{FrameType::welcome}, {}, true},
      {{FrameType::leave}, Bytes(1), true},
      {{static_cast<FrameType>(1000)}, {}, true},
  };
  for (const Bad& bad : bads) {
    Broker broker(2, JobSecret{});
    Peer good(broker, 0, 2);
    Peer peer(broker, 1, 2);
    good.join();
    if (bad.joined) peer.join();
    peer.send(bad.header, bad.payload);
    EXPECT_TRUE(peer.cut_off()) << static_cast<int>(bad.header.type);
    EXPECT_FALSE(broker.problem(1).empty());
    EXPECT_EQ(good.next().header.type, FrameType::gone);
    EXPECT_EQ(broker.membership(0), Membership::joined);
  }
}

TEST_F(BrokerTest, who_does_not_read_is_not_read_from_either) {
  join_all();
  peers_[2].send({FrameType::publish}, Bytes(kMaxCardBytes));
  const Bytes fetch = encode(Header{FrameType::fetch, 0, 2});
  int sent = 0;
  while (::send(peers_[0].socket(), fetch.data(), fetch.size(), MSG_DONTWAIT) == static_cast<ssize_t>(fetch.size())) {
    ASSERT_LT(++sent, 10'000'000) << "the broker takes requests without end";
    broker_.serve(0);
  }
  EXPECT_EQ(broker_.events(0) & 1, 0) << "POLLIN is not asked for";
  EXPECT_EQ(broker_.membership(0), Membership::joined);
  ASSERT_GT(sent, 256);
  for (int i = 0; i < sent; ++i) ASSERT_EQ(peers_[0].next().header.type, FrameType::card);
}

TEST_F(BrokerTest, random_streams_neither_crash_nor_disturb_the_others) {
  base::Random random(3);
  for (int round = 0; round < 2000; ++round) {
    Broker broker(2, JobSecret{});
    Peer good(broker, 0, 2);
    Peer bad(broker, 1, 2);
    good.join();
    if (round % 2 == 0) bad.join();
    for (int frames = 0; frames < 8; ++frames) {
      Bytes bytes(sizeof(Header) + random.below(40));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(4) == 0 ? random.below(8) : 0);
      bytes[0] = static_cast<std::byte>(random.below(8));
      bytes[1] = {};
      if (::send(bad.socket(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
      broker.serve(1);
    }
    broker.ended(1);
    ASSERT_EQ(broker.membership(0), Membership::joined);
    good.send({FrameType::exchange});
    base::Status last{};
    for (Frame frame = good.next(); frame.header.type != FrameType::result; frame = good.next()) {
      ASSERT_EQ(frame.header.type, FrameType::gone);
      last = HEDDLE_ERR_PEER_FAILED;
    }
    ASSERT_EQ(last, HEDDLE_ERR_PEER_FAILED);
  }
}

}  // namespace
}  // namespace heddle::bootstrap::local::broker_test
