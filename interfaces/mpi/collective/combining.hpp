// Reductions, added to a schedule. On intracommunicators the engine does them if the operator
// commutes; otherwise the contributions are combined in the order of ranks. On intercommunicators
// they go by messages. The caller has checked the arguments.
#pragma once

#include <vector>

#include "mpi/collective/moving.hpp"
#include "mpi/collective/reducer.hpp"

namespace heddle::mpi {

struct Reducing {
  Op* op = nullptr;
  Type* type = nullptr;
  bool in_place = false;
  Block send;     // in place: what `receive` holds
  Block receive;  // where the process gets a result
};

void add_reduce(Schedule& schedule, const Reducing& what, int root);
void add_allreduce(Schedule& schedule, const Reducing& what);
void add_scan(Schedule& schedule, const Reducing& what);
void add_exscan(Schedule& schedule, const Reducing& what);
// counts[i]: elements that member i of the (local) group gets. `send` has all of them.
void add_reduce_scatter(Schedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts);

void add_inter_reduce(Schedule& schedule, const Reducing& what, int root);
void add_inter_allreduce(Schedule& schedule, const Reducing& what);
void add_inter_reduce_scatter(Schedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts);

// ---- parts --------------------------------------------------------------------------------------

// A vector on its way: the program's memory, or other.
struct Operand {
  std::byte* at = nullptr;
  bool apart = false;
};
Operand operand_of(Schedule& schedule, const Reducer& reducer, const Block& block);
// The steps that bring the elements there, and back.
void add_load(Schedule& schedule, const Reducer& reducer, const Block& block, const Operand& operand);
void add_store(Schedule& schedule, const Reducer& reducer, const Block& block, const Operand& operand);
// Combines `parts` vectors and stores the result.
void add_fold(Schedule& schedule, const Reducer& reducer, std::byte* first, std::size_t parts, const Block& result);
Reducer& reducer_of(Schedule& schedule, const Reducing& what);
inline std::size_t bytes_of(const Reducer& reducer, MPI_Count count) {
  return static_cast<std::size_t>(count) * reducer.element_bytes();
}

}  // namespace heddle::mpi
