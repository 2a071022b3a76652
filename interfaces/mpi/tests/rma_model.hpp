// Shared parts of the random one-sided programs: the windows, and a model of all ranks' memory.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

inline int g_rank = 0;
inline int g_size = 1;
inline unsigned long g_seed = 1;
inline int g_bad = 0;
inline int g_round = 0;
inline const char* g_what = "";

inline void complain(const char* text, long long a = 0, long long b = 0) {
  if (++g_bad > 20) return;
  std::fprintf(stderr, "rank %d of %d, seed %lu, round %d, %s: %s (%lld, %lld)\n", g_rank, g_size, g_seed, g_round,
               g_what, text, a, b);
}
inline void check(bool right, const char* text, long long a = 0, long long b = 0) {
  if (!right) complain(text, a, b);
}
inline void succeed(int code, const char* text) {
  if (code == MPI_SUCCESS) return;
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  complain(text, error_class);
}

// ---- memory -------------------------------------------------------------------------------------

// bytes that one operation of one rank has for itself in an epoch
constexpr std::size_t kSlot = 128;
constexpr int kSlots = 8;  // of each origin
constexpr std::size_t kLarge = 40000;
constexpr int kShared = 16;  // words that all ranks add to

// One rank's window: slots by origin, a large area by origin, shared words.
inline std::size_t slot_at(int origin, int slot) {
  return (static_cast<std::size_t>(origin) * kSlots + static_cast<std::size_t>(slot)) * kSlot;
}
inline std::size_t large_at(int origin) {
  return slot_at(g_size, 0) + static_cast<std::size_t>(origin) * kLarge;
}
inline std::size_t shared_at(int word) {
  return large_at(g_size) + static_cast<std::size_t>(word) * 8;
}
inline std::size_t window_bytes() {
  return shared_at(kShared);
}

using Bytes = std::vector<unsigned char>;

struct Window {
  MPI_Win win = MPI_WIN_NULL;
  unsigned char* base = nullptr;
  unsigned char* made = nullptr;
  bool from_mpi = false;
  bool dynamic = false;
  std::vector<MPI_Aint> addresses;  // dynamic: by rank
  std::vector<Bytes> model;         // by rank
  [[nodiscard]] MPI_Aint disp(int rank, std::size_t offset) const {
    return static_cast<MPI_Aint>(offset) + (dynamic ? addresses[static_cast<std::size_t>(rank)] : 0);
  }
};

enum Flavor { allocated, created, created_mapped, dynamic, shared, shared_apart, kFlavors };
constexpr const char* kNames[] = {"allocated", "created", "created of MPI_Alloc_mem",
                                  "dynamic",   "shared",  "shared apart"};

inline bool open_shared(Window& w, bool apart) {
  MPI_Info info = MPI_INFO_NULL;
  if (apart) {
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int code =
      MPI_Win_allocate_shared(static_cast<MPI_Aint>(window_bytes()), 1, info, MPI_COMM_WORLD, &w.base, &w.win);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  if (apart) MPI_Info_free(&info);
  if (code == MPI_SUCCESS) return true;
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  check(error_class == MPI_ERR_RMA_SHARED, "shared window: the error's class", error_class);
  return false;
}

// False: not to be had here.
inline bool open(Window& w, int flavor) {
  const auto bytes = static_cast<MPI_Aint>(window_bytes());
  w.dynamic = flavor == dynamic;
  if (flavor == allocated) {
    MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.base, &w.win);
  } else if (flavor == shared || flavor == shared_apart) {
    if (!open_shared(w, flavor == shared_apart)) return false;
  } else {
    w.from_mpi = flavor == created_mapped;
    if (w.from_mpi)
      MPI_Alloc_mem(bytes + 64, MPI_INFO_NULL, &w.made);
    else
      w.made = static_cast<unsigned char*>(std::aligned_alloc(64, (window_bytes() + 127) / 64 * 64));
    w.base = w.made + (w.from_mpi ? 64 : 0);
    if (flavor == dynamic) {
      MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
      MPI_Win_attach(w.win, w.base, bytes);
      w.addresses.resize(static_cast<std::size_t>(g_size));
      MPI_Aint mine = 0;
      MPI_Get_address(w.base, &mine);
      MPI_Allgather(&mine, 1, MPI_AINT, w.addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD);
    } else {
      MPI_Win_create(w.base, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
    }
  }
  return true;
}

inline void close(Window& w) {
  if (w.dynamic) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_detach(w.win, w.base);
  }
  MPI_Win_free(&w.win);
  if (w.from_mpi)
    MPI_Free_mem(w.made);
  else
    std::free(w.made);
}
