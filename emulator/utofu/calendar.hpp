// When something that serves one at a time is busy, in the timing model.
//
// Requests come in the order of the real run, which is not that of their virtual times: a thread
// that was not running for a while asks for a time that lies before what others have got. So a gap
// that is long enough and late enough is used, and only what is before all that is remembered
// counts as past.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tofu_emulator {

class Calendar {
 public:
  static constexpr std::size_t kRemembered = 128;

  // The begin of the first free time of that length which does not begin before `earliest`; busy
  // from then on.
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

  // Sorted; times that touch are one.
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
        if (at == 0) return;  // the oldest of all: forgotten at once
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
