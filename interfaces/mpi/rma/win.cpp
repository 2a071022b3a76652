// Handles of windows, and what is asked of a window.

#include "mpi/rma/win.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <units/windows.hpp>

#include "mpi/core/check.hpp"
#include "mpi/messages/internal.hpp"
#include "mpi/rma/make.hpp"
#include "mpi/rma/operations.hpp"

namespace heddle::mpi {

constinit ObjectPool<Win, kMostWindows> g_windows;

std::size_t live_windows() {
  std::size_t live = 0;
  g_windows.each([&](const Win& /*win*/) { ++live; });
  return live;
}

int bad_win(MPI_Win handle) {
  if (handle == MPI_WIN_NULL) return error(MPI_ERR_WIN, "the window is MPI_WIN_NULL");
  return error(MPI_ERR_WIN, "%p names no window; it was freed, or never made", static_cast<void*>(handle));
}

namespace {

constexpr const char* kForQuery = "what is asked of the window";

int group_of_window(const Win& win, MPI_Group* group) {
  if (group == nullptr) return null_argument("group");
  *group = new_handle(win.comm->group);
  return *group == MPI_GROUP_NULL ? no_memory_for(kForQuery) : MPI_SUCCESS;
}

int info_of_window(const Win& win, MPI_Info* info) {
  if (info == nullptr) return null_argument("info_used");
  *info = new_handle(win.info);
  return *info == MPI_INFO_NULL ? no_memory_for(kForQuery) : MPI_SUCCESS;
}

// Hints that are about how the window was made stay as they are.
int set_window_info(Win& win, MPI_Info handle) {
  Info hints;
  if (const int code = read_info(handle, &hints); code != MPI_SUCCESS) return code;
  for (const auto& [key, value] : hints.entries)
    if (key != "alloc_shared_noncontig" && key != "mpi_minimum_memory_alignment") win.info.set(key, value);
  const std::string* const ordering = win.info.find("accumulate_ordering");
  win.unordered = ordering != nullptr && *ordering == "none";
  return MPI_SUCCESS;
}

int name_of_window(const Win& win, char* name, int* length) {
  if (name == nullptr) return null_argument("win_name");
  if (length == nullptr) return null_argument("resultlen");
  std::memcpy(name, win.name.c_str(), win.name.size() + 1);
  *length = static_cast<int>(win.name.size());
  return MPI_SUCCESS;
}

int set_window_name(Win& win, const char* name) {
  if (name == nullptr) return null_argument("win_name");
  win.name.assign(name, ::strnlen(name, MPI_MAX_OBJECT_NAME - 1));
  return MPI_SUCCESS;
}

}  // namespace

int win_get_group(Call call, MPI_Win win, MPI_Group* group) {
  return with_window(call, win, kForQuery, [&](Win& found) { return group_of_window(found, group); });
}
int win_get_info(Call call, MPI_Win win, MPI_Info* info_used) {
  return with_window(call, win, kForQuery, [&](Win& found) { return info_of_window(found, info_used); });
}
int win_set_info(Call call, MPI_Win win, MPI_Info info) {
  return with_window(call, win, kForQuery, [&](Win& found) { return set_window_info(found, info); });
}
int win_get_name(Call call, MPI_Win win, char* win_name, int* resultlen) {
  if (win == MPI_WIN_NULL && win_name != nullptr && resultlen != nullptr) {
    constexpr std::string_view kName = "MPI_WIN_NULL";
    *resultlen = static_cast<int>(kName.copy(win_name, kName.size()));
    win_name[kName.size()] = '\0';
    return MPI_SUCCESS;
  }
  return with_window(call, win, kForQuery, [&](Win& found) { return name_of_window(found, win_name, resultlen); });
}
int win_set_name(Call call, MPI_Win win, const char* win_name) {
  return with_window(call, win, kForQuery, [&](Win& found) { return set_window_name(found, win_name); });
}

// The unit windows: calls that make and free windows.

namespace {

constexpr std::size_t kControlBytes = 4096;  // before allocated memory, which begins at a page
static_assert(sizeof(Control) <= kControlBytes);

// The arguments of a call that makes a window.
struct Wish {
  int flavor = MPI_WIN_FLAVOR_CREATE;
  void* base = nullptr;
  MPI_Aint size = 0;
  MPI_Count unit = 1;
  MPI_Info info = MPI_INFO_NULL;
  Comm* comm = nullptr;
};

int check_wish(const Wish& wish, const MPI_Win* handle, Info* hints) {
  if (wish.comm->inter()) return error(MPI_ERR_COMM, "an intercommunicator: windows need an intracommunicator");
  if (handle == nullptr) return null_argument("win");
  if (wish.size < 0)
    return error(MPI_ERR_SIZE, "size %lld: it must not be negative", static_cast<long long>(wish.size));
  if (wish.unit <= 0)
    return error(MPI_ERR_DISP, "disp_unit %lld: it must be positive", static_cast<long long>(wish.unit));
  if (wish.flavor == MPI_WIN_FLAVOR_CREATE && wish.base == nullptr && wish.size > 0)
    return error(MPI_ERR_BASE, "base is null, with size %lld", static_cast<long long>(wish.size));
  return read_info(wish.info, hints);
}

// This process's memory, and its control block.
int make_memory(const Wish& wish, Win& win, WindowPart& part) {
  if (wish.flavor == MPI_WIN_FLAVOR_ALLOCATE) {
    std::byte* address = nullptr;
    const std::size_t alignment = wanted_alignment(win.info, kControlBytes);
    const auto size = static_cast<std::size_t>(wish.size);
    if (const int code = allocate_region(size + kControlBytes + alignment, &win.region, &address); code != MPI_SUCCESS)
      return code;
    const auto from = reinterpret_cast<std::uintptr_t>(address);
    part.offset = (from + kControlBytes + alignment - 1) / alignment * alignment - from;
    win.base = address + part.offset;
    win.control = reinterpret_cast<Control*>(address);
    return pack_region(win.region, part.region, &part.region_bytes);
  }
  std::byte* address = nullptr;
  if (const int code = allocate_region(sizeof(Control), &win.control_region, &address); code != MPI_SUCCESS)
    return code;
  win.control = reinterpret_cast<Control*>(address);
  if (const int code = pack_region(win.control_region, part.control, &part.control_bytes); code != MPI_SUCCESS)
    return code;
  if (wish.size == 0) return MPI_SUCCESS;
  heddle_region region{};
  const auto bytes = static_cast<std::size_t>(wish.size);
  if (!find_allocated(wish.base, bytes, &region, &part.offset)) {
    part.offset = 0;
    if (const int code = code_of(heddle_region_register(g_job.context, wish.base, bytes, &region)); code != MPI_SUCCESS)
      return code;
    win.region = region;
  }
  return pack_region(region, part.region, &part.region_bytes);
}

int open_region(const std::byte* packed, std::uint8_t bytes, heddle_remote_region* region) {
  const int code = code_of(heddle_region_unpack(g_job.context, packed, bytes, region));
  if (code != MPI_SUCCESS) *region = {};
  return code;
}

// Null if it cannot be mapped here.
std::byte* map_remote(heddle_remote_region region, std::uint64_t offset) {
  void* address = nullptr;
  return heddle_remote_pointer({region, offset}, &address) >= 0 ? static_cast<std::byte*>(address) : nullptr;
}

// The memory of another rank, as this one reaches it.
int open_part(const WindowPart& part, Target& target, Far& far) {
  far.number = part.number;
  far.offset = part.offset;
  far.control_offset = part.control_offset;
  if (part.region_bytes != 0)
    if (const int code = open_region(part.region, part.region_bytes, &far.region); code != MPI_SUCCESS) return code;
  far.control_region = far.region;
  if (part.control_bytes != 0)
    if (const int code = open_region(part.control, part.control_bytes, &far.control_region); code != MPI_SUCCESS)
      return code;
  far.control = reinterpret_cast<Control*>(map_remote(far.control_region, far.control_offset));
  // Accumulates need the control block too. Without it, the memory is not accessed directly.
  if (far.control != nullptr && part.region_bytes != 0 && part.bytes != 0)
    target.direct = map_remote(far.region, far.offset);
  return MPI_SUCCESS;
}

int open_parts(Win& win, const std::vector<WindowPart>& parts) {
  win.near = !win.dynamic();
  for (int rank = 0; rank < win.size(); ++rank) {
    const WindowPart& part = parts[static_cast<std::size_t>(rank)];
    Target& target = win.targets[static_cast<std::size_t>(rank)];
    Far& far = win.far[static_cast<std::size_t>(rank)];
    target.bytes = part.bytes;
    target.unit = part.unit;
    far.address = part.address;
    if (rank == win.comm->rank) {
      far.number = part.number;
      far.control = win.control;
      target.direct = static_cast<std::byte*>(win.base);
      continue;
    }
    if (const int code = open_part(part, target, far); code != MPI_SUCCESS) return code;
    win.near = win.near && far.control != nullptr && (part.bytes == 0 || target.direct != nullptr);
  }
  return MPI_SUCCESS;
}

// Finds out whether all ranks have mapped all memory. From here on the window may be used.
int agree_near(Win& win, int code) {
  WindowPart mine;
  mine.code = code;
  mine.number = win.near ? 1 : 0;
  std::vector<WindowPart> all;
  if (const int failed = exchange_parts(win, mine, &all); failed != MPI_SUCCESS) return failed;
  win.all_near = std::all_of(all.begin(), all.end(), [](const WindowPart& part) { return part.number == 1; });
  return MPI_SUCCESS;
}

int fill_window(const Wish& wish, Win& win) {
  win.bytes = wish.size;
  win.base = wish.base;
  win.disp_unit = CountOut(&win.disp_unit).fits(wish.unit) ? static_cast<int>(wish.unit) : MPI_UNDEFINED;
  if (win.dynamic()) win.known = std::make_unique<Win::Known[]>(static_cast<std::size_t>(win.size()));
  WindowPart mine;
  mine.code = wish.flavor == MPI_WIN_FLAVOR_SHARED ? MPI_SUCCESS : make_memory(wish, win, mine);
  mine.number = g_windows.number(&win);
  mine.bytes = static_cast<std::uint64_t>(win.bytes);
  mine.unit = wish.unit;
  mine.apart = win.info.flag("alloc_shared_noncontig", false) ? 1 : 0;
  mine.address = reinterpret_cast<std::uint64_t>(win.base);
  std::vector<WindowPart> parts;
  if (const int code = exchange_parts(win, mine, &parts); code != MPI_SUCCESS) return code;
  return agree_near(win, wish.flavor == MPI_WIN_FLAVOR_SHARED ? open_shared(win, parts) : open_parts(win, parts));
}

int make_window(const Wish& wish, void* baseptr, MPI_Win* handle) {
  Info hints;
  if (const int code = check_wish(wish, handle, &hints); code != MPI_SUCCESS) return code;
  Win* win = nullptr;
  if (const int code = begin_window(*wish.comm, hints, wish.flavor, &win); code != MPI_SUCCESS) return code;
  if (const int code = fill_window(wish, *win); code != MPI_SUCCESS) {
    destroy(win);
    return code;
  }
  if (baseptr != nullptr) *static_cast<void**>(baseptr) = win->base;
  *handle = handle_of(win);
  return MPI_SUCCESS;
}

int create_window(Call call, MPI_Comm comm, Wish wish, void* baseptr, MPI_Win* handle) {
  if (const int code = check_running(); code != MPI_SUCCESS) return told(call, code);
  wish.comm = comm_of(comm);
  if (wish.comm == nullptr) return told(call, bad_comm(comm));
  try {
    return told(call, wish.comm, make_window(wish, baseptr, handle));
  } catch (const std::bad_alloc&) {
    return told(call, wish.comm, error(MPI_ERR_NO_MEM, "no memory for a window of %d ranks", wish.comm->size()));
  }
}

// After an error of the program, the window stays. A later failure is reported while the window's
// error handler still exists; the window is freed all the same.
int free_window(Call call, MPI_Win* handle, Win& win) {
  const bool in_epoch = [&] {
    const std::scoped_lock lock(win.mutex);
    return win.access == Access::lock || win.access == Access::lock_all || win.access == Access::start || win.exposed;
  }();
  if (in_epoch)
    return told(call, &win,
                error(MPI_ERR_RMA_SYNC,
                      "an epoch of the window has not ended: call MPI_Win_unlock, MPI_Win_unlock_all, "
                      "MPI_Win_complete or MPI_Win_wait before MPI_Win_free"));
  if (const int code = delete_attributes(*handle, &win.attributes); code != MPI_SUCCESS) return told(call, &win, code);
  const int completed = complete_all(win);
  const int met = barrier(win);
  const int code = told(call, &win, completed != MPI_SUCCESS ? completed : met);
  if (met != MPI_SUCCESS) keep_memory(win);
  destroy(&win);
  *handle = MPI_WIN_NULL;
  return code;
}

}  // namespace

int win_create(Call call, void* base, MPI_Aint size, MPI_Count disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  return create_window(call, comm, {MPI_WIN_FLAVOR_CREATE, base, size, disp_unit, info, nullptr}, nullptr, win);
}

int win_allocate(Call call, MPI_Aint size, MPI_Count disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr,
                 MPI_Win* win) {
  if (baseptr == nullptr) return told(call, null_argument("baseptr"));
  return create_window(call, comm, {MPI_WIN_FLAVOR_ALLOCATE, nullptr, size, disp_unit, info, nullptr}, baseptr, win);
}

int win_allocate_shared(Call call, MPI_Aint size, MPI_Count disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr,
                        MPI_Win* win) {
  if (baseptr == nullptr) return told(call, null_argument("baseptr"));
  return create_window(call, comm, {MPI_WIN_FLAVOR_SHARED, nullptr, size, disp_unit, info, nullptr}, baseptr, win);
}

int win_create_dynamic(Call call, MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  return create_window(call, comm, {MPI_WIN_FLAVOR_DYNAMIC, MPI_BOTTOM, 0, 1, info, nullptr}, nullptr, win);
}

int win_free(Call call, MPI_Win* win) {
  if (const int code = check_running(); code != MPI_SUCCESS) return told(call, code);
  if (win == nullptr) return told(call, null_argument("win"));
  Win* const found = win_of(*win);
  if (found == nullptr) return told(call, bad_win(*win));
  return free_window(call, win, *found);
}

}  // namespace heddle::mpi
