// Checks that all members of a communicator call the same collective, with arguments that fit. Each
// member tells the next one what it calls, and compares this with the call of the member before it.
// If the calls of any two members differ, those of some neighbours differ. Then the job ends with a
// line that names both calls, since neither could go on.
//
// The check compares the function, the root and the operator. Where all members must have the same,
// it also compares the bytes of a block and the kind of its elements. On intercommunicators it
// compares the function only, within each group.
#pragma once

#include <memory>

#include "mpi/check/kinds.hpp"
#include "mpi/messages/internal.hpp"

namespace heddle::mpi {

// The arguments of a collective that are compared. It is sent from process to process.
struct Described {
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  char function[40] = "";          // without MPI_ and _c
  std::uint64_t bytes = kUnknown;  // of the first block
  std::int32_t root = -1;          // -1: it has none
  std::int32_t op = -1;            // its OpKind; -1: it has none
  std::uint8_t kind = 0;
  std::uint8_t unused[7] = {};
};

class Comparison {
 public:
  // `described`: without the function, which it takes from `call`.
  Comparison(Call call, Comm& comm, const Described& described);
  // Makes progress. True: the neighbours' calls are the same, or one of them is dead.
  bool test();

 private:
  Call call_;
  Comm& comm_;  // whose members are compared
  int before_ = 0;
  Described mine_;
  Described theirs_;
  InternalMessage out_;
  InternalMessage in_;
  bool sent_ = false;
  bool received_ = false;
  std::uint32_t looks_ = 0;
};

}  // namespace heddle::mpi
