// mutex: a thread that finds another one inside waits for its turn. This is the baseline that the
// other modes are measured against.
#pragma once

#include <memory>
#include <utility>

#include "queue/locks.hpp"
#include "worker/gate.hpp"

namespace heddle::engine {

class MutexGate final : public Gate {
 public:
  MutexGate(Worker& worker, std::unique_ptr<Inbox> inbox) : Gate(worker, std::move(inbox)) {}

  void fetch_helper() override { static_cast<void>(mutex_.fetch(kFetchSleepNs)); }

 private:
  static constexpr std::int64_t kFetchSleepNs = 1'000'000;

  base::Status post_now(transport::Command& command, const Completion& completion) override {
    return post_or_queue(command, completion);
  }
  bool let_in() override {
    if (!mutex_.try_lock()) note_turn([this] { mutex_.lock(); });
    return true;
  }
  bool let_in_unless_held() override { return mutex_.try_lock(); }
  void let_out() override {
    mark_outside();
    mutex_.unlock();
  }
  bool let_in_helper(std::uint32_t /*number*/, bool /*urgent*/) override { return mutex_.try_lock(); }

  alignas(base::kCacheLine) queue::FetchingMutex mutex_;
};

}  // namespace heddle::engine
