// Where a poll writes its completions, and the CQ lock that it holds.
#pragma once

#include <span>
#include <vector>

#include "transport/utofu/library.hpp"
#include "transport/utofu/worker.hpp"

namespace heddle::transport::utofu {

// Fills the caller's records first; completions that do not fit go into the backlog for the next
// poll.
class Worker::Out {
 public:
  Out(std::span<Completion> completions, std::vector<Completion>* backlog)
      : completions_(completions), backlog_(backlog) {}

  [[nodiscard]] bool room() const { return count_ < completions_.size(); }
  [[nodiscard]] std::size_t count() const { return count_; }
  void add(const Completion& completion) {
    if (room()) {
      completions_[count_++] = completion;
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
  [[nodiscard]] Completion* next() { return completions_.data() + count_; }
  [[nodiscard]] Completion* end() { return completions_.data() + completions_.size(); }
  void wrote(const Completion* next) { count_ = static_cast<std::size_t>(next - completions_.data()); }
  void source_free(Token token) {
    Completion completion;
    completion.event = Event::source_free;
    completion.token = token;
    add(completion);
  }
  // Moves records from the backlog to the caller.
  void flush() {
    std::size_t flushed = 0;
    while (flushed < backlog_->size() && room()) completions_[count_++] = (*backlog_)[flushed++];
    backlog_->erase(backlog_->begin(), backlog_->begin() + static_cast<std::ptrdiff_t>(flushed));
  }

 private:
  std::span<Completion> completions_;
  std::vector<Completion>* backlog_;
  std::size_t count_ = 0;
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
