// The ways in which operations are run (runner.hpp), in a table. One more way is a file with a
// class and the functions of a Way, and a row in ways.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

#include "collective/algorithms/algorithms.hpp"
#include "collective/call.hpp"
#include "collective/runner.hpp"

namespace heddle::collective {

class Places;
class Team;

// An operation that is being made ready, as a way may look at it.
struct Plan {
  Team& team;
  const Call& call;
  Use use;
  const Algorithm& algorithm;
  bool named;          // the algorithm was asked for by its name: nothing else is to run it
  Request& request;    // a way may have it otherwise, and the schedule anew
  Schedule& schedule;  // empty before open()
};

struct Way {
  // Before there is a schedule: changes the request to what suits this way best. Null: nothing.
  void (*suit)(const Plan& plan);
  // Null: the way is not for this operation, or what it takes is not there. `places`: this member's
  // memory for it.
  std::unique_ptr<Runner> (*open)(const Plan& plan, const Places& places);
};
// The first that opens is told to the members; the last opens always.
std::span<const Way> ways();

// What ways tell in a record.
inline constexpr std::size_t kWayBytes = 208;
struct WayKeys {
  std::uint32_t way = 0;  // row of the table
  std::uint32_t padding = 0;
  std::array<std::byte, kWayBytes> bytes{};

  template <class Keys>
  void set(const Keys& keys) {
    static_assert(sizeof(Keys) <= kWayBytes && std::is_trivially_copyable_v<Keys>);
    std::memcpy(bytes.data(), &keys, sizeof keys);
  }
  template <class Keys>
  [[nodiscard]] Keys get() const {
    static_assert(sizeof(Keys) <= kWayBytes && std::is_trivially_copyable_v<Keys>);
    Keys keys;
    std::memcpy(&keys, bytes.data(), sizeof keys);
    return keys;
  }
};

}  // namespace heddle::collective
