#include "tofu/emulator/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tofu/emulator/machine.hpp"

namespace tofu_emulator::model_test {
namespace {

namespace p = model_parameters;

// Four nodes along X. The first has two neighbours; one node is one link further.
EmulatorSettings line_of_nodes() {
  EmulatorSettings settings;
  settings.processes = 4;
  settings.shape = {4, 1, 1, 1, 1, 1};
  settings.model = true;
  return settings;
}

// Links without a world. The system provides the memory page by page as it is used.
struct OwnLinks {
  explicit OwnLinks(const Machine& machine)
      : memory(static_cast<std::byte*>(std::calloc(Links::bytes(machine), 1)), &std::free),
        of(memory.get(), machine, nullptr) {}
  std::unique_ptr<std::byte, void (*)(void*)> memory;
  Links of;
};

class ModelTest : public testing::Test {
 protected:
  static CqCommand command(Opcode opcode, std::uint32_t length) {
    CqCommand command;
    command.opcode = opcode;
    command.length = length;
    return command;
  }
  // Times from a call at time 0 on a thread of its own to the arrival and to the answer, without
  // competition.
  struct Times {
    std::uint64_t one_way = 0;
    std::uint64_t round_trip = 0;
  };
  Times alone(Opcode opcode, std::uint32_t length, std::uint32_t to) {
    OwnLinks links(machine_);
    Model model({true, false}, &links.of);
    EmulatedVcq vcq;
    Times times;
    std::thread([&] {
      times.one_way = model.sent(command(opcode, length), {0, to, 0, kNoPath}, model.posted(vcq, 1)).arrives_ns;
      times.round_trip = model.answered(opcode, {0, length}, {to, 0, 0, kNoPath}, times.one_way);
    }).join();
    return times;
  }
  std::uint64_t one_way(Opcode opcode, std::uint32_t length, std::uint32_t to) {
    return alone(opcode, length, to).one_way;
  }
  std::uint64_t round_trip(Opcode opcode, std::uint32_t length, std::uint32_t to) {
    return alone(opcode, length, to).round_trip;
  }

  Machine machine_{line_of_nodes()};
  OwnLinks links_{machine_};
  Model model_{{true, false}, &links_.of};
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

// The sums from which the parameters were derived (model.hpp, namespace model_parameters).
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
  const Route route{0, 1, 5, kNoPath};
  const auto first = model_.sent(command(Opcode::piggyback, 8), route, 1000);
  const auto second = model_.sent(command(Opcode::piggyback, 8), route, 1000);
  EXPECT_EQ(second.arrives_ns - first.arrives_ns, model_parameters::kTniPut);
  const Route other{0, 3, 4, kNoPath};  // over another link
  EXPECT_EQ(model_.sent(command(Opcode::piggyback, 8), other, 1000).arrives_ns, first.arrives_ns);
}

// Threads that share a VCQ wait for each other and pay for the hand-over; threads with one VCQ each
// do not.
TEST_F(ModelTest, ASharedVcqIsSerialised) {
  constexpr int kThreads = 8;
  constexpr int kCalls = 50;
  std::vector<EmulatedVcq> vcqs(kThreads);
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
  // This VCQ had another user before, so some calls could use gaps; but there are none.
  EXPECT_GE(shared, kThreads * kCalls * model_parameters::kPost);
  EXPECT_LE(shared, (kThreads + 1) * kCalls * (model_parameters::kPost + model_parameters::kHandOver));
}

TEST_F(ModelTest, APollMovesTheClockToWhatItFound) {
  EmulatedVcq vcq;
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
  Model off({false, false}, nullptr);
  EmulatedVcq vcq;
  std::thread([&] {
    EXPECT_EQ(off.posted(vcq, 1), 0u);
    off.polled(vcq, 99);
    EXPECT_EQ(Model::now_ns(), 0u);
  }).join();
  EXPECT_EQ(off.sent(command(Opcode::put, 8), {}, 7).arrives_ns, 0u);
  EXPECT_EQ(off.answered(Opcode::get, {0, 8}, {}, 7), 0u);
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

// Against a list of every reserved nanosecond; with few enough reservations that all are
// remembered.
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

// Forgotten reservations may waste time, but no time is reserved twice.
TEST(Calendar, WhatIsForgottenIsPast) {
  Calendar calendar;
  for (std::uint64_t i = 0; i < 3 * Calendar::kRemembered; i++) ASSERT_EQ(calendar.reserve(100 * i, 10), 100 * i);
  EXPECT_GT(calendar.reserve(0, 10), 100u) << "the first ones are forgotten, and count as taken up to their end";
}

// Runs each call on a thread of its own, one after the other.
template <class Call>
void in_thread(Call call) {
  std::thread(call).join();
}

// A post waits for a turn of each thread that polls in vain, a poll that finds something for half
// of them; in the other model neither waits.
TEST_F(ModelTest, ThoseWhoPollInVainHoldUpTheOthers) {
  // the poster is the first user: three are in another group
  constexpr std::uint64_t kSpinners = p::kCoresOfGroup + 3;
  for (const bool spinners : {false, true}) {
    Model model({true, spinners}, &links_.of);
    EmulatedVcq vcq;
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
  Model model({true, true}, &links_.of);
  EmulatedVcq vcq;
  in_thread([&] { model.found_nothing(vcq); });
  in_thread([&] {
    std::uint64_t before = model.posted(vcq, 1);
    EXPECT_GT(before, p::kPost);
    for (std::uint64_t i = 0; i < 2 * p::kRecentCalls; ++i) before = model.posted(vcq, 1);
    EXPECT_EQ(model.posted(vcq, 1), before + p::kPost);
  });
}

TEST(Ledger, GivesNothingAwayTwiceAndNoMoreThanThereIs) {
  auto ledger = std::make_unique<Ledger>();
  // Consecutive grants from the same time on: without a gap, across bins.
  std::uint64_t end = 1000;
  for (int i = 0; i < 50; ++i) {
    const Ledger::Grant grant = ledger->take(1000, 1000);
    EXPECT_EQ(grant.begin, end);
    end = grant.end;
    EXPECT_EQ(end, 1000 + 1000 * (std::uint64_t{1} + i));
  }
  // Without competition: at once.
  const Ledger::Grant later = ledger->take(80'001, 777);
  EXPECT_EQ(later.begin, 80'001u);
  EXPECT_EQ(later.end, 80'778u);
  // A request that comes late in the run with an early time gets what was free then.
  EXPECT_EQ(ledger->take(0, 700).end, 700u);
  // A gap that is too short is used too, since packets take turns.
  const Ledger::Grant divided = ledger->take(700, 1000);
  EXPECT_EQ(divided.begin, 700u);
  EXPECT_GT(divided.end, 51'000u);
}

TEST(Ledger, WhatIsForgottenIsPast) {
  auto ledger = std::make_unique<Ledger>();
  const std::uint64_t whole = Ledger::kBins * Ledger::kBin;
  EXPECT_EQ(ledger->take(3 * whole, 10).begin, 3 * whole);
  const std::uint64_t first = ledger->take(0, 10).begin;
  EXPECT_GT(first, 2 * whole - Ledger::kBin);
  EXPECT_LE(first, 2 * whole + Ledger::kBin);
  // A request longer than the remembered time moves the remembered range forward.
  const Ledger::Grant large = ledger->take(10 * whole, 2 * whole);
  EXPECT_EQ(large.end - large.begin, 2 * whole);
  EXPECT_EQ(ledger->take(10 * whole, 10).end, large.end + 10);
}

// As many links as hops; each begins where the previous one ends, and none occurs twice.
TEST(Links, ARouteIsAsLongAsTheMachineSays) {
  EmulatorSettings settings;
  settings.processes = 4;
  settings.shape = {5, 4, 2, 2, 3, 2};
  const Machine machine(settings);
  std::mt19937_64 random(3);
  for (int i = 0; i < 3000; ++i) {
    const auto from = static_cast<std::uint32_t>(random() % machine.nodes());
    const auto to = static_cast<std::uint32_t>(random() % machine.nodes());
    const auto path = static_cast<std::uint8_t>(i % 3 == 0 ? kNoPath : 1 + random() % kPaths);
    std::vector<LinkPlace> links;
    Links::for_each(machine, {from, to, 0, path}, [&](const LinkPlace& link) { links.push_back(link); });
    ASSERT_EQ(links.size(), machine.hops(from, to, path));
    std::uint32_t at = from;
    for (std::size_t link = 0; link < links.size(); ++link) {
      EXPECT_EQ(links[link].node, at);
      EXPECT_EQ(std::count(links.begin(), links.end(), links[link]), 1);
      Coords coords = machine.coords_of(at);
      const std::size_t axis = links[link].direction / 2;
      const std::uint32_t along = settings.shape.at(axis);
      coords.at(axis) =
          static_cast<std::uint8_t>((coords.at(axis) + (links[link].direction % 2 == 0 ? 1 : along - 1)) % along);
      at = *machine.node_at(coords.data());
    }
    EXPECT_EQ(at, to);
  }
}

// With several threads at the same time, no grant is lost or shared: together they take as long as
// one after the other.
TEST(Links, ThreadsTakeTurns) {
  EmulatorSettings settings;
  settings.processes = 2;
  settings.shape = {2, 1, 1, 1, 1, 1};
  const Machine machine(settings);
  OwnLinks links(machine);
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kCalls = 500;
  constexpr std::uint64_t kLength = 100;
  std::array<std::uint64_t, kThreads> last{};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (std::uint64_t call = 0; call < kCalls; ++call)
        last.at(thread) = std::max(last.at(thread), links.of.pass({0, 1, 0, kNoPath}, 0, kLength).left_ns);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*std::max_element(last.begin(), last.end()), kThreads * kCalls * kLength);
}

// A node with a neighbour on each side of X, Y and Z.
class Neighbours : public testing::Test {
 protected:
  static EmulatorSettings cube() {
    EmulatorSettings settings;
    settings.processes = 27;
    settings.shape = {3, 3, 3, 1, 1, 1};
    settings.model = true;
    return settings;
  }
  [[nodiscard]] std::uint32_t neighbour(std::size_t direction) const {
    Coords coords{1, 1, 1, 0, 0, 0};
    coords.at(direction / 2) = direction % 2 == 0 ? 2 : 0;
    return *machine_.node_at(coords.data());
  }
  // Puts of a megabyte by each TNI; returns the arrival of the last. `spread`: to six neighbours,
  // else to one.
  std::uint64_t six_tnis(bool spread) {
    std::uint64_t last = 0;
    CqCommand put;
    put.opcode = Opcode::put;
    put.length = kBytes;
    for (int round = 0; round < kRounds; ++round)
      for (std::uint16_t tni = 0; tni < kTnis; ++tni)
        last = std::max(last, model_.sent(put, {centre_, neighbour(spread ? tni : 0), tni, kNoPath}, 0).arrives_ns);
    return last;
  }

  static constexpr std::uint32_t kBytes = 1U << 20U;
  static constexpr int kRounds = 4;
  Machine machine_{cube()};
  std::uint32_t centre_ = 13;
  OwnLinks links_{machine_};
  Model model_{{true, false}, &links_.of};
};

TEST_F(Neighbours, SixTnisToOneOfThemHaveOneLink) {
  const auto alone = static_cast<std::uint64_t>(static_cast<double>(Model::wire_bytes(kBytes, kMtu)) / p::kBytesPerNs);
  EXPECT_EQ(six_tnis(false), p::kStart + p::kReadSource + kTnis * kRounds * alone + p::kLink + p::kFlight);
}

TEST_F(Neighbours, SixTnisToSixOfThemHaveSix) {
  const auto alone = static_cast<std::uint64_t>(static_cast<double>(Model::wire_bytes(kBytes, kMtu)) / p::kBytesPerNs);
  EXPECT_EQ(six_tnis(true), p::kStart + p::kReadSource + kRounds * alone + p::kLink + p::kFlight);
}

// Two nodes, each with its own process, send to a third over shared links; the opposite direction
// does not wait.
TEST(Links, ALinkOnTheWayIsShared) {
  EmulatorSettings ring;
  ring.processes = 8;
  ring.shape = {8, 1, 1, 1, 1, 1};
  const Machine line(ring);
  OwnLinks links(line);
  Links of_another(links.memory.get(), line, nullptr);
  constexpr std::uint64_t kLength = 10'000;
  EXPECT_EQ(links.of.pass({0, 3, 0, kNoPath}, 0, kLength).arrives_ns, kLength + 3 * p::kLink);
  // They share the links from node 1 on; the later one is delayed by the time of the first.
  const Links::Passage second = of_another.pass({1, 3, 0, kNoPath}, p::kLink, kLength);
  EXPECT_NEAR(static_cast<double>(second.arrives_ns), static_cast<double>(2 * kLength + 3 * p::kLink), Ledger::kBin);
  EXPECT_NEAR(static_cast<double>(second.left_ns), static_cast<double>(2 * kLength + p::kLink), Ledger::kBin);
  EXPECT_EQ(links.of.pass({3, 0, 0, kNoPath}, 0, kLength).arrives_ns, kLength + 3 * p::kLink) << "the way back";
  EXPECT_EQ(links.of.pass({5, 5, 0, kNoPath}, 7, kLength).arrives_ns, 7 + kLength) << "no link";
}

// Two processes of a node share its TNIs.
TEST_F(Neighbours, ATniServesAllProcessesOfItsNode) {
  Links of_another(links_.memory.get(), machine_, nullptr);
  Model another({true, false}, &of_another);
  CqCommand put;
  put.opcode = Opcode::piggyback;
  put.length = 8;
  const Route route{centre_, neighbour(0), 2, kNoPath};
  const Route elsewhere{neighbour(1), centre_, 2, kNoPath};
  const std::uint64_t first = model_.sent(put, route, 1000).arrives_ns;
  EXPECT_EQ(another.sent(put, route, 1000).arrives_ns, first + p::kTniPut);
  EXPECT_EQ(another.sent(put, elsewhere, 1000).arrives_ns, first) << "another node's";
}

// A get's data uses one link too, in any number of pieces; dividing it costs no time.
TEST_F(Neighbours, TheDataOfGetsSharesTheLink) {
  const Route back{neighbour(0), centre_, 0, kNoPath};
  std::uint64_t last = 0;
  for (int get = 0; get < 3; ++get)
    for (std::uint32_t offset = 0; offset < kBytes; offset += kMtu)
      last = std::max(last, model_.answered(Opcode::get, {offset, std::min(kMtu, kBytes - offset)}, back, 5000));
  const auto alone = static_cast<std::uint64_t>(static_cast<double>(Model::wire_bytes(kBytes, kMtu)) / p::kBytesPerNs);
  EXPECT_EQ(last, 5000 + p::kReadTarget + 3 * alone + p::kLink + p::kReturn);
}

TEST_F(ModelTest, RegistrationHasAPriceAndOneThreadAtATime) {
  constexpr std::uint64_t kThreads = 5;
  std::array<std::uint64_t, kThreads> ends{};
  for (std::uint64_t i = 0; i < kThreads; ++i)
    in_thread([&] {
      model_.registered();
      EXPECT_GE(Model::now_ns(), p::kRegister);
      model_.deregistered();
      ends.at(i) = Model::now_ns();
    });
  EXPECT_EQ(ends.front(), p::kRegister + p::kDeregister);
  const std::uint64_t last = *std::max_element(ends.begin(), ends.end());
  EXPECT_NEAR(static_cast<double>(last), static_cast<double>(kThreads * (p::kRegister + p::kDeregister)), Ledger::kBin);
}

}  // namespace
}  // namespace tofu_emulator::model_test
