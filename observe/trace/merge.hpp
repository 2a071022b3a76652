// One file from those of the ranks.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "observe/trace/perfetto.hpp"
#include "observe/trace/recording.hpp"

namespace heddle::observe::trace {

enum class Parts : bool { keep, remove };

// Writes PATH from PATH.rank…, and says so on standard error, as `who`. ARGUMENT: there is nothing
// to be read, or PATH cannot be written; the files of the ranks are left then.
base::Status merge(const std::string& path, Parts parts, const char* who);
// Tells of files with such names that are not of this job. They stay.
void tell_others(const std::vector<std::string>& others, const char* who);
// The names of PATH.rank… that are there, as a list for people; empty: there are none.
[[nodiscard]] std::string left(const std::string& path);

// The records of a job inside its picture. Perfetto passes over fields that it does not know, and
// `heddle explain` finds there what the processes had noted.

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
