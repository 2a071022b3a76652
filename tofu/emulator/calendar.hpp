// The busy times of a resource that serves one request at a time, in the timing model.
//
// Requests come in the order of the real run, which differs from the order of their virtual times:
// a thread that did not run for a while asks for a time before those already reserved. So a request
// gets the first gap that is long and late enough. Only times before all remembered ones count as
// past.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tofu_emulator {

class Calendar {
 public:
  static constexpr std::size_t kRemembered = 128;

  // Reserves the first free time of that length that begins at `earliest` or later, and returns its
  // beginning.
  std::uint64_t reserve(std::uint64_t earliest, std::uint64_t length) {
    std::uint64_t begin = std::max(earliest, past_);
    std::size_t at = 0;
    for (; at < count_; at++) {
      if (begin + length <= busy_[at].begin) break;
      begin = std::max(begin, busy_[at].end);
    }
    insert(at, begin, begin + length);
    return begin;
  }

 private:
  struct Busy {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Sorted; adjacent times are merged.
  void insert(std::size_t at, std::uint64_t begin, std::uint64_t end) {
    const bool touches_before = at > 0 && busy_[at - 1].end == begin;
    const bool touches_after = at < count_ && busy_[at].begin == end;
    if (touches_before && touches_after) {
      busy_[at - 1].end = busy_[at].end;
      std::copy(busy_.begin() + at + 1, busy_.begin() + count_, busy_.begin() + at);
      count_--;
    } else if (touches_before) {
      busy_[at - 1].end = end;
    } else if (touches_after) {
      busy_[at].begin = begin;
    } else {
      if (count_ == kRemembered) {
        if (at == 0) return;  // older than all others: not remembered
        past_ = busy_[0].end;
        std::copy(busy_.begin() + 1, busy_.end(), busy_.begin());
        count_--;
        at--;
      }
      std::copy_backward(busy_.begin() + at, busy_.begin() + count_, busy_.begin() + count_ + 1);
      busy_[at] = {begin, end};
      count_++;
    }
  }

  std::array<Busy, kRemembered> busy_;
  std::size_t count_ = 0;
  std::uint64_t past_ = 0;
};

}  // namespace tofu_emulator
