// The files in which the ranks of a traced job note what happens: PATH.rank0, PATH.rank1, …
// (trace_format.hpp). Others with such a name are the user's.
#pragma once

#include <string>
#include <vector>

namespace heddle::tap {

// All that is named PATH.rank… and a number, sorted; a directory that is not there has none.
[[nodiscard]] std::vector<std::string> trace_files(const std::string& path);
// It begins as a trace of this version does.
[[nodiscard]] bool is_trace_file(const std::string& file);
// A process writes it.
[[nodiscard]] bool is_written(const std::string& file);
// Removes the traces of jobs before, but what is written now.
void remove_trace_files(const std::string& path);
// PATH, where FILE is named PATH.rank…; empty: it is not.
[[nodiscard]] std::string without_rank(const std::string& file);

}  // namespace heddle::tap
