// A group: ranks of the job in an order. Groups do not change, so communicators, windows and
// handles share them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mpi/core/arguments.hpp"
#include "mpi/core/errors.hpp"
#include "mpi/core/info.hpp"

namespace heddle::mpi {

struct SessionBuffer;  // messages/buffers.hpp

class Group {
 public:
  explicit Group(std::vector<std::uint32_t> ranks, std::shared_ptr<SessionBuffer> session = nullptr)
      : ranks_(std::move(ranks)), session_(std::move(session)) {}
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] std::uint32_t operator[](int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const std::vector<std::uint32_t>& ranks() const { return ranks_; }
  // The rank of a rank of the job; MPI_UNDEFINED: it is no member.
  [[nodiscard]] int rank_of(std::uint32_t job_rank) const;
  // The buffer of the session from which the group is derived, through groups and communicators;
  // null: it is derived from none.
  [[nodiscard]] const std::shared_ptr<SessionBuffer>& session() const { return session_; }

 private:
  std::vector<std::uint32_t> ranks_;  // of the job
  std::shared_ptr<SessionBuffer> session_;
};
using GroupPointer = std::shared_ptr<const Group>;

// Null: the handle names no group. MPI_GROUP_EMPTY is one.
GroupPointer group_of(MPI_Group handle);
int bad_group(MPI_Group handle);
// A new handle; MPI_GROUP_EMPTY for a group without members; MPI_GROUP_NULL: no memory.
MPI_Group new_handle(GroupPointer group);
// The group of an integer handle that the program made.
MPI_Group group_at(std::uint32_t number);  // MPI_GROUP_NULL: there is none
std::uint32_t group_number(MPI_Group handle);

struct SessionBuffer;

// A session: a user of the job beside MPI_Init, with an error handler and a thread level of its
// own.
struct MpiSession {
  Errhandler* errhandler = &g_errors_are_fatal;  // held
  Info info;                                     // what MPI_Session_get_info tells
  int thread_level = MPI_THREAD_SINGLE;
  std::shared_ptr<SessionBuffer> buffer;  // MPI_Session_attach_buffer
};

// Null: the handle names none.
MpiSession* session_of(MPI_Session handle);
MPI_Session handle_of(MpiSession* session);
int bad_session(MPI_Session handle);
// The session of an integer handle.
MpiSession* session_at(std::uint32_t number);
std::uint32_t number_of(const MpiSession* session);

}  // namespace heddle::mpi
