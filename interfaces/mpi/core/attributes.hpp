// Attributes of communicators, datatypes and windows: values under keys, with functions that copy
// and delete them.
#pragma once

#include <cstdint>
#include <vector>

#include "mpi/core/arguments.hpp"

namespace heddle::mpi {

struct Keyval;

struct Attributes {
  struct Entry {
    Keyval* keyval;
    void* value;
  };
  std::vector<Entry> entries;  // in the order in which they were set
};

// By the copy functions of the keys. `from` is the handle of the old object: an MPI_Comm,
// MPI_Datatype or MPI_Win. Error: the code that a copy function returned.
int copy_attributes(void* from, const Attributes& attributes, Attributes* copies);
// By the delete functions, last set first. Error: the code that a function returned; that attribute
// and those before it stay.
int delete_attributes(void* of, Attributes* attributes);

}  // namespace heddle::mpi
