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
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/fence.hpp"

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

// ---- for OrderingWorker (engine/ordering.hpp), which is there if has_thread_sanitizer() ---------

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
