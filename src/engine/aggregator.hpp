// Several messages to one worker as one message of the transport, of kind `packet`. How it looks:
//
//   record   immediate (4 bytes), length (4 bytes), then header and payload as the message would
//            carry them: the header with zeros up to a multiple of 8, the payload. Zeros up to a
//            multiple of 8.
//   packet   one or more records
//
// A message thus lies 8-byte aligned in a packet that is 8-byte aligned. The receiver handles it in
// place, as if it had arrived by itself. A packet contains neither a packet nor a part of a large
// message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "transport/common/forwarding.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

struct PackedRecord {
  std::uint32_t immediate;
  std::uint32_t bytes;  // of header and payload, without the zeros behind the payload
};
static_assert(sizeof(PackedRecord) == 8);

constexpr bool may_be_packed(std::uint32_t immediate) {
  const wire::Kind kind = wire::kind_of(immediate);
  return kind != wire::Kind::packet && kind != wire::Kind::fragment && kind != wire::Kind::invalid;
}

// Bytes that a message takes in a packet.
constexpr std::uint64_t packed_bytes(std::uint32_t header_bytes, std::uint64_t payload_bytes) {
  const std::uint64_t header = (std::uint64_t{header_bytes} + 7) & ~std::uint64_t{7};
  return sizeof(PackedRecord) + header + ((payload_bytes + 7) & ~std::uint64_t{7});
}

// Writes the message to `room`, which must have at least packed_bytes() bytes.
void pack(std::byte* room, std::uint32_t immediate, std::span<const std::byte> header,
          std::span<const std::byte> payload);

// Reads a packet, whatever it contains. Never reads beyond its end, even if the packet changes
// meanwhile.
class PacketReader {
 public:
  struct Message {
    std::uint32_t immediate;
    std::span<const std::byte> bytes;  // lies in the packet
  };
  explicit PacketReader(std::span<const std::byte> packet) : rest_(packet) {}

  // The next message. Empty: no message is left, or the rest is not well formed (see ended()).
  [[nodiscard]] std::optional<Message> next() {
    PackedRecord record{};
    if (rest_.size() < sizeof record) return std::nullopt;
    std::memcpy(&record, rest_.data(), sizeof record);
    const std::span<const std::byte> body = rest_.subspan(sizeof record);
    const std::uint64_t padded = (std::uint64_t{record.bytes} + 7) & ~std::uint64_t{7};
    if (padded > body.size() || !may_be_packed(record.immediate)) return std::nullopt;
    rest_ = body.subspan(padded);
    return Message{record.immediate, body.first(record.bytes)};
  }
  // True: the whole packet has been read.
  [[nodiscard]] bool ended() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

// True: the packet is one or more records and nothing else. A packet that is not well formed is
// rejected before any part of it is handled.
[[nodiscard]] bool well_formed_packet(std::span<const std::byte> packet);

// Keeps small messages that the transport does not take now. Messages to one worker leave together,
// as one packet.
//
// The aggregator stands between a worker and its transport and is itself a TransportWorker, so no
// layer above has to know which messages wait: active messages, tagged messages, requests and
// answers are aggregated alike. While the transport takes everything, the aggregator passes
// everything on. When the transport refuses a message, the aggregator is busy towards that
// message's target until no packet to the target waits or is under way. Otherwise the room that one
// packet leaves would be filled by messages that travel singly. The aggregator refuses commands
// that do not fit a packet (longer messages, puts, gets) whenever the transport refuses them.
//
// A waiting message has been copied: its source is free. It completes when its packet completes,
// with the packet's status; so it fails as any other operation when the peer dies. The aggregator
// offers the packet to the transport at every poll(), and when the packet is full.
//
// Invariants
//   At most one packet to a worker waits. While it waits, no message overtakes it: messages from
//   one worker to one worker reach the transport in the order of posting.
//   Memory: kPackets packets of the packet's size and their lists of tokens. Each is allocated when
//   it is first needed, and used again. A packet goes through these states in this order: free,
//   waiting for the transport, under way, ended (its messages are being reported).
//
// Tokens of commands are below kPacketToken. One thread at a time, as for any TransportWorker; this
// includes counts().
class Aggregator final : public transport::ForwardingWorker {
 public:
  static constexpr transport::Token kPacketToken = std::uint64_t{1} << 63;
  static constexpr std::size_t kPackets = 32;
  static constexpr std::uint32_t kMostPacketBytes = 8192;
  static constexpr std::uint32_t kMostMessages = 256;  // in one packet
  // A message takes at most 1/kLeastShare of a packet: longer messages gain nothing by aggregation.
  static constexpr std::uint32_t kLeastShare = 4;

  Aggregator(std::unique_ptr<transport::TransportWorker> inner, std::uint32_t max_message);

  [[nodiscard]] std::size_t post(std::span<transport::Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<transport::Completion> completions) override;
  [[nodiscard]] bool arm() override { return idle() && inner_->arm(); }
  [[nodiscard]] bool has_arrivals() override { return ended_count_ != 0 || inner_->has_arrivals(); }

  [[nodiscard]] std::size_t unopened(std::span<Unopened> found) override;

  // True: nothing waits for the transport, and no completion waits to be reported.
  [[nodiscard]] bool idle() const { return waiting_ == 0 && ended_count_ == 0; }
  // Messages that wait for the transport.
  [[nodiscard]] std::uint64_t waiting_messages() const;

  struct Counts {
    std::uint64_t messages = 0;  // that left in packets of more than one
    std::uint64_t packets = 0;   // packets of more than one message
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  enum class Stage : std::uint8_t { free, waiting, under_way, ended };
  struct Packet {
    Stage stage = Stage::free;
    Target target{};
    std::uint32_t bytes = 0;
    std::uint32_t messages = 0;
    std::uint32_t told = 0;  // messages whose completion poll() has reported
    std::uint32_t generation = 0;
    base::Status status = HEDDLE_DONE;
    std::unique_ptr<std::uint64_t[]> memory;
    std::unique_ptr<transport::Token[]> tokens;

    [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(memory.get()); }
  };

  [[nodiscard]] bool small(const transport::Command& command) const;
  bool post_one(transport::Command& command);
  bool append(Packet* packet, transport::Command& command);
  Packet* find(Target target, Stage stage);
  Packet* open(Target target);
  bool offer(Packet& packet);
  void flush();
  void end(Packet& packet, base::Status status);
  std::size_t take_ends(std::span<transport::Completion> arrived);
  std::size_t tell(std::span<transport::Completion> room);
  [[nodiscard]] transport::Token token_of(const Packet& packet) const;

  const std::uint32_t packet_bytes_;
  std::uint32_t waiting_ = 0;  // packets that wait
  std::uint32_t busy_ = 0;     // packets that wait or are under way
  std::array<Packet, kPackets> packets_;
  // ring of the indices of packets that have ended, in order
  std::array<std::uint8_t, kPackets> ended_{};
  std::size_t ended_first_ = 0;
  std::size_t ended_count_ = 0;
  // the packet that got the last message: the next one is likely to go there too
  std::uint8_t last_ = 0;
  Counts counts_;
};

}  // namespace heddle::engine
