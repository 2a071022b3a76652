#include "engine/aggregator.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace heddle::engine {

void pack(std::byte* room, std::uint32_t immediate, std::span<const std::byte> header,
          std::span<const std::byte> payload) {
  const auto put = [&room](std::span<const std::byte> bytes) {
    const std::size_t over = bytes.size() % 8;
    const std::size_t padded = bytes.size() + (over == 0 ? 0 : 8 - over);
    if (over != 0) std::memset(room + padded - 8, 0, 8);
    if (!bytes.empty()) std::memcpy(room, bytes.data(), bytes.size());
    room += padded;
  };
  const std::uint64_t header_room = (header.size() + 7) & ~std::uint64_t{7};
  const PackedRecord record{immediate, static_cast<std::uint32_t>(header_room + payload.size())};
  std::memcpy(room, &record, sizeof record);
  room += sizeof record;
  put(header);
  put(payload);
}

bool well_formed_packet(std::span<const std::byte> packet) {
  PacketReader reader(packet);
  bool any = false;
  while (reader.next()) any = true;
  return any && reader.ended();
}

using transport::Command;
using transport::Event;
using transport::Opcode;
using transport::Token;

Aggregator::Aggregator(std::unique_ptr<transport::TransportWorker> inner, std::uint32_t max_message)
    : ForwardingWorker(std::move(inner)), packet_bytes_(std::min(max_message, kMostPacketBytes) & ~7U) {}

bool Aggregator::small(const Command& command) const {
  return packed_bytes(command.header_bytes, command.bytes) <= packet_bytes_ / kLeastShare &&
         command.bytes <= packet_bytes_ && may_be_packed(command.immediate);
}

Token Aggregator::token_of(const Packet& packet) const {
  const auto index = static_cast<std::uint64_t>(&packet - packets_.data());
  return kPacketToken | std::uint64_t{packet.generation} << 8 | index;
}

Aggregator::Packet* Aggregator::find(Target target, Stage stage) {
  const auto fits = [target, stage](const Packet& packet) {
    return packet.stage == stage && packet.target.rank == target.rank && packet.target.worker == target.worker;
  };
  if (fits(packets_[last_])) [[likely]]
    return &packets_[last_];
  const auto found = std::find_if(packets_.begin(), packets_.end(), fits);
  if (found == packets_.end()) return nullptr;
  return &*found;
}

// Opens a packet for waiting messages; null: all packets are in use, or memory is exhausted.
Aggregator::Packet* Aggregator::open(Target target) {
  const auto found =
      std::find_if(packets_.begin(), packets_.end(), [](const Packet& packet) { return packet.stage == Stage::free; });
  if (found == packets_.end()) return nullptr;
  Packet& packet = *found;
  if (packet.memory == nullptr) packet.memory.reset(new (std::nothrow) std::uint64_t[packet_bytes_ / 8]);
  if (packet.tokens == nullptr) packet.tokens.reset(new (std::nothrow) Token[kMostMessages]);
  if (packet.memory == nullptr || packet.tokens == nullptr) return nullptr;
  packet.stage = Stage::waiting;
  packet.target = target;
  packet.bytes = packet.messages = packet.told = 0;
  ++packet.generation;
  ++waiting_;
  ++busy_;
  last_ = static_cast<std::uint8_t>(found - packets_.begin());
  return &packet;
}

// False: the message does not fit.
bool Aggregator::append(Packet* packet, Command& command) {
  const std::uint64_t bytes = packed_bytes(command.header_bytes, command.bytes);
  if (bytes > packet_bytes_ - packet->bytes || packet->messages == kMostMessages) return false;
  std::span<const std::byte> header;
  if (!command.inlined) header = {static_cast<const std::byte*>(command.header), command.header_bytes};
  pack(packet->data() + packet->bytes, command.immediate, header,
       {static_cast<const std::byte*>(command.source()), command.bytes});
  packet->bytes += static_cast<std::uint32_t>(bytes);
  packet->tokens[packet->messages++] = command.token;
  command.source_free = true;
  return true;
}

std::size_t Aggregator::post(std::span<Command> batch) {
  std::size_t accepted = 0;
  try {
    while (accepted < batch.size()) {
      if (busy_ == 0) [[likely]] {
        accepted += inner_->post(batch.subspan(accepted));
        if (accepted == batch.size()) [[likely]]
          break;
      }
      if (!post_one(batch[accepted])) break;
      ++accepted;
    }
  } catch (const std::bad_alloc&) {  // the first message to a worker connects to it
    if (accepted == 0) throw;
  }
  return accepted;
}

// For when the aggregator is busy towards some worker, or the transport has just refused this
// command.
bool Aggregator::post_one(Command& command) {
  const bool refused = busy_ == 0;
  if (command.opcode != Opcode::message) return !refused && inner_->post({&command, 1}) == 1;
  const Target target{command.rank, command.worker};
  const bool fits = small(command);
  bool busy = refused;
  if (Packet* packet = refused ? nullptr : find(target, Stage::waiting); packet != nullptr) {
    if (fits && append(packet, command)) {
      last_ = static_cast<std::uint8_t>(packet - packets_.data());
      return true;
    }
    if (!offer(*packet)) return false;
  }
  busy = busy || find(target, Stage::under_way) != nullptr;
  Packet* packet = nullptr;
  if (busy && fits && (packet = open(target)) != nullptr) return append(packet, command);
  if (refused) return false;
  if (inner_->post({&command, 1}) == 1) return true;
  return fits && (packet = open(target)) != nullptr && append(packet, command);
}

// False: the transport does not take it now.
bool Aggregator::offer(Packet& packet) {
  Command command;
  command.opcode = Opcode::message;
  command.rank = packet.target.rank;
  command.worker = packet.target.worker;
  command.token = token_of(packet);
  command.immediate = wire::immediate_of(wire::Kind::packet);
  command.local = packet.data();
  command.bytes = packet.bytes;
  if (packet.messages == 1) {  // a single message leaves as it would have left without a packet
    PackedRecord record{};
    std::memcpy(&record, packet.data(), sizeof record);
    command.immediate = record.immediate;
    command.local = packet.data() + sizeof record;
    command.bytes = record.bytes;
  }
  try {
    if (inner_->post({&command, 1}) == 0) return false;
  } catch (const std::bad_alloc&) {  // the first message to a worker connects to it; retried
    return false;
  }
  packet.stage = Stage::under_way;
  --waiting_;
  if (packet.messages > 1) {
    counts_.messages += packet.messages;
    ++counts_.packets;
  }
  if (command.done) end(packet, HEDDLE_DONE);
  return true;
}

void Aggregator::flush() {
  for (Packet& packet : packets_) {
    if (packet.stage == Stage::waiting) static_cast<void>(offer(packet));
  }
}

void Aggregator::end(Packet& packet, base::Status status) {
  packet.stage = Stage::ended;
  --busy_;
  packet.status = status;
  ended_[(ended_first_ + ended_count_) % kPackets] = static_cast<std::uint8_t>(&packet - packets_.data());
  ++ended_count_;
}

// Removes the completions of packets from `arrived`. Returns the number of records left.
std::size_t Aggregator::take_ends(std::span<transport::Completion> arrived) {
  const auto left = std::remove_if(arrived.begin(), arrived.end(), [this](const transport::Completion& completion) {
    if (completion.event == Event::message || completion.token < kPacketToken) return false;
    Packet& packet = packets_[completion.token % kPackets];
    if (packet.stage == Stage::under_way && completion.token == token_of(packet) && completion.event == Event::done) {
      end(packet, completion.status);
    }
    return true;
  });
  return static_cast<std::size_t>(left - arrived.begin());
}

// Reports the messages of packets that have ended.
std::size_t Aggregator::tell(std::span<transport::Completion> room) {
  std::size_t told = 0;
  while (ended_count_ != 0 && told < room.size()) {
    Packet& packet = packets_[ended_[ended_first_]];
    while (packet.told < packet.messages && told < room.size()) {
      room[told] = transport::Completion{};
      room[told].status = packet.status;
      room[told++].token = packet.tokens[packet.told++];
    }
    if (packet.told < packet.messages) break;
    packet.stage = Stage::free;
    ended_first_ = (ended_first_ + 1) % kPackets;
    --ended_count_;
  }
  return told;
}

std::size_t Aggregator::poll(std::span<transport::Completion> completions) {
  if (waiting_ != 0) [[unlikely]]
    flush();
  // Ended packets get at most half of the room, so that arrivals do not wait behind them.
  std::size_t count = ended_count_ == 0 ? 0 : tell(completions.first((completions.size() + 1) / 2));
  const std::size_t arrived = inner_->poll(completions.subspan(count));
  count += take_ends(completions.subspan(count, arrived));
  if (ended_count_ != 0) [[unlikely]]
    count += tell(completions.subspan(count));
  return count;
}

std::uint64_t Aggregator::waiting_messages() const {
  std::uint64_t all = 0;
  for (const Packet& packet : packets_) all += packet.stage == Stage::waiting ? packet.messages : 0;
  return all;
}

// Messages that are kept here wait behind others for the same worker.
std::size_t Aggregator::unopened(std::span<Unopened> found) {
  const std::size_t count = inner_->unopened(found);
  for (Unopened& one : found.first(count)) {
    const Packet* packet = find(one.target, Stage::waiting);
    if (packet != nullptr) one.messages += packet->messages;
  }
  return count;
}

}  // namespace heddle::engine
