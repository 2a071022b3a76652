// The short path of blocking collectives. It takes intracommunicators with more than one member,
// and contiguous data that is not in place. It allocates no memory, and checks only whether it can
// take the call. All other calls go the long path, which finds errors.
#pragma once

#include "mpi/check/check.hpp"
#include "mpi/communicators/comm.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

// An intracommunicator with more than one member, without checks.
[[gnu::always_inline]] inline bool has_team(const Comm* comm) {
  return comm != nullptr && comm->team.id != 0 && !comm->inter() && !g_checks;
}
[[nodiscard]] inline bool has_member(const Comm& comm, int rank) {
  return static_cast<std::size_t>(rank) < comm.members.size();
}

struct ShortData {
  void* at = nullptr;  // null: not the short path
  std::size_t bytes = 0;
};
[[gnu::always_inline]] inline ShortData short_data(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  constexpr MPI_Count kMost = MPI_Count{1} << 31;
  const Type* const type = type_of(datatype);
  if (type == nullptr || !type->contiguous || !(type->predefined || type->committed) || buffer == MPI_IN_PLACE ||
      buffer == nullptr || static_cast<std::uint64_t>(count | type->size) >= static_cast<std::uint64_t>(kMost))
    return {};
  return {begin_of(buffer, *type), static_cast<std::size_t>(count) * static_cast<std::size_t>(type->size)};
}

}  // namespace heddle::mpi
