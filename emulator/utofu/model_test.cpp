#include "utofu/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "utofu/machine.hpp"
#include "utofu/model_parameters.hpp"

namespace tofu_emulator {
namespace {

namespace p = model_parameters;

// Two nodes side by side along X, and a third that is one further.
Settings line_of_nodes() {
  Settings settings;
  settings.processes = 4;
  settings.shape = {4, 1, 1, 1, 1, 1};
  settings.model = true;
  return settings;
}

class ModelTest : public testing::Test {
 protected:
  static Command command(Opcode opcode, std::uint32_t length) {
    Command command;
    command.opcode = opcode;
    command.length = length;
    return command;
  }
  // From a call at 0 by a thread of its own to the arrival.
  std::uint64_t one_way(Opcode opcode, std::uint32_t length, std::uint32_t to) {
    Vcq vcq;
    std::uint64_t result = 0;
    std::thread([&] {
      result = model_.sent(command(opcode, length), {0, to, tni_++, kNoPath}, model_.posted(vcq, 1)).arrives_ns;
    }).join();
    return result;
  }
  std::uint64_t round_trip(Opcode opcode, std::uint32_t length, std::uint32_t to) {
    return model_.answered(opcode, length, {to, 0, 0, kNoPath}, one_way(opcode, length, to));
  }

  Machine machine_{line_of_nodes()};
  Model model_{{true, false}, machine_};
  std::uint16_t tni_ = 0;  // a fresh one each time: nothing is in the way
};

TEST_F(ModelTest, FramesAreRoundedUpAndHaveALeastSize) {
  EXPECT_EQ(Model::wire_bytes(8, kMtu), 104u);
  EXPECT_EQ(Model::wire_bytes(32, kMtu), 104u);
  EXPECT_EQ(Model::wire_bytes(33, kMtu), 8u + 128);
  EXPECT_EQ(Model::wire_bytes(1920, kMtu), 1992u);
  EXPECT_EQ(Model::wire_bytes(1921, kMtu), 1992u + 104);
  EXPECT_EQ(Model::wire_bytes(3840, kMtu), 2 * 1992u);
  EXPECT_EQ(Model::wire_bytes(0, kMtu), 104u) << "a request";
}

// The sums that the parameters were derived from: model_parameters.hpp.
TEST_F(ModelTest, SumsAreAsMeasured) {
  EXPECT_NEAR(static_cast<double>(one_way(Opcode::piggyback, 8, 1)), 980, 10);
  EXPECT_NEAR(static_cast<double>(one_way(Opcode::piggyback, 8, 2)), 1060, 10);
  EXPECT_NEAR(static_cast<double>(one_way(Opcode::put, 8, 1)), 1230, 10);
  EXPECT_NEAR(static_cast<double>(round_trip(Opcode::get, 8, 1)), 1490, 20);
  EXPECT_NEAR(static_cast<double>(round_trip(Opcode::armw, 8, 1)), 1335, 15);
  const double megabyte = static_cast<double>(one_way(Opcode::put, 1 << 20, 1));
  EXPECT_NEAR(megabyte, 1230 + (1 << 20) / 6.36, 0.005 * megabyte);
}

TEST_F(ModelTest, ATniServesOneCommandAtATime) {
  const Model::Route route{0, 1, 5, kNoPath};
  const auto first = model_.sent(command(Opcode::piggyback, 8), route, 1000);
  const auto second = model_.sent(command(Opcode::piggyback, 8), route, 1000);
  EXPECT_EQ(second.arrives_ns - first.arrives_ns, model_parameters::kTniPut);
  const Model::Route other{0, 1, 4, kNoPath};
  EXPECT_EQ(model_.sent(command(Opcode::piggyback, 8), other, 1000).arrives_ns, first.arrives_ns);
}

// Threads that share a VCQ wait for each other and pay for the hand-over; with one each they do not.
TEST_F(ModelTest, ASharedVcqIsSerialised) {
  constexpr int kThreads = 8;
  constexpr int kCalls = 50;
  std::vector<Vcq> vcqs(kThreads);
  const auto longest = [&](bool shared) {
    std::vector<std::uint64_t> ends(kThreads);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; i++)
      threads.emplace_back([&, i] {
        for (int call = 0; call < kCalls; call++) model_.posted(vcqs[shared ? 0 : i], 1);
        ends[i] = Model::now_ns();
      });
    for (std::thread& thread : threads) thread.join();
    return *std::max_element(ends.begin(), ends.end());
  };
  EXPECT_EQ(longest(false), kCalls * model_parameters::kPost);
  const std::uint64_t shared = longest(true);
  // On the VCQ that had its own user before, so that some calls may go into gaps: none is there.
  EXPECT_GE(shared, kThreads * kCalls * model_parameters::kPost);
  EXPECT_LE(shared, (kThreads + 1) * kCalls * (model_parameters::kPost + model_parameters::kHandOver));
}

TEST_F(ModelTest, APollMovesTheClockToWhatItFound) {
  Vcq vcq;
  std::thread([&] {
    model_.polled(vcq, 5000);
    EXPECT_EQ(Model::now_ns(), 5000 + model_parameters::kPoll);
    model_.polled(vcq, 100);
    EXPECT_EQ(Model::now_ns(), 5000 + 2 * model_parameters::kPoll);
  }).join();
}

TEST_F(ModelTest, WhatWasSeenInMemoryCountsAsLearned) {
  alignas(64) std::byte memory[256] = {};
  model_.stored(memory + 60, 8, 700);
  std::thread([&] {
    model_.saw(memory + 128);
    EXPECT_EQ(Model::now_ns(), 0u);
    model_.saw(memory + 64);
    EXPECT_EQ(Model::now_ns(), 700u);
  }).join();
}

TEST_F(ModelTest, SwitchedOffItSaysNothing) {
  Model off({false, false}, machine_);
  Vcq vcq;
  std::thread([&] {
    EXPECT_EQ(off.posted(vcq, 1), 0u);
    off.polled(vcq, 99);
    EXPECT_EQ(Model::now_ns(), 0u);
  }).join();
  EXPECT_EQ(off.sent(command(Opcode::put, 8), {}, 7).arrives_ns, 0u);
  EXPECT_EQ(off.answered(Opcode::get, 8, {}, 7), 0u);
}

TEST(Calendar, GapsAreUsedAndNothingOverlaps) {
  Calendar calendar;
  EXPECT_EQ(calendar.reserve(100, 10), 100u);
  EXPECT_EQ(calendar.reserve(120, 10), 120u);
  EXPECT_EQ(calendar.reserve(0, 10), 0u);
  EXPECT_EQ(calendar.reserve(95, 11), 130u) << "the gap at 110 is too short";
  EXPECT_EQ(calendar.reserve(95, 10), 110u);
  EXPECT_EQ(calendar.reserve(95, 5), 95u);
  EXPECT_EQ(calendar.reserve(95, 1), 141u);
}

// Against a list of every nanosecond that is taken; with few enough reservations that none is forgotten.
TEST(Calendar, AgreesWithAPlainListOfNanoseconds) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; round++) {
    Calendar calendar;
    std::vector<bool> taken(20'000);
    for (std::size_t i = 0; i < Calendar::kRemembered; i++) {
      const std::uint64_t earliest = random() % 2000;
      const std::uint64_t length = 1 + random() % 40;
      std::uint64_t begin = earliest;
      const auto free_at = [&](std::uint64_t at) {
        for (std::uint64_t ns = at; ns < at + length; ns++)
          if (taken[ns]) return false;
        return true;
      };
      while (!free_at(begin)) begin++;
      ASSERT_EQ(calendar.reserve(earliest, length), begin);
      for (std::uint64_t ns = begin; ns < begin + length; ns++) taken[ns] = true;
    }
  }
}

// Forgetting may waste time, never sell it twice.
TEST(Calendar, WhatIsForgottenIsPast) {
  Calendar calendar;
  for (std::uint64_t i = 0; i < 3 * Calendar::kRemembered; i++) ASSERT_EQ(calendar.reserve(100 * i, 10), 100 * i);
  EXPECT_GT(calendar.reserve(0, 10), 100u) << "the first ones are forgotten, and count as taken up to their end";
}

// Each call by a thread of its own, one after the other.
template <class Call>
void in_thread(Call call) {
  std::thread(call).join();
}

// A post waits for a turn of each thread that polls in vain, a poll that finds something for half of them; neither in the other model.
TEST_F(ModelTest, ThoseWhoPollInVainHoldUpTheOthers) {
  constexpr std::uint64_t kSpinners = p::kCoresOfGroup + 3;  // the poster is the first user: three are in another group
  for (const bool spinners : {false, true}) {
    Model model({true, spinners}, machine_);
    Vcq vcq;
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    in_thread([&] {
      model.found_nothing(vcq);
      for (std::uint64_t i = 0; i < kSpinners; ++i) in_thread([&] { model.found_nothing(vcq); });
      first = model.posted(vcq, 1);
      model.found_nothing(vcq);
      model.polled(vcq, 0);
      second = Model::now_ns();
      model.polled(vcq, 0);  // in the same turn
      third = Model::now_ns();
    });
    const std::uint64_t near = p::kCoresOfGroup - 1;
    const std::uint64_t far = kSpinners - near;
    const std::uint64_t turns = p::kLinesOfTurn * (near * p::kLineNear + far * p::kLineFar) +
                                kSpinners * (p::kPollInVain + kSpinners * p::kSpinnerRead / 2);
    EXPECT_EQ(first, p::kPost + (spinners ? turns : 0));
    EXPECT_EQ(second - first, p::kPoll + (spinners ? turns / 2 : 0));
    EXPECT_EQ(third - second, p::kPoll);
  }
}

TEST_F(ModelTest, WhoPollsNoMoreHoldsUpNobody) {
  Model model({true, true}, machine_);
  Vcq vcq;
  in_thread([&] { model.found_nothing(vcq); });
  in_thread([&] {
    std::uint64_t before = model.posted(vcq, 1);
    EXPECT_GT(before, p::kPost);
    for (std::uint64_t i = 0; i < 2 * p::kRecentCalls; ++i) before = model.posted(vcq, 1);
    EXPECT_EQ(model.posted(vcq, 1), before + p::kPost);
  });
}

}  // namespace
}  // namespace tofu_emulator
