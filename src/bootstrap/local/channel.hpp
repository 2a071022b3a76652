// The protocol between a rank and its launcher: frames of a 16-byte header and a payload, and the
// stream socket that they pass.
//
// Numbers travel as they lie in memory: both ends are of one machine, or (hosted/) of machines of
// one byte order. A rank says hello first; the launcher answers with a welcome. Both begin with
// magic and version in every version of the protocol, so that two versions can always tell each
// other apart. The reader checks everything: nothing here trusts its input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/common.hpp"

namespace heddle::bootstrap::local {

inline constexpr std::uint64_t kMagic = 0x746F'6F62'6C64'6468ULL;  // "hddlboot" in a dump
inline constexpr std::uint32_t kProtocolVersion = 5;
inline constexpr std::uint32_t kLibraryVersion =
    HEDDLE_VERSION_MAJOR << 16 | HEDDLE_VERSION_MINOR << 8 | HEDDLE_VERSION_PATCH;
inline constexpr std::size_t kMaxAbortMessage = 1024;
// Room behind the bytes of a card that a bootstrap may use for its own purposes.
inline constexpr std::size_t kMaxCardTail = 64;

enum class FrameType : std::uint16_t {
  // rank to launcher
  hello = 1,     // payload: Hello
  publish = 2,   // payload: the card's bytes; value: its pid; with kHasFd: its descriptor
  fetch = 3,     // rank: whose card
  exchange = 4,  // payload: this rank's part
  leave = 5,
  abort = 6,  // value: exit code, 0-255; payload: message
  // The next four only if the launcher watches the job, see watchdog.hpp.
  waiting = 7,  // a thread has waited for long
  // payload: tap::Pulse. An answer, as the next one; value: that of the question
  pulse = 8,
  snapshot = 9,   // payload: an encoded tap::Snapshot
  counters = 10,  // payload: text, see tap/counters.hpp
  // launcher to rank
  welcome = 64,  // payload: Welcome; with kHasFd: the file of the node's board
  // rank: whose; otherwise as publish. No answer if that rank is gone: `gone` comes instead
  card = 65,
  // of an exchange. rank: kNobody and payload as encode_parts(), or who was missing and no payload
  result = 66,
  gone = 67,  // rank has died or left
  // questions; value: a number
  ask_pulse = 68,
  ask_snapshot = 69,
  ask_counters = 70
};
inline constexpr std::uint16_t kHasFd = 1;
inline constexpr std::size_t kMostCounters = std::size_t{1} << 20;  // bytes of their text

struct Header {
  FrameType type = FrameType::hello;
  std::uint16_t flags = 0;
  std::uint32_t rank = 0;
  std::int32_t value = 0;
  std::uint32_t bytes = 0;  // of the payload
};
static_assert(sizeof(Header) == 16 && std::is_trivially_copyable_v<Header>);

struct Hello {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kProtocolVersion;
  std::uint32_t library = kLibraryVersion;
  std::int32_t pid = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Hello) == 24);

struct Welcome {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kProtocolVersion;
  std::uint32_t library = kLibraryVersion;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  JobSecret secret{};
  std::uint64_t watch_seconds = 0;  // see Bootstrap::watch_seconds()
};
static_assert(sizeof(Welcome) == 48);

enum class Direction { to_launcher, to_rank };

// The header at the start of `bytes` (at least sizeof(Header)). PROTOCOL: unknown type for the
// direction, unknown flags, a payload longer than the type may have, a rank that the job of `size`
// ranks does not have.
base::Result<Header> decode_header(std::span<const std::byte> bytes, Direction direction, std::uint32_t size);

// BOOTSTRAP: the magic is not ours. VERSION: another version; the message names both. PROTOCOL:
// wrong length.
base::Result<Hello> decode_hello(std::span<const std::byte> payload);
base::Result<Welcome> decode_welcome(std::span<const std::byte> payload);

// The parts of an exchange: for each rank 4 bytes of length, then all the parts one after the
// other.
std::vector<std::byte> encode_parts(const std::vector<std::vector<std::byte>>& parts);
base::Result<std::vector<std::vector<std::byte>>> decode_parts(std::span<const std::byte> payload, std::uint32_t size);

template <class T>
std::vector<std::byte> encode(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

// Frames over a stream socket, with descriptors: reading them one by one, writing them at once or
// as the socket takes them.

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
