#include "tofu/emulator/delivery.hpp"

namespace tofu_emulator {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  a ^= b + 0x9E3779B97F4A7C15ULL + (a << 6) + (a >> 2);
  a *= 0xFF51AFD7ED558CCDULL;
  return a ^ a >> 33;
}

std::uint64_t where(const PacketHead& head) {
  return std::uint64_t{head.tni} << 16 | std::uint64_t{head.cq} << 8 | head.slot;
}

bool in_pieces(PacketKind kind) {
  return kind == PacketKind::put || kind == PacketKind::got;
}

}  // namespace

// Usually short, sometimes long: neighbouring packets change places, and whole messages overtake
// many others.
std::uint64_t Delivery::hold_back() {
  const std::uint64_t kind = random_.below(16);
  if (kind < 8) return random_.below(4);
  if (kind < 14) return random_.below(64);
  return random_.below(512);
}

void Delivery::add(PacketKind kind, const PacketHead& head, const std::byte* data, std::uint32_t source,
                   std::uint64_t arrived) {
  Parcel parcel;
  parcel.head = head;
  if (head.bytes != 0) parcel.data.assign(data, data + head.bytes);
  parcel.kind = kind;
  parcel.source = source;
  parcel.arrived = arrived;
  const std::uint64_t from = mix(mix(head.source_vcq, source), static_cast<std::uint64_t>(where(head)));
  // An answer belongs to the message that it answers.
  parcel.message = kind >= PacketKind::ack ? mix(source, head.message) : mix(from, head.sequence);
  if ((head.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0) {
    parcel.stream = mix(from, head.path) | 1;
    Stream& stream = streams_[parcel.stream];
    // a stream ends when all its packets have been handled
    if (stream.arrived == 0) stream.held_until = now_ + hold_back();
    parcel.turn = stream.arrived++;
  } else {
    if (in_pieces(kind) && head.bytes < head.length && messages_.find(parcel.message) == messages_.end())
      messages_[parcel.message].held_until = now_ + hold_back();
    parcel.due = now_ + hold_back();
  }
  parcels_.push_back(std::move(parcel));
}

bool Delivery::may_go(const Parcel& parcel, bool hurry) {
  if (parcel.stream != 0) {
    const Stream& stream = streams_[parcel.stream];
    return parcel.turn == stream.handled && (hurry || stream.held_until <= now_);
  }
  if (hurry) return true;
  if (parcel.due > now_) return false;
  const auto state = messages_.find(parcel.message);
  return state == messages_.end() || state->second.held_until <= now_;
}

Delivery::Pieces Delivery::pieces_of(const Parcel& parcel) {
  if (!in_pieces(parcel.kind) || parcel.head.bytes >= parcel.head.length) return {};
  const MessageState& state = messages_[parcel.message];
  return {state.handled + parcel.head.bytes >= parcel.head.length, state.refused};
}

void Delivery::gone(const Parcel& parcel) {
  if (parcel.stream != 0) {
    Stream& stream = streams_[parcel.stream];
    ++stream.handled;
    if (parcel.head.offset + parcel.head.bytes >= parcel.head.length || random_.below(16) == 0)
      stream.held_until = now_ + hold_back();
    if (stream.handled == stream.arrived) streams_.erase(parcel.stream);
  }
  const auto state = messages_.find(parcel.message);
  if (state == messages_.end()) return;
  state->second.handled += parcel.head.bytes;
  if (state->second.handled >= parcel.head.length) messages_.erase(state);
}

}  // namespace tofu_emulator
