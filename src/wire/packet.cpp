#include "wire/packet.hpp"

namespace heddle::wire {
namespace {

template <class Header>
bool read(std::span<const std::byte> packet, Header* header) {
  if (packet.size() < sizeof(Header)) return false;
  std::memcpy(header, packet.data(), sizeof(Header));
  return true;
}

}  // namespace

std::optional<Fragment> decode_fragment(std::span<const std::byte> packet) {
  Fragment fragment{};
  if (!read(packet, &fragment.head)) return std::nullopt;
  const FragmentHeader& head = fragment.head;
  if (head.handler >= kHandlerNumbers || head.header_bytes > HEDDLE_AM_HEADER_BYTES) return std::nullopt;
  std::span<const std::byte> rest = packet.subspan(sizeof(FragmentHeader));
  if (head.offset == 0) {
    const std::uint32_t padded = pad8(head.header_bytes);
    if (padded > rest.size()) return std::nullopt;
    fragment.header = rest.first(head.header_bytes);
    rest = rest.subspan(padded);
  }
  if (rest.empty() || head.offset > head.total_bytes || rest.size() > head.total_bytes - head.offset) {
    return std::nullopt;
  }
  fragment.payload = rest;
  return fragment;
}

std::optional<AmOffer> decode_am_offer(std::span<const std::byte> packet) {
  AmOffer offer{};
  if (!read(packet, &offer.head)) return std::nullopt;
  offer.header = packet.subspan(sizeof(AmOfferHeader));
  const AmOfferHeader& head = offer.head;
  if (head.handler >= kHandlerNumbers || head.bytes == 0 || head.header_bytes > HEDDLE_AM_HEADER_BYTES ||
      offer.header.size() != head.header_bytes) {
    return std::nullopt;
  }
  return offer;
}

std::optional<Request> decode_request(std::span<const std::byte> packet) {
  Request request{};
  if (!read(packet, &request.head)) return std::nullopt;
  request.payload = packet.subspan(sizeof(RequestHeader));
  const RequestHeader& head = request.head;
  switch (head.kind) {
    case RequestKind::put:
      if (head.bytes == 0 || request.payload.size() != head.bytes) return std::nullopt;
      return request;
    case RequestKind::get:
      if (head.bytes == 0 || !request.payload.empty()) return std::nullopt;
      return request;
    case RequestKind::atomic:
      if (!request.payload.empty() || !atomic_known(head.atomic_op)) return std::nullopt;
      if (head.bytes != atomic_bytes(head.atomic_op)) return std::nullopt;
      return request;
  }
  return std::nullopt;
}

std::optional<Reply> decode_reply(std::span<const std::byte> packet) {
  Reply reply{};
  if (!read(packet, &reply.head)) return std::nullopt;
  if (!status_known(reply.head.status) || reply.head.last > 1) return std::nullopt;
  reply.payload = packet.subspan(sizeof(ReplyHeader));
  return reply;
}

}  // namespace heddle::wire
