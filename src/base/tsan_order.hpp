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

// From ThreadSanitizer's run-time library; null where the process has none.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the names are given
extern "C" {
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
}

namespace heddle::base {

// What this thread has done so far happens before what follows a show_acquire() of the same word.
// Call it before the word is written.
inline void show_release(void* word) {
  if (__tsan_release != nullptr) [[unlikely]]
    __tsan_release(word);
}

// Call it after the word was read.
inline void show_acquire(void* word) {
  if (__tsan_acquire != nullptr) [[unlikely]]
    __tsan_acquire(word);
}

}  // namespace heddle::base
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
