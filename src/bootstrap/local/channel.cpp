#include "bootstrap/local/channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace heddle::bootstrap::local {

namespace {

// The form that a type of frame may have.
struct Shape {
  FrameType type;
  Direction direction;
  std::uint16_t flags;      // that may be set
  bool names_rank;          // rank must be one of the job
  std::size_t max_payload;  // bytes
};

// room for later versions, so that they are understood well enough to be rejected
constexpr std::size_t kMaxHandshake = 256;
constexpr std::size_t kLength = sizeof(std::uint32_t);

constexpr std::array kShapes = {
    Shape{FrameType::hello, Direction::to_launcher, 0, false, kMaxHandshake},
    Shape{FrameType::publish, Direction::to_launcher, kHasFd, false, kMaxCardBytes + kMaxCardTail},
    Shape{FrameType::fetch, Direction::to_launcher, 0, true, 0},
    Shape{FrameType::exchange, Direction::to_launcher, 0, false, kMaxExchangeBytes},
    Shape{FrameType::leave, Direction::to_launcher, 0, false, 0},
    Shape{FrameType::abort, Direction::to_launcher, 0, false, kMaxAbortMessage},
    Shape{FrameType::waiting, Direction::to_launcher, 0, false, 0},
    Shape{FrameType::pulse, Direction::to_launcher, 0, false, sizeof(tap::Pulse)},
    Shape{FrameType::snapshot, Direction::to_launcher, 0, false, tap::kMostBytes},
    Shape{FrameType::counters, Direction::to_launcher, 0, false, kMostCounters},
    Shape{FrameType::welcome, Direction::to_rank, kHasFd, false, kMaxHandshake},
    Shape{FrameType::card, Direction::to_rank, kHasFd, true, kMaxCardBytes + kMaxCardTail},
    Shape{FrameType::result, Direction::to_rank, 0, false, kMaxRanks*(kMaxExchangeBytes + kLength)},
    Shape{FrameType::gone, Direction::to_rank, 0, true, 0},
    Shape{FrameType::ask_pulse, Direction::to_rank, 0, false, 0},
    Shape{FrameType::ask_snapshot, Direction::to_rank, 0, false, 0},
    Shape{FrameType::ask_counters, Direction::to_rank, 0, false, 0},
};
static_assert(kMaxRanks * (kMaxExchangeBytes + kLength) <= UINT32_MAX);

const Shape* shape_of(FrameType type, Direction direction) {
  for (const Shape& shape : kShapes) {
    if (shape.type == type && shape.direction == direction) return &shape;
  }
  return nullptr;
}

// Hello and Welcome begin alike.
template <class T>
base::Result<T> decode_handshake(std::span<const std::byte> payload, const char* who) {
  struct Start {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t library;
  } start{};
  if (payload.size() >= sizeof start) std::memcpy(&start, payload.data(), sizeof start);
  if (start.magic != kMagic) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "the process at the other end of the socket is not a %s of Heddle", who);
  }
  if (start.version != kProtocolVersion) {
    return base::fail(HEDDLE_ERR_VERSION,
                      "the %s speaks version %u of the launch protocol (Heddle %u.%u.%u), this process version %u "
                      "(Heddle %d.%d.%d); use the launcher of the installation that the program was built with",
                      who, start.version, start.library >> 16, start.library >> 8 & 255U, start.library & 255U,
                      kProtocolVersion, HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR, HEDDLE_VERSION_PATCH);
  }
  T value;
  if (payload.size() != sizeof value) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the first frame of the %s has %zu bytes instead of %zu", who,
                      payload.size(), sizeof value);
  }
  std::memcpy(static_cast<void*>(&value), payload.data(), sizeof value);
  return value;
}

}  // namespace

base::Result<Header> decode_header(std::span<const std::byte> bytes, Direction direction, std::uint32_t size) {
  Header header;
  if (bytes.size() < sizeof header) return base::fail(HEDDLE_ERR_PROTOCOL, "a frame of %zu bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  const Shape* shape = shape_of(header.type, direction);
  const auto number = static_cast<unsigned>(header.type);
  if (shape == nullptr) return base::fail(HEDDLE_ERR_PROTOCOL, "a frame of unknown type %u", number);
  if ((header.flags & ~shape->flags) != 0) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a frame of type %u with flags %u", number, unsigned{header.flags});
  }
  if (header.bytes > shape->max_payload) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a frame of type %u with %u bytes; at most %zu", number, header.bytes,
                      shape->max_payload);
  }
  if (shape->names_rank && header.rank >= size) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a frame of type %u about rank %u of %u", number, header.rank, size);
  }
  return header;
}

base::Result<Hello> decode_hello(std::span<const std::byte> payload) {
  return decode_handshake<Hello>(payload, "rank");
}

base::Result<Welcome> decode_welcome(std::span<const std::byte> payload) {
  return decode_handshake<Welcome>(payload, "launcher");
}

std::vector<std::byte> encode_parts(const std::vector<std::vector<std::byte>>& parts) {
  std::size_t total = parts.size() * kLength;
  for (const auto& part : parts) total += part.size();
  std::vector<std::byte> payload(total);
  std::byte* length = payload.data();
  std::byte* data = payload.data() + parts.size() * kLength;
  for (const auto& part : parts) {
    const auto bytes = static_cast<std::uint32_t>(part.size());
    std::memcpy(length, &bytes, kLength);
    length += kLength;
    if (!part.empty()) std::memcpy(data, part.data(), part.size());
    data += part.size();
  }
  return payload;
}

base::Result<std::vector<std::vector<std::byte>>> decode_parts(std::span<const std::byte> payload, std::uint32_t size) {
  if (payload.size() < std::size_t{size} * kLength) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the result of an exchange of %u ranks has %zu bytes", size, payload.size());
  }
  std::span<const std::byte> rest = payload.subspan(std::size_t{size} * kLength);
  std::vector<std::vector<std::byte>> parts;
  parts.reserve(size);
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, payload.data() + std::size_t{rank} * kLength, kLength);
    if (bytes > rest.size() || bytes > kMaxExchangeBytes) {
      return base::fail(HEDDLE_ERR_PROTOCOL, "rank %u's part of an exchange is said to have %u bytes", rank, bytes);
    }
    parts.emplace_back(rest.begin(), rest.begin() + bytes);
    rest = rest.subspan(bytes);
  }
  if (!rest.empty()) return base::fail(HEDDLE_ERR_PROTOCOL, "%zu bytes too many after an exchange", rest.size());
  return parts;
}

namespace {

constexpr std::size_t kChunk = 64U << 10;
constexpr std::size_t kFdsPerRead = 16;

// One sendmsg of the rest of a frame; the descriptor goes with the frame's first byte. Returns as
// sendmsg(2).
ssize_t send_rest(int socket, const Header& header, std::span<const std::byte> payload, int fd, std::size_t sent,
                  int flags) {
  std::array<iovec, 2> parts{};
  msghdr message{};
  message.msg_iov = parts.data();
  if (sent < sizeof header) {
    // sendmsg does not write through iov_base.
    parts[0] = {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&header)) + sent, sizeof header - sent};
    parts[1] = {const_cast<std::byte*>(payload.data()), payload.size()};
    message.msg_iovlen = payload.empty() ? 1 : 2;
  } else {
    const auto rest = payload.subspan(sent - sizeof header);
    parts[0] = {const_cast<std::byte*>(rest.data()), rest.size()};
    message.msg_iovlen = 1;
  }
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  if (fd >= 0 && sent == 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* entry = CMSG_FIRSTHDR(&message);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(entry), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

// Sends the rest of the frame; `sent` bytes of it are sent already.
base::Status send_remaining(int socket, const Header& header, std::span<const std::byte> payload, int fd,
                            std::size_t sent, std::int64_t timeout_ns) {
  base::SystemClock clock;
  base::Timeout timeout(timeout_ns, clock);
  while (sent < sizeof header + payload.size()) {
    // A blocking socket waits in poll, too, where the wait has an end.
    const ssize_t count = send_rest(socket, header, payload, fd, sent, MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
      timeout.renew();
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd writable{socket, POLLOUT, 0};
      ::poll(&writable, 1, timeout.slice_ms());
    } else if (errno == ETOOMANYREFS) {
      // Too many descriptors of this user are in flight; those of the other ranks arrive soon.
      const timespec pause{0, 1'000'000};
      ::nanosleep(&pause, nullptr);
    } else if (errno != EINTR) {
      return base::fail_errno(HEDDLE_ERR_BOOTSTRAP, "the connection to the launcher is broken");
    }
    if (timeout.over()) {
      return base::fail(HEDDLE_ERR_BOOTSTRAP,
                        "who keeps the job together has taken nothing for %.3g s (is it stopped?)",
                        static_cast<double>(timeout_ns) / 1e9);
    }
  }
  return HEDDLE_DONE;
}

}  // namespace

Reader::Fill Reader::fill(int socket, int flags) {
  if (begin_ > 0) {
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= std::exchange(begin_, 0);
  }
  if (buffer_.size() < end_ + kChunk) buffer_.resize(end_ + kChunk);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kFdsPerRead * sizeof(int)) + CMSG_SPACE(sizeof(ucred))> control{};
  iovec part{buffer_.data() + end_, kChunk};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const bool nothing = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  end_ += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  if (nothing) return Fill::nothing;
  if (got <= 0) return Fill::closed;
  sender_ = -1;
  std::size_t fds = 0;
  for (cmsghdr* entry = CMSG_FIRSTHDR(&message); entry != nullptr; entry = CMSG_NXTHDR(&message, entry)) {
    if (entry->cmsg_level != SOL_SOCKET) continue;
    if (entry->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(entry), sizeof sender);
      sender_ = sender.pid;
    }
    if (entry->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(entry) + i * sizeof fd, sizeof fd);
      fds_.emplace_back(fd);
      ++fds;
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    fds_.emplace_back();  // its frame reports that it was lost
    ++fds;
  }
  if (fds > 1) malformed_ = true;
  return Fill::data;
}

base::Status Reader::next(Frame* frame) {
  if (malformed_ || fds_.size() > kMaxWaitingFds) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "more descriptors than frames that say that they have one");
  }
  const auto bytes = std::span<const std::byte>(buffer_).subspan(begin_, end_ - begin_);
  if (bytes.size() < sizeof(Header)) return HEDDLE_AGAIN;
  const auto header = decode_header(bytes, direction_, size_);
  if (!header) return header.status();
  const std::size_t total = sizeof(Header) + header->bytes;
  if (bytes.size() < total) {
    buffer_.reserve(begin_ + total + kChunk);
    return HEDDLE_AGAIN;
  }
  const auto payload = bytes.subspan(sizeof(Header), header->bytes);
  frame->header = *header;
  frame->payload.assign(payload.begin(), payload.end());
  frame->fd.reset();
  frame->fd_lost = false;
  if ((header->flags & kHasFd) != 0) {
    if (fds_.empty()) {
      return base::fail(HEDDLE_ERR_PROTOCOL, "a frame of type %u says that it has a descriptor and has none",
                        static_cast<unsigned>(header->type));
    }
    frame->fd = std::move(fds_.front());
    fds_.pop_front();
    frame->fd_lost = !frame->fd.valid();
  }
  begin_ += total;
  return HEDDLE_DONE;
}

base::Status send_frame(int socket, Header header, std::span<const std::byte> payload, int fd,
                        std::int64_t timeout_ns) {
  header.bytes = static_cast<std::uint32_t>(payload.size());
  if (fd >= 0) header.flags |= kHasFd;
  return send_remaining(socket, header, payload, fd, 0, timeout_ns);
}

base::Status try_send_header(int socket, const Header& header, std::int64_t timeout_ns) {
  for (;;) {
    const ssize_t count = send_rest(socket, header, {}, -1, 0, MSG_DONTWAIT);
    // A local socket takes a header whole or not at all. TCP may take only a part, at the end of a
    // segment: then this call waits until the rest is sent.
    if (count >= 0) return send_remaining(socket, header, {}, -1, static_cast<std::size_t>(count), timeout_ns);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return HEDDLE_AGAIN;
    if (errno != EINTR) return base::fail_errno(HEDDLE_ERR_BOOTSTRAP, "the connection to the launcher is broken");
  }
}

void Outbox::add(Header header, Payload payload, std::shared_ptr<const base::Fd> fd) {
  header.bytes = payload != nullptr ? static_cast<std::uint32_t>(payload->size()) : 0;
  if (fd != nullptr && fd->valid()) header.flags |= kHasFd;
  items_.push_back({header, std::move(payload), std::move(fd), 0});
}

bool Outbox::flush(int socket) {
  congested_ = false;
  while (!items_.empty()) {
    Item& item = items_.front();
    const auto payload =
        item.payload != nullptr ? std::span<const std::byte>(*item.payload) : std::span<const std::byte>();
    const int fd = item.fd != nullptr ? item.fd->get() : -1;
    const ssize_t count = send_rest(socket, item.header, payload, fd, item.sent, MSG_DONTWAIT);
    if (count < 0) {
      if (errno == EINTR) continue;
      congested_ = errno == ETOOMANYREFS;
      if (errno == EAGAIN || errno == EWOULDBLOCK || congested_) return true;
      items_.clear();
      return false;
    }
    item.sent += static_cast<std::size_t>(count);
    if (item.sent == sizeof item.header + payload.size()) items_.pop_front();
  }
  return true;
}

}  // namespace heddle::bootstrap::local
