// The table of ways to run operations (runner.hpp). To add a way, add a file with a class and the
// functions of a Way, and a row in ways.cpp.
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

// An operation that is being prepared, as ways see it.
struct Plan {
  Team& team;
  const Call& call;
  Use use;
  const Algorithm& algorithm;
  bool named;          // the algorithm was asked for by name: nothing else may run the operation
  Request& request;    // a way may change it, and then make the schedule anew
  Schedule& schedule;  // empty before open()
};

struct Way {
  // Called before there is a schedule: changes the request to what suits this way. Null: does
  // nothing.
  void (*suit)(const Plan& plan);
  // Null: the way is not for this operation, or lacks a resource. `places`: this member's memory
  // for the operation.
  std::unique_ptr<Runner> (*open)(const Plan& plan, const Places& places);
};
// The first way that opens is told to the members; the last one always opens.
std::span<const Way> ways();

// Most bytes that a way tells in a record.
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
