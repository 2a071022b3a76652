// A logical thread of the explorer: a stack of its own that runs until it hands over. It tells the
// sanitizers of each change of stacks, since they would report an unknown one.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fence.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define HEDDLE_EXPLORE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEDDLE_EXPLORE_ASAN 1
#endif
#endif

#if defined(HEDDLE_EXPLORE_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
// Declared here and not included: the functions exist only where ThreadSanitizer is linked.
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

namespace heddle::explore {

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  // The thread that creates it, as a place to come back to.
  Fiber() {
    if constexpr (base::kThreadSanitizer) tsan_ = __tsan_get_current_fiber();
  }
  // Begins in `entry` when first switched to. `entry` must never return.
  Fiber(Entry entry, void* argument)
      : begun_(false), entry_(entry), argument_(argument), stack_(new std::byte[kStackBytes]) {
    if constexpr (base::kThreadSanitizer) tsan_ = __tsan_create_fiber(0);
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::begin), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self & 0xFFFFFFFFU));
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() {
    if constexpr (base::kThreadSanitizer) {
      if (stack_) __tsan_destroy_fiber(tsan_);
    }
  }

  static void switch_between(Fiber& from, Fiber& to) {
    if constexpr (base::kThreadSanitizer) __tsan_switch_to_fiber(to.tsan_, 0);
#if defined(HEDDLE_EXPLORE_ASAN)
    to.came_from_ = &from;
    __sanitizer_start_switch_fiber(&from.fake_stack_, to.bottom_ != nullptr ? to.bottom_ : to.stack_.get(),
                                   to.bottom_ != nullptr ? to.bytes_ : kStackBytes);
#endif
    from.leave_for(to);
    from.arrived();
  }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{128} << 10;
#if defined(HEDDLE_EXPLORE_ASAN)
  static constexpr bool kSanitized = true;
#else
  static constexpr bool kSanitized = base::kThreadSanitizer;
#endif

  // Returns when somebody comes back. A change by swapcontext() is a call into the kernel for the
  // mask of signals, which takes most of its time; the sanitizers know that function only.
  void leave_for(Fiber& to) {
    if constexpr (kSanitized) {
      swapcontext(&context_, &to.context_);
    } else {
      if (_setjmp(left_) != 0) return;
      if (to.begun_) _longjmp(to.left_, 1);
      to.begun_ = true;
      setcontext(&to.context_);
    }
  }

  static void begin(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
    self->arrived();
    self->entry_(self->argument_);
  }

  // On the new stack: the sanitizer learns that the change is complete, and returns the stack that
  // was left.
  void arrived() {
#if defined(HEDDLE_EXPLORE_ASAN)
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
    came_from_->bottom_ = bottom;
    came_from_->bytes_ = bytes;
#endif
  }

  ucontext_t context_{};
  jmp_buf left_{};
  bool begun_ = true;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  std::unique_ptr<std::byte[]> stack_;
  void* tsan_ = nullptr;
#if defined(HEDDLE_EXPLORE_ASAN)
  Fiber* came_from_ = nullptr;
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;  // of a stack that was left: where it is
  std::size_t bytes_ = 0;
#endif
};

}  // namespace heddle::explore
