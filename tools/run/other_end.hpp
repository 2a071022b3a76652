// The user at the other end of a TCP connection of this machine.
#pragma once

#include <sys/types.h>

#include <optional>

namespace heddle::tools::run {

// The user of the process at the other end of this connection from 127.0.0.1, by the kernel's table
// of TCP sockets: asked for that one socket or, where the kernel cannot be asked so, read. Empty:
// it has gone, or the kernel does not tell. Takes one descriptor meanwhile.
std::optional<uid_t> user_at_other_end(int connection);

// For tests: the two ways.
std::optional<uid_t> ask_user_at_other_end(int connection);
std::optional<uid_t> read_user_at_other_end(int connection);

}  // namespace heddle::tools::run
