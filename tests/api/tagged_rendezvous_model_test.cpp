// Long tagged messages and short ones between their parts: plays of a few steps against a model of
// matching.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <string>

#include "api/test_rendezvous.hpp"
#include "base/random.hpp"
#include "base/test_support.hpp"

namespace heddle::test::tagged_rendezvous_model_test {
namespace {

enum class Step : std::uint8_t {
  send_long_a,
  send_long_b,
  send_short_a,
  receive_a,
  receive_b,
  receive_short_a,  // with room for short ones only
  receive_any,
  cancel_first,
  sender_progress,
  receiver_progress,
  kCount
};
constexpr std::uint64_t kSteps = static_cast<std::uint64_t>(Step::kCount);
constexpr std::size_t kShort = 24;

// Whatever the steps and their times, a receive gets the earliest message that fits it and that no
// earlier receive got.
class Play {
 public:
  Play(Pair& pair, std::size_t long_bytes) : pair_(pair), long_(long_bytes) {}

  void step(Step what) {
    switch (what) {
      case Step::send_long_a:
        return send(1, long_);
      case Step::send_long_b:
        return send(2, long_);
      case Step::send_short_a:
        return send(1, kShort);
      case Step::receive_a:
        return receive(wanted_of(1), long_);
      case Step::receive_b:
        return receive(wanted_of(2), long_);
      case Step::receive_short_a:
        return receive(wanted_of(1), kShort);
      case Step::receive_any:
        return receive({{HEDDLE_ANY, HEDDLE_ANY}, 0, 0}, long_);
      case Step::cancel_first:
        for (const auto& receipt : receipts_) {
          if (receipt->outcome.times != 0) continue;
          ASSERT_EQ(pair_.receiver().try_cancel(&receipt->receive), HEDDLE_DONE);
          return;
        }
        return;
      case Step::sender_progress:
        return pair_.progress(kSender);
      case Step::receiver_progress:
        return pair_.progress(kReceiver);
      case Step::kCount:
        return;
    }
  }

  // Receives what is left, and compares.
  void end() {
    struct Expected {
      std::uint64_t tag;
      bool taken = false;
    };
    const std::size_t posted = receipts_.size();
    while (receipts_.size() < posted + sends_.size()) receive({{kSender, 0}, 0, 0}, long_);
    ASSERT_TRUE(pair_.until({0, 1}, [&] {
      for (const Sent& sent : sends_) {
        if (sent.outcome.times == 0) return false;
      }
      std::size_t got = 0;
      for (const auto& receipt : receipts_) got += receipt->outcome.times != 0 && !cancelled(*receipt) ? 1 : 0;
      return got >= sends_.size();
    }));
    std::vector<bool> gone(sends_.size());
    for (const auto& receipt : receipts_) {
      if (receipt->outcome.times == 1 && cancelled(*receipt)) continue;
      std::size_t expected = 0;
      while (expected < sends_.size() && (gone[expected] || !fits(*receipt, sends_[expected]))) ++expected;
      if (expected == sends_.size()) {
        EXPECT_EQ(receipt->outcome.times, 0) << "it got message " << number(*receipt);
        ASSERT_EQ(pair_.receiver().try_cancel(&receipt->receive), HEDDLE_DONE);
        continue;
      }
      gone[expected] = true;
      ASSERT_EQ(receipt->outcome.times, 1) << "should have got message " << expected;
      EXPECT_EQ(number(*receipt), expected);
      const Sent& sent = sends_[expected];
      EXPECT_EQ(receipt->receive.bytes, sent.data.size());
      EXPECT_EQ(receipt->receive.tag, sent.tag);
      EXPECT_EQ(receipt->outcome.status, sent.data.size() > receipt->data.size() ? HEDDLE_ERR_TRUNCATED : HEDDLE_DONE);
      EXPECT_TRUE(
          std::equal(sent.data.begin(),
                     sent.data.begin() + static_cast<std::ptrdiff_t>(std::min(sent.data.size(), receipt->data.size())),
                     receipt->data.begin()));
      EXPECT_EQ(sent.outcome.status, HEDDLE_DONE);
    }
  }

 private:
  struct Sent {
    std::uint64_t tag;
    std::vector<std::byte> data;
    Outcome outcome;
  };
  struct Posted : Receipt {
    using Receipt::Receipt;
    heddle_wanted wanted{};
  };
  static bool cancelled(const Receipt& receipt) { return receipt.outcome.status == HEDDLE_ERR_CANCELLED; }
  static bool fits(const Posted& receipt, const Sent& sent) {
    return ((receipt.wanted.tag ^ sent.tag) & receipt.wanted.mask) == 0;
  }
  static std::uint64_t number(const Receipt& receipt) {
    std::uint64_t value = 0;
    std::memcpy(&value, receipt.data.data(), sizeof value);
    return value;
  }
  void send(std::uint64_t tag, std::size_t bytes) {
    Sent& sent = sends_.emplace_back();
    sent.tag = tag;
    sent.data = pattern(bytes, sends_.size());
    const std::uint64_t mine = sends_.size() - 1;
    std::memcpy(sent.data.data(), &mine, sizeof mine);
    pair_.send(sent.data, tag, &sent.outcome);
  }
  void receive(const heddle_wanted& wanted, std::size_t bytes) {
    receipts_.push_back(std::make_unique<Posted>(bytes));
    receipts_.back()->wanted = wanted;
    pair_.post(*receipts_.back(), wanted);
  }

  Pair& pair_;
  const std::size_t long_;
  std::deque<Sent> sends_;
  std::vector<std::unique_ptr<Posted>> receipts_;
};

void play(Pair& pair, std::size_t long_bytes, const std::vector<Step>& steps) {
  Play one(pair, long_bytes);
  for (const Step step : steps) one.step(step);
  one.end();
  if (!testing::Test::HasFailure()) return;
  std::string text;
  for (const Step step : steps) text += std::to_string(static_cast<int>(step)) + " ";
  FAIL() << "steps " << text;
}

// How the long messages go.
struct How {
  const char* name;
  std::size_t bytes;
  std::vector<std::pair<const char*, const char*>> variables;
};
void PrintTo(const How& how, std::ostream* out) {
  *out << how.name;
}

class RendezvousModel : public testing::TestWithParam<How> {};

// All orders of four steps, after two receives were posted, or with none.
TEST_P(RendezvousModel, EveryOrderOfAFewStepsPairsAsMatchingSays) {
  const Variables variables(GetParam().variables);
  Pair pair;
  const auto length = base::few_if_sanitized<std::uint32_t>(3, 4);
  std::uint64_t all = 1;
  for (std::uint32_t i = 0; i < length; ++i) all *= kSteps;
  for (std::uint64_t number = 0; number < all && !HasFailure(); ++number) {
    for (std::vector<Step> steps : {std::vector<Step>{}, {Step::receive_a, Step::receive_b}}) {
      std::uint64_t rest = number;
      for (std::uint32_t i = 0; i < length; ++i, rest /= kSteps) steps.push_back(static_cast<Step>(rest % kSteps));
      play(pair, GetParam().bytes, steps);
    }
  }
}

TEST_P(RendezvousModel, LongRandomPlaysPairAsMatchingSays) {
  const Variables variables(GetParam().variables);
  Pair pair;
  for (std::uint64_t seed = 1; seed <= base::few_if_sanitized<std::uint64_t>(60, 300) && !HasFailure(); ++seed) {
    base::Random random(seed);
    std::vector<Step> steps(120);
    for (Step& step : steps) step = static_cast<Step>(random.below(kSteps));
    SCOPED_TRACE("seed " + std::to_string(seed));
    play(pair, GetParam().bytes, steps);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RendezvousModel,
                         testing::Values(How{"offered", 600, {{"HEDDLE_TAG_EAGER_BYTES", "512"}}},
                                         How{"in_parts", 20'000, {}}),
                         [](const testing::TestParamInfo<How>& one) { return one.param.name; });

}  // namespace
}  // namespace heddle::test::tagged_rendezvous_model_test
