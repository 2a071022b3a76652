// The records into which a poll writes its completions, and the CQ lock that it holds.
#pragma once

#include <span>
#include <vector>

#include "transport/utofu/library.hpp"
#include "transport/utofu/port.hpp"

namespace heddle::transport::utofu {

// Fills the caller's records first; completions that do not fit go into the backlog for the next
// poll.
class Port::Out {
 public:
  Out(std::span<Completion> completions, std::vector<Completion>* backlog)
      : first_(completions.data()), next_(first_), end_(first_ + completions.size()), backlog_(backlog) {}

  [[nodiscard]] bool room() const { return next_ != end_; }
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(next_ - first_); }
  void add(const Completion& completion) {
    if (room()) {
      *next_++ = completion;
    } else {
      backlog_->push_back(completion);
    }
  }
  void done(Token token, base::Status status) {
    Completion completion;
    completion.token = token;
    completion.status = status;
    add(completion);
  }
  // For a caller that writes records itself: it writes from next() on, then calls wrote() with the
  // end of what it wrote.
  [[nodiscard]] Completion* next() { return next_; }
  [[nodiscard]] Completion* end() { return end_; }
  void wrote(Completion* next) { next_ = next; }
  void source_free(Token token) {
    Completion completion;
    completion.event = Event::source_free;
    completion.token = token;
    add(completion);
  }
  // Moves records from the backlog to the caller.
  void flush() {
    std::size_t flushed = 0;
    while (flushed < backlog_->size() && room()) *next_++ = (*backlog_)[flushed++];
    backlog_->erase(backlog_->begin(), backlog_->begin() + static_cast<std::ptrdiff_t>(flushed));
  }

 private:
  Completion* const first_;
  Completion* next_;
  Completion* const end_;
  std::vector<Completion>* const backlog_;
};

// False: another thread is using the CQ; try again later.
class HeldCq {
 public:
  explicit HeldCq(CqLock* lock) : lock_(lock), held_(lock == nullptr || lock->try_lock()) {}
  ~HeldCq() {
    if (lock_ != nullptr && held_) lock_->unlock();
  }
  HeldCq(const HeldCq&) = delete;
  HeldCq& operator=(const HeldCq&) = delete;
  explicit operator bool() const { return held_; }

 private:
  CqLock* lock_;
  bool held_;
};

}  // namespace heddle::transport::utofu
