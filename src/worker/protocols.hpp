// The protocols of a worker that its own functions do not call by name. A room above the worker
// adds one of its own (extension.hpp).
#pragma once

#include <cstdint>
#include <span>

#include "worker/extension.hpp"

namespace heddle::engine {

// One row of protocols.cpp per protocol.
struct ProtocolEntry {
  std::span<const std::uint32_t> rows;  // of the completer's table: wire::row_of()
  OpenExtension open;
};
std::span<const ProtocolEntry> protocol_table();

}  // namespace heddle::engine
