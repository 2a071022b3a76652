#include "tools/run/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>

#include "base/clock.hpp"

namespace heddle::tools::run {

Sink::Sink(int fd) : fd_(fd) {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return;
  socket_ = S_ISSOCK(about.st_mode);
  if (!S_ISFIFO(about.st_mode) && !S_ISCHR(about.st_mode)) return;
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  own_.reset(::open(path.data(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

// Writes at most PIPE_BUF bytes: a pipe that polls writable takes them whole. So lines of other
// writers do not come between, and a descriptor that could not be reopened does not block.
Sink::Wrote Sink::write_some() {
  const char* from = pending_.data() + written_;
  const std::size_t most = std::min<std::size_t>(pending_.size() - written_, PIPE_BUF);
  const ssize_t count = socket_ ? ::send(fd_, from, most, MSG_DONTWAIT | MSG_NOSIGNAL) : ::write(fd(), from, most);
  if (count < 0) {
    if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) return Wrote::nothing;
    error_ = errno;
    close();
    return Wrote::closed;
  }
  written_ += static_cast<std::size_t>(count);
  if (written_ == pending_.size()) {
    pending_.clear();
    written_ = 0;
  }
  return count > 0 ? Wrote::some : Wrote::nothing;
}

void Sink::close() {
  closed_ = true;
  pending_.clear();
  written_ = 0;
}

void Sink::flush() {
  while (waiting()) {
    pollfd writable{fd(), POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0 || write_some() != Wrote::some) return;
  }
}

bool Sink::await_reader(ReaderPatience* patience, std::uint64_t* last) {
  base::SystemClock clock;
  std::uint64_t now = clock.now_ns();
  if (patience->over == ReaderPatience::Over::no && patience->until_ns != 0 && now >= patience->until_ns) {
    patience->over = ReaderPatience::Over::by_time;
    *last = now;
  }
  const bool patient = patience->over == ReaderPatience::Over::no;
  if (!patient && now - *last >= kPatienceNs) return false;
  const std::uint64_t end = patient ? patience->until_ns : *last + kPatienceNs;
  int left_ms = -1;
  if (end != 0) left_ms = static_cast<int>(std::min<std::uint64_t>((end - now) / 1'000'000 + 1, 3'600'000));
  std::array<pollfd, 2> polled{{{fd(), POLLOUT, 0}, {patient ? patience->signals : -1, POLLIN, 0}}};
  ::poll(polled.data(), polled.size(), left_ms);
  if (polled[1].revents != 0) {
    patience->over = ReaderPatience::Over::by_signal;
    *last = clock.now_ns();
  }
  return true;
}

void Sink::finish(ReaderPatience* patience) {
  base::SystemClock clock;
  std::uint64_t last = clock.now_ns();
  while (waiting()) {
    if (!await_reader(patience, &last)) {
      dropped_ = pending_.size() - written_;
      return close();
    }
    pollfd writable{fd(), POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) continue;
    switch (write_some()) {
      case Wrote::some:
        last = clock.now_ns();
        break;
      case Wrote::nothing:  // it polled writable but is not: do not spin
        ::poll(nullptr, 0, 10);
        break;
      case Wrote::closed:
        return;
    }
  }
}

TaggedStream::TaggedStream(base::Fd pipe, std::uint32_t rank, Sink* sink)
    : pipe_(std::move(pipe)), tag_(std::string("[").append(std::to_string(rank)).append("] ")), sink_(sink) {
  ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
}

void TaggedStream::serve() {
  std::array<char, 16U << 10> bytes;
  for (int reads = 0; reads < 8 && pipe_.valid() && !sink_->full(); ++reads) {
    const ssize_t got = ::read(pipe_.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      close();
      break;
    }
    line_.append(bytes.data(), static_cast<std::size_t>(got));
    pass_lines();
  }
  sink_->flush();
  // The rank's next write then fails, as it would without the launcher: nobody reads. A full disk
  // is no reason to end a rank. Its output is read and lost, and the launcher reports this.
  if (sink_->closed() && !sink_->failed()) close();
}

void TaggedStream::drain(ReaderPatience* patience) {
  // A pipe holds at most one megabyte, unless a privileged process has enlarged it; serve() takes
  // 128 KiB.
  constexpr int kMostServes = 16;
  for (int i = 0; i < kMostServes; ++i) {
    pollfd readable{pipe_.get(), POLLIN, 0};
    if (!pipe_.valid() || ::poll(&readable, 1, 0) <= 0) break;
    sink_->finish(patience);
    serve();
  }
  close();
}

void TaggedStream::pass_lines() {
  std::size_t begin = 0;
  for (;;) {
    std::size_t end = line_.find('\n', begin);
    if (end == std::string::npos && line_.size() - begin < kMaxLine) break;
    const bool cut = end == std::string::npos;
    if (cut) end = begin + kMaxLine;
    sink_->add(tag_ + line_.substr(begin, end - begin) + '\n');
    begin = cut ? end : end + 1;
  }
  line_.erase(0, begin);
}

void TaggedStream::close() {
  if (!pipe_.valid()) return;
  if (!line_.empty()) sink_->add(tag_ + line_ + '\n');
  line_.clear();
  pipe_.reset();
}

}  // namespace heddle::tools::run
