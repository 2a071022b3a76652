// Handles as integers, for languages without pointers. A predefined handle is its value in the ABI.
// Any other is kPredefined plus the number by which its owner knows it. A number that names nothing
// gives the null handle of its kind.
#include <units/handles.hpp>

#include "mpi/collective/op.hpp"
#include "mpi/communicators/comm.hpp"
#include "mpi/communicators/group.hpp"
#include "mpi/communicators/making.hpp"
#include "mpi/core/errors.hpp"
#include "mpi/core/info.hpp"
#include "mpi/messages/request.hpp"
#include "mpi/rma/win.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {
namespace {

template <class Handle>
int predefined_int(Handle handle) {
  return static_cast<int>(value_of(handle));
}
int made_int(std::uint32_t number) {
  return static_cast<int>(kPredefined + number);
}

template <class Handle>
Handle predefined_handle(int value) {
  return handle_from<Handle>(static_cast<std::uintptr_t>(value));
}

// Whether the integer is that of a handle which the program made.
bool is_made(int value) {
  return value >= static_cast<int>(kPredefined);
}
std::uint32_t number_in(int value) {
  return static_cast<std::uint32_t>(value) - std::uint32_t{kPredefined};
}

// `value` if it is one of the predefined handles from `first` to `last`; else `null`.
template <class Handle>
Handle predefined_between(int value, Handle first, Handle last, Handle null) {
  return value >= predefined_int(first) && value <= predefined_int(last) ? predefined_handle<Handle>(value) : null;
}

}  // namespace

int comm_toint(Call /*call*/, MPI_Comm comm) {
  if (value_of(comm) < kPredefined) return predefined_int(comm_fromint(nullptr, predefined_int(comm)));
  const Comm* const found = find_comm(comm);
  return found == nullptr ? predefined_int(MPI_COMM_NULL) : made_int(number_of(found));
}
MPI_Comm comm_fromint(Call /*call*/, int comm) {
  if (!is_made(comm)) return predefined_between(comm, MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_NULL);
  Comm* const found = comm_at(number_in(comm));
  return found == nullptr ? MPI_COMM_NULL : handle_of(found);
}

int group_toint(Call /*call*/, MPI_Group group) {
  if (group == MPI_GROUP_EMPTY) return predefined_int(group);
  return group_of(group) == nullptr ? predefined_int(MPI_GROUP_NULL) : made_int(group_number(group));
}
MPI_Group group_fromint(Call /*call*/, int group) {
  if (!is_made(group)) return predefined_between(group, MPI_GROUP_EMPTY, MPI_GROUP_EMPTY, MPI_GROUP_NULL);
  return group_at(number_in(group));
}

int win_toint(Call /*call*/, MPI_Win win) {
  const Win* const found = win_of(win);
  return found == nullptr ? predefined_int(MPI_WIN_NULL) : made_int(g_windows.number(found));
}
MPI_Win win_fromint(Call /*call*/, int win) {
  Win* const found = is_made(win) ? g_windows.at(number_in(win)) : nullptr;
  return found == nullptr ? MPI_WIN_NULL : handle_of(found);
}

// There are no files.
int file_toint(Call /*call*/, MPI_File /*file*/) {
  return predefined_int(MPI_FILE_NULL);
}
MPI_File file_fromint(Call /*call*/, int /*file*/) {
  return MPI_FILE_NULL;
}

int session_toint(Call /*call*/, MPI_Session session) {
  const MpiSession* const found = session_of(session);
  return found == nullptr ? predefined_int(MPI_SESSION_NULL) : made_int(number_of(found));
}
MPI_Session session_fromint(Call /*call*/, int session) {
  MpiSession* const found = is_made(session) ? session_at(number_in(session)) : nullptr;
  return found == nullptr ? MPI_SESSION_NULL : handle_of(found);
}

int message_toint(Call /*call*/, MPI_Message message) {
  if (message == MPI_MESSAGE_NO_PROC) return predefined_int(message);
  const Request* const found = message_of(message);
  return found == nullptr ? predefined_int(MPI_MESSAGE_NULL) : made_int(number_of(found));
}
MPI_Message message_fromint(Call /*call*/, int message) {
  if (!is_made(message)) return predefined_between(message, MPI_MESSAGE_NO_PROC, MPI_MESSAGE_NO_PROC, MPI_MESSAGE_NULL);
  Request* const found = request_at(number_in(message));
  if (found == nullptr) return MPI_MESSAGE_NULL;
  const MPI_Message handle = message_handle_of(found);
  return message_of(handle) == nullptr ? MPI_MESSAGE_NULL : handle;
}

int request_toint(Call /*call*/, MPI_Request request) {
  const Request* const found = request_of(request);
  return found == nullptr ? predefined_int(MPI_REQUEST_NULL) : made_int(number_of(found));
}
MPI_Request request_fromint(Call /*call*/, int request) {
  Request* const found = is_made(request) ? request_at(number_in(request)) : nullptr;
  if (found == nullptr) return MPI_REQUEST_NULL;
  const MPI_Request handle = handle_of(found);
  return request_of(handle) == nullptr ? MPI_REQUEST_NULL : handle;
}

int info_toint(Call /*call*/, MPI_Info info) {
  if (info == MPI_INFO_ENV) return predefined_int(info);
  const Info* const found = info_of(info);
  return found == nullptr ? predefined_int(MPI_INFO_NULL) : made_int(number_of(found));
}
MPI_Info info_fromint(Call /*call*/, int info) {
  if (!is_made(info)) return predefined_between(info, MPI_INFO_ENV, MPI_INFO_ENV, MPI_INFO_NULL);
  Info* const found = info_at(number_in(info));
  return found == nullptr ? MPI_INFO_NULL : reinterpret_cast<MPI_Info>(found);
}

int errhandler_toint(Call /*call*/, MPI_Errhandler errhandler) {
  const Errhandler* const found = errhandler_of(errhandler);
  if (found == nullptr) return predefined_int(MPI_ERRHANDLER_NULL);
  return value_of(errhandler) < kPredefined ? predefined_int(errhandler) : made_int(number_of(found));
}
MPI_Errhandler errhandler_fromint(Call /*call*/, int errhandler) {
  if (!is_made(errhandler)) {
    return predefined_between(errhandler, MPI_ERRORS_ARE_FATAL, MPI_ERRORS_RETURN, MPI_ERRHANDLER_NULL);
  }
  Errhandler* const found = errhandler_at(number_in(errhandler));
  return found == nullptr ? MPI_ERRHANDLER_NULL : handle_of(found);
}

int op_toint(Call /*call*/, MPI_Op op) {
  const Op* const found = op_of(op);
  if (found == nullptr) return predefined_int(MPI_OP_NULL);
  return value_of(op) < kPredefined ? predefined_int(op) : made_int(number_of(found));
}
MPI_Op op_fromint(Call /*call*/, int op) {
  if (!is_made(op)) {
    const auto handle = predefined_handle<MPI_Op>(op);
    return op >= 0 && op_of(handle) != nullptr ? handle : MPI_OP_NULL;
  }
  Op* const found = op_at(number_in(op));
  return found == nullptr ? MPI_OP_NULL : reinterpret_cast<MPI_Op>(found);
}

int type_toint(Call /*call*/, MPI_Datatype datatype) {
  const Type* const found = type_of(datatype);
  return found == nullptr ? predefined_int(MPI_DATATYPE_NULL) : number_of(found);
}
MPI_Datatype type_fromint(Call /*call*/, int datatype) {
  const Type* const found = type_at(datatype);
  return found == nullptr ? MPI_DATATYPE_NULL : handle_of(found);
}

}  // namespace heddle::mpi
