#include "bootstrap/single/single.hpp"

#include <cstdlib>

#include "bootstrap/common.hpp"
#include "bootstrap/inproc/inproc.hpp"

namespace heddle::bootstrap::single {
namespace {

// An inproc job of one rank that belongs to its only member.
class Single final : public Bootstrap {
 public:
  Single(std::unique_ptr<inproc::Job> job, std::unique_ptr<Bootstrap> member)
      : job_(std::move(job)), member_(std::move(member)) {}

  [[nodiscard]] const char* name() const override { return "single"; }
  [[nodiscard]] std::uint32_t rank() const override { return 0; }
  [[nodiscard]] std::uint32_t size() const override { return 1; }
  [[nodiscard]] const JobSecret& secret() const override { return member_->secret(); }
  [[nodiscard]] base::Status publish(const Card& card) override { return member_->publish(card); }
  [[nodiscard]] base::Result<Card> fetch(std::uint32_t rank) override { return member_->fetch(rank); }
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte> mine) override {
    return member_->exchange_start(mine);
  }
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>* all) override {
    return member_->exchange_test(all);
  }
  [[nodiscard]] bool failed(std::uint32_t rank) const override { return member_->failed(rank); }
  void leave() override { member_->leave(); }
  [[noreturn]] void abort(int code, const char* message) override {
    print_abort(0, code, message);
    std::_Exit(code);
  }

 private:
  std::unique_ptr<inproc::Job> job_;
  std::unique_ptr<Bootstrap> member_;  // after job_: it is destroyed first
};

}  // namespace

base::Result<std::unique_ptr<Bootstrap>> open() {
  auto job = std::make_unique<inproc::Job>(1);
  auto member = inproc::open(*job, 0);
  if (!member) return member.status();
  return std::unique_ptr<Bootstrap>(std::make_unique<Single>(std::move(job), std::move(*member)));
}

}  // namespace heddle::bootstrap::single
