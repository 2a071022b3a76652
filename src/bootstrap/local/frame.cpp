#include "bootstrap/local/frame.hpp"

#include <cstring>

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

// room for later versions, so that they are understood well enough to be refused
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
    Shape{FrameType::welcome, Direction::to_rank, 0, false, kMaxHandshake},
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

}  // namespace heddle::bootstrap::local
