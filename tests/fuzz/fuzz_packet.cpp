// Messages from a peer: an accepted message must lie inside the packet, and reassembly must keep
// its bound.
#include "fuzz.hpp"
#include "protocol/reassembly.hpp"
#include "wire/messages.hpp"
#include "wire/packet.hpp"

namespace {

using heddle::fuzz::inside;
using heddle::fuzz::require;

void active_message(std::uint32_t immediate, std::span<const std::byte> packet) {
  const auto message = heddle::wire::decode_am(immediate, packet);
  if (!message) return;
  require(message->handler < HEDDLE_AM_HANDLERS, "handler number");
  require(inside({message->header, message->header_bytes}, packet), "header leaves the packet");
  require(inside({message->payload, message->payload_bytes}, packet), "payload leaves the packet");
}

// Parts of messages, one after the other as their lengths say, from two peers.
void fragments(heddle::fuzz::Input input) {
  constexpr std::uint64_t kMessage = 1 << 16;
  constexpr std::uint64_t kMemory = 1 << 18;
  heddle::protocol::Reassembly reassembly(kMessage, kMemory);
  while (!input.rest().empty()) {
    const heddle_peer source{input.take<std::uint8_t>() & 1U, 0};
    const auto packet = input.bytes(input.take<std::uint16_t>() % 512U);
    const auto fragment = heddle::wire::decode_fragment(packet);
    if (!fragment) continue;
    require(inside(fragment->header, packet) && inside(fragment->payload, packet), "fragment leaves the packet");
    require(fragment->header.size() <= HEDDLE_AM_HEADER_BYTES, "header too long");
    require(fragment->head.offset <= fragment->head.total_bytes &&
                fragment->payload.size() <= fragment->head.total_bytes - fragment->head.offset,
            "part outside its message");
    heddle::protocol::Reassembly::Message whole;
    if (reassembly.add(source, *fragment, &whole) == heddle::protocol::Reassembly::Outcome::complete) {
      require(whole.total_bytes <= kMessage && whole.handler < heddle::wire::kHandlerNumbers, "whole message");
    }
    require(reassembly.memory() <= kMemory, "more memory than allowed");
  }
  reassembly.forget(0);
  reassembly.forget(1);
  require(reassembly.memory() == 0, "memory kept for the dead");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  heddle::fuzz::Input input(data, size);
  switch (input.take<std::uint8_t>() % 8) {
    case 0: {
      const auto immediate = input.take<std::uint32_t>();
      active_message(immediate, input.rest());
      break;
    }
    case 1:
      fragments(input);
      break;
    case 2:
      if (const auto request = heddle::wire::decode_request(input.rest())) {
        require(inside(request->payload, input.rest()), "request leaves the packet");
        require(request->head.kind <= heddle::wire::RequestKind::atomic, "kind of request");
      }
      break;
    case 3: {
      const auto immediate = input.take<std::uint32_t>();
      const auto packet = input.rest();
      if (const auto message = heddle::wire::decode_tagged(immediate, packet)) {
        require(inside(message->payload, packet), "payload leaves the packet");
        // An offer may be of no bytes: a message without data whose sender waits for the answer.
        require(message->payload.size() == (message->offer ? sizeof(heddle::wire::Offer) : message->bytes),
                "length of a tagged message");
        require(message->sequence <= heddle::wire::kSequenceMask, "number of a tagged message");
      }
      static_cast<void>(heddle::wire::decode_credit(packet));
      if (const auto message = heddle::wire::decode_piped(packet)) {
        require(inside(message->payload, packet), "the first part leaves the packet");
        require(message->payload.size() < message->bytes && message->begins, "length of a message in parts");
      }
      break;
    }
    case 5:
      if (const auto offer = heddle::wire::decode_am_offer(input.rest())) {
        require(inside(offer->header, input.rest()), "header leaves the offer");
        require(offer->header.size() == offer->head.header_bytes && offer->header.size() <= HEDDLE_AM_HEADER_BYTES &&
                    offer->head.handler < heddle::wire::kHandlerNumbers && offer->head.bytes != 0,
                "offer of a large message");
      }
      break;
    case 6:
      if (const auto notice = heddle::wire::decode_partitioned(input.rest())) {
        require(notice->head.from != 0 && notice->head.zero == 0, "notice of a partitioned operation");
        require(notice->head.kind != heddle::wire::PartitionedKind::offer ||
                    (notice->head.partitions > 0 && notice->head.partitions <= HEDDLE_MOST_PARTITIONS),
                "partitions of an offer");
      }
      break;
    default:
      if (const auto reply = heddle::wire::decode_reply(input.rest())) {
        require(inside(reply->payload, input.rest()), "reply leaves the packet");
      }
  }
  return 0;
}
