// Sessions, their process sets, and communicators that are made of groups without a parent.
#include "mpi/communicators/group.hpp"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <units/communicators.hpp>
#include <units/sessions.hpp>
#include "mpi/communicators/comm.hpp"
#include "mpi/communicators/intercomm.hpp"
#include "mpi/core/job.hpp"
#include "mpi/core/objects.hpp"
#include "mpi/messages/buffers.hpp"
#include "mpi/messages/internal.hpp"

namespace heddle::mpi {
namespace {

ObjectPool<MpiSession, 1U << 16> g_sessions;
// Sessions may begin and end in any thread. The program takes care that none does so during
// MPI_Init and MPI_Finalize.
std::mutex g_joining;

// ---- errors -------------------------------------------------------------------------------------

// Reports to a handler that no object has yet.
int report_without_object(Call call, Errhandler* errhandler, int code) {
  switch (errhandler->kind) {
    case Errhandler::Kind::returns:
      return code;
    case Errhandler::Kind::comm: {
      MPI_Comm none = MPI_COMM_NULL;
      errhandler->fn.comm(&none, &code);
      return code;
    }
    case Errhandler::Kind::session: {
      MPI_Session none = MPI_SESSION_NULL;
      errhandler->fn.session(&none, &code);
      return code;
    }
    default:
      break;
  }
  MpiSession fatal;
  fatal.errhandler = errhandler;
  return report(call, &fatal, code);
}

int check_errhandler(MPI_Errhandler handle, Errhandler::Kind kind, Errhandler** errhandler) {
  *errhandler = errhandler_of(handle);
  if (*errhandler == nullptr) {
    return error(MPI_ERR_ERRHANDLER, "errhandler %#zx names no error handler",
                 static_cast<std::size_t>(value_of(handle)));
  }
  const Errhandler::Kind given = (*errhandler)->kind;
  if (given == kind || given == Errhandler::Kind::fatal || given == Errhandler::Kind::abort ||
      given == Errhandler::Kind::returns) {
    return MPI_SUCCESS;
  }
  *errhandler = nullptr;
  return error(MPI_ERR_ERRHANDLER, "errhandler was made for another kind of object than %s",
               kind == Errhandler::Kind::session ? "sessions: MPI_Session_create_errhandler makes those"
                                                 : "communicators: MPI_Comm_create_errhandler makes those");
}

// ---- thread levels ------------------------------------------------------------------------------

struct LevelName {
  int level;
  const char* name;
};
constexpr std::array kLevels{
    LevelName{MPI_THREAD_SINGLE, "MPI_THREAD_SINGLE"}, LevelName{MPI_THREAD_FUNNELED, "MPI_THREAD_FUNNELED"},
    LevelName{MPI_THREAD_SERIALIZED, "MPI_THREAD_SERIALIZED"}, LevelName{MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE"}};

const char* name_of_level(int level) {
  for (const LevelName& each : kLevels)
    if (each.level == level) return each.name;
  return kLevels[0].name;
}

// The level that the program asks for. If it asks for none: MPI_THREAD_MULTIPLE, since no other
// part of the program could raise the level later. The caller lowers it to the job's level.
int read_level(const Info& info, int* level) {
  *level = MPI_THREAD_MULTIPLE;
  const std::string* const text = info.find("thread_level");
  if (text == nullptr) return MPI_SUCCESS;
  for (const LevelName& each : kLevels) {
    if (*text != each.name) continue;
    *level = each.level;
    return MPI_SUCCESS;
  }
  return error(MPI_ERR_INFO_VALUE,
               "thread_level is \"%s\": give MPI_THREAD_SINGLE, _FUNNELED, _SERIALIZED or _MULTIPLE", text->c_str());
}

// ---- beginning and ending -----------------------------------------------------------------------

int begin_session(const Info& hints, Errhandler* errhandler, MPI_Session* session) {
  int level = MPI_THREAD_MULTIPLE;
  if (const int code = read_level(hints, &level); code != MPI_SUCCESS) return code;
  MpiSession* const made = g_sessions.take();
  if (made == nullptr)
    return error(MPI_ERR_NO_MEM, "no memory for a session, or 65536 sessions are open: finalize some");
  const std::scoped_lock lock(g_joining);
  if (const int code = join_job(level); code != MPI_SUCCESS) {
    g_sessions.give_back(made);
    return code;
  }
  retain_job();
  made->buffer = std::make_shared<SessionBuffer>();
  made->thread_level = std::min(level, g_job.thread_level);
  made->errhandler = retain(errhandler);
  made->info.set("thread_level", name_of_level(made->thread_level));
  made->info.set("mpi_memory_alloc_kinds", "mpi,system");
  *session = handle_of(made);
  return MPI_SUCCESS;
}

// ---- process sets -------------------------------------------------------------------------------

constexpr std::array<const char*, 3> kSets{"mpi://WORLD", "mpi://SELF", "heddle://node"};

int bad_set(const char* name) {
  return error(MPI_ERR_ARG, "pset_name \"%s\": there are the process sets mpi://WORLD, mpi://SELF and heddle://node",
               name);
}

// The ranks of a set, in order. Case does not matter in the names.
int ranks_of_set(const char* name, std::vector<std::uint32_t>* ranks) {
  if (name == nullptr) return null_argument("pset_name");
  if (::strcasecmp(name, "mpi://SELF") == 0) {
    ranks->assign(1, g_job.rank);
  } else if (::strcasecmp(name, "mpi://WORLD") == 0) {
    ranks->resize(g_job.size);
    std::iota(ranks->begin(), ranks->end(), 0U);
  } else if (::strcasecmp(name, "heddle://node") == 0) {
    for (std::uint32_t rank = 0; rank < g_job.size; ++rank)
      if (g_job.nodes[rank] == g_job.nodes[g_job.rank]) ranks->push_back(rank);
  } else {
    return bad_set(name);
  }
  return MPI_SUCCESS;
}

int nth_set(MPI_Info handle, int n, int* length, char* name) {
  Info hints;
  if (const int code = read_info(handle, &hints); code != MPI_SUCCESS) return code;
  if (n < 0 || n >= static_cast<int>(kSets.size())) {
    return error(MPI_ERR_ARG, "n %d: there are %zu process sets", n, kSets.size());
  }
  if (length == nullptr) return null_argument("pset_len");
  if (*length < 0) return error(MPI_ERR_ARG, "pset_len %d is negative", *length);
  const char* const text = kSets[static_cast<std::size_t>(n)];
  const std::size_t needed = std::strlen(text) + 1;
  if (*length > 0) {
    if (name == nullptr) return null_argument("pset_name");
    const std::size_t bytes = std::min(needed, static_cast<std::size_t>(*length)) - 1;
    std::memcpy(name, text, bytes);
    name[bytes] = '\0';
  }
  *length = static_cast<int>(needed);
  return MPI_SUCCESS;
}

int group_of_set(const MpiSession& session, const char* name, MPI_Group* group) {
  if (group == nullptr) return null_argument("newgroup");
  std::vector<std::uint32_t> ranks;
  if (const int code = ranks_of_set(name, &ranks); code != MPI_SUCCESS) return code;
  *group = new_handle(std::make_shared<const Group>(std::move(ranks), session.buffer));
  return *group == MPI_GROUP_NULL ? no_memory_for("a group") : MPI_SUCCESS;
}

int info_of_set(const char* name, MPI_Info* out) {
  if (out == nullptr) return null_argument("info");
  std::vector<std::uint32_t> ranks;
  if (const int code = ranks_of_set(name, &ranks); code != MPI_SUCCESS) return code;
  Info info;
  info.set("mpi_size", std::to_string(ranks.size()));
  *out = new_handle(info);
  return *out == MPI_INFO_NULL ? no_memory_for("an info") : MPI_SUCCESS;
}

// ---- communicators without a parent -------------------------------------------------------------

// The internal tag of a program's string. The messages by which the group makes the communicator
// have this tag. Two strings may share a tag. Then calls with them must not overlap in two threads
// of one process; nothing else changes.
int tag_of_string(const char* string) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (; *string != '\0'; ++string) hash = (hash ^ static_cast<unsigned char>(*string)) * 1099511628211U;
  constexpr std::uint64_t kPlaces = (std::uint64_t{1} << kTagBits) - InternalTag::kGroupTags;
  return InternalTag::kGroupTags + static_cast<int>((hash ^ hash >> 32) % kPlaces);
}

int check_string(const char* string) {
  if (string == nullptr) return null_argument("stringtag");
  if (::strnlen(string, MPI_MAX_STRINGTAG_LEN) == MPI_MAX_STRINGTAG_LEN) {
    return error(MPI_ERR_ARG, "stringtag has %zu characters: at most %d", std::strlen(string),
                 MPI_MAX_STRINGTAG_LEN - 1);
  }
  return MPI_SUCCESS;
}

int check_member(const Group& group, const char* argument) {
  if (group.rank_of(g_job.rank) != MPI_UNDEFINED) return MPI_SUCCESS;
  return error(MPI_ERR_GROUP, "%s does not contain this process (rank %u of the job): only members may call", argument,
               g_job.rank);
}

// The properties that the program gives a new communicator, besides its members.
struct Wishes {
  Call call;
  const char* string;
  MPI_Info info;
  Errhandler* errhandler;
};

int check_wishes(const Wishes& wishes) {
  if (const int code = check_string(wishes.string); code != MPI_SUCCESS) return code;
  return wishes.info == MPI_INFO_NULL || info_of(wishes.info) != nullptr ? MPI_SUCCESS : bad_info(wishes.info);
}

int grant(const Wishes& wishes, Comm* made, MPI_Comm* out) {
  Errhandler* const old = std::exchange(made->errhandler, retain(wishes.errhandler));
  release(old);
  *out = handle_of(made);
  return wishes.info == MPI_INFO_NULL ? MPI_SUCCESS : comm_set_info(wishes.call, *out, wishes.info);
}

int from_group(const Wishes& wishes, MPI_Group handle, MPI_Comm* out) {
  if (const int code = check_running(); code != MPI_SUCCESS) return code;
  if (out == nullptr) return null_argument("newcomm");
  *out = MPI_COMM_NULL;
  const GroupPointer group = group_of(handle);
  if (group == nullptr) return bad_group(handle);
  if (const int code = check_wishes(wishes); code != MPI_SUCCESS) return code;
  if (group->size() == 0) return MPI_SUCCESS;  // as the standard says
  if (const int code = check_member(*group, "group"); code != MPI_SUCCESS) return code;
  Comm* made = nullptr;
  const Info* const info = wishes.info == MPI_INFO_NULL ? nullptr : info_of(wishes.info);
  const bool by_tag = info != nullptr && info->flag(kNoAnyTag, false);
  const int code = make_comm(NewComm{group, g_base, tag_of_string(wishes.string), by_tag}, &made);
  return code != MPI_SUCCESS ? code : grant(wishes, made, out);
}

// One side of an intercommunicator. The remote group counts at the leader only.
struct Sides {
  MPI_Group local;
  int local_leader;
  MPI_Group remote;
  int remote_leader;
};

int check_leader(const Group& group, int leader, const char* argument) {
  if (leader >= 0 && leader < group.size()) return MPI_SUCCESS;
  return error(MPI_ERR_RANK, "%s %d: the group has ranks 0-%d", argument, leader, group.size() - 1);
}

// The remote leader's rank in the job.
int find_remote_leader(const Sides& sides, const Group& local, std::uint32_t* job_rank) {
  const GroupPointer remote = group_of(sides.remote);
  if (remote == nullptr) return bad_group(sides.remote);
  if (const int code = check_leader(*remote, sides.remote_leader, "remote_leader"); code != MPI_SUCCESS) return code;
  for (const std::uint32_t rank : remote->ranks()) {
    if (local.rank_of(rank) == MPI_UNDEFINED) continue;
    return error(MPI_ERR_GROUP, "rank %u of the job is in both groups: they must have no process in common", rank);
  }
  *job_rank = (*remote)[sides.remote_leader];
  return MPI_SUCCESS;
}

int from_groups(const Wishes& wishes, const Sides& sides, MPI_Comm* out) {
  if (const int code = check_running(); code != MPI_SUCCESS) return code;
  if (out == nullptr) return null_argument("newintercomm");
  *out = MPI_COMM_NULL;
  const GroupPointer group = group_of(sides.local);
  if (group == nullptr) return bad_group(sides.local);
  if (const int code = check_wishes(wishes); code != MPI_SUCCESS) return code;
  if (const int code = check_member(*group, "local_group"); code != MPI_SUCCESS) return code;
  if (const int code = check_leader(*group, sides.local_leader, "local_leader"); code != MPI_SUCCESS) return code;
  std::uint32_t remote_leader = 0;
  if ((*group)[sides.local_leader] == g_job.rank) {
    if (const int code = find_remote_leader(sides, *group, &remote_leader); code != MPI_SUCCESS) return code;
  }
  const int tag = tag_of_string(wishes.string);
  Comm* local = nullptr;
  if (const int code = make_comm(NewComm{group, g_base, tag}, &local); code != MPI_SUCCESS) return code;
  Comm* made = nullptr;
  const int code = make_inter({local, sides.local_leader, g_base, static_cast<int>(remote_leader), tag}, &made);
  free_comm(local);
  return code != MPI_SUCCESS ? code : grant(wishes, made, out);
}

// Runs inner() and reports what it returns to the session's handler; checks the session before.
template <class Inner>
int of_session(Call call, MPI_Session handle, Inner&& inner) {
  MpiSession* const session = session_of(handle);
  if (session == nullptr) return told(call, bad_session(handle));
  return told(call, session, guarded("what the call makes", [&] { return inner(*session); }));
}

// The same with the error handler that a call is given for the object that it makes.
template <class Inner>
int with_handler(Call call, MPI_Errhandler handle, Errhandler::Kind kind, Inner&& inner) {
  Errhandler* errhandler = nullptr;
  if (const int code = check_errhandler(handle, kind, &errhandler); code != MPI_SUCCESS) return told(call, code);
  const int code = guarded("what the call makes", [&] { return inner(errhandler); });
  return code == MPI_SUCCESS ? code : report_without_object(call, errhandler, code);
}

}  // namespace

MpiSession* session_of(MPI_Session handle) {
  return g_sessions.find(handle);
}
MPI_Session handle_of(MpiSession* session) {
  return reinterpret_cast<MPI_Session>(session);
}
MpiSession* session_at(std::uint32_t number) {
  return g_sessions.at(number);
}
std::uint32_t number_of(const MpiSession* session) {
  return g_sessions.number(session);
}

int bad_session(MPI_Session handle) {
  if (handle == MPI_SESSION_NULL) return error(MPI_ERR_SESSION, "session is MPI_SESSION_NULL");
  return error(MPI_ERR_SESSION, "session %#zx names no session: it was finalized, or never was one",
               static_cast<std::size_t>(value_of(handle)));
}

int session_init(Call call, MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session) {
  return with_handler(call, errhandler, Errhandler::Kind::session, [&](Errhandler* handler) -> int {
    if (session == nullptr) return null_argument("session");
    Info hints;
    const int code = read_info(info, &hints);
    return code != MPI_SUCCESS ? code : begin_session(hints, handler, session);
  });
}

int session_finalize(Call call, MPI_Session* session) {
  if (session == nullptr) return told(call, null_argument("session"));
  MpiSession* const which = session_of(*session);
  if (which == nullptr) return told(call, bad_session(*session));
  detach_at_end(*which->buffer);
  int code = MPI_SUCCESS;
  {
    const std::scoped_lock lock(g_joining);
    code = release_job();
  }
  if (code != MPI_SUCCESS) code = report(call, which, code);
  release(which->errhandler);
  g_sessions.give_back(which);
  *session = MPI_SESSION_NULL;
  return code;
}

int session_get_info(Call call, MPI_Session session, MPI_Info* info_used) {
  return of_session(call, session, [&](MpiSession& which) -> int {
    if (info_used == nullptr) return null_argument("info_used");
    *info_used = new_handle(which.info);
    return *info_used == MPI_INFO_NULL ? no_memory_for("what the call makes") : MPI_SUCCESS;
  });
}

int session_get_num_psets(Call call, MPI_Session session, MPI_Info info, int* npset_names) {
  return of_session(call, session, [&](MpiSession&) -> int {
    Info hints;
    if (const int code = read_info(info, &hints); code != MPI_SUCCESS) return code;
    if (npset_names == nullptr) return null_argument("npset_names");
    *npset_names = static_cast<int>(kSets.size());
    return MPI_SUCCESS;
  });
}

int session_get_nth_pset(Call call, MPI_Session session, MPI_Info info, int n, int* pset_len, char* pset_name) {
  return of_session(call, session, [&](MpiSession&) { return nth_set(info, n, pset_len, pset_name); });
}

int session_get_pset_info(Call call, MPI_Session session, const char* pset_name, MPI_Info* info) {
  return of_session(call, session, [&](MpiSession&) { return info_of_set(pset_name, info); });
}

int group_from_session_pset(Call call, MPI_Session session, const char* pset_name, MPI_Group* newgroup) {
  return of_session(call, session, [&](MpiSession& which) { return group_of_set(which, pset_name, newgroup); });
}

int comm_create_from_group(Call call, MPI_Group group, const char* stringtag, MPI_Info info, MPI_Errhandler errhandler,
                           MPI_Comm* newcomm) {
  return with_handler(call, errhandler, Errhandler::Kind::comm, [&](Errhandler* handler) {
    return from_group({call, stringtag, info, handler}, group, newcomm);
  });
}

int intercomm_create_from_groups(Call call, MPI_Group local_group, int local_leader, MPI_Group remote_group,
                                 int remote_leader, const char* stringtag, MPI_Info info, MPI_Errhandler errhandler,
                                 MPI_Comm* newintercomm) {
  return with_handler(call, errhandler, Errhandler::Kind::comm, [&](Errhandler* handler) {
    return from_groups({call, stringtag, info, handler}, {local_group, local_leader, remote_group, remote_leader},
                       newintercomm);
  });
}

}  // namespace heddle::mpi
