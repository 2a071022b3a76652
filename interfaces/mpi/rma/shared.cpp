#include "mpi/rma/shared.hpp"

#include <units/windows.hpp>
#include "mpi/rma/memory.hpp"

namespace heddle::mpi {
namespace {

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Where each rank's part begins: after the control blocks, one after the other, or each at a page.
std::vector<std::uint64_t> offsets_of(const std::vector<Part>& parts, std::uint64_t* all) {
  const bool apart = parts[0].apart != 0;
  std::vector<std::uint64_t> offsets;
  std::uint64_t next = whole_pages(parts.size() * sizeof(Control));
  for (const Part& part : parts) {
    offsets.push_back(next);
    next += apart ? whole_pages(part.bytes) : part.bytes;
  }
  *all = next;
  return offsets;
}

// The region's address here.
int map_region(Win& win, std::uint64_t bytes, std::byte** address) {
  Part mine;
  if (win.comm->rank == 0) {
    mine.code = allocate_region(bytes, &win.region, address);
    if (mine.code == MPI_SUCCESS) mine.code = pack_region(win.region, mine.region, &mine.region_bytes);
  }
  std::vector<Part> all;
  if (const int code = exchange_parts(win, mine, &all); code != MPI_SUCCESS) return code;
  if (win.comm->rank == 0) return MPI_SUCCESS;
  // The region belongs to rank 0, so it is released with rank 0's state.
  heddle_remote_region& remote = win.far[0].region;
  if (const heddle_status status = heddle_region_unpack(g_job.context, all[0].region, all[0].region_bytes, &remote);
      status < 0) {
    remote = {};
    return error_of_status(status);
  }
  void* at = nullptr;
  if (const heddle_status status = heddle_remote_pointer({remote, 0}, &at); status < 0) {
    static_cast<void>(error_of_status(status));
    return error(MPI_ERR_RMA_SHARED,
                 "rank %d cannot map memory of rank 0: %s. Use a communicator made by MPI_Comm_split_type "
                 "with MPI_COMM_TYPE_SHARED",
                 win.comm->rank, noted_text());
  }
  *address = static_cast<std::byte*>(at);
  return MPI_SUCCESS;
}

int query(Win& win, int rank, MPI_Aint* size, CountOut disp_unit, void* baseptr) {
  if (win.dynamic()) return error(MPI_ERR_RMA_FLAVOR, "a dynamic window: its memory has no base; ask the owner");
  if (size == nullptr) return null_argument("size");
  if (!disp_unit.present()) return null_argument("disp_unit");
  if (baseptr == nullptr) return null_argument("baseptr");
  if (rank != MPI_PROC_NULL && (rank < 0 || rank >= win.size()))
    return error(MPI_ERR_RANK, "rank %d: the window has ranks 0-%d, or MPI_PROC_NULL", rank, win.size() - 1);
  // MPI_PROC_NULL: the first rank that has memory.
  for (int first = 0; rank == MPI_PROC_NULL && first < win.size(); ++first)
    if (win.targets[static_cast<std::size_t>(first)].bytes != 0) rank = first;
  *size = 0;
  *static_cast<void**>(baseptr) = nullptr;
  disp_unit.set(1);
  if (rank == MPI_PROC_NULL) return MPI_SUCCESS;
  const Target& target = win.targets[static_cast<std::size_t>(rank)];
  if (target.direct == nullptr && win.flavor != MPI_WIN_FLAVOR_SHARED)
    return MPI_SUCCESS;  // not to be loaded and stored here
  *size = static_cast<MPI_Aint>(target.bytes);
  *static_cast<void**>(baseptr) = target.direct;
  disp_unit.set(target.unit);
  return MPI_SUCCESS;
}

}  // namespace

int open_shared(Win& win, const std::vector<Part>& parts) {
  std::uint64_t bytes = 0;
  const std::vector<std::uint64_t> offsets = offsets_of(parts, &bytes);
  std::byte* address = nullptr;
  if (const int code = map_region(win, bytes, &address); code != MPI_SUCCESS) return code;
  auto* const controls = reinterpret_cast<Control*>(address);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    Target& target = win.targets[rank];
    Far& far = win.far[rank];
    target.bytes = parts[rank].bytes;
    target.unit = parts[rank].unit;
    target.direct = address + offsets[rank];
    far.number = parts[rank].number;
    far.control = controls + rank;
    far.offset = offsets[rank];
  }
  const auto me = static_cast<std::size_t>(win.comm->rank);
  win.base = win.targets[me].direct;
  win.control = controls + me;
  win.near = true;
  return MPI_SUCCESS;
}

int win_shared_query(Call call, MPI_Win win, int rank, MPI_Aint* size, CountOut disp_unit, void* baseptr) {
  Win* const found = win_of(win);
  if (found == nullptr) return told(call, bad_win(win));
  return told(call, found, query(*found, rank, size, disp_unit, baseptr));
}

}  // namespace heddle::mpi
