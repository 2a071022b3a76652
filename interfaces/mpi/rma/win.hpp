// A window: memory of each member that the others reach by one-sided operations.
//
// Where a target's memory is mapped here, operations on it are loads, stores and atomic
// instructions of this process; else they go through the engine, and accumulates are messages to
// the target (rma/ask.hpp). One rank always goes one way to one target.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <heddle/heddle.h>
#include "mpi/communicators/comm.hpp"
#include "mpi/core/attributes.hpp"
#include "mpi/core/info.hpp"
#include "mpi/core/objects.hpp"

namespace heddle::mpi {

class InternalMessage;

// The control block of a target. Ranks that map it change it by atomic instructions; for the other
// ranks, handlers of its owner do so.
struct Control {
  static constexpr std::uint32_t kGroups = 28;

  alignas(64) std::atomic<std::uint64_t> lock;  // see rma/locks.hpp
  // how many share the lock, or are about to, by their ranks modulo kGroups
  std::atomic<std::uint16_t> sharers[kGroups];
  // held during accumulates on elements that no atomic instruction can change; the value is the
  // holder's rank in the window plus 1
  alignas(64) std::atomic<std::uint32_t> guard;
  // raised when memory is detached (dynamic windows)
  alignas(64) std::atomic<std::uint64_t> version;
};

static_assert(sizeof(Control) == std::size_t{3} * 64);

// The kind of epoch by which accesses to a target are allowed.
enum class Access : std::uint8_t { none, fence, lock, lock_all, start };

// The part of a target's state that every operation reads. It is written when the window is made;
// calls that begin and end epochs also write `open`.
struct Target {
  std::byte* direct = nullptr;  // its memory; null: not mapped here, or none
  std::uint64_t bytes = 0;
  std::int64_t unit = 1;
  std::atomic<std::uint8_t> open{
      0};  // an epoch of this target only: started or locked. Relaxed: the program orders its calls
};

// The rest of a target's state.
struct Far {
  Control* control = nullptr;  // null: not mapped
  heddle_remote_region region{};
  std::uint64_t offset = 0;  // of its memory, from the region's start
  heddle_remote_region control_region{};
  std::uint64_t control_offset = 0;
  std::uint32_t number = 0;   // by which the target knows the window
  std::uint64_t address = 0;  // of its memory, there
  // 0: not locked; 1: without a lock (MPI_MODE_NOCHECK); 2: shared; 3: exclusive
  std::uint8_t lock_type = 0;
  // Messages to it that are not answered yet.
  std::atomic<std::uint32_t> asked{0};
  // Puts and gets by the engine that have not ended there.
  std::atomic<std::uint32_t> open{0};
  // The number of engine operations and questions that were begun (counted after they began), and
  // how many of them a flush is known to have completed. Relaxed: a thread sees its own operations,
  // and those that it learns of through the program's synchronisation.
  std::atomic<std::uint64_t> posted{0};
  std::atomic<std::uint64_t> flushed{0};
  std::atomic<int> failed{MPI_SUCCESS};  // the first error of an operation that has no request
};

// A piece of memory that is attached to a dynamic window, by its owner or as known to another rank.
struct Attached {
  std::uint64_t bytes = 0;
  heddle_region region{};         // the owner's
  heddle_remote_region remote{};  // another rank's
};
using AttachedMap = std::map<std::uint64_t, Attached>;  // by address

struct Win {
  Comm* comm = nullptr;  // a private one
  Errhandler* errhandler = &g_errors_are_fatal;
  Attributes attributes;
  Info info;
  std::string name;
  // MPI_WIN_BASE, MPI_WIN_SIZE, …: attributes give the addresses of these.
  void* base = nullptr;
  MPI_Aint bytes = 0;
  int disp_unit = 1;  // a larger one: MPI_UNDEFINED; targets[rank].unit has it
  int flavor = MPI_WIN_FLAVOR_CREATE;
  int model = MPI_WIN_UNIFIED;

  int ranks = 0;
  std::unique_ptr<Target[]> targets;
  std::unique_ptr<Far[]> far;
  // All targets are open: a fence (in which this rank has issued an operation), or all are locked.
  std::atomic<std::uint8_t> open_all{0};
  bool near = false;       // all targets' memory is mapped here
  bool all_near = false;   // and so it is at all ranks
  bool unordered = false;  // accumulate_ordering is none

  // Epochs. Calls that begin and end epochs change `access`. The mutex guards it where several
  // threads may make such calls (locks).
  std::mutex mutex;
  std::atomic<Access> access{Access::none};
  bool fence_idle = false;   // after a fence, before the first operation: other epochs may begin
  int locks = 0;             // targets that are locked
  bool nocheck = false;      // lock_all without locks
  bool exposed = false;      // posted
  std::vector<int> started;  // targets of the access epoch
  std::vector<int> origins;  // of the exposure epoch
  std::vector<std::unique_ptr<InternalMessage>> completions;  // theirs
  int exposure_code = MPI_SUCCESS;  // the first error of that epoch, told by the call that ends it

  // Memory of this process.
  heddle_region region{};
  heddle_region control_region{};
  Control* control = nullptr;  // this process's own
  std::mutex attached_mutex;   // guards `attached`; handlers take it too
  AttachedMap attached;
  // Dynamic windows: what is known of the others' attached memory, by rank.
  struct Known {
    std::uint64_t version = 0;
    AttachedMap pieces;
  };
  std::mutex known_mutex;
  std::unique_ptr<Known[]> known;

  [[nodiscard]] int size() const { return ranks; }
  [[nodiscard]] bool dynamic() const { return flavor == MPI_WIN_FLAVOR_DYNAMIC; }
};

inline constexpr std::uint32_t kMostWindows = 1U << 16;
extern ObjectPool<Win, kMostWindows> g_windows;

// The window; null: the handle names none (told by bad_win()).
[[gnu::always_inline]] inline Win* win_of(MPI_Win handle) {
  return g_windows.find(handle);
}
inline MPI_Win handle_of(Win* win) {
  return reinterpret_cast<MPI_Win>(win);
}
// Why win_of() was null: an error's code.
[[gnu::cold]] int bad_win(MPI_Win handle);

// Runs what a function does on the window that it is called for, and reports the error. body:
// int(Win&). `what` it allocates for, see guarded().
template <class Body>
int with_window(Call call, MPI_Win handle, const char* what, Body&& body) {
  Win* const win = win_of(handle);
  if (win == nullptr) return told(call, bad_win(handle));
  return told(call, win, guarded(what, [&] { return body(*win); }));
}

// What the calls that begin and end epochs allocate memory for; see guarded().
inline constexpr const char* kForEpoch = "what the epoch needs";

// `given`: the call's argument assert; `allowed`: the bits that it takes.
int check_assertion(int given, int allowed);

// Memory fences and pauses. ThreadSanitizer does not understand fences, so its builds use atomic
// read-modify-writes.

// All earlier loads and stores are visible to all before any later load or store.
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#elif defined(__x86_64__)
  // cheaper than mfence, with the same order for normal memory
  asm volatile("lock; orl $0, -8(%%rsp)" ::: "memory", "cc");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace heddle::mpi
