// auto: exclusive to the thread that uses it, as long as that is one thread; then shared
// (queue/bias.hpp). A thread that finds another owner takes over, four times; then all share.
//
// Invariant: place_ is not null exactly while the owner is inside by enter(), claimed_ while
// somebody is inside by a claim; both are written inside.
#pragma once

#include <memory>
#include <utility>

#include "base/membarrier.hpp"
#include "queue/bias.hpp"
#include "worker/gate_shared.hpp"

namespace heddle::engine {

class AutoGate final : public SharedGate {
 public:
  AutoGate(Worker& worker, std::unique_ptr<Inbox> inbox)
      : SharedGate(worker, std::move(inbox)), bias_(base::membarrier_private_ready()) {}

  void fetch_helper() override {
    if (bias_.shared()) return SharedGate::fetch_helper();
    bias_.fetch_helper(kFetchSleepNs);
  }
  [[nodiscard]] bool wanted() const override { return bias_.looks_inside(); }

 private:
  using Place = queue::Bias<>::Place;
  static constexpr std::int64_t kFetchSleepNs = 1'000'000;

  base::Status post_now(transport::Command& command, const Completion& completion) override {
    if (inside()) return post_or_queue(command, completion);
    Place* const place = bias_.enter(base::thread_mark());
    if (place == nullptr) [[unlikely]] {
      return bias_.shared() ? SharedGate::post_now(command, completion) : post_or_queue(command, completion);
    }
    bool wake = false;
    const base::Status status = post_inside(command, completion, &wake);
    queue::Bias<>::leave(place);
    if (wake) [[unlikely]]
      wake_helpers();
    return status;
  }
  bool let_in() override { return bias_.shared() ? SharedGate::let_in() : enter_own() || enter_later(); }
  bool let_in_at_once() override {
    return bias_.shared() ? SharedGate::let_in_at_once() : enter_own() || take_over(false);
  }
  // Who only looks does not become the owner.
  bool let_in_unless_held() override {
    return bias_.shared() ? SharedGate::let_in_unless_held() : enter_own() || claim(false);
  }
  void let_out() override {
    if (claimed_ != nullptr) return give_back();
    Place* const place = std::exchange(place_, nullptr);
    if (place == nullptr) return SharedGate::let_out();
    mark_outside();
    queue::Bias<>::leave(place);
  }
  bool let_in_helper(std::uint32_t number, bool urgent) override {
    if (bias_.shared()) return SharedGate::let_in_helper(number, urgent);
    return claim_as(number, urgent);
  }
  void let_out_helper(bool helper) override {
    if (claimed_ == nullptr) return SharedGate::let_out_helper(helper);
    // A thread of the application may leave something under way while the helpers sleep.
    const bool call = !helper && must_call_helpers();
    give_back();
    if (call) wake_helpers();
  }

  bool enter_own() {
    Place* const place = bias_.enter(base::thread_mark());
    if (place != nullptr) place_ = place;
    return place != nullptr;
  }
  // The ways of a thread that is not the owner, or finds somebody inside. False: not now. The first
  // waits for about as long as a short post takes.
  bool enter_later();
  bool take_over(bool urgent);
  bool claim(bool urgent);
  bool claim_as(std::uint32_t number, bool urgent) {
    Place* const place = bias_.claim(number, urgent);
    if (place != nullptr) claimed_ = place;
    return place != nullptr;
  }
  void give_back() {
    Place* const place = std::exchange(claimed_, nullptr);
    mark_outside();
    queue::Bias<>::give_back(place);
  }

  queue::Bias<> bias_;
  Place* place_ = nullptr;
  Place* claimed_ = nullptr;
};

}  // namespace heddle::engine
