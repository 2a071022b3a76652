// Proves every algorithm for all sizes up to 64 ranks and for samples of larger sizes, and tests
// that the proof finds faults. Sizes above 32 take nine tenths of the time. So only every fifth of
// them is proved, unless TEST_IN_FULL=1, with which check_test_slow runs.
#include "collective/check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/test_support.hpp"
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective::check_test {
namespace {

std::vector<Schedule> schedules(const Algorithm& algorithm, AlgorithmRequest request) {
  std::vector<Schedule> all;
  all.reserve(request.ranks);
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) all.push_back(algorithm.schedule(request));
  return all;
}

// A shape with three sides of at least 2, if there is one for this number.
std::array<Rank, 3> shape_of(Rank ranks) {
  for (Rank x = 2; x * 4 <= ranks; ++x)
    for (Rank y = 2; ranks % x == 0 && x * y * 2 <= ranks; ++y)
      if (ranks / x % y == 0) return {x, y, ranks / x / y};
  return {0, 0, 0};
}

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {};

bool has_form_in_place(Operation operation) {
  switch (operation) {
    case Operation::reduce:
    case Operation::allreduce:
    case Operation::scan:
    case Operation::gather:
    case Operation::allgather:
    case Operation::scatter:
      return true;
    default:
      return false;
  }
}

void prove(const Algorithm& algorithm, const AlgorithmRequest& request, Proof proof, std::uint32_t runs) {
  for (const Buffers buffers : {Buffers::apart, Buffers::in_place}) {
    if (buffers == Buffers::in_place && !has_form_in_place(algorithm.operation)) continue;
    const CheckResult verdict = check(request, schedules(algorithm, request), proof, runs, buffers);
    EXPECT_TRUE(verdict.proved()) << algorithm.name << (buffers == Buffers::apart ? "" : " in place") << " ranks "
                                  << request.ranks << " root " << request.root << " bytes " << request.bytes
                                  << " segment " << request.segment_bytes << "\n"
                                  << verdict.text();
  }
}

TEST_P(EveryAlgorithm, IsProvedUpTo64Ranks) {
  const Algorithm& algorithm = *GetParam();
  // No algorithm has a number of ranks from which it goes another way; those above 32 differ in how
  // often they repeat what smaller ones do. With AddressSanitizer a part of them is enough to find
  // memory errors.
  const Rank all_up_to = std::getenv("TEST_IN_FULL") != nullptr ? 64 : base::kAddressSanitizer ? 24 : 32;
  const auto next = [&](Rank ranks) {
    return ranks < all_up_to ? ranks + 1 : ranks < 63 ? std::min(ranks + 5, 63U) : ranks + 1;
  };
  for (Rank ranks = 1; ranks <= 64 && !HasFailure(); ranks = next(ranks)) {
    AlgorithmRequest request{algorithm.operation, 0, ranks, 0, 12, 4, 0, shape_of(ranks)};
    if (algorithm.rejects(request) != nullptr) continue;
    for (const Rank root : {0U, ranks / 2, ranks - 1}) {
      request.root = root;
      request.segment_bytes = root == 0 ? 3 : 5;
      prove(algorithm, request, Proof::whole, ranks <= 16 ? 3 : 2);
      const bool has_root = algorithm.operation == Operation::broadcast || algorithm.operation == Operation::reduce ||
                            algorithm.operation == Operation::gather || algorithm.operation == Operation::scatter ||
                            algorithm.operation == Operation::gatherv || algorithm.operation == Operation::scatterv;
      if (!has_root) break;
    }
  }
}

TEST_P(EveryAlgorithm, IsProvedForOddSizes) {
  const Algorithm& algorithm = *GetParam();
  for (const std::uint64_t bytes : {0U, 1U, 4U, 7U, 64U, 257U})
    for (const std::uint64_t segment : {0U, 1U, 16U}) {
      if (segment == 1 && bytes > 64) continue;
      const std::uint64_t element = bytes % 4 == 0 ? 4 : 1;
      AlgorithmRequest request{algorithm.operation, 0, 12, 5, bytes, element, segment, {3, 2, 2}};
      prove(algorithm, request, Proof::whole, 3);
      request.reachable = false;
      prove(algorithm, request, Proof::whole, 3);
    }
}

// Longer than a part, with segments that are longer, and without any.
TEST(Broadcast, KeptInParts) {
  for (const char* name : {"broadcast.kept", "broadcast.kept_pull"}) {
    for (const std::uint64_t segment : {std::uint64_t{0}, std::uint64_t{65536}, std::uint64_t{8192}}) {
      for (const Rank ranks : {1U, 2U, 5U}) {
        const AlgorithmRequest request{Operation::broadcast, 0, ranks, ranks - 1, 65537, 1, segment, {0, 0, 0}};
        prove(*find_algorithm(name), request, Proof::whole, 3);
      }
    }
  }
}

TEST_P(EveryAlgorithm, IsRightAtManyRanks) {
  const Algorithm& algorithm = *GetParam();
  const bool dense = algorithm.operation == Operation::allgather || algorithm.operation == Operation::alltoall ||
                     algorithm.operation == Operation::reduce_scatter || algorithm.operation == Operation::scan ||
                     algorithm.operation == Operation::allgatherv || algorithm.operation == Operation::alltoallv ||
                     std::string_view(algorithm.name).ends_with("ring") ||
                     std::string_view(algorithm.name) == "allreduce.kept" ||
                     std::string_view(algorithm.name).ends_with("allgather");
  AlgorithmRequest request{algorithm.operation, 0, dense ? 252U : 4968U, 77, 6, 2, 2, {0, 0, 0}};
  request.shape = dense ? std::array<Rank, 3>{7, 6, 6} : std::array<Rank, 3>{24, 23, 9};
  prove(algorithm, request, Proof::contents_only, 2);
}

std::vector<const Algorithm*> all_algorithms() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : algorithms()) all.push_back(&algorithm);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Table, EveryAlgorithm, testing::ValuesIn(all_algorithms()), [](const auto& row) {
  std::string name = row.param->name;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

TEST(SessionQueues, RunTheSessionAlgorithmsOnly) {
  const AlgorithmRequest request{Operation::broadcast, 4, 12, 0, 600, 1, 10, {3, 2, 2}};
  EXPECT_EQ(runs_on_session_queues(find_algorithm("broadcast.trinaryx3_session")->schedule(request)).reason, "");
  EXPECT_EQ(runs_on_session_queues(find_algorithm("broadcast.chain_session")->schedule(request)).reason, "");
  EXPECT_FALSE(runs_on_session_queues(find_algorithm("broadcast.trinary")->schedule(request)).fits);
  EXPECT_FALSE(runs_on_session_queues(
                   find_algorithm("allreduce.ring")->schedule({Operation::allreduce, 4, 12, 0, 600, 4, 10, {3, 2, 2}}))
                   .fits);
}

// ---- children spread over links -----------------------------------------------------------------

enum class Spread { all, nobody, some };

bool spreads(Spread spread, Rank rank) {
  return spread == Spread::all || (spread == Spread::some && (rank * 2654435761U >> 16U) % 2 == 0);
}

std::vector<Schedule> trinaryx3_session(AlgorithmRequest request, Spread spread) {
  std::vector<Schedule> all;
  all.reserve(request.ranks);
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    request.spread = spreads(spread, request.rank);
    all.push_back(broadcast_trinaryx3_session(request));
  }
  return all;
}

std::vector<std::array<Rank, 3>> boxes_up_to(Rank most) {
  std::vector<std::array<Rank, 3>> all;
  for (Rank x = 2; x * 4 <= most; ++x)
    for (Rank y = 2; x * y * 2 <= most; ++y)
      for (Rank z = 2; x * y * z <= most; ++z) all.push_back({x, y, z});
  return all;
}

// Each rank decides for itself, so all mixtures must be right. The case in which all spread is
// among all algorithms, above.
TEST(TrinaryX3, IsProvedHoweverMembersSpread) {
  std::size_t number = 0;
  for (const std::array<Rank, 3>& box : boxes_up_to(64)) {
    const Rank ranks = box[0] * box[1] * box[2];
    // The largest boxes take most of the time, and AddressSanitizer takes too long for many of
    // them.
    if (++number % (ranks > 36 ? 5 : 1) != 0 || (base::kAddressSanitizer && number % 7 != 0)) continue;
    const AlgorithmRequest request{Operation::broadcast, 0, ranks, ranks * 2 / 3, 12, 1, 2, box};
    for (const Spread spread : {Spread::some, Spread::nobody}) {
      const CheckResult verdict = check(request, trinaryx3_session(request, spread), Proof::whole, 2);
      ASSERT_TRUE(verdict.proved()) << box[0] << "x" << box[1] << "x" << box[2] << "\n" << verdict.text();
    }
  }
}

TEST(TrinaryX3, IsRightOnAWholeMachine) {
  const AlgorithmRequest request{Operation::broadcast, 0, 158'976, 1234, 6, 1, 1, {48, 69, 48}};
  const std::vector<Schedule> all = trinaryx3_session(request, Spread::some);
  const CheckResult verdict = check(request, all, Proof::contents_only, 2);
  EXPECT_TRUE(verdict.proved()) << verdict.text();
  for (const Schedule& schedule : all) ASSERT_EQ(runs_on_session_queues(schedule).reason, "");
}

// One queue puts in a run at most what one link carries, a third of the bytes; if nobody spreads,
// up to three times as much.
TEST(TrinaryX3, EachLinkHasAQueue) {
  constexpr std::uint64_t kBytes = 300;
  const auto most_of_a_queue = [](const Schedule& schedule) {
    std::vector<std::uint64_t> bytes(schedule.queues);
    for (const ScheduleCommand& command : schedule.commands) bytes[command.queue] += command.source.bytes;
    return *std::ranges::max_element(bytes);
  };
  const auto queues_in_use = [](const Schedule& schedule) {
    return std::ranges::count_if(schedule.counters, [](const ScheduleCounter& counter) { return counter.per_run > 0; });
  };
  for (const std::array<Rank, 3>& box : boxes_up_to(64)) {
    const Rank ranks = box[0] * box[1] * box[2];
    const AlgorithmRequest request{Operation::broadcast, 0, ranks, 1, kBytes, 1, 10, box};
    std::uint64_t together = 0;
    for (const Schedule& schedule : trinaryx3_session(request, Spread::nobody)) {
      together = std::max(together, most_of_a_queue(schedule));
      EXPECT_TRUE(schedule.links.empty());
      EXPECT_LE(queues_in_use(schedule), 4);
    }
    EXPECT_EQ(together, ranks == 8 ? kBytes * 2 / 3 : kBytes);
    for (const Schedule& schedule : trinaryx3_session(request, Spread::all)) {
      EXPECT_LE(most_of_a_queue(schedule), kBytes / 3);
      EXPECT_LE(queues_in_use(schedule), 7) << "of 12, so that a second operation finds four";
      std::vector<std::uint32_t> links = schedule.links;
      std::erase(links, kAnyLink);
      std::ranges::sort(links);
      EXPECT_EQ(std::ranges::adjacent_find(links), links.end());
    }
  }
}

// ---- the proof finds faults ---------------------------------------------------------------------

struct Broken {
  AlgorithmRequest request;
  std::vector<Schedule> all;
  explicit Broken(const char* name, Operation operation, Rank ranks = 4)
      : request{operation, 0, ranks, 0, 12, 4, 4, {0, 0, 0}} {
    all = schedules(*find_algorithm(name), request);
  }
  [[nodiscard]] std::string faults() const { return check(request, all).text(); }
};

TEST(Check, FindsABufferTouchedTooEarly) {
  Broken broken("broadcast.chain", Operation::broadcast);
  // the root does not wait for its child
  for (ScheduleCommand& command : broken.all[0].commands) command.waits = {};
  EXPECT_NE(broken.faults().find("not ordered"), std::string::npos) << broken.faults();
}

// The first rank takes another rank's contribution first, and adds its own to it: right, unless its
// own contribution was where the result is.
TEST(Check, FindsWhatIsWrongInPlaceOnly) {
  Broken broken("allreduce.flat", Operation::allreduce, 3);
  std::vector<ScheduleCommand>& commands = broken.all[0].commands;
  std::swap(commands[0].source, commands[1].source);
  std::swap(commands[0].waits, commands[1].waits);
  EXPECT_EQ(broken.faults(), "");
  const std::string in_place = check(broken.request, broken.all, Proof::whole, 3, Buffers::in_place).text();
  EXPECT_NE(in_place.find("contents"), std::string::npos) << in_place;
}

TEST(Check, FindsADeadlock) {
  Broken broken("barrier.dissemination", Operation::barrier);
  // every rank waits before it signals
  for (Schedule& schedule : broken.all) wait(schedule.commands[0], 1, 1);
  EXPECT_NE(broken.faults().find("deadlock"), std::string::npos) << broken.faults();
}

TEST(Check, FindsCreditsThatAreLeftOver) {
  Broken broken("broadcast.chain_session", Operation::broadcast);
  for (ScheduleCommand& command : broken.all[2].commands)
    if (command.source.bytes > 0) ++command.credits;  // as if the tail had a successor
  EXPECT_NE(broken.faults().find("credits in a run"), std::string::npos) << broken.faults();
}

TEST(Check, FindsABarrierThatDoesNotHold) {
  Broken broken("barrier.dissemination", Operation::barrier);
  Schedule& leaver = broken.all[3];
  leaver.commands.back().waits = {};  // it leaves when the first step is done
  EXPECT_NE(broken.faults().find("may leave barrier"), std::string::npos) << broken.faults();
}

TEST(Check, FindsAContributionThatIsMissingAndOneThatCountsTwice) {
  Broken missing("reduce.binomial", Operation::reduce);
  for (ScheduleCommand& command : missing.all[0].commands)
    if (command.action == Action::reduce) {
      command.action = Action::nop;
      command.source.bytes = command.destination.bytes = 0;
      break;
    }
  EXPECT_NE(missing.faults().find("contents"), std::string::npos) << missing.faults();
  Broken twice("reduce.binomial", Operation::reduce);
  std::vector<ScheduleCommand>& commands = twice.all[0].commands;
  for (std::size_t i = 0; i < commands.size(); ++i)
    if (commands[i].action == Action::reduce) {
      commands.insert(commands.begin() + static_cast<std::ptrdiff_t>(i), commands[i]);
      break;
    }
  EXPECT_NE(twice.faults().find("contents"), std::string::npos) << twice.faults();
}

// Two children report to one counter, and the parent goes on after the first report: the credit may
// be from either child.
TEST(Check, KnowsThatACounterDoesNotTellItsGiversApart) {
  Broken broken("gather.linear", Operation::gather, 3);
  for (ScheduleCommand& command : broken.all[0].commands)
    if (command.action == Action::nop) command.waits[0].count = 1;
  EXPECT_NE(broken.faults().find("not ordered"), std::string::npos) << broken.faults();
}

TEST(Check, FindsSlotsThatAreReusedTooEarly) {
  Broken broken("reduce.binomial", Operation::reduce);
  for (Schedule& schedule : broken.all)
    schedule.counters[0].initial *= 2;  // as if the parent had two slots for each child
  EXPECT_NE(broken.faults().find("not ordered"), std::string::npos) << broken.faults();
}

// The same change is harmless in the ring: no rank ends a run before its right neighbour has
// emptied the slots.
TEST(Check, SeesThroughLongChainsOfCredits) {
  Broken harmless("allreduce.ring", Operation::allreduce);
  for (Schedule& schedule : harmless.all) schedule.counters[1].initial += 1;
  EXPECT_EQ(harmless.faults(), "");
}

TEST(Check, FindsAGiverThatThinksItIsAlone) {
  Broken broken("gather.linear", Operation::gather);
  for (ScheduleCommand& command : broken.all[2].commands) command.shares = false;
  EXPECT_NE(broken.faults().find("as if it were alone"), std::string::npos) << broken.faults();
}

TEST(Check, FindsWrongLinks) {
  const AlgorithmRequest request{Operation::broadcast, 0, 12, 0, 12, 1, 4, {3, 2, 2}};
  const auto faults = [&](auto&& spoil) {
    std::vector<Schedule> all = trinaryx3_session(request, Spread::all);
    Schedule& schedule = *std::ranges::find_if(all, [](const Schedule& one) {
      return std::ranges::count_if(one.links, [](std::uint32_t link) { return link != kAnyLink; }) > 1;
    });
    std::vector<std::uint32_t*> named;
    for (std::uint32_t& link : schedule.links)
      if (link != kAnyLink) named.push_back(&link);
    spoil(schedule, named);
    return check(request, all).text();
  };
  using Named = std::vector<std::uint32_t*>;
  EXPECT_EQ(faults([](Schedule&, const Named&) {}), "");
  const std::string same = faults([](Schedule&, const Named& named) { *named[0] = *named[1]; });
  EXPECT_NE(same.find("same link"), std::string::npos) << same;
  const std::string other = faults([](Schedule&, const Named& named) { std::swap(*named[0], *named[1]); });
  EXPECT_NE(other.find("does not leave by"), std::string::npos) << other;
  const std::string none = faults([](Schedule&, const Named& named) { *named[0] = kLinks; });
  EXPECT_NE(none.find("does not exist"), std::string::npos) << none;
  Broken no_torus("broadcast.chain", Operation::broadcast);
  no_torus.all[1].links = {0};
  EXPECT_NE(no_torus.faults().find("no torus"), std::string::npos) << no_torus.faults();
}

TEST(Check, FindsWrongForm) {
  Broken outside("broadcast.chain", Operation::broadcast);
  outside.all[1].commands.back().destination.offset = 100;
  EXPECT_NE(outside.faults().find("not inside"), std::string::npos) << outside.faults();
  Broken nobody("broadcast.chain", Operation::broadcast);
  nobody.all[0].commands.back().target = 9;
  EXPECT_NE(nobody.faults().find("not a rank"), std::string::npos) << nobody.faults();
}

// The table is right about puts into the callers' memory: it says what the schedules do.
TEST(Table, KnowsWhoPutsIntoTheCallersMemory) {
  for (const Algorithm& algorithm : algorithms()) {
    bool into = false;
    bool from = false;
    bool gets = false;
    for (Rank ranks = 2; ranks <= 27; ++ranks) {
      AlgorithmRequest request;
      request.operation = algorithm.operation;
      request.ranks = ranks;
      request.root = ranks / 2;
      request.bytes = algorithm.operation == Operation::barrier ? 0 : 256;
      if (ranks == 8) request.shape = {2, 2, 2};
      if (ranks == 27) request.shape = {3, 3, 3};
      if (algorithm.rejects(request) != nullptr) continue;
      for (request.rank = 0; request.rank < ranks; ++request.rank) {
        for (const ScheduleCommand& command : algorithm.schedule(request).commands) {
          gets = gets || command.action == Action::get;
          if (command.action == Action::get && command.source.place == Place::receive) {
            from = true;
            EXPECT_EQ(command.target, request.root) << algorithm.name;
          }
          if (command.action != Action::put || command.source.bytes == 0 || command.target == request.rank) continue;
          ASSERT_NE(command.destination.place, Place::send) << algorithm.name;
          if (command.destination.place != Place::receive) continue;
          into = true;
          EXPECT_TRUE(request.operation != Operation::broadcast || command.target != request.root) << algorithm.name;
        }
      }
    }
    EXPECT_EQ(into, algorithm.reach == Algorithm::Reach::put) << algorithm.name;
    EXPECT_EQ(from, algorithm.reach == Algorithm::Reach::get) << algorithm.name;
    EXPECT_EQ(gets, algorithm.gets) << algorithm.name;
  }
}

}  // namespace
}  // namespace heddle::collective::check_test
