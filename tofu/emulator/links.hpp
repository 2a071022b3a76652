// Resources that processes share in the timing model: the links of the torus, one for each node and
// direction, and the TNIs of a node. They lie in the world's memory.
//
// A packet takes the route that Machine::hops() counts: along A, B and C to its path's coordinates
// (default: the target's), then along X, Y and Z, then along A, B and C to the target. On each axis
// it goes the shorter way round, forward if both are equal. It is switched through: the next link
// begins when the first byte arrives, so a message without competition pays the wire time once, for
// any distance. Not modelled: a TNI does not stop when its link is busy, and routers have room for
// all waiting packets.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tofu/emulator/ledger.hpp"
#include "tofu/emulator/machine.hpp"

namespace tofu_emulator {

class World;

// The ends of a message's route.
struct Route {
  std::uint32_t from_node = 0;
  std::uint32_t to_node = 0;
  std::uint16_t tni = 0;
  std::uint8_t path = kNoPath;
};

// The node where a link begins, and its direction: 2 * axis, axes X Y Z A B C; + 1: backward.
struct LinkPlace {
  std::uint32_t node = 0;
  std::uint32_t direction = 0;
  bool operator==(const LinkPlace&) const = default;
};

class Links {
 public:
  // The number of links and TNIs that have a ledger: those used first. The others never delay a
  // message.
  static constexpr std::size_t kMost = 4096;
  // The size of the zeroed memory, aligned to a page, that the processes share. Only the part in
  // use is touched.
  [[nodiscard]] static std::size_t bytes(const Machine& machine);

  // world: null in tests; then a process that dies within a call blocks the others for ever.
  Links(std::byte* memory, const Machine& machine, const World* world);

  struct Passage {
    std::uint64_t left_ns = 0;     // its last byte has left onto the first link
    std::uint64_t arrives_ns = 0;  // its last byte has passed the last link
  };
  // Passes a message that takes `length` on each link and whose first byte is at the first link at
  // `head_ns`. Within a node there is no link to wait for. Any thread.
  Passage pass(const Route& route, std::uint64_t head_ns, std::uint64_t length);

  // Uses a TNI of a node for `length`. Returns the end. Any thread.
  std::uint64_t serve(std::uint32_t node, std::uint16_t tni, std::uint64_t ready_ns, std::uint64_t length);

  // Calls `visit(LinkPlace)` for the links of a route, in order.
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
