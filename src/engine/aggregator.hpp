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
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/common/forwarding.hpp"

namespace heddle::engine {

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
