// The sharing modes, by a table: every list of them comes from it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "worker/sharing.hpp"

namespace heddle::engine {

class Gate;
class Inbox;
class Worker;

// One row of gate.cpp per sharing mode.
struct Mode {
  Sharing sharing;
  const char* name;
  const char* moved_by;  // for the report of a wait
  bool queues;           // it has a queue, whatever the small-message offload
  bool registers;        // messages may be left there for helpers, though callers could post them
  std::uint32_t visit_ns;
  std::unique_ptr<Gate> (*make)(Worker& worker, std::unique_ptr<Inbox> inbox);
};
// The order is that of their numbers.
std::span<const Mode> modes();

// Null: there is none.
const Mode* mode_named(std::string_view name);
const Mode* mode_numbered(std::uint32_t number);
// Texts for error messages.
std::string mode_names();

}  // namespace heddle::engine
