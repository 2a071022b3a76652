// HEDDLE_CHECK=full: finds errors of programs that MPI libraries mostly let pass.
//
//   kinds       a message of 4-byte integers is received as 8-byte floating-point numbers
//   comparison  members of a communicator call different collectives, or with other arguments
//   buffers     the program writes to the buffer of a send that is under way
//   overlap     (collective/blocks.cpp) blocks of one collective overlap
//   leaks       what the program has not freed when it calls MPI_Finalize
//
// The short paths of calls are closed then, so programs that are not checked pay nothing.
#pragma once

#include <cstddef>
#include <memory>

#include "mpi/communicators/comm.hpp"
#include "mpi/messages/internal.hpp"
#include "mpi/messages/request.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

// All ranks of the job are checked. Written when the job is joined, and read by all threads.
extern bool g_checks;

// Whether the environment says so for this process. MPI_SUCCESS, or an error's class if
// HEDDLE_CHECK is none of off, on and full.
int read_checks(bool* wanted);
// Called when the job is joined. `all`: all ranks want the checks. Closes the short paths.
void begin_checks(bool all);

// The objects that the program has made and not freed. MPI_Finalize reports them, in one line for
// each rank.

// With checks: this process has left its communicators.
void tell_leaks();

// Objects of each unit that have handles of the program.
std::size_t live_requests();
std::size_t live_comms();
std::size_t live_windows();
std::size_t live_types();
std::size_t live_groups();
std::size_t live_ops();
std::size_t live_infos();

// With checks, the kind of a message's elements travels in bits of its tag that nothing else uses.
// Kinds are told apart by representation only: an int is an unsigned int or a C bool of the same
// size is not reported. Bytes, packed data, pairs and types of several kinds fit all.

inline constexpr int kKindShift = kTagBits;
inline constexpr std::uint64_t kKindMask = std::uint64_t{0xff} << kKindShift;
static_assert(kKindShift + 8 <= kNumberShift);

// 0: it fits all.
[[nodiscard]] std::uint8_t kind_of(const Type& type);
[[nodiscard]] inline bool kinds_fit(std::uint8_t one, std::uint8_t other) {
  return one == 0 || other == 0 || one == other;
}
[[nodiscard]] const char* name_of_kind(std::uint8_t kind);

// What a send adds to its wire tag; 0 without checks.
[[nodiscard]] inline std::uint64_t kind_on_wire(const Type& type) {
  return g_checks ? std::uint64_t{kind_of(type)} << kKindShift : 0;
}
// The bits of the tag that a receive of the long path compares.
[[nodiscard]] inline heddle_wanted of_any_kind(heddle_wanted wanted) {
  if (g_checks) wanted.mask &= ~kKindMask;
  return wanted;
}
// With checks: compares the kinds for a message that was received. MPI_SUCCESS or an error's class.
int check_kind(const Comm& comm, const heddle_receive& receive, const Type& type);

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

// Checks that all members of a communicator call the same collective, with arguments that fit. Each
// member tells the next one what it calls, and compares this with the call of the member before it.
// If the calls of any two members differ, those of some neighbours differ. Then the job ends with a
// line that names both calls, since neither could go on.
//
// The check compares the function, the root and the operator. Where all members must have the same,
// it also compares the bytes of a block and the kind of its elements. On intercommunicators it
// compares the function only, within each group.
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

// The buffer of a nonblocking send must not be written to before the send is complete. So a
// checksum of its contents is taken when the send begins and when it ends. This works for any
// memory. A write is reported when the send is completed.

// With checks: the send begins.
void sum_up(Request& request);
// With checks: it has ended. MPI_SUCCESS, or an error's class if the buffer has changed.
int check_unchanged(const Request& request);

}  // namespace heddle::mpi
