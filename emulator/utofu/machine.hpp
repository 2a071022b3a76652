// The virtual machine: nodes on a torus, and the identifiers of what is on them. Pure computation; all processes of a world
// get the same results, which depend on the world's seed so that no program can know the layout.
#pragma once

#include <utofu.h>

#include <array>
#include <cstdint>

#include "utofu/settings.hpp"

namespace tofu_emulator {

inline constexpr std::uint16_t kTnis = 6;
inline constexpr std::uint16_t kCqs = 9;       // of a TNI, for programs
inline constexpr std::uint16_t kVcqsOfCq = 8;  // numbered slots of a CQ
inline constexpr std::uint16_t kGates = 48;    // of a TNI
inline constexpr std::uint16_t kStartGates = 16;
inline constexpr std::uint32_t kMtu = 1920;
inline constexpr std::uint32_t kMaxLength = 16'777'215;
inline constexpr std::uint32_t kMaxPiggyback = 32;
inline constexpr std::uint8_t kNoPath = 0xFF;

using Coords = std::array<std::uint8_t, 6>;

// Where a VCQ is.
struct VcqPlace {
  std::uint32_t node = 0;
  std::uint16_t tni = 0;
  std::uint16_t cq = 0;
  std::uint16_t slot = 0;
  std::uint8_t path = kNoPath;  // utofu_path_id_t
};

class Machine {
 public:
  explicit Machine(const Settings& settings);

  [[nodiscard]] std::uint32_t nodes() const { return nodes_; }
  [[nodiscard]] std::uint32_t node_of(std::uint32_t process) const { return process / per_node_; }
  [[nodiscard]] Coords coords_of(std::uint32_t node) const;
  // Links between two nodes; path: kNoPath: the default one.
  [[nodiscard]] std::uint32_t hops(std::uint32_t from, std::uint32_t to, std::uint8_t path) const;

  [[nodiscard]] utofu_vcq_id_t vcq_id(const VcqPlace& place) const;
  // False: no VCQ of this machine can have this id.
  [[nodiscard]] bool decode(utofu_vcq_id_t id, VcqPlace* place) const;
  // The id without its path, as notices carry it.
  [[nodiscard]] utofu_vcq_id_t raw(utofu_vcq_id_t id) const;

 private:
  Coords shape_{};
  std::uint32_t nodes_ = 1;
  std::uint32_t per_node_ = 1;
  std::uint64_t key_ = 0;  // random bits of the layouts
};

}  // namespace tofu_emulator
