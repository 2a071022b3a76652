// The virtual machine: nodes on a torus, the share of each process, and the identifiers of VCQs and
// gates. Pure computation; all processes of a world get the same results. Identifiers have one of
// two layouts: the vendor's, which programs decompose, or one that depends on the world's seed, so
// that no program can decompose it.
//
// The vendor's, bits from the lowest
//   VCQ id   X 0-7, Y 8-15, Z 16-23, A 24, B 25-26, C 27, TNI 29-31, path 32-35, slot 36-39, bit 40
//            set, CQ 58-63. The positions of path and slot are a guess; bit 40 makes sure that no
//            id is 0.
//   gate id  gate 0-5, X 32-39, Y 40-47, Z 48-55, A 56, B 57-58, C 59, TNI 61-63
#pragma once

#include <utofu.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tofu/emulator/settings.hpp"

namespace tofu_emulator {

inline constexpr std::uint16_t kTnis = 6;
inline constexpr std::uint16_t kCqs = 9;       // of a TNI, for programs
inline constexpr std::uint16_t kVcqsOfCq = 8;  // numbered slots of a CQ
// component ids; a component's VCQ has its id as slot
inline constexpr std::uint16_t kComponents = 8;
inline constexpr std::uint16_t kSessionCqs = 2;  // of a process on one TNI
inline constexpr std::uint16_t kGates = 48;      // of a TNI
inline constexpr std::uint16_t kStartGates = 16;
inline constexpr std::uint32_t kFixedStags = 256;
// a cache line of the processor; the alignment of memory with fixed stags
inline constexpr std::uint32_t kLineBytes = 256;
inline constexpr std::uint32_t kMaxDescriptor = 64;
inline constexpr std::uint32_t kMtu = 1920;
inline constexpr std::uint32_t kMaxLength = 16'777'215;
inline constexpr std::uint32_t kMaxPiggyback = 32;
inline constexpr std::uint32_t kMaxEdata = 255;
inline constexpr std::uint32_t kMaxGap = 255;
inline constexpr std::uint8_t kNoPath = 0xFF;
// utofu_path_id_t 1-12; in the flags of a command 0 means none
inline constexpr std::uint8_t kPaths = 12;
inline constexpr std::uint8_t kDefaultPath =
    13;  // in an id whose default path was set explicitly: differs from an id without a path

const utofu_onesided_caps& onesided_caps();

using Coords = std::array<std::uint8_t, 6>;
// the A, B, C at which a packet travels along X, Y and Z
using PathCoords = std::array<std::uint8_t, 3>;

// The place of a VCQ.
struct VcqPlace {
  std::uint32_t node = 0;
  std::uint16_t tni = 0;
  std::uint16_t cq = 0;
  std::uint16_t slot = 0;       // below kVcqsOfCq
  std::uint8_t path = kNoPath;  // utofu_path_id_t
  bool operator==(const VcqPlace&) const = default;
};

// A place in 34 bits: node 19, tni 3, cq 4, slot 4, path 4 (0 for none).
using PackedPlace = std::uint64_t;
inline constexpr unsigned kPlaceBits = 34;
inline constexpr unsigned kPathShift = 30;
constexpr PackedPlace without_path(PackedPlace packed) {
  return packed & ((PackedPlace{1} << kPathShift) - 1);
}

class Machine {
 public:
  explicit Machine(const EmulatorSettings& settings);

  [[nodiscard]] std::uint32_t nodes() const { return nodes_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::uint32_t node_of(std::uint32_t process) const { return process / per_node_; }
  [[nodiscard]] Coords coords_of(std::uint32_t node) const;
  [[nodiscard]] std::optional<std::uint32_t> node_at(const std::uint8_t coords[]) const;
  // Number of links between two nodes; path kNoPath: the default path, by the target's A, B, C.
  [[nodiscard]] std::uint32_t hops(std::uint32_t from, std::uint32_t to, std::uint8_t path) const;

  // The CQs of a TNI that belong to a process: first .. first + count - 1. A process may have none
  // on a TNI. `component`: the CQ of VCQs created with a component id.
  struct Share {
    std::uint16_t first = 0;
    std::uint16_t count = 0;
    std::uint16_t component = 0;
  };
  [[nodiscard]] Share share(std::uint32_t process, std::uint16_t tni) const;
  // The process to which this CQ belongs; none: no process of this world.
  [[nodiscard]] std::optional<std::uint32_t> process_of(std::uint32_t node, std::uint16_t tni, std::uint16_t cq) const;

  [[nodiscard]] utofu_vcq_id_t vcq_id(const VcqPlace& place) const;
  // False: no VCQ of this machine can have this id.
  [[nodiscard]] bool decode(utofu_vcq_id_t id, VcqPlace* place) const;
  // "VCQ 0123456789abcdef (node 0 1 0 0 0 0, TNI 2 CQ 5)", for messages to the user.
  struct VcqName {
    char text[96];
  };
  [[nodiscard]] VcqName name_of(utofu_vcq_id_t id) const;
  // The id without its path, as it stands in notices.
  [[nodiscard]] utofu_vcq_id_t raw(utofu_vcq_id_t id) const;

  [[nodiscard]] bool vendor() const { return vendor_; }

  // The same in one word, for descriptors. 30 bits of a random id are a check, so an id that
  // unpack_id() accepts was given out. In a vendor's id all unused bits must have their fixed
  // values.
  [[nodiscard]] bool unpack_id(utofu_vcq_id_t id, PackedPlace* packed) const {
    if (vendor_) return unpack_vendor(id, packed);
    const std::uint64_t plain = rotate(id, back_) ^ mask_;
    *packed = plain & ((PackedPlace{1} << kPlaceBits) - 1);
    return plain >> kPlaceBits == check(*packed);
  }
  [[nodiscard]] utofu_vcq_id_t pack_id(PackedPlace packed) const {
    if (vendor_) return pack_vendor(packed);
    return rotate((packed | check(packed) << kPlaceBits) ^ mask_, turn_);
  }

  // Gates have separate ids; none is also a VCQ's.
  [[nodiscard]] utofu_vbg_id_t vbg_id(std::uint32_t node, std::uint16_t tni, std::uint16_t gate) const;
  [[nodiscard]] bool decode_vbg(utofu_vbg_id_t id, std::uint32_t* node, std::uint16_t* tni, std::uint16_t* gate) const;

  // The path's id; nullptr or PATH_COORD_NULL in [0]: kNoPath. None: there are no such coordinates.
  [[nodiscard]] std::optional<std::uint8_t> path_of(const std::uint8_t coords[]) const;
  // The coordinates of a path (or the default path) to `target`; none: this machine has no such
  // path.
  [[nodiscard]] std::optional<PathCoords> path_coords(std::uint8_t path, std::uint32_t target) const;

  // A number that depends on this world, this purpose and `what`, for addresses that no program
  // should compute.
  [[nodiscard]] std::uint64_t scramble(std::uint64_t purpose, std::uint64_t what) const;

 private:
  static constexpr std::uint64_t rotate(std::uint64_t value, unsigned by) {
    return value << (by & 63U) | value >> ((64 - by) & 63U);
  }
  [[nodiscard]] std::uint64_t check(std::uint64_t plain) const { return plain * multiplier_ >> kPlaceBits; }

  [[nodiscard]] std::uint16_t component_cq(std::uint32_t local, std::uint16_t first) const;
  [[nodiscard]] bool unpack_vendor(utofu_vcq_id_t id, PackedPlace* packed) const;
  [[nodiscard]] utofu_vcq_id_t pack_vendor(PackedPlace packed) const;
  // A node's 28 bits of coordinates, and back; none: no such node.
  [[nodiscard]] std::uint64_t vendor_coords(std::uint32_t node) const;
  [[nodiscard]] std::optional<std::uint32_t> node_of_vendor(std::uint64_t bits) const;

  bool vendor_;
  Shape shape_;
  std::uint32_t processes_;
  std::uint32_t per_node_;
  std::uint32_t nodes_ = 1;
  std::uint64_t key_;  // random bits of the layouts; the members below come from it
  std::uint64_t mask_;
  std::uint64_t multiplier_;
  unsigned turn_;
  unsigned back_;  // 64 - turn_
};

}  // namespace tofu_emulator
