// The remote regions and counters that the operations of a worker may still touch.
//
// A program may release a region or a counter while operations that name it are on their way.
// The releasing code asks the workers. An object that is still named is destroyed when the last
// such operation has ended (Objects::reclaim). So operations and the transports beneath them may
// keep plain pointers, and direct operations, which end within their call, pay nothing.
//
// Invariants: only the worker's thread writes; any thread reads. A mark is set before the call that
// posts the operation returns and cleared after the transport has done with the operation.
// It is an error of the program to release an object while another thread is in a call with the
// same handle, so every mark that matters was set before the release. If the end of a mark is seen
// late, that only delays the destruction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace heddle::engine {

class MarkTable {
 public:
  explicit MarkTable(std::size_t slots) : slots_(slots), marks_(std::make_unique<Mark[]>(slots)) {}

  // Stands for every remote region: an operation on a list, whose segments are the caller's and may
  // not be read here.
  static const void* any_remote() { return &kAnyRemote; }

  // A slot's marks are set between enter and clear.
  void enter() { used_.store(used_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void set_counter(std::size_t slot, const void* counter) { store(marks_[slot].counter, counter); }
  void set_remotes(std::size_t slot, const void* data, const void* word) {
    store(marks_[slot].data, data);
    store(marks_[slot].word, word);
  }
  void clear(std::size_t slot) {
    store(marks_[slot].data, nullptr);
    store(marks_[slot].word, nullptr);
    store(marks_[slot].counter, nullptr);
    // Release: as for the marks. Partner: names().
    used_.store(used_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }

  // Operations on remote memory that have no slot, since they have no completion. While there is
  // one, it may be about any remote region. So a program that always has one on its way keeps the
  // regions that it releases until it calls quiet.
  void enter_unnotified() {
    unnotified_.store(unnotified_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // True: these were the last operations of this kind.
  bool leave_unnotified(std::uint32_t count) {
    const std::size_t left = unnotified_.load(std::memory_order_relaxed) - count;
    // as for the marks. Partner: names_remote()
    unnotified_.store(left, std::memory_order_release);
    return left == 0;
  }

  void forget_unnotified() { unnotified_.store(0, std::memory_order_release); }

  // Any thread.
  [[nodiscard]] bool names_remote(const void* remote) const {
    if (unnotified_.load(std::memory_order_acquire) != 0) return true;
    return names([remote](const Mark& mark) {
      const void* data = load(mark.data);
      return data == remote || data == &kAnyRemote || load(mark.word) == remote;
    });
  }
  [[nodiscard]] bool names_counter(const void* counter) const {
    return names([counter](const Mark& mark) { return load(mark.counter) == counter; });
  }

 private:
  using Pointer = std::atomic<const void*>;
  struct Mark {
    Pointer data{nullptr};
    Pointer word{nullptr};
    Pointer counter{nullptr};
  };
  // Release: a thread that sees the mark gone sees all that the operation did. Partner: load().
  static void store(Pointer& mark, const void* value) { mark.store(value, std::memory_order_release); }
  static const void* load(const Pointer& mark) { return mark.load(std::memory_order_acquire); }

  template <class Match>
  [[nodiscard]] bool names(Match&& match) const {
    if (used_.load(std::memory_order_acquire) == 0) return false;
    for (std::size_t i = 0; i < slots_; ++i) {
      if (match(marks_[i])) return true;
    }
    return false;
  }

  static constexpr char kAnyRemote = 0;
  std::size_t slots_;
  std::atomic<std::size_t> used_{0};  // slots with marks, so that a worker with none costs one look
  std::atomic<std::size_t> unnotified_{0};
  std::unique_ptr<Mark[]> marks_;
};

}  // namespace heddle::engine
