// Random collectives against the expected results, over every transport: operations, sizes, roots,
// algorithms, memory and forms from a seed that all ranks share, several under way at once; and
// that a hundred thousand starts leave nothing behind.
#include <malloc.h>

#include <optional>

#include "api/test_collective.hpp"
#include "base/random.hpp"
#include "base/test_support.hpp"

namespace heddle::test::collective_random_test {
namespace {

class RandomCollectives : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Settings, RandomCollectives, testing::ValuesIn(all_settings()), name_of);

const char* random_algorithm(base::Random& random, Operation operation, std::uint32_t ranks, bool any) {
  std::vector<const char*> names = {nullptr, nullptr};  // the one that is chosen, more often
  for (const collective::Algorithm& algorithm : collective::algorithms()) {
    const collective::AlgorithmRequest request{operation, 0, ranks, 0, 64, 1, 0, {0, 0, 0}};
    if (algorithm.operation != operation || algorithm.rejects(request) != nullptr) continue;
    if (any || !algorithm.gets) names.push_back(algorithm.name);
  }
  return names[random.below(names.size())];
}

// The same at all members, `random` being in the same state.
Part::Asked random_part(base::Random& random, std::uint32_t ranks, bool mapped) {
  constexpr std::array<std::uint64_t, 5> kLimits = {1, 49, 600, 9000, 70'000};
  Part::Asked asked;
  asked.operation = all_operations()[random.below(all_operations().size())];
  asked.bytes = random.below(kLimits[random.below(kLimits.size())]);
  asked.root = static_cast<std::uint32_t>(random.below(ranks));
  asked.memory = random.below(2) != 0 ? Memory::allocated : Memory::own;
  asked.in_place = random.below(3) == 0;
  asked.algorithm = random_algorithm(random, asked.operation, ranks, mapped);
  asked.segment_bytes = random.below(2) != 0 ? 0 : 64 + random.below(4000);
  return asked;
}

TEST_P(RandomCollectives, GiveWhatTheyHaveTo) {
  const Variables variables(GetParam().variables);
  // Algorithms that read others' memory are for ranks that map it.
  const bool mapped = std::string_view(GetParam().transport) == "shm" && GetParam().variables.empty();
  for (const std::uint32_t ranks : {2U, 3U, 6U}) {
    run_members(ranks, GetParam().transport, [&](const Member& member) {
      base::Random random(ranks * 1000);
      for (int round = 0; round < base::few_if_sanitized(5, 20); ++round) {
        struct Open {
          Part part;
          heddle_collective made{};
        };
        std::vector<Open> open;
        for (std::uint64_t i = 1 + random.below(4); i > 0; --i)
          open.push_back({Part(member.context, member.world, random_part(random, ranks, mapped)), {}});
        for (Open& one : open) must(one.part.init(&one.made), one.part.describe() + ", init");
        for (std::uint64_t run = 1; run <= 3; ++run) {
          for (Open& one : open) {
            one.part.fill(run);
            must(heddle_collective_start(one.made), one.part.describe() + ", start");
          }
          // Each member ends them in an order of its own.
          for (std::size_t i = 0; i < open.size(); ++i) {
            const Open& one = open[(i + member.rank()) % open.size()];
            must(heddle_collective_wait(one.made, HEDDLE_FOREVER), one.part.describe() + ", wait");
            one.part.verify(run);
          }
        }
        for (Open& one : open) must(heddle_collective_free(one.made), one.part.describe() + ", free");
        Part::Asked asked = random_part(random, ranks, mapped);
        asked.algorithm = nullptr;
        Part part(member.context, member.world, asked);
        part.run(random.below(2) != 0 ? Form::blocking : Form::nonblocking, 2);
      }
    });
    ASSERT_FALSE(HasFailure()) << ranks << " ranks";
  }
}

// The process's memory from malloc that is in use.
std::size_t bytes_in_use() {
  return ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
}

TEST(Starts, AHundredThousandOfOneHandleLeaveNothingBehind) {
  std::optional<std::size_t> before;
  run_members(2, "shm", [&](const Member& member) {
    Part part(member.context, member.world,
              {Operation::broadcast, 4096, 0, Memory::allocated, false, "broadcast.binomial", 0});
    heddle_collective made{};
    must(part.init(&made), "init");
    const auto starts = [&](int count) {
      for (int i = 0; i < count; ++i) {
        must(heddle_collective_start(made), "start");
        must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
      }
      must(heddle_barrier(member.world.handle()), "barrier");
    };
    starts(1000);  // memory that is made ready once
    if (member.rank() == 0) before = bytes_in_use();
    starts(base::few_if_sanitized(5000, 100'000));
    // Far less than a byte a start.
    if (member.rank() == 0) {
      EXPECT_LE(bytes_in_use(), *before + 16'384);
    }
    must(heddle_barrier(member.world.handle()), "barrier");
    must(heddle_collective_free(made), "free");
  });
}

}  // namespace
}  // namespace heddle::test::collective_random_test
