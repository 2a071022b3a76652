#include "wire/packet.hpp"

#include <algorithm>
#include <cstring>

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

std::optional<DecodedRequest> decode_request(std::span<const std::byte> packet) {
  DecodedRequest request{};
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

namespace {

constexpr std::uint32_t kMagic = 0x6C646568;  // "hedl", and so a check of the byte order
constexpr std::uint32_t kNarrow = 1;
constexpr std::uint32_t kWide = 2;

template <std::size_t KeyBytes>
struct Layout {
  std::uint32_t magic;
  std::uint32_t layout;
  std::uint64_t job;
  std::uint64_t region;
  std::uint64_t bytes;
  std::uint32_t rank;
  std::uint32_t reserved;
  std::array<std::byte, KeyBytes> key;
  std::uint64_t checksum;  // of everything before it
};
using Narrow = Layout<kTransportKeyBytes>;
using Wide = Layout<kTransportKeysBytes>;
static_assert(sizeof(Narrow) == kNarrowRegionBytes && sizeof(Wide) == kPackedRegionBytes);

bool is_narrow(const PackedRegion& region) {
  return std::all_of(region.key.begin() + kTransportKeyBytes, region.key.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

template <class Form>
void write(const PackedRegion& region, std::uint32_t number, std::byte* bytes) {
  Form form{kMagic, number, region.job, region.region, region.bytes, region.rank, 0, {}, 0};
  std::copy_n(region.key.begin(), form.key.size(), form.key.begin());
  std::memcpy(bytes, &form, sizeof form);
  form.checksum = digest(std::span(bytes, offsetof(Form, checksum)));
  std::memcpy(bytes, &form, sizeof form);
}

template <class Form>
base::Result<PackedRegion> read(std::span<const std::byte> bytes) {
  Form form;
  if (bytes.size() < sizeof form) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "this packed region has %zu bytes, of which there are %zu", sizeof form,
                      bytes.size());
  }
  std::memcpy(&form, bytes.data(), sizeof form);
  if (form.checksum != digest(bytes.first(offsetof(Form, checksum)))) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the bytes of this packed region are damaged (checksum)");
  }
  PackedRegion region{form.job, form.rank, form.region, form.bytes, {}, sizeof form == sizeof(Narrow)};
  std::copy(form.key.begin(), form.key.end(), region.key.begin());
  return region;
}

}  // namespace

std::uint64_t digest(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3ULL;
  return hash;
}

std::array<std::byte, kPackedRegionBytes> encode(const PackedRegion& region) {
  std::array<std::byte, kPackedRegionBytes> bytes{};
  is_narrow(region) ? write<Narrow>(region, kNarrow, bytes.data()) : write<Wide>(region, kWide, bytes.data());
  return bytes;
}

std::array<std::byte, kNarrowRegionBytes> encode_narrow(const PackedRegion& region) {
  std::array<std::byte, kNarrowRegionBytes> bytes;
  write<Narrow>(region, kNarrow, bytes.data());
  return bytes;
}

std::size_t packed_bytes(const PackedRegion& region) {
  return is_narrow(region) ? kNarrowRegionBytes : kPackedRegionBytes;
}

base::Result<PackedRegion> decode_region(std::span<const std::byte> bytes) {
  if (bytes.size() < kNarrowRegionBytes) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a packed region has %zu bytes at least, these are %zu", kNarrowRegionBytes,
                      bytes.size());
  }
  std::array<std::uint32_t, 2> head;
  std::memcpy(head.data(), bytes.data(), sizeof head);
  const auto [magic, layout] = head;
  if (magic != kMagic) return base::fail(HEDDLE_ERR_PROTOCOL, "these bytes are not a packed region");
  if (layout == kNarrow) return read<Narrow>(bytes);
  if (layout == kWide) return read<Wide>(bytes);
  return base::fail(HEDDLE_ERR_VERSION,
                    "packed region of layout %u, this library reads layouts %u and %u: use one version of "
                    "Heddle in all ranks",
                    layout, kNarrow, kWide);
}

}  // namespace heddle::wire
