// Output of the ranks, line by line, each line with the rank that wrote it.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.hpp"

namespace heddle::tools::run {

// Where lines go: the launcher's standard output or error. Never blocks, so that a reader who has
// stopped reading does not keep the launcher from noticing deaths: what cannot be written waits,
// and its sources are not read meanwhile.
//
// That a pipe or terminal polls writable does not mean that a write to it returns: others may write
// to it in between, and a terminal may be stopped. So these are opened anew, without blocking; the
// flag cannot be set on the descriptor itself, which others have too (the shell, the ranks).
// How long the end of a job waits for a reader who takes nothing: until one of these happens, and
// then kPatienceNs more.
struct Patience {
  // a descriptor that becomes readable when the user loses patience; -1: none
  int signals = -1;
  std::uint64_t until_ns = 0;  // of the monotonic clock; 0: there is no such time
  enum class Over { no, by_signal, by_time };
  Over over = Over::no;
};

class Sink {
 public:
  explicit Sink(int fd);
  [[nodiscard]] int fd() const { return own_.valid() ? own_.get() : fd_; }
  void add(const std::string& text) {
    if (!closed_) pending_ += text;
  }
  // As much as can be written without blocking.
  void flush();
  // For the end, when nothing else is left to do: waits for the reader, for as long as *patience
  // lasts, and after that as long as it goes on reading. One that then takes nothing for
  // kPatienceNs is not waited for again: what is left is dropped, the sink closed.
  void finish(Patience* patience);
  static constexpr std::uint64_t kPatienceNs = 2'000'000'000;
  // Bytes that finish() has dropped.
  [[nodiscard]] std::size_t dropped() const { return dropped_; }
  [[nodiscard]] bool waiting() const { return !pending_.empty(); }
  [[nodiscard]] bool full() const { return pending_.size() - written_ > kMaxPending; }
  // Nobody reads any more.
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  static constexpr std::size_t kMaxPending = std::size_t{1} << 20;
  enum class Wrote { some, nothing, closed };
  Wrote write_some();
  // When `last` is the time of the last progress: sleeps until the sink may be writable. False: the
  // reader is given up.
  bool await_reader(Patience* patience, std::uint64_t* last);
  void close();

  int fd_;
  bool socket_ = false;
  // the same file, nonblocking; not valid where that does not apply or cannot be had
  base::Fd own_;
  std::size_t dropped_ = 0;
  bool closed_ = false;
  std::string pending_;
  std::size_t written_ = 0;  // of pending_
};

// One stream of one rank. Its end of the pipe is nonblocking.
class TaggedStream {
 public:
  TaggedStream() = default;
  TaggedStream(base::Fd pipe, std::uint32_t rank, Sink* sink);

  [[nodiscard]] int fd() const { return pipe_.get(); }
  // -1 as long as the sink is full.
  [[nodiscard]] int readable_fd() const { return sink_ != nullptr && !sink_->full() ? pipe_.get() : -1; }
  // Takes what there is. At the end of the stream an unfinished line is finished.
  void serve();
  // At the end of the job: what the pipe holds, waiting for the sink, but nothing that is written
  // to it from now on.
  void drain(Patience* patience);
  void close();

 private:
  static constexpr std::size_t kMaxLine = 64U << 10;  // longer lines are cut
  void pass_lines();

  base::Fd pipe_;
  std::string tag_;
  std::string line_;
  Sink* sink_ = nullptr;
};

}  // namespace heddle::tools::run
