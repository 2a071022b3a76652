// A communicator.
//
// Messages. A message's tag has 64 bits. It consists of the receiver's number of the communicator
// and of the program's tag. Each member chooses its own number and tells it to the others when the
// communicator is made. Each communicator has two numbers: an even one for the program's messages,
// and the odd one after it for the library's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <heddle/heddle.h>
#include "mpi/communicators/group.hpp"
#include "mpi/core/attributes.hpp"
#include "mpi/core/info.hpp"
#include "mpi/core/job.hpp"
#include "mpi/core/progress.hpp"

namespace heddle::mpi {

struct KeptOperations;  // of collective/
struct CommTopology;
class BsendBuffer;

// ---- tags ---------------------------------------------------------------------------------------

inline constexpr int kTagBits = 28;
inline constexpr int kTagUb = (1 << kTagBits) - 1;
inline constexpr int kNumberBits = 20;
inline constexpr std::uint32_t kMostNumbers = 1U << kNumberBits;
inline constexpr int kNumberShift = 64 - kNumberBits;
inline constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kTagBits) - 1;
inline constexpr std::uint64_t kNumberMask = ~((std::uint64_t{1} << kNumberShift) - 1);
inline constexpr std::uint32_t kInternal = 1;  // added to a number: the library's own messages

[[nodiscard]] inline std::uint64_t wire_tag(std::uint32_t number, int tag) {
  return std::uint64_t{number} << kNumberShift | static_cast<std::uint32_t>(tag);
}
[[nodiscard]] inline int tag_of(std::uint64_t wire) {
  return static_cast<int>(wire & kTagMask);
}

// ---- the communicator ---------------------------------------------------------------------------

// Where a member's messages go, and the number by which it knows the communicator.
struct MemberAddress {
  heddle_peer peer{};
  std::uint32_t number = 0;
  bool by_tag = false;  // see Comm::by_tag
};

// The info by which a member says that it receives no message by MPI_ANY_TAG.
inline constexpr const char* kNoAnyTag = "mpi_assert_no_any_tag";

struct Comm {
  // Of this process.
  std::uint32_t number = 0;  // even
  Lane* lane = nullptr;
  // Messages for this process go by the lanes of their tags (messages/message.hpp). This is so if
  // the communicator was made with mpi_assert_no_any_tag here, or if all are
  // (HEDDLE_MPI_NO_ANY_TAG): only MPI_ANY_TAG depends on the order of messages with different tags.
  bool by_tag = false;
  int rank = 0;
  // The members to which messages go, by rank; in an intercommunicator, those of the remote group.
  std::vector<MemberAddress> members;
  std::shared_ptr<const Group> group;         // the local one
  std::shared_ptr<const Group> remote_group;  // null: an intracommunicator
  // [rank in the job] = rank in `members`, or MPI_UNDEFINED; null: the same number
  std::unique_ptr<int[]> rank_of;
  heddle_team team{};  // of the local group; collectives of intracommunicators
  // operations of the team, for blocking collectives: to be reset before the team is freed
  std::shared_ptr<KeptOperations> kept;
  // A thread is in a blocking collective (collective/engine_call.cpp). Release: a thread leaves;
  // acquire: a thread enters.
  std::atomic<bool> in_collective{false};
  // For reports: of the thread that is in one.
  std::uint64_t blocking_calls = 0;
  std::uint32_t now_root = 0;
  std::uint8_t now_in = 0;  // EngineCollective
  bool in_call = false;     // a blocking one
  // Intercommunicators: an intracommunicator of the local group, for the library itself.
  Comm* local = nullptr;

  Errhandler* errhandler = &g_errors_are_fatal;
  Attributes attributes;
  Info info;
  std::string name;
  std::shared_ptr<const CommTopology> topology;
  std::shared_ptr<BsendBuffer> buffer;  // MPI_Comm_attach_buffer
  bool freed = false;                   // by the program; operations may still be under way
  // A member has died, and a living member may not know that all others have freed the
  // communicator. So its number and its team are not used again.
  bool retired = false;
  // Numbers of communicators and of collectives that the members have made together: for internal
  // tags.
  std::atomic<std::uint32_t> made{0};
  std::atomic<std::uint32_t> collective_sequence{0};
  std::atomic<std::uint32_t> compared{0};
  // The program's assertions by info (mpi_assert_…).
  bool no_any_tag = false;
  bool no_any_source = false;
  bool allow_overtaking = false;
  bool exact_length = false;

  [[nodiscard]] int size() const { return group->size(); }
  // Of the group to which messages go.
  [[nodiscard]] int remote_size() const { return static_cast<int>(members.size()); }
  [[nodiscard]] bool inter() const { return remote_group != nullptr; }
  // The rank, among those to which messages go, of a rank of the job.
  [[nodiscard]] int rank_of_job(std::uint32_t job_rank) const {
    return rank_of == nullptr ? static_cast<int>(job_rank) : rank_of[job_rank];
  }
};

extern Comm* g_base;   // all ranks, for the library itself; null: the job is not joined
extern Comm* g_world;  // null: MPI_Init has not been called
extern Comm* g_self;
Comm* find_comm(MPI_Comm handle);  // of those that the program made
MPI_Comm handle_of(Comm* comm);

// The communicator; null: the handle names none (told by bad_comm()).
[[gnu::always_inline]] inline Comm* comm_of(MPI_Comm handle) {
  if (handle == MPI_COMM_WORLD) [[likely]]
    return g_world;
  if (value_of(handle) < kPredefined) return handle == MPI_COMM_SELF ? g_self : nullptr;
  return find_comm(handle);
}
// Why comm_of() was null: an error's code.
[[gnu::cold]] int bad_comm(MPI_Comm handle);
// The communicator of a call that needs the job. MPI_SUCCESS or an error's code.
inline int read_comm(MPI_Comm handle, Comm** comm) {
  if (const int code = check_running(); code != MPI_SUCCESS) return code;
  *comm = comm_of(handle);
  return *comm == nullptr ? bad_comm(handle) : MPI_SUCCESS;
}

// ---- making communicators -----------------------------------------------------------------------

// A new communicator in the making. Collective over `group`.
struct NewComm {
  std::shared_ptr<const Group> group;
  // The communicator whose messages tell the members' numbers, with this internal tag
  // (messages/internal.hpp). It reaches all of `group`.
  Comm* over = nullptr;
  int tag = 0;
  bool by_tag = false;  // this process's
};
// Makes an intracommunicator: number, lane, members, team. The caller copies what a parent hands
// down.
int make_comm(const NewComm& what, Comm** made);
// The same for members of an intracommunicator. The new one gets the parent's error handler.
// Collective over `parent`: processes that are not in `group` call it too, and get null.
int make_from(Comm* parent, std::shared_ptr<const Group> group, Comm** made, bool by_tag = false);
// The internal tag of the next communicator that all of `parent` make together. Called in the same
// order by all.
int next_make_tag(Comm& parent);
// Frees it and waits for nobody. It is destroyed when no operation of it is under way here and all
// members have freed it. The caller has deleted its attributes before.
void free_comm(Comm* comm);
// Goes on with the end of those that were freed, without waiting.
void end_freed();
// The same, until one of them has gone. False: there is none, or a second has passed.
bool wait_for_freed(Lane& lane);
// Joining and leaving the job: base, and with MPI_Init world and self.
int open_base();
int open_world();
void close_world();
void close_base();

// Finds the members of a communicator that are on one node, or share a resource of it: for
// MPI_Comm_split_type.

// The members of one colour make a communicator. Collective. MPI_UNDEFINED: this process is in
// none.
int colour_of_type(Comm& comm, int split_type, const Info& hints, int* colour);

}  // namespace heddle::mpi
