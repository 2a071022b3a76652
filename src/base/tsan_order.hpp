// Order that a ThreadSanitizer in the user's program is shown.
//
// A program that is compiled with -fsanitize=thread uses the library as it was installed, without
// instrumentation. Its ThreadSanitizer then sees the library's memcpy, since it replaces that
// function, but not the atomics that order it: data which one thread puts and another one reads
// after the signal looks like a race. So what a signal orders is told to it: who writes a word
// releases the word's address, who has seen it acquires that address. Nothing else is ordered by
// this, so that a race that there is is still found.
//
// Costs a load and a predicted branch where there is no ThreadSanitizer.
#pragma once

// Of ThreadSanitizer's run-time library; null where the process has none.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the names are given
extern "C" {
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
}

namespace heddle::base {

// What this thread has done so far comes before what follows a show_acquire() of the same word. To
// be called before the word is written.
inline void show_release(void* word) {
  if (__tsan_release != nullptr) [[unlikely]]
    __tsan_release(word);
}

// To be called after the word was read.
inline void show_acquire(void* word) {
  if (__tsan_acquire != nullptr) [[unlikely]]
    __tsan_acquire(word);
}

}  // namespace heddle::base
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
