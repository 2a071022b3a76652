// Where a poll puts what it finds, and the lock under which it looks.
#pragma once

#include <span>
#include <vector>

#include "transport/utofu/library.hpp"
#include "transport/utofu/worker.hpp"

namespace heddle::transport::utofu {

// The caller's records first, what does not fit is kept for the next poll.
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
  // For who writes records itself, from next() on, and tells up to where.
  [[nodiscard]] Completion* next() { return completions_.data() + count_; }
  [[nodiscard]] Completion* end() { return completions_.data() + completions_.size(); }
  void wrote(const Completion* next) { count_ = static_cast<std::size_t>(next - completions_.data()); }
  void source_free(Token token) {
    Completion completion;
    completion.event = Event::source_free;
    completion.token = token;
    add(completion);
  }
  // What was kept before.
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

// False: another thread is using the CQ; come again.
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
