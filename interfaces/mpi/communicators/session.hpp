// A session: a user of the job beside MPI_Init, with an error handler and a thread level of its
// own.
#pragma once

#include <memory>
#include <string>

#include "mpi/core/errors.hpp"
#include "mpi/core/info.hpp"

namespace heddle::mpi {

struct SessionBuffer;

struct Session {
  Errhandler* errhandler = &g_errors_are_fatal;  // held
  Info info;                                     // what MPI_Session_get_info tells
  int thread_level = MPI_THREAD_SINGLE;
  std::shared_ptr<SessionBuffer> buffer;  // MPI_Session_attach_buffer
};

// Null: the handle names none.
Session* session_of(MPI_Session handle);
MPI_Session handle_of(Session* session);
int bad_session(MPI_Session handle);
// The session of an integer handle.
Session* session_at(std::uint32_t number);
std::uint32_t number_of(const Session* session);

}  // namespace heddle::mpi
