// What the library knows of its job, and the way from an address to memory: the first lines of
// every operation.
//
// OpenSHMEM has no handle for a job, so there is one state. It is written by init and finalize,
// which no other call may overlap, and read by everybody.
#pragma once

#include <heddle/heddle.h>
#include <shmem.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::shmem {

// The name of the function that the program called, for messages.
using Call = const char*;

// A range of symmetric memory: the same number of bytes on every PE, each at an address of its own.
struct Segment {
  std::uintptr_t base = 0;  // in this process
  std::size_t bytes = kAbsent;
  std::byte* const* direct = nullptr;  // [PE]: where operations find it; null: by the engine
  std::byte* const* mapped =
      nullptr;  // [PE]: where it lies in this process; null: nowhere. The same, or see checks.hpp
  const heddle_remote_region* remotes = nullptr;  // [PE]
  const std::size_t* skews = nullptr;             // [PE]: where in its region the segment begins
  const char* name = "";

  // Of a segment that is not there. It lies at address 0 and its direct[] are all null, so that the
  // ways of the operations need not ask; locate() refuses what is in it.
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

// A communication context. Its operations are ordered and completed by its worker, unless they are
// direct.
struct Context {
  Members members;       // size 0: invalid or destroyed
  heddle_worker worker;  // may be shared with other contexts
  // Whether anything was ever given to the worker. Until then fence and quiet concern direct stores
  // only. It never goes back to false: another thread's quiet could not know whose operations it
  // has waited for. Relaxed: what a thread must wait for it has posted itself, or learned of by an
  // edge of the program's own.
  std::atomic<bool> posted;
  long options;
  bool owns_worker;
  const void* owner;  // the thread that made it, as checks.hpp tells threads
  shmem_team_t team;
};

enum class Check : int { off, on, full };  // see checks.hpp

struct State {
  int n_pes = 0;  // 0: not initialised, which every PE number fails the test of
  int my_pe = 0;
  Segment heap{.name = "symmetric heap"};
  Segment statics{.name = "static data"};
  Context contexts[2] = {};  // those of the handles SHMEM_CTX_INVALID and SHMEM_CTX_DEFAULT
  heddle_context job{};
  int thread_level = 0;
  bool finalized = false;
  Check check = Check::on;
  void* reserved = nullptr;  // see reserved.hpp
};
extern State g_state;

// Stands for the default context in calls that name none: PE numbers are those of the world.
struct World {};

inline Context& default_context() {
  return g_state.contexts[1];
}
inline Context& context_of(World) {
  return default_context();
}
inline Context& context_of(Context& context) {
  return context;
}
inline Context& context_of(shmem_ctx_t handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  return value > 1 ? *reinterpret_cast<Context*>(handle) : g_state.contexts[value];
}

// The PE's number in the world; -1: the context has no such PE.
inline int world_pe(World, int pe) {
  return static_cast<unsigned>(pe) < static_cast<unsigned>(g_state.n_pes) ? pe : -1;
}
inline int world_pe(const Context& context, int pe) {
  const Members& members = context.members;
  return static_cast<unsigned>(pe) < static_cast<unsigned>(members.size) ? members.start + pe * members.stride : -1;
}

// Whether [offset, offset + bytes) is in a segment of `all` bytes. Every segment has kAbsent at
// least, so for an element it is one comparison.
[[gnu::always_inline]] inline bool fits(std::size_t bytes, std::size_t offset, std::size_t all) {
  if (__builtin_constant_p(bytes) && bytes <= Segment::kAbsent) return offset <= all - bytes;
  return bytes <= all && offset <= all - bytes;
}

[[gnu::always_inline]] inline bool is_aligned(const void* address, std::size_t bytes) {
  return (reinterpret_cast<std::uintptr_t>(address) & (bytes - 1)) == 0;
}

// Where `address` of PE `world` (valid) can be loaded and stored to; null: only messages reach it,
// or it is not symmetric. What is inlined into every operation is written for its instructions:
// `bytes` is a constant there.
[[gnu::always_inline]] inline std::byte* direct(const void* address, std::size_t bytes, int world) {
  const State& state = g_state;
  const Segment* segment = &state.heap;
  std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - segment->base;
  if (!fits(bytes, offset, segment->bytes)) [[unlikely]] {
    segment = &state.statics;
    offset = reinterpret_cast<std::uintptr_t>(address) - segment->base;
    if (!fits(bytes, offset, segment->bytes)) return nullptr;
  }
  std::byte* base = segment->direct[world];
  return base == nullptr ? nullptr : base + offset;
}

// The same for PE `pe` of the context, which need not be one.
[[gnu::always_inline]] inline std::byte* direct(World, const void* address, std::size_t bytes, int pe) {
  if (static_cast<unsigned>(pe) >= static_cast<unsigned>(g_state.n_pes)) [[unlikely]] {
    return nullptr;
  }
  return direct(address, bytes, pe);
}
[[gnu::always_inline]] inline std::byte* direct(const Context& context, const void* address, std::size_t bytes,
                                                int pe) {
  const Members& members = context.members;
  if (static_cast<unsigned>(pe) >= static_cast<unsigned>(members.size)) [[unlikely]] {
    return nullptr;
  }
  return direct(address, bytes, members.start + pe * members.stride);
}

// Where the program itself may load and store it; null: nowhere.
std::byte* mapped(const void* address, int world);

// A remote address as Heddle names it, of memory that `locate` has found to be symmetric.
struct Place {
  const Segment* segment;
  std::size_t offset;
  [[nodiscard]] heddle_remote on(int world) const { return {segment->remotes[world], segment->skews[world] + offset}; }
};
// Ends the job, naming call and argument, if [address, address + bytes) is not symmetric.
Place locate(Call call, const char* argument, const void* address, std::size_t bytes);

// Ends the job if the context has no such PE, else returns its number in the world.
int checked_pe(Call call, const Context& context, int pe);
inline int checked_pe(Call call, World, int pe) {
  return checked_pe(call, default_context(), pe);
}
// Ends the job if the library is not initialised.
void check_initialized(Call call);

// Ends the job: the program has made an error that the standard leaves undefined, or the engine has
// failed.
[[noreturn, gnu::format(printf, 2, 3), gnu::cold]] void fail(Call call, const char* format, ...);
// The same for a status of Heddle's, which must not be an error.
[[noreturn, gnu::cold]] void fail_status(Call call, heddle_status status);
inline heddle_status must(Call call, heddle_status status) {
  if (status < 0) [[unlikely]] {
    fail_status(call, status);
  }
  return status;
}

}  // namespace heddle::shmem
