// What processes share in the timing model: the links of the torus, one for each node and
// direction, and the TNIs of a node. They lie in the world's memory.
//
// A packet goes as Machine::hops() counts: along A, B and C to its path's coordinates (the default:
// the target's), along X, Y and Z, and along A, B and C to the target, each the shorter way round,
// forward if both are as long. It is switched through: the next link begins as soon as the first
// byte is there, so a message that is alone is put on the wire once, however far it goes. What is
// not in it: a TNI does not stop because the link that it sends to is taken; routers have room for
// all that waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "utofu/ledger.hpp"
#include "utofu/machine.hpp"

namespace tofu_emulator {

class World;

// From where to where a message goes.
struct Route {
  std::uint32_t from_node = 0;
  std::uint32_t to_node = 0;
  std::uint16_t tni = 0;
  std::uint8_t path = kNoPath;
};

// Where a link begins, and which way it leads: 2 * axis, axes X Y Z A B C; + 1: backward.
struct LinkPlace {
  std::uint32_t node = 0;
  std::uint32_t direction = 0;
  bool operator==(const LinkPlace&) const = default;
};

class Links {
 public:
  // That many links and TNIs have a ledger; of those that are used first. Others never make anybody
  // wait.
  static constexpr std::size_t kMost = 4096;
  // Zeroed memory of so many bytes, aligned to a page, which the processes share. Only what is used
  // of it is touched.
  [[nodiscard]] static std::size_t bytes(const Machine& machine);

  // Without a world (tests) a process that dies in the midst of a call holds up the others for
  // ever.
  Links(std::byte* memory, const Machine& machine, const World* world);

  struct Passage {
    std::uint64_t left_ns = 0;     // its last byte is on the first link
    std::uint64_t arrives_ns = 0;  // its last byte has come over the last one
  };
  // A message that takes `length` on each link, whose first byte is at the first one at `head_ns`.
  // On the same node there is none to wait for. Any thread.
  Passage pass(const Route& route, std::uint64_t head_ns, std::uint64_t length);

  // A TNI of a node, for so long; when it has done. Any thread.
  std::uint64_t serve(std::uint32_t node, std::uint16_t tni, std::uint64_t ready_ns, std::uint64_t length);

  // The links of a route, in order; how many. `visit(LinkPlace)`.
  template <class Visit>
  static void for_each(const Machine& machine, const Route& route, Visit&& visit);

 private:
  struct Link;

  [[nodiscard]] Ledger::Grant take(const LinkPlace& place, std::uint64_t earliest, std::uint64_t length);
  [[nodiscard]] Link* find(const LinkPlace& place);
  void lock(Link& link) const;

  const Machine& machine_;
  const World* world_;
  std::size_t ledgers_;
  std::uint32_t self_ = 1;
  Link* links_;
};

template <class Visit>
void Links::for_each(const Machine& machine, const Route& route, Visit&& visit) {
  Coords at = machine.coords_of(route.from_node);
  const Coords target = machine.coords_of(route.to_node);
  const PathCoords via =
      machine.path_coords(route.path, route.to_node).value_or(PathCoords{target[3], target[4], target[5]});
  const auto go = [&](std::size_t axis, std::uint8_t to) {
    const std::uint32_t along = machine.shape().at(axis);
    const std::uint32_t forward = (to + along - at.at(axis)) % along;
    const bool back = forward > along - forward;
    for (; at.at(axis) != to; at.at(axis) = static_cast<std::uint8_t>((at.at(axis) + (back ? along - 1 : 1)) % along))
      visit(LinkPlace{*machine.node_at(at.data()), static_cast<std::uint32_t>(2 * axis + (back ? 1 : 0))});
  };
  for (std::size_t axis = 3; axis < 6; ++axis) go(axis, via.at(axis - 3));
  for (std::size_t axis = 0; axis < 6; ++axis) go(axis, target.at(axis));
}

}  // namespace tofu_emulator
