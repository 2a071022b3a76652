#include "protocol/reassembly.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/copy.hpp"

namespace heddle::protocol {
namespace {

constexpr std::uint64_t kWordBits = 64;

std::uint64_t charge(std::uint64_t total_bytes) {
  return std::max(total_bytes, Reassembly::kLeastCharge);
}

}  // namespace

bool Reassembly::same(const Message& message, const wire::FragmentHeader& head) {
  return head.total_bytes == message.total_bytes && head.header_bytes == message.header_bytes &&
         head.handler == message.handler && head.token == message.token;
}

Reassembly::Outcome Reassembly::add(heddle_peer source, const wire::Fragment& fragment, Message* whole) noexcept {
  try {
    return place(source, fragment, whole);
  } catch (const std::bad_alloc&) {  // from the maps: nothing has been entered
    *whole = {};
    whole->token = fragment.head.token;
    return Outcome::rejected;
  }
}

Reassembly::Outcome Reassembly::place(heddle_peer source, const wire::Fragment& fragment, Message* whole) {
  const wire::FragmentHeader& head = fragment.head;
  const std::uint64_t header_room = wire::pad8(head.header_bytes);
  std::uint64_t stream_bytes = 0;
  if (__builtin_add_overflow(head.total_bytes, header_room, &stream_bytes)) return Outcome::malformed;
  Part part{head.offset + header_room, fragment.payload.size(), false};
  if (head.offset == 0) part = {0, fragment.payload.size() + header_room, false};
  part.last = part.at + part.bytes == stream_bytes;

  Peer& peer = peers_[source.rank];
  auto it = peer.partials.find(Key{source.worker, head.message});
  if (it == peer.partials.end()) {
    if (!part.last && part.bytes < kLeastUnit) return Outcome::malformed;
    Partial* opened = open(peer, source.worker, head);
    if (opened == nullptr) {
      *whole = {};
      whole->token = head.token;
      return Outcome::rejected;
    }
    opened->stream_bytes = stream_bytes;
    it = peer.partials.find(Key{source.worker, head.message});
  }
  Partial& partial = it->second;
  if (!same(partial.message, head)) return Outcome::malformed;
  if (partial.rejected) return place_rejected(peer, it, part, whole);
  switch (note(partial, part)) {
    case Noted::yes:
      break;
    case Noted::no:
      return Outcome::malformed;
    case Noted::no_memory:
      reject(peer, partial);
      return place_rejected(peer, it, part, whole);
  }
  if (!fragment.header.empty()) {
    std::memcpy(partial.message.header.data(), fragment.header.data(), fragment.header.size());
  }
  base::copy_data(partial.message.payload.get() + head.offset, fragment.payload.data(), fragment.payload.size());
  if (partial.received < partial.stream_bytes) return Outcome::incomplete;
  memory_ -= charge(head.total_bytes);
  peer.memory -= charge(head.total_bytes);
  *whole = std::move(partial.message);
  peer.partials.erase(it);
  return Outcome::complete;
}

// Rejects a message that is already open.
void Reassembly::reject(Peer& peer, Partial& partial) {
  memory_ -= charge(partial.message.total_bytes);
  peer.memory -= charge(partial.message.total_bytes);
  partial.message.payload.reset();
  partial.rejected = true;
  ++peer.rejected;
}

// The answer leaves only after all parts have arrived: until then the sender's memory is still
// being read.
Reassembly::Outcome Reassembly::place_rejected(Peer& peer, std::map<Key, Partial>::iterator it, const Part& part,
                                               Message* whole) {
  Partial& partial = it->second;
  partial.received += std::min(part.bytes, partial.stream_bytes - partial.received);
  if (partial.received < partial.stream_bytes) return Outcome::incomplete;
  *whole = std::move(partial.message);
  peer.partials.erase(it);
  --peer.rejected;
  return Outcome::rejected;
}

Reassembly::Partial* Reassembly::open(Peer& peer, std::uint32_t worker, const wire::FragmentHeader& head) {
  const auto forgotten = peer.forgotten.find(worker);
  if (forgotten != peer.forgotten.end() && head.message <= forgotten->second) return nullptr;
  const std::uint64_t cost = charge(head.total_bytes);
  const bool fits =
      head.total_bytes <= max_message_ && cost <= max_memory_ - memory_ && cost <= max_peer_memory_ - peer.memory;
  std::unique_ptr<std::byte[]> payload;
  if (fits) payload.reset(new (std::nothrow) std::byte[head.total_bytes]);
  if (payload == nullptr && peer.rejected >= kMostRejected) {
    peer.forgotten[worker] = head.message;
    return nullptr;
  }
  Partial& partial = peer.partials[Key{worker, head.message}];
  partial.message.token = head.token;
  partial.message.total_bytes = head.total_bytes;
  partial.message.handler = head.handler;
  partial.message.header_bytes = head.header_bytes;
  partial.message.payload = std::move(payload);
  partial.rejected = partial.message.payload == nullptr;
  if (partial.rejected) {
    ++peer.rejected;
  } else {
    memory_ += cost;
    peer.memory += cost;
  }
  return &partial;
}

// Sets the unit once it is known. If the last part is here, it must agree with the unit.
Reassembly::Noted Reassembly::set_unit(Partial& partial, std::uint64_t unit) {
  const std::uint64_t tail_bytes = partial.stream_bytes - partial.tail;
  if (unit < kLeastUnit || (partial.tail != 0 && (partial.tail % unit != 0 || tail_bytes > unit))) return Noted::no;
  const std::uint64_t parts = (partial.stream_bytes - 1) / unit + 1;
  partial.here.reset(new (std::nothrow) std::uint64_t[(parts - 1) / kWordBits + 1]());
  if (partial.here == nullptr) return Noted::no_memory;
  partial.unit = unit;
  const std::uint64_t index = partial.tail / unit;
  if (partial.tail != 0) partial.here[index / kWordBits] |= std::uint64_t{1} << index % kWordBits;
  return Noted::yes;
}

// Counts the part. No: it cannot be a part of this message, or has arrived before.
Reassembly::Noted Reassembly::note(Partial& partial, const Part& part) {
  if (part.at == 0 && part.last) {  // the whole message in one part
    if (partial.received != 0) return Noted::no;
    partial.received = part.bytes;
    return Noted::yes;
  }
  if (partial.unit == 0 && part.last) {
    if (partial.tail != 0) return Noted::no;
    partial.tail = part.at;
    partial.received = part.bytes;
    return Noted::yes;
  }
  if (partial.unit == 0) {
    if (part.at % part.bytes != 0) return Noted::no;
    if (const Noted known = set_unit(partial, part.bytes); known != Noted::yes) return known;
  }
  const bool fits =
      part.at % partial.unit == 0 && (part.last ? part.bytes <= partial.unit : part.bytes == partial.unit);
  if (!fits) return Noted::no;
  const std::uint64_t index = part.at / partial.unit;
  std::uint64_t& word = partial.here[index / kWordBits];
  const std::uint64_t bit = std::uint64_t{1} << index % kWordBits;
  if ((word & bit) != 0) return Noted::no;
  word |= bit;
  partial.received += part.bytes;
  return Noted::yes;
}

void Reassembly::forget(std::uint32_t rank) {
  const auto it = peers_.find(rank);
  if (it == peers_.end()) return;
  memory_ -= it->second.memory;
  peers_.erase(it);
}

std::size_t Reassembly::messages() const {
  std::size_t count = 0;
  for (const auto& [rank, peer] : peers_) count += peer.partials.size();
  return count;
}

}  // namespace heddle::protocol
