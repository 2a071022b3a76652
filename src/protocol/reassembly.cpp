#include "protocol/reassembly.hpp"

#include <cstring>
#include <new>

namespace heddle::protocol {

Reassembly::Outcome Reassembly::add(heddle_peer source, const wire::Fragment& fragment, Message* whole) {
  const wire::FragmentHeader& head = fragment.head;
  const auto [it, inserted] = partials_.try_emplace(Key{source.rank, source.worker, head.message});
  Partial& partial = it->second;
  Message& message = partial.message;
  if (inserted) {
    message.token = head.token;
    message.total_bytes = head.total_bytes;
    message.handler = head.handler;
    message.header_bytes = head.header_bytes;
    const bool fits = head.total_bytes <= max_message_ && head.total_bytes <= max_memory_ - memory_;
    if (fits) message.payload.reset(new (std::nothrow) std::byte[head.total_bytes]);
    partial.refused = message.payload == nullptr;
    if (!partial.refused) memory_ += head.total_bytes;
  } else if (head.total_bytes != message.total_bytes || head.header_bytes != message.header_bytes) {
    return Outcome::incomplete;  // contradicts its own first part: ignored, the message stays incomplete
  }
  if (head.offset == 0) {
    if (!fragment.header.empty()) std::memcpy(message.header.data(), fragment.header.data(), fragment.header.size());
    message.has_first = true;
  }
  message.received += fragment.payload.size();
  if (!partial.refused)
    std::memcpy(message.payload.get() + head.offset, fragment.payload.data(), fragment.payload.size());
  if (message.received < message.total_bytes || !message.has_first) return Outcome::incomplete;
  const bool refused = partial.refused;
  if (!refused) memory_ -= message.total_bytes;
  *whole = std::move(message);
  partials_.erase(it);
  return refused ? Outcome::refused : Outcome::complete;
}

void Reassembly::forget(std::uint32_t rank) {
  for (auto it = partials_.lower_bound(Key{rank, 0, 0}); it != partials_.end() && std::get<0>(it->first) == rank;) {
    if (!it->second.refused) memory_ -= it->second.message.total_bytes;
    it = partials_.erase(it);
  }
}

}  // namespace heddle::protocol
