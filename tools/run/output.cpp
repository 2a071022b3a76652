#include "tools/run/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

namespace heddle::tools::run {

// A pipe that polls writable takes PIPE_BUF bytes without blocking.
bool Sink::write_some() {
  const ssize_t count =
      ::write(fd_, pending_.data() + written_, std::min<std::size_t>(pending_.size() - written_, PIPE_BUF));
  if (count >= 0) {
    written_ += static_cast<std::size_t>(count);
    if (written_ == pending_.size()) {
      pending_.clear();
      written_ = 0;
    }
    return true;
  }
  if (errno == EINTR || errno == EAGAIN) return true;
  closed_ = true;
  pending_.clear();
  written_ = 0;
  return false;
}

void Sink::flush() {
  while (waiting()) {
    pollfd writable{fd_, POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0 || !write_some()) return;
  }
}

void Sink::finish() {
  while (waiting()) {
    pollfd writable{fd_, POLLOUT, 0};
    if (::poll(&writable, 1, -1) > 0 && !write_some()) return;
  }
}

TaggedStream::TaggedStream(base::Fd pipe, std::uint32_t rank, Sink* sink)
    : pipe_(std::move(pipe)), tag_("[" + std::to_string(rank) + "] "), sink_(sink) {
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
  // The ranks learn what they would have learnt without us: that nobody reads.
  if (sink_->closed()) close();
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
