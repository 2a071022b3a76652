#include "mpi/communicators/placement.hpp"

#include <array>
#include <cstring>
#include <span>

#include "mpi/communicators/intercomm.hpp"
#include "mpi/messages/internal.hpp"

namespace heddle::mpi {
namespace {

using Packed = std::array<std::byte, HEDDLE_PACKED_REGION_BYTES>;

struct SharedProbe {
  Packed region{};
  std::uint64_t bytes = 0;  // 0: this member has no memory for it
  std::uint32_t job_rank = 0;
};

// True: this process can load and store in the memory of the member.
bool maps(const SharedProbe& probe) {
  heddle_remote_region remote{};
  if (heddle_region_unpack(g_job.context, probe.region.data(), probe.bytes, &remote) < 0) return false;
  int mapped = 0;
  const bool known = heddle_remote_mapped({remote, 0}, 1, &mapped) >= 0;
  static_cast<void>(heddle_remote_region_release(remote));
  return known && mapped != 0;
}

// `mine` of all members; of an intercommunicator, those of the local group and then those of the
// remote one.
template <class T>
int gather_from_all(Comm& comm, const T& mine, std::vector<T>* all) {
  if (!comm.inter()) {
    all->resize(static_cast<std::size_t>(comm.size()));
    return internal_allgather(comm, next_make_tag(comm), &mine, sizeof mine, all->data());
  }
  std::vector<std::byte> ours;
  std::vector<std::byte> theirs;
  if (const int code = gather_both(comm, std::as_bytes(std::span(&mine, 1)), &ours, &theirs); code != MPI_SUCCESS)
    return code;
  ours.insert(ours.end(), theirs.begin(), theirs.end());
  all->resize(ours.size() / sizeof(T));
  std::memcpy(all->data(), ours.data(), ours.size());
  return MPI_SUCCESS;
}

// The first rank of the job, of the members, whose memory this process maps: the same for all that
// share memory.
int shared_with(Comm& comm, int* colour) {
  constexpr std::size_t kBytes = 4096;
  heddle_region region{};
  SharedProbe mine;
  mine.job_rank = g_job.rank;
  if (heddle_region_alloc(g_job.context, kBytes, &region) >= 0) {
    std::size_t bytes = mine.region.size();
    if (heddle_region_pack(region, mine.region.data(), &bytes) >= 0) mine.bytes = bytes;
  }
  std::vector<SharedProbe> all;
  int code = gather_from_all(comm, mine, &all);
  std::uint32_t first = g_job.rank;
  for (const SharedProbe& probe : all) {
    const bool better = probe.job_rank < first && probe.bytes != 0 && mine.bytes != 0;
    if (better && maps(probe)) first = probe.job_rank;
  }
  *colour = static_cast<int>(first);
  // once all have answered, all have looked
  std::vector<int> colours;
  if (code == MPI_SUCCESS) code = gather_from_all(comm, *colour, &colours);
  if (region.id != 0) static_cast<void>(heddle_region_release(region));
  return code;
}

// A split that would leave the communicator as it is gives MPI_UNDEFINED.
int smaller_only(Comm& comm, int* colour) {
  std::vector<int> colours;
  if (const int code = gather_from_all(comm, *colour, &colours); code != MPI_SUCCESS) return code;
  bool same = true;
  for (const int other : colours) same = same && other == *colour;
  if (same) *colour = MPI_UNDEFINED;
  return MPI_SUCCESS;
}

}  // namespace

int colour_of_type(Comm& comm, int split_type, const Info& hints, int* colour) {
  *colour = MPI_UNDEFINED;
  const std::string* const resource = hints.find("mpi_hw_resource_type");
  int mine = MPI_UNDEFINED;
  // all members take part, whatever they ask for
  if (const int code = shared_with(comm, &mine); code != MPI_SUCCESS) return code;
  switch (split_type) {
    case MPI_UNDEFINED:
      return MPI_SUCCESS;
    case MPI_COMM_TYPE_SHARED:
      *colour = mine;
      return MPI_SUCCESS;
    case MPI_COMM_TYPE_HW_GUIDED:
    case MPI_COMM_TYPE_RESOURCE_GUIDED:
      if (resource != nullptr && *resource == "mpi_shared_memory") *colour = mine;
      return MPI_SUCCESS;
    case MPI_COMM_TYPE_HW_UNGUIDED:
      *colour = mine;
      return smaller_only(comm, colour);
    default:
      return error(MPI_ERR_ARG, "split_type %d is none of MPI_COMM_TYPE_…", split_type);
  }
}

}  // namespace heddle::mpi
