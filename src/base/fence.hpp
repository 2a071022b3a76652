// Order in memory: fences by purpose, and what ThreadSanitizer is told of orders that it cannot
// see. ThreadSanitizer does not understand fences, so its builds get an equivalent that it does.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::base {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// All earlier loads and stores are visible to all threads before any later load or store.
inline void full_fence() {
  if constexpr (kThreadSanitizer) {
    static thread_local std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_seq_cst);
  } else {
#if defined(__x86_64__)
    // cheaper than mfence; orders normal memory just as well
    asm volatile("lock; orl $0, -8(%%rsp)" ::: "memory", "cc");
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
}

// A look at a number that its one writer writes without an atomic, for a hint that orders nothing.

// Aligned words are read and written whole on all processors of this library. The writer's path, a
// direct put, would need two instructions more for an atomic; so ThreadSanitizer is told nothing.
[[gnu::noinline, gnu::no_sanitize_thread]] inline std::uint64_t peek(const std::uint64_t& number) {
  return *static_cast<const volatile std::uint64_t*>(&number);
}

// Asymmetric barriers: the kernel makes other threads execute a full fence, so that the side that
// runs often needs none.
//
// The frequent side puts light_fence() between a store and a load; the rare side calls one of the
// two barriers below between its own store and load. Then at least one side sees the other's store.
// ThreadSanitizer does not know this: data that is handed over needs release and acquire on the
// variables as well.

// Costs nothing: the compiler keeps the order; the rare side's barrier makes the processor keep it.
inline void light_fence() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// membarrier_private(): a full fence in all other threads of this process.
// membarrier_private_ready() registers the process; false: this kernel does not have the call, or
// forbids it.
[[nodiscard]] bool membarrier_private_ready();
// False: no barrier happened, and errno says why. After membarrier_private_ready() has said true:
// the kernel has no memory (ENOMEM, though tried again), or a filter of system calls (seccomp) that
// the program has installed since forbids it.
[[nodiscard]] bool membarrier_private();

// The same for all threads of all processes that have called membarrier_shared_ready(), this one
// included.
[[nodiscard]] bool membarrier_shared_ready();
[[nodiscard]] bool membarrier_shared();

}  // namespace heddle::base

// Whether the user's program was compiled with a sanitizer, which the installed library was not.

// Symbols of the run-time libraries of AddressSanitizer and ThreadSanitizer; null if the process
// has none.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the names are given
extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __tsan_init();
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace heddle::base {

// Such a program replaces functions of the C library: those that copy, map and allocate memory.
inline bool runs_with_sanitizer() {
  return __asan_init != nullptr || __tsan_init != nullptr;
}

}  // namespace heddle::base

// Tells ThreadSanitizer in the user's program about the order that signals create.
//
// A program compiled with -fsanitize=thread uses the installed library, which is not instrumented.
// Its ThreadSanitizer then sees the library's memcpy, since it replaces that function, but not the
// atomics that order the copy: data that one thread puts and another reads after the signal looks
// like a race. So the library reports the order of a signal: the writer of a word releases the
// word's address, and a thread that has seen the value acquires that address. This orders nothing
// else, so that a real race is still found.
//
// Costs a load and a predicted branch where there is no ThreadSanitizer.

// From ThreadSanitizer's run-time library; null where the process has none.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the names are given
extern "C" {
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
[[gnu::weak]] void __tsan_read_range(void* address, unsigned long bytes);
[[gnu::weak]] void __tsan_ignore_thread_begin();
[[gnu::weak]] void __tsan_ignore_thread_end();
}

namespace heddle::base {

// Everything that this thread has done so far happens before the code after a show_acquire() of the
// same word. Call it before the word is written.
inline void show_release(void* word) {
  if (__tsan_release != nullptr) [[unlikely]]
    __tsan_release(word);
}

// Call it after the word was read.
inline void show_acquire(void* word) {
  if (__tsan_acquire != nullptr) [[unlikely]]
    __tsan_acquire(word);
}

// Orders that go through memory of other ranks, where ThreadSanitizer sees nothing:
//
// * What a thread has done happens before what this process executes for other ranks after the
//   thread has told them, by a collective operation, a barrier or a signal (show_told,
//   show_serving).
// * What this process has executed for other ranks happens before what a thread does once it has
//   learnt from them, by the same, that they know of it (show_served, show_learnt).
//
// Each is one order for the whole process, whoever told whom: a race between the program and a
// request that came too early is hidden where another thread has told something meanwhile.
inline std::array<char, 2> order_with_others{};
inline void show_told() {
  show_release(&order_with_others[0]);
}
inline void show_serving() {
  show_acquire(&order_with_others[0]);
}
inline void show_served() {
  show_release(&order_with_others[1]);
}
inline void show_learnt() {
  show_acquire(&order_with_others[1]);
}

// ---- for OrderingWorker (engine/tapped.hpp), which is there if has_thread_sanitizer() ---------

// True: the program has ThreadSanitizer, and this library was compiled without it. A library that
// was compiled with it hides nothing, and takes the same paths as without ThreadSanitizer.
inline bool has_thread_sanitizer() {
  return !kThreadSanitizer && __tsan_acquire != nullptr;
}

// Messages carry an order, too: what a thread has done before it posts a message happens before the
// code after the poll that finds it. There is a word for each worker of this process, by rank and
// number; a few workers share a word, which may hide a race between them.
inline std::array<char, 256> words_of_messages{};
inline void* order_of_messages(std::uint32_t rank, std::uint32_t worker) {
  return &words_of_messages[(rank * 16 + worker) % words_of_messages.size()];
}

inline void show_read(const void* address, std::uint64_t bytes) {
  if (__tsan_read_range != nullptr && bytes != 0) __tsan_read_range(const_cast<void*>(address), bytes);
}

// While such an object lives, and was told to hide, ThreadSanitizer sees none of this thread's
// accesses.
class HiddenAccesses {
 public:
  explicit HiddenAccesses(bool hides) : hides_(hides && __tsan_ignore_thread_begin != nullptr) {
    if (hides_) __tsan_ignore_thread_begin();
  }
  ~HiddenAccesses() {
    if (hides_) __tsan_ignore_thread_end();
  }
  HiddenAccesses(const HiddenAccesses&) = delete;
  HiddenAccesses& operator=(const HiddenAccesses&) = delete;

 private:
  bool hides_;
};

}  // namespace heddle::base

// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
