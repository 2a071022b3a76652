#include "bootstrap/local/channel.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "base/random.hpp"

namespace heddle::bootstrap::local::frame_test {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::uint32_t kSize = 4;

base::Status status_of(const Header& header, Direction direction) {
  return decode_header(encode(header), direction, kSize).status();
}

std::string message() {
  return base::last_message();
}

TEST(frame, headers_are_checked) {
  EXPECT_EQ(status_of({FrameType::fetch, 0, 3}, Direction::to_launcher), HEDDLE_DONE);
  EXPECT_EQ(status_of({FrameType::fetch, 0, 4}, Direction::to_launcher), HEDDLE_ERR_PROTOCOL);
  EXPECT_EQ(status_of({FrameType::fetch, 0, 3, 0, 1}, Direction::to_launcher), HEDDLE_ERR_PROTOCOL);
  EXPECT_EQ(status_of({FrameType::fetch, kHasFd, 3}, Direction::to_launcher), HEDDLE_ERR_PROTOCOL);
  EXPECT_EQ(status_of({FrameType::fetch, 0, 3}, Direction::to_rank), HEDDLE_ERR_PROTOCOL) << "wrong direction";
  EXPECT_EQ(status_of({static_cast<FrameType>(99)}, Direction::to_rank), HEDDLE_ERR_PROTOCOL);
  EXPECT_NE(message().find("99"), std::string::npos);
  const auto most = static_cast<std::uint32_t>(kMaxExchangeBytes);
  EXPECT_EQ(status_of({FrameType::exchange, 0, 0, 0, most}, Direction::to_launcher), HEDDLE_DONE);
  EXPECT_EQ(status_of({FrameType::exchange, 0, 0, 0, most + 1}, Direction::to_launcher), HEDDLE_ERR_PROTOCOL);
  EXPECT_EQ(status_of({FrameType::publish, 2, 0, 0, 0}, Direction::to_launcher), HEDDLE_ERR_PROTOCOL);
  EXPECT_EQ(status_of({FrameType::welcome, kHasFd}, Direction::to_rank), HEDDLE_DONE);
  EXPECT_EQ(status_of({FrameType::result, kHasFd}, Direction::to_rank), HEDDLE_ERR_PROTOCOL);
}

TEST(frame, another_version_is_named_on_both_sides) {
  Hello hello;
  hello.version = 7;
  hello.library = 2U << 16 | 3U << 8 | 4U;
  EXPECT_EQ(decode_hello(encode(hello)).status(), HEDDLE_ERR_VERSION);
  EXPECT_NE(message().find("version 7"), std::string::npos) << message();
  EXPECT_NE(message().find("2.3.4"), std::string::npos) << message();
  EXPECT_NE(message().find("version " + std::to_string(kProtocolVersion)), std::string::npos) << message();
  Bytes longer = encode(hello);
  longer.resize(60);
  EXPECT_EQ(decode_hello(longer).status(), HEDDLE_ERR_VERSION) << "a later version may say more";
  Welcome welcome;
  welcome.version = 0;
  EXPECT_EQ(decode_welcome(encode(welcome)).status(), HEDDLE_ERR_VERSION);
  welcome = {};
  welcome.magic = 1;
  EXPECT_EQ(decode_welcome(encode(welcome)).status(), HEDDLE_ERR_BOOTSTRAP);
  EXPECT_EQ(decode_welcome(Bytes(3)).status(), HEDDLE_ERR_BOOTSTRAP);
  Bytes cut = encode(Welcome{});
  cut.pop_back();
  EXPECT_EQ(decode_welcome(cut).status(), HEDDLE_ERR_PROTOCOL);
}

TEST(frame, parts_come_back_as_they_were) {
  const std::vector<Bytes> parts = {Bytes(3, std::byte{1}), {}, Bytes(1000, std::byte{2}), Bytes(1)};
  auto back = decode_parts(encode_parts(parts), kSize);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, parts);
  Bytes bytes = encode_parts(parts);
  EXPECT_EQ(decode_parts(bytes, kSize + 1).status(), HEDDLE_ERR_PROTOCOL);
  bytes.push_back({});
  EXPECT_EQ(decode_parts(bytes, kSize).status(), HEDDLE_ERR_PROTOCOL);
  bytes.resize(bytes.size() - 2);
  EXPECT_EQ(decode_parts(bytes, kSize).status(), HEDDLE_ERR_PROTOCOL);
  EXPECT_EQ(decode_parts({}, kSize).status(), HEDDLE_ERR_PROTOCOL);
}

// For all bytes, decoding does not crash, reads nothing outside (run under AddressSanitizer), and
// accepts no more than it was given.
TEST(frame, random_bytes_are_rejected_or_make_sense) {
  base::Random random(20);
  for (int round = 0; round < 200'000; ++round) {
    Bytes bytes(random.below(80));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(8) == 0 ? random.next() : random.below(3));
    const auto direction = random.below(2) == 0 ? Direction::to_launcher : Direction::to_rank;
    if (decode_header(bytes, direction, kSize)) {
      ASSERT_GE(bytes.size(), sizeof(Header));
    }
    static_cast<void>(decode_hello(bytes));
    static_cast<void>(decode_welcome(bytes));
    if (const auto parts = decode_parts(bytes, kSize)) {
      std::size_t total = kSize * sizeof(std::uint32_t);
      for (const Bytes& part : *parts) total += part.size();
      ASSERT_EQ(total, bytes.size());
    }
  }
}

class Wire {
 public:
  Wire() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    near.reset(ends[0]);
    far.reset(ends[1]);
  }
  base::Fd near;
  base::Fd far;
};

TEST(channel, frames_keep_their_order_and_their_descriptors) {
  Wire wire;
  const base::Fd a(memfd_create("a", MFD_CLOEXEC));
  const base::Fd b(memfd_create("b", MFD_CLOEXEC));
  ASSERT_EQ(write(a.get(), "a", 1), 1);
  ASSERT_EQ(write(b.get(), "b", 1), 1);
  ASSERT_EQ(send_frame(wire.near.get(), {FrameType::publish, 0, 0, 1}, Bytes(10), a.get()), HEDDLE_DONE);
  ASSERT_EQ(send_frame(wire.near.get(), {FrameType::fetch, 0, 2}, {}), HEDDLE_DONE);
  ASSERT_EQ(send_frame(wire.near.get(), {FrameType::publish, 0, 0, 2}, {}, b.get()), HEDDLE_DONE);
  wire.near.reset();
  Reader reader(Direction::to_launcher, kSize);
  while (reader.fill(wire.far.get(), 0) == Reader::Fill::data) {
  }
  Frame frame;
  for (const char* text : {"a", "", "b"}) {
    ASSERT_EQ(reader.next(&frame), HEDDLE_DONE) << message();
    char read = 0;
    EXPECT_EQ(frame.fd.valid(), *text != 0);
    if (frame.fd.valid()) {
      EXPECT_EQ(pread(frame.fd.get(), &read, 1, 0), 1);
    }
    EXPECT_EQ(read, *text);
  }
  EXPECT_EQ(reader.next(&frame), HEDDLE_AGAIN);
}

TEST(channel, an_outbox_waits_for_a_full_socket_and_loses_nothing) {
  Wire wire;
  Outbox outbox;
  const auto payload = std::make_shared<const Bytes>(100'000, std::byte{5});
  constexpr std::uint32_t kFrames = 40;
  for (std::uint32_t i = 0; i < kFrames; ++i) outbox.add({FrameType::result, 0, i}, payload);
  ASSERT_TRUE(outbox.flush(wire.near.get()));
  ASSERT_GT(outbox.waiting(), 0U) << "the socket took it all; make the frames larger";
  Reader reader(Direction::to_rank, kSize);
  Frame frame;
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    base::Status status{};
    while ((status = reader.next(&frame)) == HEDDLE_AGAIN) {
      ASSERT_TRUE(outbox.flush(wire.near.get()));
      ASSERT_EQ(reader.fill(wire.far.get(), MSG_DONTWAIT), Reader::Fill::data);
    }
    ASSERT_EQ(status, HEDDLE_DONE) << message();
    ASSERT_EQ(frame.header.rank, i);
    ASSERT_EQ(frame.payload, *payload);
  }
  wire.far.reset();
  outbox.add({FrameType::gone});
  EXPECT_FALSE(outbox.flush(wire.near.get()));
}

TEST(channel, a_promised_descriptor_must_be_there) {
  Wire wire;
  const Bytes bytes = encode(Header{FrameType::publish, kHasFd});
  ASSERT_EQ(send(wire.near.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  Reader reader(Direction::to_launcher, kSize);
  ASSERT_EQ(reader.fill(wire.far.get(), 0), Reader::Fill::data);
  Frame frame;
  EXPECT_EQ(reader.next(&frame), HEDDLE_ERR_PROTOCOL);
}

}  // namespace
}  // namespace heddle::bootstrap::local::frame_test
