// Handles of windows, and what is asked of a window.
#include "mpi/rma/win.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <units/windows.hpp>
#include "mpi/check/leaks.hpp"
#include "mpi/messages/internal.hpp"

namespace heddle::mpi {

constinit Pool<Win, kMostWindows> g_windows;

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

}  // namespace heddle::mpi
