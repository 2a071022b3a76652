// Finds the faults of a command, with the same messages for all transports. A transport calls these
// functions when a command is not the usual one.
#pragma once

#include "base/error.hpp"
#include "transport/command.hpp"

namespace heddle::transport {

// A put, get or atomic has remote memory, and stays within it. ARGUMENT, RANGE.
[[nodiscard]] base::Status check_remote(const Command& command);

// An atomic operation is one, on as many bytes as it says, and its word, in a region that begins at
// `begin`, is aligned. After check_remote(). ARGUMENT, SIZE, ALIGNMENT.
[[nodiscard]] base::Status check_atomic(const Command& command, std::uint64_t begin);

// A message has a header that the contract allows, and fits into `most` bytes. SIZE; `transport`:
// its name, for the message.
[[nodiscard]] base::Status check_message(const Command& command, std::uint32_t most, const char* transport);

// PROTOCOL: the bytes to be imported are no key of a region of that rank. Often the ranks' settings
// differ.
[[nodiscard]] base::Status fail_key(const char* transport, std::uint32_t rank);

}  // namespace heddle::transport
