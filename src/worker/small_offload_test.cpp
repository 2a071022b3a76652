#include "worker/helpers.hpp"

#include <gtest/gtest.h>

namespace heddle::worker::small_offload_test {
namespace {

constexpr std::uint64_t kBytes = 8192;

// A program that sends: what each way costs, and whether a helper is there.
struct Program {
  std::uint64_t submit_ns = 800;
  std::uint64_t register_ns = 60;
  bool helped = true;
  std::uint64_t rounds = 0;
  bool asleep = false;

  // Number of messages of `count` that were registered.
  std::uint32_t send(SmallOffload& offload, std::uint32_t count, std::uint64_t bytes = kBytes) {
    std::uint32_t registered = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (helped) ++rounds;
      const SmallOffload::Plan plan = offload.plan(bytes, rounds, asleep);
      if (plan.registers) {
        ++registered;
        offload.count_registered();
        if (plan.timed) offload.registered(register_ns);
        offload.executed(bytes, helped);
      } else if (plan.timed) {
        offload.submitted(bytes, submit_ns);
      }
    }
    return registered;
  }
};

TEST(SmallOffload, IsAlwaysOrNeverWhereThatIsAskedFor) {
  Program program;
  program.helped = false;
  SmallOffload on(OffloadPolicy::on, 0);
  EXPECT_EQ(program.send(on, 100), 100U);
  EXPECT_EQ(on.registered_messages(), 100U);
  EXPECT_EQ(on.helped_messages(), 0U);
  SmallOffload off(OffloadPolicy::off, 0);
  EXPECT_EQ(program.send(off, 100), 0U);
}

TEST(SmallOffload, RegistersWhatCostsMoreToSubmit) {
  SmallOffload offload(OffloadPolicy::automatic, 0);
  Program program;
  program.send(offload, 100);
  EXPECT_GE(program.send(offload, 6400), 6200U) << "all but those that are sent the other way";
  EXPECT_GT(offload.helped_messages(), 6000U);
}

TEST(SmallOffload, SubmitsWhatCostsLess) {
  SmallOffload offload(OffloadPolicy::automatic, 0);
  Program program;
  program.submit_ns = 50;
  program.send(offload, 100);
  EXPECT_LE(program.send(offload, 6400), 200U);
}

TEST(SmallOffload, AVisitThatCostsTheOwnerMoreIsNotWorthIt) {
  SmallOffload offload(OffloadPolicy::automatic, 1000);
  Program program;
  program.send(offload, 100);
  EXPECT_LE(program.send(offload, 6400), 200U);
  program.submit_ns = 3000;
  program.send(offload, 1000);
  EXPECT_GE(program.send(offload, 6400), 6200U);
}

TEST(SmallOffload, NobodyRegistersWhereNoHelperGoesRound) {
  SmallOffload offload(OffloadPolicy::automatic, 0);
  Program program;
  program.send(offload, 1000);
  program.helped = false;
  EXPECT_LE(program.send(offload, 1000), 1U) << "one may see the last round";
  program.helped = true;
  program.asleep = true;
  EXPECT_EQ(program.send(offload, 1000), 0U);
}

// Helpers go round, but the poster is always there first.
TEST(SmallOffload, LearnsThatHelpersComeTooLateAndThatTheyComeAgain) {
  SmallOffload offload(OffloadPolicy::automatic, 0);
  const auto send = [&](bool by_helper) {
    static std::uint64_t rounds = 0;
    const SmallOffload::Plan plan = offload.plan(kBytes, ++rounds, false);
    if (plan.registers) {
      if (plan.timed) offload.registered(60);
      offload.executed(kBytes, by_helper);
    } else if (plan.timed) {
      offload.submitted(kBytes, 800);
    }
    return plan.registers ? 1U : 0U;
  };
  std::uint32_t registered = 0;
  for (int i = 0; i < 1000; ++i) send(true);
  for (int i = 0; i < 200; ++i) send(false);
  for (int i = 0; i < 6400; ++i) registered += send(false);
  EXPECT_LE(registered, 200U);
  EXPECT_GE(registered, 50U) << "now and then it is tried";
  for (int i = 0; i < 6400; ++i) send(true);
  registered = 0;
  for (int i = 0; i < 6400; ++i) registered += send(true);
  EXPECT_GE(registered, 6200U);
}

TEST(SmallOffload, LengthsAreLearnedApart) {
  SmallOffload offload(OffloadPolicy::automatic, 0);
  Program cheap;
  cheap.submit_ns = 40;
  Program dear;
  for (int i = 0; i < 100; ++i) {
    cheap.rounds = dear.rounds = dear.rounds + 10;
    cheap.send(offload, 5, 1500);
    dear.rounds += 10;
    dear.send(offload, 5, 16384);
  }
  cheap.rounds = dear.rounds + 1;
  EXPECT_LE(cheap.send(offload, 640, 1500), 20U);
  dear.rounds = cheap.rounds + 1;
  EXPECT_GE(dear.send(offload, 640, 16384), 600U);
  EXPECT_LE(dear.send(offload, 640, std::uint64_t{1} << 40), 640U) << "any length has a class";
}

TEST(SmallOffload, ItsPoliciesHaveNames) {
  EXPECT_EQ(offload_policy_named("on"), OffloadPolicy::on);
  EXPECT_EQ(offload_policy_named("off"), OffloadPolicy::off);
  EXPECT_EQ(offload_policy_named("auto"), OffloadPolicy::automatic);
  EXPECT_FALSE(offload_policy_named("1"));
  EXPECT_FALSE(offload_policy_named(""));
}

}  // namespace
}  // namespace heddle::worker::small_offload_test
