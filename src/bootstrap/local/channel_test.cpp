// Frames and descriptors over a real socket pair, also when descriptors run out and when the other
// end breaks the rules.
#include "bootstrap/local/channel.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace heddle::bootstrap::local::channel_test {
namespace {

using Bytes = std::vector<std::byte>;

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    here.reset(ends[0]);
    there.reset(ends[1]);
  }
  base::Fd here;
  base::Fd there;
};

// No descriptor can be opened while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const base::Fd next(::fcntl(0, F_DUPFD_CLOEXEC, 0));
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(next.get());
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

base::Fd file_with(char letter) {
  base::Fd file(::memfd_create("card", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), &letter, 1), 1);
  return file;
}

base::Status take(Reader& reader, int socket, Frame* frame) {
  base::Status status{};
  while ((status = reader.next(frame)) == HEDDLE_AGAIN) {
    if (reader.fill(socket, MSG_DONTWAIT) != Reader::Fill::data) return HEDDLE_AGAIN;
  }
  return status;
}

TEST(channel, a_lost_descriptor_is_told_by_its_frame_and_the_others_keep_theirs) {
  Pair pair;
  for (std::int32_t i = 0; i < 3; ++i) {
    const base::Fd file = file_with(static_cast<char>('a' + i));
    ASSERT_EQ(send_frame(pair.there.get(), {FrameType::card, 0, 1, i}, Bytes(7), file.get()), HEDDLE_DONE);
  }
  Reader reader(Direction::to_rank, 2);
  {
    const NoDescriptors none;
    ASSERT_EQ(reader.fill(pair.here.get(), MSG_DONTWAIT), Reader::Fill::data);
  }
  for (std::int32_t i = 0; i < 3; ++i) {
    Frame frame;
    ASSERT_EQ(take(reader, pair.here.get(), &frame), HEDDLE_DONE) << base::last_message();
    EXPECT_EQ(frame.header.value, i);
    EXPECT_EQ(frame.payload.size(), 7U);
    EXPECT_EQ(frame.fd_lost, i == 0);
    EXPECT_EQ(frame.fd.valid(), i != 0);
    char letter = 0;
    if (i != 0) {
      EXPECT_EQ(::pread(frame.fd.get(), &letter, 1, 0), 1);
      EXPECT_EQ(letter, 'a' + i);
    }
  }
}

TEST(channel, several_descriptors_with_one_message_are_rejected) {
  for (const bool lose : {false, true}) {
    Pair pair;
    const base::Fd file = file_with('x');
    const std::array<int, 2> fds = {file.get(), file.get()};
    Bytes bytes = encode(Header{FrameType::card, kHasFd, 1});
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof fds)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* entry = CMSG_FIRSTHDR(&message);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(sizeof fds);
    std::memcpy(CMSG_DATA(entry), fds.data(), sizeof fds);
    ASSERT_EQ(::sendmsg(pair.there.get(), &message, 0), static_cast<ssize_t>(bytes.size()));
    Reader reader(Direction::to_rank, 2);
    if (lose) {
      // Room for the first of the two only.
      base::Fd gap(::fcntl(0, F_DUPFD_CLOEXEC, 0));
      const NoDescriptors none;
      gap.reset();
      ASSERT_EQ(reader.fill(pair.here.get(), MSG_DONTWAIT), Reader::Fill::data);
    }
    Frame frame;
    EXPECT_EQ(take(reader, pair.here.get(), &frame), HEDDLE_ERR_PROTOCOL);
  }
}

TEST(channel, a_header_is_written_whole_or_not_at_all_and_never_waits) {
  Pair pair;
  std::int32_t sent = 0;
  while (try_send_header(pair.there.get(), {FrameType::fetch, 0, 1, sent}) == HEDDLE_DONE) {
    ASSERT_LT(++sent, 10'000'000);
  }
  EXPECT_EQ(try_send_header(pair.there.get(), {FrameType::fetch, 0, 1}), HEDDLE_AGAIN);
  Reader reader(Direction::to_launcher, 2);
  Frame frame;
  for (std::int32_t i = 0; i < sent; ++i) {
    ASSERT_EQ(take(reader, pair.here.get(), &frame), HEDDLE_DONE);
    ASSERT_EQ(frame.header.value, i);
  }
  EXPECT_EQ(take(reader, pair.here.get(), &frame), HEDDLE_AGAIN);
  EXPECT_EQ(try_send_header(pair.there.get(), {FrameType::fetch, 0, 1}), HEDDLE_DONE);
  pair.here.reset();
  EXPECT_EQ(try_send_header(pair.there.get(), {FrameType::fetch, 0, 1}), HEDDLE_ERR_BOOTSTRAP);
}

// Each part that is taken restarts the time-out; it passes when nothing is taken.
TEST(channel, who_takes_nothing_is_not_waited_for_longer_than_was_said) {
  for (const int flags : {0, int{SOCK_NONBLOCK}}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0, ends.data()), 0);
    const base::Fd here(ends[0]);
    const base::Fd there(ends[1]);
    EXPECT_EQ(send_frame(here.get(), {FrameType::exchange}, Bytes(std::size_t{1} << 20), -1, 1'000'000),
              HEDDLE_ERR_BOOTSTRAP);
    EXPECT_NE(std::strstr(base::last_message(), "has taken nothing for"), nullptr) << base::last_message();
    Reader reader(Direction::to_launcher, 2);
    EXPECT_EQ(reader.fill(there.get(), MSG_DONTWAIT), Reader::Fill::data);
  }
}

TEST(channel, the_kernel_names_the_sender_if_asked) {
  for (const int asked : {0, 1}) {
    Pair pair;
    ASSERT_EQ(::setsockopt(pair.here.get(), SOL_SOCKET, SO_PASSCRED, &asked, sizeof asked), 0);
    ASSERT_EQ(send_frame(pair.there.get(), {FrameType::hello}, {}), HEDDLE_DONE);
    Reader reader(Direction::to_launcher, 2);
    EXPECT_EQ(reader.sender(), -1);
    ASSERT_EQ(reader.fill(pair.here.get(), MSG_DONTWAIT), Reader::Fill::data);
    EXPECT_EQ(reader.sender(), asked != 0 ? ::getpid() : -1);
  }
}

}  // namespace
}  // namespace heddle::bootstrap::local::channel_test
