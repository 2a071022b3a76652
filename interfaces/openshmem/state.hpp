// The library's state, and the path from an address to memory: the first lines of every operation.
//
// OpenSHMEM has no handle for a job, so there is one state. init and finalize write it, and no
// other call may overlap them; all other calls read it.
#pragma once

#include <heddle/heddle.h>
#include <shmem.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle::shmem {

// The name of the function that the program called, for messages.
using Call = const char*;

// A range of symmetric memory: the same size on every PE, at an address of its own on each.
struct SymmetricSegment {
  std::uintptr_t base = 0;  // in this process
  std::size_t bytes = kAbsent;
  // [PE]: where operations access it; null: through the engine. In large jobs it is null before the
  // first access too, see meet(). Any thread may write it at any time, and always the same value.
  std::byte* const* direct = nullptr;
  // [PE]: its address in this process; null: none. Equal to direct, except under HEDDLE_CHECK=full
  std::byte* const* mapped = nullptr;
  const heddle_remote_region* remotes = nullptr;  // [PE]
  const std::size_t* skews = nullptr;             // [PE]: where in its region the segment begins
  const char* name = "";

  // An element of direct or mapped. It changes once, from null, so that it may be read at any time
  // and twice; a plain load, which the compiler may merge with another of the same operation.
  [[gnu::always_inline]] static std::byte* of(std::byte* const* all, int world) {
#if defined(__SANITIZE_THREAD__)
    return __atomic_load_n(&all[world], __ATOMIC_RELAXED);
#else
    return all[world];
#endif
  }

  // Size of an absent segment. It lies at address 0 and its direct[] are all null, so that
  // operations need no check for it; locate() rejects addresses in it.
  static constexpr std::size_t kAbsent = 64;
  [[nodiscard]] bool present() const { return base != 0; }
  [[nodiscard]] bool holds(const void* address, std::size_t length) const {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - base;
    return offset <= bytes && length <= bytes - offset;
  }
};

// The PEs of a team: member i is PE start + i * stride of the world.
struct Members {
  int start = 0;
  int stride = 1;
  int size = 0;
};

// A communication context. Its worker orders and completes its operations, unless they are direct.
struct ShmemContext {
  Members members;       // size 0: invalid or destroyed
  heddle_worker worker;  // may be shared with other contexts
  // Whether anything was ever posted to the worker. Until then fence and quiet concern direct
  // stores only. It never returns to false: another thread's quiet could not know whose operations
  // it has waited for. Relaxed: a thread waits for operations that it has posted itself, or that it
  // has learned of through the program's own synchronisation.
  std::atomic<bool> posted;
  long options;
  bool owns_worker;
  const void* owner;  // the thread that made it, as this_thread() identifies it
  shmem_team_t team;
};

enum class Check : int { off, on, full };  // see checks.hpp

struct State {
  int n_pes = 0;  // 0: not initialised; every PE number then fails the range check
  int my_pe = 0;
  SymmetricSegment heap{.name = "symmetric heap"};
  SymmetricSegment statics{.name = "static data"};
  ShmemContext contexts[2] = {};  // for the handles SHMEM_CTX_INVALID and SHMEM_CTX_DEFAULT
  heddle_context job{};
  int thread_level = 0;
  bool finalized = false;
  Check check = Check::on;
  void* reserved = nullptr;  // see groups.hpp
};
extern State g_state;

// Stands for the default context in calls that name none: PE numbers are those of the world.
struct World {};

inline ShmemContext& default_context() {
  return g_state.contexts[1];
}
inline ShmemContext& context_of(World) {
  return default_context();
}
inline ShmemContext& context_of(ShmemContext& context) {
  return context;
}
inline ShmemContext& context_of(shmem_ctx_t handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  return value > 1 ? *reinterpret_cast<ShmemContext*>(handle) : g_state.contexts[value];
}

// Number in the world of the context's PE `pe`; -1: the context has no such PE.
inline int world_pe(World, int pe) {
  return static_cast<unsigned>(pe) < static_cast<unsigned>(g_state.n_pes) ? pe : -1;
}
inline int world_pe(const ShmemContext& context, int pe) {
  const Members& members = context.members;
  return static_cast<unsigned>(pe) < static_cast<unsigned>(members.size) ? members.start + pe * members.stride : -1;
}

// Whether [offset, offset + bytes) is in a segment of `all` bytes. Every segment has at least
// kAbsent bytes, so for one element it is a single comparison.
[[gnu::always_inline]] inline bool fits(std::size_t bytes, std::size_t offset, std::size_t all) {
  if (__builtin_constant_p(bytes) && bytes <= SymmetricSegment::kAbsent) return offset <= all - bytes;
  return bytes <= all && offset <= all - bytes;
}

[[gnu::always_inline]] inline bool is_aligned(const void* address, std::size_t bytes) {
  return (reinterpret_cast<std::uintptr_t>(address) & (bytes - 1)) == 0;
}

// Where this process can load and store `address` of PE `world` (valid); null: only messages reach
// it, or it is not symmetric. This is inlined into every operation, where `bytes` is a constant,
// and is written for a minimum of instructions.
[[gnu::always_inline]] inline std::byte* direct(const void* address, std::size_t bytes, int world) {
  const State& state = g_state;
  const SymmetricSegment* segment = &state.heap;
  std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - segment->base;
  if (!fits(bytes, offset, segment->bytes)) [[unlikely]] {
    segment = &state.statics;
    offset = reinterpret_cast<std::uintptr_t>(address) - segment->base;
    if (!fits(bytes, offset, segment->bytes)) return nullptr;
  }
  std::byte* base = SymmetricSegment::of(segment->direct, world);
  return base == nullptr ? nullptr : base + offset;
}

// The same for PE `pe` of the context; `pe` may be invalid.
[[gnu::always_inline]] inline std::byte* direct(World, const void* address, std::size_t bytes, int pe) {
  if (static_cast<unsigned>(pe) >= static_cast<unsigned>(g_state.n_pes)) [[unlikely]] {
    return nullptr;
  }
  return direct(address, bytes, pe);
}
[[gnu::always_inline]] inline std::byte* direct(const ShmemContext& context, const void* address, std::size_t bytes,
                                                int pe) {
  const Members& members = context.members;
  if (static_cast<unsigned>(pe) >= static_cast<unsigned>(members.size)) [[unlikely]] {
    return nullptr;
  }
  return direct(address, bytes, members.start + pe * members.stride);
}

// The address at which the program itself may load and store it; null: none.
std::byte* mapped(const void* address, int world);

// A remote address in Heddle's terms, of memory that `locate` has found to be symmetric.
struct RemotePlace {
  const SymmetricSegment* segment;
  std::size_t offset;
  // The caller accesses the memory next, so the PE is met here.
  [[nodiscard]] heddle_remote on(int world) const;
};
// Ends the job, naming the call and the argument, if [address, address + bytes) is not symmetric.
RemotePlace locate(Call call, const char* argument, const void* address, std::size_t bytes);

// Ends the job if the context has no such PE, else returns its number in the world.
int checked_pe(Call call, const ShmemContext& context, int pe);
inline int checked_pe(Call call, World, int pe) {
  return checked_pe(call, default_context(), pe);
}
// Ends the job if the library is not initialised.
void check_initialized(Call call);

// Ends the job: the program made an error for which the standard defines no behaviour, or the
// engine failed.
[[noreturn, gnu::format(printf, 2, 3), gnu::cold]] void fail(Call call, const char* format, ...);
// The engine says rank where users of OpenSHMEM say PE.
std::string in_words_of_shmem(std::string text);
// The same if `status` of a Heddle call is an error.
[[noreturn, gnu::cold]] void fail_status(Call call, heddle_status status);
inline heddle_status must(Call call, heddle_status status) {
  if (status < 0) [[unlikely]] {
    fail_status(call, status);
  }
  return status;
}

}  // namespace heddle::shmem
