// How the program made a datatype: what MPI_Type_get_envelope and MPI_Type_get_contents tell.
#pragma once

#include <utility>
#include <vector>

#include "mpi/types/layout.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

struct Envelope {
  int combiner = MPI_COMBINER_NAMED;
  // by a function of large counts: then what would be counts and addresses are in `counts`
  bool large = false;
  std::vector<int> integers;
  std::vector<MPI_Aint> addresses;
  std::vector<MPI_Count> counts;
  std::vector<Type*> types;  // held

  // `call`: the name of the function, which tells whether its counts are large.
  Envelope(int of, Call call);
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;
  ~Envelope();

  // Each adds one argument; they are called in the order of the small function's arguments.
  Envelope& integer(int value);
  Envelope& integers_of(const int* values, MPI_Count number);
  Envelope& count(MPI_Count value);
  Envelope& counts_of(CountList values, MPI_Count number);
  Envelope& address(MPI_Count value);
  Envelope& addresses_of(CountList values, MPI_Count number);
  Envelope& type(Type* of);
};

// What the constructors of datatypes share.

// A new datatype with one reference, its handle; null: no memory.
Type* new_type(TypeLayout layout, std::shared_ptr<const Envelope> envelope, bool committed);
// The same, stored for the program.
int give_type(TypeLayout layout, std::shared_ptr<const Envelope> envelope, MPI_Datatype* newtype);

// The arguments that all constructors have.
int old_type(MPI_Datatype oldtype, const MPI_Datatype* newtype, Type** old);
int check_count(const char* name, MPI_Count value);
// A list of `count` numbers that are not negative.
int check_lengths(const char* name, CountList values, MPI_Count count);

}  // namespace heddle::mpi
