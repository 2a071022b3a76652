// exclusive, helped: the owner pays two plain stores (queue/handover.hpp), and waits only for a
// helper, which leaves soon.
#pragma once

#include <memory>
#include <utility>

#include "worker/gate.hpp"

namespace heddle::engine {

class ExclusiveGate final : public Gate {
 public:
  ExclusiveGate(Worker& worker, std::unique_ptr<Inbox> inbox) : Gate(worker, std::move(inbox)) {}

  void fetch_helper() override { handover_.fetch_helper(kFetchSleepNs); }
  [[nodiscard]] bool disturbs() const override { return true; }
  [[nodiscard]] bool wanted() const override { return handover_.looks_inside(); }

 private:
  static constexpr std::int64_t kFetchSleepNs = 1'000'000;

  base::Status post_now(transport::Command& command, const Completion& completion) override {
    if (inside()) return worker().post(command, completion);
    handover_.enter();
    bool wake = false;
    const base::Status status = post_inside(command, completion, &wake);
    handover_.leave();
    if (wake) [[unlikely]]
      wake_helpers();
    return status;
  }
  bool let_in() override {
    handover_.enter();
    return true;
  }
  void let_out() override {
    mark_outside();
    handover_.leave();
  }
  bool let_in_helper(std::uint32_t number, bool urgent) override {
    return urgent ? handover_.try_claim_urgently(number) : handover_.try_claim(number);
  }
  void let_out_helper(bool helper) override {
    // A thread of the application may leave something under way while the helpers sleep.
    const bool call = !helper && must_call_helpers();
    mark_outside();
    handover_.release();
    if (call) wake_helpers();
  }
  [[nodiscard]] bool counts_visitors() const override { return false; }

  alignas(base::kCacheLine) queue::Handover<> handover_;
};

}  // namespace heddle::engine
