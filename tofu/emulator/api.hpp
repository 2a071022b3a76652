// What all exported functions share: the handles that programs hold, checks of their use, and which
// threads may call.
//
// A handle is an index and a generation in one number, never an address: any number may be looked
// up, and a freed handle is rejected. InCall marks the duration of a call on a handle; in plain
// mode, on a handle that is not thread-safe, it costs a check of one byte. In strict mode a CQ
// records the thread that is in a call on it. A second thread meanwhile breaks the rule that a
// handle, and a CQ shared by several handles, is used by one thread at a time.
#pragma once

#include <utofu.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/cache_line.hpp"
#include "tofu/emulator/cq.hpp"
#include "tofu/emulator/descriptor.hpp"
#include "tofu/emulator/machine.hpp"

namespace tofu_emulator {

// Data of a CQ, shared by its VCQs.
struct CqUser {
  std::mutex lock;  // serializes calls on thread-safe VCQs
  // strict mode: the thread in a call; acquire at its beginning, release at its end
  std::atomic<std::uint32_t> thread{0};
};

struct alignas(heddle::base::kCacheLine) Handle {
  // The number that finds it; 0: free. Relaxed: a program passes a handle between threads with its
  // own synchronisation.
  std::atomic<utofu_vcq_hdl_t> number{0};
  bool guarded = false;  // enter() has something to check
  bool thread_safe = false;
  bool strict = false;
  Encoder encoder;
  EmulatedVcq vcq;
  VcqPlace place;
  CqUser* user = nullptr;
};

inline constexpr std::size_t kHandles = 512;
static_assert(kHandles > kTnis * kCqs * kVcqsOfCq);
extern std::array<Handle, kHandles> all_handles;  // [0] is never used

inline Handle* find_handle(utofu_vcq_hdl_t number) {
  Handle& handle = all_handles[number % kHandles];
  if (handle.number.load(std::memory_order_relaxed) != number || number == 0) return nullptr;
  return &handle;
}

// The error for a call with an invalid handle. Strict mode names the mistake if the number is the
// id of a VCQ of this process.
[[gnu::cold]] int no_handle(utofu_vcq_hdl_t number);

// A handle for a VCQ in this place; publish() sets its number. With Process::management() locked.
// There is always a free one: see kHandles.
Handle* new_handle(const VcqPlace& place);
// From here on find_handle() finds it.
utofu_vcq_hdl_t publish(Handle* handle);
void free_handle(Handle* handle);
// All calls by handle then check the caller. For a process in which no other thread makes calls.
void guard_all_handles();

class InCall {
 public:
  explicit InCall(Handle& handle) : handle_(handle) {
    if (handle.guarded) [[unlikely]]
      noted_ = enter(handle);
  }
  ~InCall() {
    if (handle_.guarded) [[unlikely]]
      leave(handle_, noted_);
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  // Static, so that the object need not be in memory where nothing is guarded. True: the CQ has
  // recorded this thread.
  static bool enter(Handle& handle);
  static void leave(Handle& handle, bool noted);

  Handle& handle_;
  bool noted_ = false;
};

struct EmulatorSettings;

// Checks which threads may call the interface. A forked child may not: nobody would execute its
// commands. With UTOFU_EMU_ONE_THREAD only one thread may, for programs that are to run with
// versions of the library that demand it.
class Callers {
 public:
  // To be called once, before the first check() in threads that use the process.
  static void watch(const EmulatorSettings& settings);

  // Ends the child, or the job, if the calling thread may not call. Without UTOFU_EMU_ONE_THREAD,
  // and outside a forked child, it only reads one byte.
  static void check() {
    if (restricted_.load(std::memory_order_relaxed)) [[unlikely]]
      look();
  }

  // The kernel's thread id.
  static std::uint32_t this_thread();

 private:
  static void look();
  static void in_child();

  // Relaxed: set before any handle exists, or in a process with one thread.
  static std::atomic<bool> restricted_;
};

}  // namespace tofu_emulator
