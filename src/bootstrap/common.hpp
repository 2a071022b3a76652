// Checks and helpers that the bootstraps have in common.
#pragma once

#include "base/fd.hpp"
#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap {

// Opens /dev/null as each of the standard streams that is closed in this process. Call it before
// any descriptor is opened: a socket with the number 1 would get what the program prints, and a
// program that closes its standard output would close the socket.
void open_standard_streams();

// From the system's random source.
base::Result<JobSecret> make_secret();

// How messages name an inherited connection: the variable that holds its descriptor, and what to
// unset for a child.
struct Inherited {
  const char* variable;
  const char* all;
};

// Makes a stream socket that the launcher has given to this process its own: marks it
// close-on-exec; it is never closed. Once per process. BOOTSTRAP: not open, not such a socket, or
// this process has claimed it before. STATE: another living process has claimed it.
base::Status claim_socket(int fd, const Inherited& words);

// A second descriptor for the same file, closed on exec; -1 gives an invalid Fd without an error.
base::Result<base::Fd> duplicate(int fd);

base::Status check_card(const Card& card);
base::Status check_exchange(std::size_t bytes);
base::Status check_rank(std::uint32_t rank, std::uint32_t size);

// The error of an exchange that `rank` was missing from, and of a fetch from a rank that is gone.
base::Status fail_missing(std::uint32_t rank);
base::Status fail_gone(std::uint32_t rank);

// "heddle: rank 3 aborts the job: MESSAGE" on standard error, in one write. Nothing if the code is
// 0 and there is no message.
void print_abort(std::uint32_t rank, int code, const char* message);

}  // namespace heddle::bootstrap
