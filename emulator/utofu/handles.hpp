// The handles that programs hold, and who may use them.
//
// A handle is an index and a generation in one number, never an address: any number may be asked
// for, and one that was given back is refused. A call that found its handle is in it until its
// InCall ends; in plain mode on a handle that is not thread-safe that costs a look at one byte. In
// strict mode a CQ has a word with the thread that is in a call on it: another one that comes
// meanwhile breaks the rule that a handle, and a CQ that several share, is for one thread at a
// time.
#pragma once

#include <utofu.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/cache_line.hpp"
#include "utofu/cq.hpp"
#include "utofu/descriptor.hpp"
#include "utofu/machine.hpp"
#include "utofu/vcq.hpp"

namespace tofu_emulator {

// Of a CQ, which its VCQs share.
struct CqUser {
  std::mutex lock;  // of calls on thread-safe VCQs
  // strict mode: in a call; acquire on the way in, release on the way out
  std::atomic<std::uint32_t> thread{0};
};

struct alignas(heddle::base::kCacheLine) Handle {
  // The number that finds it; 0: free. Relaxed: a program hands a handle from one thread to another
  // by its own means.
  std::atomic<utofu_vcq_hdl_t> number{0};
  bool guarded = false;  // there is something for enter() to look at
  bool thread_safe = false;
  bool strict = false;
  Encoder encoder;
  Vcq vcq;
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

// What calls return whose handle is none; strict mode names the mistake if it is the id of a VCQ of
// this process.
[[gnu::cold]] int no_handle(utofu_vcq_hdl_t number);

// With Process::management() locked. For a VCQ in this place; its number is set by publish(). There
// is always one: see kHandles.
Handle* new_handle(const VcqPlace& place);
// From here on find_handle() finds it.
utofu_vcq_hdl_t publish(Handle* handle);
void free_handle(Handle* handle);
// All calls by handle look at who makes them. For a process in which no other thread makes any.
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
  // Not of the object, so that it need not be in memory where nothing is guarded. True: the CQ's
  // word names this thread.
  static bool enter(Handle& handle);
  static void leave(Handle& handle, bool noted);

  Handle& handle_;
  bool noted_ = false;
};

}  // namespace tofu_emulator
