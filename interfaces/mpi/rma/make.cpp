#include "mpi/rma/make.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <units/windows.hpp>

#include "mpi/collective/engine_call.hpp"
#include "mpi/core/job.hpp"
#include "mpi/messages/internal.hpp"
#include "mpi/rma/ask.hpp"
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

int exchange_parts(Win& win, const WindowPart& mine, std::vector<WindowPart>* all) {
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
    asked = asked || far.asked.load(std::memory_order_acquire) != 0 || far.open.load(std::memory_order_acquire) != 0;
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

namespace {

constexpr std::size_t kLeastAlignment = 64;

struct Allocation {
  std::size_t bytes = 0;
  heddle_region region{};  // {0}: of the C library
};
std::mutex g_allocations_mutex;  // guards the map
std::map<std::uintptr_t, Allocation> g_allocations;

// Null: there is no such memory.
void* allocate(std::size_t bytes, std::size_t alignment, Allocation* made) {
  made->bytes = bytes;
  void* address = nullptr;
  if (bytes >= kPageBytes && alignment <= kPageBytes && heddle_region_alloc(g_job.context, bytes, &made->region) >= 0) {
    if (heddle_region_address(made->region, &address, nullptr) >= 0) return address;
    heddle_region_release(made->region);
  }
  made->region = {};
  const std::size_t whole = (bytes / alignment + 1) * alignment;
  return whole > bytes ? std::aligned_alloc(alignment, whole) : nullptr;
}

int give_memory(void* address, const Allocation& allocation) {
  if (allocation.region.id != 0) return code_of(heddle_region_release(allocation.region));
  std::free(address);
  return MPI_SUCCESS;
}

int alloc(MPI_Aint size, MPI_Info handle, void* baseptr) {
  if (size < 0) return error(MPI_ERR_ARG, "size %lld: it must not be negative", static_cast<long long>(size));
  if (baseptr == nullptr) return null_argument("baseptr");
  Info info;
  if (const int code = read_info(handle, &info); code != MPI_SUCCESS) return code;
  Allocation made;
  void* const address = allocate(static_cast<std::size_t>(size), wanted_alignment(info, kLeastAlignment), &made);
  if (address == nullptr) return error(MPI_ERR_NO_MEM, "no memory for %lld bytes", static_cast<long long>(size));
  try {
    const std::scoped_lock lock(g_allocations_mutex);
    g_allocations[reinterpret_cast<std::uintptr_t>(address)] = made;
  } catch (const std::bad_alloc&) {
    give_memory(address, made);
    return error(MPI_ERR_NO_MEM, "no memory to note an allocation");
  }
  *static_cast<void**>(baseptr) = address;
  return MPI_SUCCESS;
}

int free_memory(void* base) {
  Allocation allocation;
  {
    const std::scoped_lock lock(g_allocations_mutex);
    const auto found = g_allocations.find(reinterpret_cast<std::uintptr_t>(base));
    if (found == g_allocations.end())
      return error(MPI_ERR_BASE, "%p: not what MPI_Alloc_mem returned, or it was freed already", base);
    allocation = found->second;
    g_allocations.erase(found);
  }
  return give_memory(base, allocation);
}

}  // namespace

bool find_allocated(const void* base, std::size_t bytes, heddle_region* region, std::uint64_t* offset) {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const std::scoped_lock lock(g_allocations_mutex);
  auto after = g_allocations.upper_bound(address);
  if (after == g_allocations.begin()) return false;
  --after;
  *offset = address - after->first;
  if (*offset > after->second.bytes || bytes > after->second.bytes - *offset) return false;
  *region = after->second.region;
  return region->id != 0;
}

std::size_t wanted_alignment(const Info& info, std::size_t least) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  const std::string* const value = info.find("mpi_minimum_memory_alignment");
  const std::size_t wanted = value != nullptr ? std::strtoull(value->c_str(), nullptr, 10) : 0;
  return std::has_single_bit(wanted) && wanted > least && wanted <= kMost ? wanted : least;
}

int alloc_mem(Call call, MPI_Aint size, MPI_Info info, void* baseptr) {
  if (const int code = check_running(); code != MPI_SUCCESS) return told(call, code);
  return told(call, alloc(size, info, baseptr));
}

int free_mem(Call call, void* base) {
  if (const int code = check_running(); code != MPI_SUCCESS) return told(call, code);
  return told(call, free_memory(base));
}

namespace {

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Where each rank's part begins: after the control blocks, one after the other, or each at a page.
std::vector<std::uint64_t> offsets_of(const std::vector<WindowPart>& parts, std::uint64_t* all) {
  const bool apart = parts[0].apart != 0;
  std::vector<std::uint64_t> offsets;
  std::uint64_t next = whole_pages(parts.size() * sizeof(Control));
  for (const WindowPart& part : parts) {
    offsets.push_back(next);
    next += apart ? whole_pages(part.bytes) : part.bytes;
  }
  *all = next;
  return offsets;
}

// The region's address here.
int map_region(Win& win, std::uint64_t bytes, std::byte** address) {
  WindowPart mine;
  if (win.comm->rank == 0) {
    mine.code = allocate_region(bytes, &win.region, address);
    if (mine.code == MPI_SUCCESS) mine.code = pack_region(win.region, mine.region, &mine.region_bytes);
  }
  std::vector<WindowPart> all;
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

int open_shared(Win& win, const std::vector<WindowPart>& parts) {
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

namespace {

// The answer about attached memory. The packed region follows it.
struct AttachedPlace {
  std::uint64_t address;
  std::uint64_t bytes;
};
static_assert(sizeof(AttachedPlace) + HEDDLE_PACKED_REGION_BYTES <= sizeof(Asked::answer));

// The piece that contains the byte at the address; end(): none.
AttachedMap::iterator find_piece(AttachedMap& map, std::uint64_t address) {
  auto after = map.upper_bound(address);
  if (after == map.begin()) return map.end();
  --after;
  return address - after->first < after->second.bytes ? after : map.end();
}

// How many bytes of the piece are at the address and behind it.
std::uint64_t bytes_from(AttachedMap::const_iterator piece, std::uint64_t address) {
  return piece->second.bytes - (address - piece->first);
}

void forget(Win::Known& known) {
  for (const auto& [address, piece] : known.pieces) heddle_remote_region_release(piece.remote);
  known.pieces.clear();
}

std::unique_ptr<Asked> ask_about_attached(Win& win, int rank, Question what) {
  auto asked = std::make_unique<Asked>();
  asked->header.question = what;
  asked->win = &win;
  asked->rank = rank;
  return asked;
}

int version_of(Win& win, int rank, std::uint64_t* version) {
  if (Control* const control = win.far[static_cast<std::size_t>(rank)].control; control != nullptr) {
    *version = control->version.load(std::memory_order_acquire);
    return MPI_SUCCESS;
  }
  std::unique_ptr<Asked> answer;
  const int code = ask_and_wait(ask_about_attached(win, rank, Question::version), &answer);
  if (code == MPI_SUCCESS) std::memcpy(version, answer->answer, sizeof *version);
  return code;
}

int ask_owner(Win& win, int rank, std::uint64_t address, std::uint64_t bytes) {
  auto asked = ask_about_attached(win, rank, Question::resolve);
  asked->header.offset = address;
  std::unique_ptr<Asked> answer;
  if (const int code = ask_and_wait(std::move(asked), &answer); code != MPI_SUCCESS) {
    if (code != MPI_ERR_RMA_RANGE) return code;
    return error(MPI_ERR_RMA_RANGE,
                 "address %#llx: rank %d has not attached memory there to the window, where %llu bytes are accessed",
                 static_cast<unsigned long long>(address), rank, static_cast<unsigned long long>(bytes));
  }
  AttachedPlace place;
  std::memcpy(&place, answer->answer, sizeof place);
  Attached piece;
  piece.bytes = place.bytes;
  const heddle_status status = heddle_region_unpack(g_job.context, answer->answer + sizeof place,
                                                    answer->answer_bytes - sizeof place, &piece.remote);
  if (status < 0) return error_of_status(status);
  win.known[static_cast<std::size_t>(rank)].pieces[place.address] = piece;
  return MPI_SUCCESS;
}

int check_dynamic(const Win& win, const char* what) {
  if (win.dynamic()) return MPI_SUCCESS;
  return error(MPI_ERR_RMA_FLAVOR, "only a window made by MPI_Win_create_dynamic %s memory", what);
}

int attach(Win& win, void* base, MPI_Aint size) {
  if (const int code = check_dynamic(win, "attaches"); code != MPI_SUCCESS) return code;
  if (size < 0) return error(MPI_ERR_SIZE, "size %lld: it must not be negative", static_cast<long long>(size));
  if (base == nullptr && size > 0) return null_argument("base");
  if (size == 0) return MPI_SUCCESS;  // nothing can be reached there
  const auto address = reinterpret_cast<std::uint64_t>(base);
  const auto bytes = static_cast<std::uint64_t>(size);
  const std::scoped_lock lock(win.attached_mutex);
  auto after = win.attached.lower_bound(address);
  bool overlaps = after != win.attached.end() && after->first - address < bytes;
  if (after != win.attached.begin()) {
    --after;
    overlaps = overlaps || address - after->first < after->second.bytes;
  }
  if (overlaps)
    return error(MPI_ERR_RMA_ATTACH, "%p: memory there is attached to the window already; detach it first", base);
  Attached piece;
  piece.bytes = bytes;
  const heddle_status status =
      heddle_region_register(g_job.context, base, static_cast<std::size_t>(size), &piece.region);
  if (status < 0) return error_of_status(status);
  win.attached[address] = piece;
  return MPI_SUCCESS;
}

int detach(Win& win, const void* base) {
  if (const int code = check_dynamic(win, "detaches"); code != MPI_SUCCESS) return code;
  const std::scoped_lock lock(win.attached_mutex);
  const auto found = win.attached.find(reinterpret_cast<std::uint64_t>(base));
  if (found == win.attached.end()) return MPI_SUCCESS;  // attached with size 0
  // Release: a rank that sees the new version asks again, and learns that the memory is detached.
  win.control->version.fetch_add(1, std::memory_order_acq_rel);
  const heddle_status status = heddle_region_release(found->second.region);
  win.attached.erase(found);
  return code_of(status);
}

}  // namespace

int refresh_known(Win& win, int rank) {
  Win::Known& known = win.known[static_cast<std::size_t>(rank)];
  std::uint64_t version = 0;
  if (const int code = version_of(win, rank, &version); code != MPI_SUCCESS) return code;
  const std::scoped_lock lock(win.known_mutex);
  if (known.version == version) return MPI_SUCCESS;
  forget(known);
  known.version = version;
  return MPI_SUCCESS;
}

int resolve(Win& win, int rank, std::uint64_t address, std::uint64_t* bytes, heddle_remote* place) {
  const std::scoped_lock lock(win.known_mutex);
  AttachedMap& pieces = win.known[static_cast<std::size_t>(rank)].pieces;
  auto found = find_piece(pieces, address);
  if (found == pieces.end()) {
    if (const int code = ask_owner(win, rank, address, *bytes); code != MPI_SUCCESS) return code;
    found = find_piece(pieces, address);
    if (found == pieces.end()) return error(MPI_ERR_INTERN, "rank %d told of other memory than was asked for", rank);
  }
  *bytes = std::min(*bytes, bytes_from(found, address));
  *place = {found->second.remote, address - found->first};
  return MPI_SUCCESS;
}

bool is_attached(Win& win, std::uint64_t address, std::uint64_t bytes) {
  const std::scoped_lock lock(win.attached_mutex);
  while (bytes > 0) {
    const auto piece = find_piece(win.attached, address);
    if (piece == win.attached.end()) return false;
    const std::uint64_t here = std::min(bytes, bytes_from(piece, address));
    address += here;
    bytes -= here;
  }
  return true;
}

int answer_resolve(Win& win, std::uint64_t address, std::byte* answer, std::uint32_t* length) {
  const std::scoped_lock lock(win.attached_mutex);
  const auto found = find_piece(win.attached, address);
  if (found == win.attached.end()) return MPI_ERR_RMA_RANGE;
  const AttachedPlace place{found->first, found->second.bytes};
  std::memcpy(answer, &place, sizeof place);
  std::size_t packed = HEDDLE_PACKED_REGION_BYTES;
  const heddle_status status = heddle_region_pack(found->second.region, answer + sizeof place, &packed);
  *length = static_cast<std::uint32_t>(sizeof place + packed);
  return status < 0 ? MPI_ERR_INTERN : MPI_SUCCESS;
}

void detach_all(Win& win) {
  if (win.known != nullptr)
    for (int rank = 0; rank < win.size(); ++rank) forget(win.known[static_cast<std::size_t>(rank)]);
  for (const auto& [address, piece] : win.attached) heddle_region_release(piece.region);
  win.attached.clear();
}

int win_attach(Call call, MPI_Win win, void* base, MPI_Aint size) {
  Win* const found = win_of(win);
  if (found == nullptr) return told(call, bad_win(win));
  try {
    return told(call, found, attach(*found, base, size));
  } catch (const std::bad_alloc&) {
    return told(call, found, error(MPI_ERR_NO_MEM, "no memory to attach %p", base));
  }
}

int win_detach(Call call, MPI_Win win, const void* base) {
  Win* const found = win_of(win);
  if (found == nullptr) return told(call, bad_win(win));
  return told(call, found, detach(*found, base));
}

}  // namespace heddle::mpi
