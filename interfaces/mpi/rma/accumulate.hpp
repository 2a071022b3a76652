// Accumulates.
#pragma once

#include "mpi/collective/op.hpp"
#include "mpi/rma/reach.hpp"

namespace heddle::mpi {

struct Accumulation {
  const Op* op = nullptr;
  Side origin;                // not read if the operator is MPI_NO_OP
  const Side* old = nullptr;  // where old values go; null: they are not wanted
  Reach reach;
};
// Checks that its parts fit together.
int check_accumulation(const Accumulation& what);
// Begins it. `tracker`: of a request; null: the target's next flush completes it.
int accumulate(const Accumulation& what, Tracker* tracker);

// Accumulates of one rank on one target take effect in the order in which they were issued.
int keep_order(const Reach& reach);
// The number by which messages name a basic type.
std::uint32_t element_number(const Type& element);

}  // namespace heddle::mpi
