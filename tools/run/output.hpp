// Output of the ranks, line by line, each line with its rank.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/fd.hpp"

namespace heddle::tools::run {

// How long the launcher waits at the end of a job for a reader that reads nothing: until one of
// these events, and then kPatienceNs more.
struct ReaderPatience {
  // a descriptor that becomes readable when the user sends a signal; -1: none
  int signals = -1;
  std::uint64_t until_ns = 0;  // of the monotonic clock; 0: no limit
  enum class Over { no, by_signal, by_time };
  Over over = Over::no;
};

// The launcher's standard output or error. It never blocks, so that the launcher notices deaths
// although a reader has stopped reading: data that cannot be written waits, and its sources are not
// read meanwhile.
//
// A pipe or terminal that polls writable may still block a write: other processes may write to it
// in between, and a terminal may be stopped. So these are reopened as nonblocking. The flag cannot
// be set on the inherited descriptor, since other processes share it (the shell, the ranks).
class Sink {
 public:
  explicit Sink(int fd);
  [[nodiscard]] int fd() const { return own_.valid() ? own_.get() : fd_; }
  void add(const std::string& text) {
    if (!closed_) pending_ += text;
  }
  // Writes as much as is possible without blocking.
  void flush();
  // For the end, when nothing else is left to do: waits for the reader until *patience ends, and
  // then as long as it continues to read. A reader that then reads nothing for kPatienceNs is not
  // waited for again: the rest is dropped and the sink is closed.
  void finish(ReaderPatience* patience);
  static constexpr std::uint64_t kPatienceNs = 2'000'000'000;
  // Bytes that finish() has dropped.
  [[nodiscard]] std::size_t dropped() const { return dropped_; }
  [[nodiscard]] bool waiting() const { return !pending_.empty(); }
  [[nodiscard]] bool full() const { return pending_.size() - written_ > kMaxPending; }
  // No reader is left, or it has failed.
  [[nodiscard]] bool closed() const { return closed_; }
  // The errno of the write that failed; 0: none did. EPIPE: the reader has gone.
  [[nodiscard]] int error() const { return error_; }
  // It cannot be written (a full disk, for example), although the reader is still there. Added data
  // is lost.
  [[nodiscard]] bool failed() const { return error_ != 0 && error_ != EPIPE; }

 private:
  static constexpr std::size_t kMaxPending = std::size_t{1} << 20;
  enum class Wrote { some, nothing, closed };
  Wrote write_some();
  // `last` is the time of the last progress. Sleeps until the sink may be writable. False: the wait
  // for the reader has ended.
  bool await_reader(ReaderPatience* patience, std::uint64_t* last);
  void close();

  int fd_;
  bool socket_ = false;
  // the same file, reopened as nonblocking; invalid where that is not needed or not possible
  base::Fd own_;
  std::size_t dropped_ = 0;
  bool closed_ = false;
  int error_ = 0;
  std::string pending_;
  std::size_t written_ = 0;  // of pending_
};

// One stream of one rank. Its end of the pipe is nonblocking.
class TaggedStream {
 public:
  TaggedStream() = default;
  TaggedStream(base::Fd pipe, std::uint32_t rank, Sink* sink);

  [[nodiscard]] int fd() const { return pipe_.get(); }
  // -1 while the sink is full.
  [[nodiscard]] int readable_fd() const { return sink_ != nullptr && !sink_->full() ? pipe_.get() : -1; }
  // Reads what is available. At the end of the stream it completes an unfinished line.
  void serve();
  // At the end of the job: reads what the pipe holds and waits for the sink, but ignores what is
  // written to the pipe from now on.
  void drain(ReaderPatience* patience);
  void close();

 private:
  static constexpr std::size_t kMaxLine = 64U << 10;  // longer lines are split
  void pass_lines();

  base::Fd pipe_;
  std::string tag_;
  std::string line_;
  Sink* sink_ = nullptr;
};

}  // namespace heddle::tools::run
