// Frames over a stream socket, with descriptors: reading them one by one, writing them at once or
// as the socket takes them.
#pragma once

#include <deque>
#include <memory>

#include "base/fd.hpp"
#include "base/timeout.hpp"
#include "bootstrap/local/frame.hpp"

namespace heddle::bootstrap::local {

struct Frame {
  Header header;
  std::vector<std::byte> payload;
  base::Fd fd;  // with kHasFd
  // with kHasFd: this process had no descriptor left for it, so fd is not valid
  bool fd_lost = false;
};

// Splits the stream into frames. One thread.
//
// A descriptor arrives with or before the last byte of its frame, and descriptors keep the order of
// their frames; so the n-th frame with kHasFd owns the n-th descriptor. One that could not be
// installed (too many are open) keeps its place in that order. As each frame carries at most one,
// and recvmsg stops after the first message that had any, a truncation stands for exactly one
// descriptor.
class Reader {
 public:
  Reader(Direction direction, std::uint32_t size) : direction_(direction), size_(size) {}

  enum class Fill { data, nothing, closed };
  // One recvmsg with the flags given (MSG_DONTWAIT: `nothing` if there is nothing). closed: by the
  // other end, or the socket is broken.
  [[nodiscard]] Fill fill(int socket, int flags);

  // The process that sent the bytes of the last fill(), as the kernel says; 0: it is of another pid
  // namespace; -1: not known (the socket has no SO_PASSCRED).
  [[nodiscard]] pid_t sender() const { return sender_; }

  // DONE: *frame is the next one. AGAIN: fill first. Otherwise the stream is not well formed and
  // stays so.
  [[nodiscard]] base::Status next(Frame* frame);

 private:
  static constexpr std::size_t kMaxWaitingFds = 64;

  Direction direction_;
  std::uint32_t size_;
  std::vector<std::byte> buffer_;  // longer than what is there, so that it is not zeroed each time
  std::size_t begin_ = 0;          // of what no frame has consumed yet
  std::size_t end_ = 0;            // of what is there
  std::deque<base::Fd> fds_;       // not valid: lost
  bool malformed_ = false;         // more than one descriptor came with a message
  pid_t sender_ = -1;
};

// Writes a whole frame; waits while the socket takes nothing, but not longer than timeout_ns at a
// time. BOOTSTRAP: the other end is closed, or has taken nothing for so long; a part of the frame
// may have been written, so the connection is of no use any more.
base::Status send_frame(int socket, Header header, std::span<const std::byte> payload, int fd = -1,
                        std::int64_t timeout_ns = base::Timeout::kForever);

// Sends a frame without payload, if the socket takes it now; AGAIN: nothing was written. BOOTSTRAP:
// as above.
[[nodiscard]] base::Status try_send_header(int socket, const Header& header,
                                           std::int64_t timeout_ns = base::Timeout::kForever);

// Frames waiting for a socket that may not take them now. One thread.
class Outbox {
 public:
  using Payload = std::shared_ptr<const std::vector<std::byte>>;

  void add(Header header, Payload payload = nullptr, std::shared_ptr<const base::Fd> fd = nullptr);
  // Writes what the socket takes. False: the socket is closed; the waiting frames are dropped.
  [[nodiscard]] bool flush(int socket);
  [[nodiscard]] std::size_t waiting() const { return items_.size(); }
  // The kernel allows no more descriptors in flight for now: the socket looks writable but is not.
  [[nodiscard]] bool congested() const { return congested_; }

 private:
  struct Item {
    Header header;
    Payload payload;
    std::shared_ptr<const base::Fd> fd;
    std::size_t sent = 0;  // bytes of header and payload
  };
  std::deque<Item> items_;
  bool congested_ = false;
};

}  // namespace heddle::bootstrap::local
