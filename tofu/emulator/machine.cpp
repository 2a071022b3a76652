#include "tofu/emulator/machine.hpp"

#include <algorithm>
#include <cstdio>

namespace tofu_emulator {
namespace {

// The last steps of splitmix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ value >> 30U) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ value >> 27U) * 0x94D049BB133111EBULL;
  return value ^ value >> 31U;
}

constexpr std::uint64_t kVendorMark = std::uint64_t{1} << 40U;

// the distance on a ring, the shorter way
std::uint32_t around(std::uint32_t from, std::uint32_t to, std::uint32_t along) {
  const std::uint32_t apart = from > to ? from - to : to - from;
  return std::min(apart, along - apart);
}

}  // namespace

const utofu_onesided_caps& onesided_caps() {
  static constexpr utofu_onesided_caps kCaps = {UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE | UTOFU_ONESIDED_CAP_FLAG_ARMW,
                                                UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP | UTOFU_ONESIDED_CAP_ARMW_OP_SWAP |
                                                    UTOFU_ONESIDED_CAP_ARMW_OP_ADD | UTOFU_ONESIDED_CAP_ARMW_OP_XOR |
                                                    UTOFU_ONESIDED_CAP_ARMW_OP_AND | UTOFU_ONESIDED_CAP_ARMW_OP_OR,
                                                kComponents,
                                                kFixedStags,
                                                kLineBytes,
                                                kLineBytes,
                                                kMaxDescriptor,
                                                kMaxLength,
                                                kMaxPiggyback,
                                                1,
                                                kMtu,
                                                kMaxGap};
  return kCaps;
}

Machine::Machine(const EmulatorSettings& settings)
    : vendor_(settings.numbering == Numbering::vendor),
      shape_(settings.shape),
      processes_(settings.processes),
      per_node_(settings.per_node),
      key_(mixed(settings.seed + 0x9E3779B97F4A7C15ULL)),
      mask_(mixed(key_ + 1)),
      multiplier_(mixed(key_ + 2) | 1U),
      turn_(static_cast<unsigned>(mixed(key_ + 3) & 63U)),
      back_(64 - turn_) {
  for (const std::uint8_t along : shape_) nodes_ *= along;
}

Coords Machine::coords_of(std::uint32_t node) const {
  Coords coords{};
  for (std::size_t axis = coords.size(); axis-- > 0; node /= shape_.at(axis)) {
    coords.at(axis) = static_cast<std::uint8_t>(node % shape_.at(axis));
  }
  return coords;
}

std::optional<std::uint32_t> Machine::node_at(const std::uint8_t coords[]) const {
  std::uint32_t node = 0;
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    if (coords[axis] >= shape_.at(axis)) return std::nullopt;
    node = node * shape_.at(axis) + coords[axis];
  }
  return node;
}

// Up to nine processes of a node divide the CQs of each TNI. More processes are assigned to the
// TNIs in turn, with one CQ on each of theirs.
Machine::Share Machine::share(std::uint32_t process, std::uint16_t tni) const {
  const std::uint32_t local = process % per_node_;
  if (per_node_ <= kCqs) {
    const auto first = static_cast<std::uint16_t>(kCqs * local / per_node_);
    const auto end = static_cast<std::uint16_t>(kCqs * (local + 1) / per_node_);
    return {first, static_cast<std::uint16_t>(end - first), component_cq(local, first)};
  }
  const std::uint32_t cq = (local + kTnis * kCqs * per_node_ - tni * kCqs) % per_node_;
  if (cq >= kCqs) return {};
  return {static_cast<std::uint16_t>(cq), 1, static_cast<std::uint16_t>(cq)};
}

// The CQ of the node's process `local` that programs of the vendor's machine expect; for more than
// four processes nothing is known. It is always in that process's share.
std::uint16_t Machine::component_cq(std::uint32_t local, std::uint16_t first) const {
  static constexpr std::uint16_t kKnown[3][4] = {{0, 6, 0, 0}, {0, 4, 8, 0}, {0, 2, 5, 8}};
  return vendor_ && per_node_ >= 2 && per_node_ <= 4 ? kKnown[per_node_ - 2][local] : first;
}

std::optional<std::uint32_t> Machine::process_of(std::uint32_t node, std::uint16_t tni, std::uint16_t cq) const {
  if (node >= nodes_ || tni >= kTnis || cq >= kCqs) return std::nullopt;
  // If processes divide a TNI: the last process whose share begins at or before cq, that is
  // ceil((cq + 1) * per_node / 9) - 1.
  const std::uint32_t local = per_node_ <= kCqs ? ((cq + 1U) * per_node_ + kCqs - 1U) / kCqs - 1U
                                                : (cq + std::uint32_t{tni} * kCqs) % per_node_;
  const std::uint32_t process = node * per_node_ + local;
  if (process >= processes_) return std::nullopt;
  return process;
}

utofu_vcq_id_t Machine::vcq_id(const VcqPlace& place) const {
  const PackedPlace path = place.path == kNoPath ? 0 : place.path;
  return pack_id(PackedPlace{place.node} | PackedPlace{place.tni} << 19U | PackedPlace{place.cq} << 22U |
                 PackedPlace{place.slot} << 26U | path << kPathShift);
}

bool Machine::decode(utofu_vcq_id_t id, VcqPlace* place) const {
  PackedPlace packed = 0;
  if (!unpack_id(id, &packed)) return false;
  const auto path = static_cast<std::uint8_t>(packed >> kPathShift & 15U);
  *place = {static_cast<std::uint32_t>(packed & 0x7FFFFU), static_cast<std::uint16_t>(packed >> 19U & 7U),
            static_cast<std::uint16_t>(packed >> 22U & 15U), static_cast<std::uint16_t>(packed >> 26U & 15U),
            path == 0 ? kNoPath : path};
  return true;
}

utofu_vcq_id_t Machine::raw(utofu_vcq_id_t id) const {
  PackedPlace packed = 0;
  return unpack_id(id, &packed) ? pack_id(without_path(packed)) : id;
}

std::uint64_t Machine::vendor_coords(std::uint32_t node) const {
  const Coords at = coords_of(node);
  return at[0] | std::uint64_t{at[1]} << 8U | std::uint64_t{at[2]} << 16U | std::uint64_t{at[3]} << 24U |
         std::uint64_t{at[4]} << 25U | std::uint64_t{at[5]} << 27U;
}

std::optional<std::uint32_t> Machine::node_of_vendor(std::uint64_t bits) const {
  const std::uint8_t coords[] = {static_cast<std::uint8_t>(bits),
                                 static_cast<std::uint8_t>(bits >> 8U),
                                 static_cast<std::uint8_t>(bits >> 16U),
                                 static_cast<std::uint8_t>(bits >> 24U & 1U),
                                 static_cast<std::uint8_t>(bits >> 25U & 3U),
                                 static_cast<std::uint8_t>(bits >> 27U & 1U)};
  return node_at(coords);
}

utofu_vcq_id_t Machine::pack_vendor(PackedPlace packed) const {
  const std::uint64_t tni = packed >> 19U & 7U;
  const std::uint64_t cq = packed >> 22U & 15U;
  const std::uint64_t slot = packed >> 26U & 15U;
  const std::uint64_t path = packed >> kPathShift & 15U;
  return vendor_coords(static_cast<std::uint32_t>(packed & 0x7FFFFU)) | tni << 29U | path << 32U | slot << 36U |
         kVendorMark | cq << 58U;
}

bool Machine::unpack_vendor(utofu_vcq_id_t id, PackedPlace* packed) const {
  constexpr std::uint64_t kUnused = 0x03FF'FF00'1000'0000;  // bits 28 and 40-57
  const auto node = node_of_vendor(id);
  const std::uint64_t tni = id >> 29U & 7U;
  const std::uint64_t cq = id >> 58U;
  const std::uint64_t slot = id >> 36U & 15U;
  if ((id & kUnused) != kVendorMark || !node || tni >= kTnis || cq >= kCqs || slot >= kVcqsOfCq) return false;
  *packed = PackedPlace{*node} | tni << 19U | cq << 22U | slot << 26U | (id >> 32U & 15U) << kPathShift;
  return true;
}

// Random numbering: the complement of the id of a VCQ in that place, so that no id is both a gate's
// and a VCQ's.
utofu_vbg_id_t Machine::vbg_id(std::uint32_t node, std::uint16_t tni, std::uint16_t gate) const {
  if (vendor_) return gate | vendor_coords(node) << 32U | std::uint64_t{tni} << 61U;
  return ~pack_id(PackedPlace{node} | PackedPlace{tni} << 19U | PackedPlace{gate} << 22U);
}

bool Machine::decode_vbg(utofu_vbg_id_t id, std::uint32_t* node, std::uint16_t* tni, std::uint16_t* gate) const {
  if (vendor_) {
    constexpr std::uint64_t kUnused = 0x1000'0000'FFFF'FFC0;
    const auto found = node_of_vendor(id >> 32U);
    *tni = static_cast<std::uint16_t>(id >> 61U);
    *gate = static_cast<std::uint16_t>(id & 63U);
    if ((id & kUnused) != 0 || !found || *tni >= kTnis || *gate >= kGates) return false;
    *node = *found;
    return true;
  }
  PackedPlace packed = 0;
  if (!unpack_id(~id, &packed)) return false;
  *node = static_cast<std::uint32_t>(packed & 0x7FFFFU);
  *tni = static_cast<std::uint16_t>(packed >> 19U & 7U);
  *gate = static_cast<std::uint16_t>(packed >> 22U & 0xFFU);
  return true;
}

std::optional<std::uint8_t> Machine::path_of(const std::uint8_t coords[]) const {
  if (coords == nullptr || coords[0] == UTOFU_PATH_COORD_NULL) return kNoPath;
  if (coords[0] >= shape_[3] || coords[1] >= shape_[4] || coords[2] >= shape_[5]) return std::nullopt;
  return static_cast<std::uint8_t>(1 + coords[0] + 2 * coords[1] + 6 * coords[2]);
}

std::optional<PathCoords> Machine::path_coords(std::uint8_t path, std::uint32_t target) const {
  if (path == kNoPath || path == kDefaultPath) {
    const Coords coords = coords_of(target);
    return PathCoords{coords[3], coords[4], coords[5]};
  }
  if (path == 0 || path > kPaths) return std::nullopt;
  const unsigned number = path - 1U;
  const PathCoords coords = {static_cast<std::uint8_t>(number % 2), static_cast<std::uint8_t>(number / 2 % 3),
                             static_cast<std::uint8_t>(number / 6)};
  if (coords[0] >= shape_[3] || coords[1] >= shape_[4] || coords[2] >= shape_[5]) return std::nullopt;
  return coords;
}

std::uint32_t Machine::hops(std::uint32_t from, std::uint32_t to, std::uint8_t path) const {
  const Coords source = coords_of(from);
  const Coords target = coords_of(to);
  const PathCoords via = path_coords(path, to).value_or(PathCoords{target[3], target[4], target[5]});
  std::uint32_t links = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    links += around(source.at(axis), target.at(axis), shape_.at(axis));
    links += around(source.at(axis + 3), via.at(axis), shape_.at(axis + 3));
    links += around(via.at(axis), target.at(axis + 3), shape_.at(axis + 3));
  }
  return links;
}

std::uint64_t Machine::scramble(std::uint64_t purpose, std::uint64_t what) const {
  return mixed(mixed(key_ ^ purpose) + what);
}

Machine::VcqName Machine::name_of(utofu_vcq_id_t id) const {
  VcqName name{};
  VcqPlace place;
  if (!decode(id, &place)) {
    std::snprintf(name.text, sizeof name.text, "VCQ %016llx (of no node)", static_cast<unsigned long long>(id));
    return name;
  }
  const Coords at = coords_of(place.node);
  std::snprintf(name.text, sizeof name.text, "VCQ %016llx (node %u %u %u %u %u %u, TNI %u CQ %u)",
                static_cast<unsigned long long>(id), at[0], at[1], at[2], at[3], at[4], at[5], place.tni, place.cq);
  return name;
}

}  // namespace tofu_emulator
