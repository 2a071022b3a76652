#include "mpi/rma/make.hpp"

#include "mpi/collective/blocking.hpp"
#include "mpi/messages/internal.hpp"
#include "mpi/rma/ask.hpp"
#include "mpi/rma/dynamic.hpp"
#include "mpi/rma/locks.hpp"

namespace heddle::mpi {
namespace {

// Hints that the library knows, and their values if the program does not set them.
constexpr std::pair<const char*, const char*> kWindowHints[] = {
    {"no_locks", "false"},       {"accumulate_ordering", "rar,raw,war,waw"},
    {"same_size", "false"},      {"accumulate_ops", "same_op_no_op"},
    {"same_disp_unit", "false"},
};

}  // namespace

int begin_window(Comm& parent, const Info& hints, int flavor, Win** made) {
  if (const int code = register_handlers(); code != MPI_SUCCESS) return code;
  Comm* comm = nullptr;
  if (const int code = make_from(&parent, parent.group, &comm); code != MPI_SUCCESS) return code;
  Win* const win = g_windows.take();
  if (win == nullptr) {
    free_comm(comm);
    return error(MPI_ERR_NO_MEM, "no memory for one more window: %u at a time, free some", kMostWindows);
  }
  win->comm = comm;
  win->ranks = comm->size();
  win->flavor = flavor;
  for (const auto& [key, value] : kWindowHints) win->info.set(key, value);
  if (flavor == MPI_WIN_FLAVOR_SHARED) win->info.set("alloc_shared_noncontig", "false");
  for (const auto& [key, value] : hints.entries) win->info.set(key, value);
  const std::string* const ordering = win->info.find("accumulate_ordering");
  win->unordered = ordering != nullptr && *ordering == "none";
  win->targets = std::make_unique<Target[]>(static_cast<std::size_t>(win->ranks));
  win->far = std::make_unique<Far[]>(static_cast<std::size_t>(win->ranks));
  tell_locks(*win);
  *made = win;
  return MPI_SUCCESS;
}

int exchange_parts(Win& win, const Part& mine, std::vector<Part>* all) {
  all->resize(static_cast<std::size_t>(win.size()));
  if (const int code = internal_allgather(*win.comm, InternalTag::kWindow, &mine, sizeof mine, all->data());
      code != MPI_SUCCESS)
    return code;
  if (mine.code != MPI_SUCCESS) return mine.code;
  for (int rank = 0; rank < win.size(); ++rank)
    if (const int code = (*all)[static_cast<std::size_t>(rank)].code; code != MPI_SUCCESS)
      return error(code, "rank %d of the communicator could not make its part of the window: error class %d", rank,
                   code);
  return MPI_SUCCESS;
}

int agree(Win& win, int code) {
  std::vector<std::int32_t> codes(static_cast<std::size_t>(win.size()));
  const std::int32_t mine = code;
  const int failed = internal_allgather(*win.comm, InternalTag::kWindow, &mine, sizeof mine, codes.data());
  if (code != MPI_SUCCESS || failed != MPI_SUCCESS) return code != MPI_SUCCESS ? code : failed;
  for (int rank = 0; rank < win.size(); ++rank)
    if (const int other = codes[static_cast<std::size_t>(rank)]; other != MPI_SUCCESS)
      return error(other, "rank %d of the communicator could not make its part of the window: error class %d", rank,
                   other);
  return MPI_SUCCESS;
}

int barrier(Win& win) {
  if (win.size() == 1) return MPI_SUCCESS;
  if (win.comm->team.id != 0) return run_barrier(*win.comm);
  std::vector<std::byte> all(static_cast<std::size_t>(win.size()));
  const std::byte mine{};
  return internal_allgather(*win.comm, InternalTag::kWindow, &mine, sizeof mine, all.data());
}

void keep_memory(Win& win) {
  if (win.flavor == MPI_WIN_FLAVOR_ALLOCATE || win.flavor == MPI_WIN_FLAVOR_SHARED) win.region = {};
  win.control_region = {};
}

void destroy(Win* win) {
  tell_locks_no_more(*win);
  detach_all(*win);
  bool asked = false;
  for (int rank = 0; win->far != nullptr && rank < win->ranks; ++rank) {
    const Far& far = win->far[static_cast<std::size_t>(rank)];
    if (far.region.id != 0) heddle_remote_region_release(far.region);
    if (far.control_region.id != 0 && far.control_region.id != far.region.id)
      heddle_remote_region_release(far.control_region);
    asked = asked || far.asked.load(std::memory_order_acquire) != 0;
  }
  // Questions that a dead rank never answers still refer to this memory, so it is not freed.
  if (asked) static_cast<void>(win->far.release());
  if (win->region.id != 0) heddle_region_release(win->region);
  if (win->control_region.id != 0) heddle_region_release(win->control_region);
  release(win->errhandler);
  Comm* const comm = win->comm;
  g_windows.give_back(win);
  if (comm != nullptr) free_comm(comm);
}

int allocate_region(std::size_t bytes, heddle_region* region, std::byte** address) {
  if (const heddle_status status = heddle_region_alloc(g_job.context, bytes, region); status < 0) {
    *region = {};
    return error_of_status(status);
  }
  void* at = nullptr;
  const int code = code_of(heddle_region_address(*region, &at, nullptr));
  *address = static_cast<std::byte*>(at);
  return code;
}

int pack_region(heddle_region region, std::byte* packed, std::uint8_t* bytes) {
  std::size_t length = HEDDLE_PACKED_REGION_BYTES;
  const int code = code_of(heddle_region_pack(region, packed, &length));
  *bytes = static_cast<std::uint8_t>(length);
  return code;
}

}  // namespace heddle::mpi
