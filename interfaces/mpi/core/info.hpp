// Keys and values in the order in which they were set.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mpi/core/arguments.hpp"

namespace heddle::mpi {

struct Info {
  std::vector<std::pair<std::string, std::string>> entries;
  // Null: not there.
  [[nodiscard]] const std::string* find(std::string_view key) const;
  void set(std::string_view key, std::string_view value);
  bool remove(std::string_view key);
  // "true", "yes" or "1"; otherwise `otherwise` if it is none of "false", "no" and "0".
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
};

// Null: the handle names none. MPI_INFO_NULL is none; MPI_INFO_ENV is one, which does not change.
Info* info_of(MPI_Info handle);
int bad_info(MPI_Info handle);
// A new handle with a copy; MPI_INFO_NULL: no memory.
MPI_Info new_handle(const Info& info);
// The hints that a call is given: an empty info for MPI_INFO_NULL. Error: the handle names none.
int read_info(MPI_Info handle, Info* info);
// The info of an integer handle that the program made.
Info* info_at(std::uint32_t number);
std::uint32_t number_of(const Info* info);

}  // namespace heddle::mpi
