// The activity of a process of a traced job, as tracks of a picture: its threads, with calls,
// waits, progress and messages; and the lives of its operations, receives and collectives.
#pragma once

#include <cstdint>
#include <vector>

#include "observe/trace/perfetto.hpp"
#include "observe/trace/recording.hpp"

namespace heddle::observe::trace {

// Of all processes together.
struct Drawn {
  std::uint64_t records = 0;
  std::uint64_t lost = 0;      // older ones
  std::uint64_t untraced = 0;  // of threads that had no room
};

// Writes them all to PATH. ARGUMENT: a file cannot be read or written.
base::Status draw(const std::vector<Process>& processes, const std::string& path, Drawn* drawn);

}  // namespace heddle::observe::trace
