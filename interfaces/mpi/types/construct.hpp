// What the constructors of datatypes share.
#pragma once

#include <utility>

#include "mpi/types/envelope.hpp"
#include "mpi/types/layout.hpp"

namespace heddle::mpi {

// A new datatype with one reference, its handle; null: no memory.
Type* new_type(Layout layout, std::shared_ptr<const Envelope> envelope, bool committed);
// The same, stored for the program.
int give_type(Layout layout, std::shared_ptr<const Envelope> envelope, MPI_Datatype* newtype);

// The arguments that all constructors have.
int old_type(MPI_Datatype oldtype, const MPI_Datatype* newtype, Type** old);
int check_count(const char* name, MPI_Count value);
// A list of `count` numbers that are not negative.
int check_lengths(const char* name, Counts values, MPI_Count count);

}  // namespace heddle::mpi
