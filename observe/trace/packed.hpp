// The records of a job inside its picture. Perfetto passes over fields that it does not know, and
// `heddle explain` finds there what the processes had noted.
#pragma once

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "observe/trace/perfetto.hpp"
#include "observe/trace/recording.hpp"

namespace heddle::observe::trace {

// The records that a job has left, from either kind of file.
struct Recordings {
  std::vector<Process> processes;
  std::vector<base::Fd> unpacked;  // the files that their paths name, where those are in memory
};

// The process's records, without what is empty. `number`: unique among the job's. ARGUMENT: its
// file cannot be read.
base::Status pack(const Process& process, std::uint32_t number, PerfettoWriter& writer);
// The records of the picture PATH; if that is no file, those of PATH.rank…. `others`: as find() has
// them. ARGUMENT: nothing is there; NO_MEMORY.
base::Result<Recordings> open(const std::string& path, std::vector<std::string>* others);

}  // namespace heddle::observe::trace
