// Every operation by each of its algorithms and in each form, of 1 to 8 ranks, against the expected
// result.
#include "api/test_collective.hpp"
#include "base/test_support.hpp"

namespace heddle::test::collective_operations_test {
namespace {

class OperationsOf : public testing::TestWithParam<Operation> {};
INSTANTIATE_TEST_SUITE_P(All, OperationsOf, testing::ValuesIn(all_operations()),
                         [](const auto& row) { return collective::name_of(row.param); });

// Null: the algorithm that the library chooses. Only algorithms for any shape.
std::vector<const char*> algorithms_for(Operation operation, std::uint32_t ranks) {
  std::vector<const char*> names = {nullptr};
  for (const collective::Algorithm& algorithm : collective::algorithms()) {
    const collective::AlgorithmRequest request{operation, 0, ranks, 0, 64, 1, 0, {0, 0, 0}};
    if (algorithm.operation == operation && algorithm.rejects(request) == nullptr) names.push_back(algorithm.name);
  }
  return names;
}

// Data of a run must not be mistaken for data of the run before: two runs each.
void run_all(const Member& member, Operation operation, std::span<const std::uint64_t> sizes, std::uint32_t root) {
  for (const char* algorithm : algorithms_for(operation, member.world.size())) {
    for (const std::uint64_t bytes : sizes) {
      for (const Memory memory : {Memory::own, Memory::allocated}) {
        for (const bool in_place : {false, true}) {
          Part part(member.context, member.world, {operation, bytes, root, memory, in_place, algorithm, 0});
          part.run(Form::persistent, 2);
          if (algorithm != nullptr) continue;
          part.run(Form::blocking, 2);
          part.run(Form::nonblocking, 2);
        }
      }
    }
  }
}

TEST_P(OperationsOf, SmallSizesByAllAlgorithmsOfOneToEightRanks) {
  const std::vector<std::uint64_t> sizes = base::few_if_sanitized<std::vector<std::uint64_t>>({47}, {0, 1, 8, 47});
  const std::vector<std::uint32_t> counts =
      base::few_if_sanitized<std::vector<std::uint32_t>>({2, 3, 6}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (const std::uint32_t ranks : counts) {
    run_members(ranks, "shm",
                [&](const Member& member) { run_all(member, GetParam(), sizes, ranks > 2 ? ranks - 2 : 0); });
    ASSERT_FALSE(HasFailure()) << ranks << " ranks";
  }
}

TEST_P(OperationsOf, LargerSizesByAllAlgorithms) {
  constexpr std::array<std::uint64_t, 1> kPage = {4097};
  for (const std::uint32_t ranks : base::few_if_sanitized<std::vector<std::uint32_t>>({3}, {2, 3, 7})) {
    run_members(ranks, "shm", [&](const Member& member) { run_all(member, GetParam(), kPage, ranks - 1); });
    ASSERT_FALSE(HasFailure()) << ranks << " ranks";
  }
}

TEST_P(OperationsOf, AMebibyteByAllAlgorithms) {
  if (GetParam() == Operation::barrier) return;
  run_members(3, "shm", [&](const Member& member) {
    for (const char* algorithm : algorithms_for(GetParam(), 3)) {
      const Memory memory = algorithm == nullptr ? Memory::own : Memory::allocated;
      Part part(member.context, member.world, {GetParam(), std::uint64_t{1} << 20, 1, memory, false, algorithm, 0});
      part.run(Form::persistent, 1);
      if (algorithm == nullptr) part.run(Form::blocking, 1);
    }
  });
}

// Blocking calls of longer blocks go in pieces of all blocks: the last one is shorter.
TEST_P(OperationsOf, LongBlocksInPieces) {
  if (GetParam() != Operation::alltoall && GetParam() != Operation::allgather) return;
  for (const std::uint32_t ranks : base::few_if_sanitized<std::vector<std::uint32_t>>({2, 3}, {2, 3, 5, 16, 17})) {
    run_members(ranks, "shm", [&](const Member& member) {
      for (const std::uint64_t bytes : {32'769U, 70'001U, 200'001U}) {
        for (const bool in_place : {false, true}) {
          Part part(member.context, member.world, {GetParam(), bytes, 0, Memory::own, in_place, nullptr, 0});
          part.run(Form::blocking, 3);
        }
      }
    });
    ASSERT_FALSE(HasFailure()) << ranks << " ranks";
  }
}

// Where peers reach the memory of all members they put straight into it. Members tell each other
// now and then.
TEST_P(OperationsOf, LongBlocksIntoMemoryThatChanges) {
  if (GetParam() != Operation::alltoall && GetParam() != Operation::allgather) return;
  for (const std::uint32_t ranks : {2U, 5U}) {
    run_members(ranks, "shm", [&](const Member& member) {
      Part own(member.context, member.world, {GetParam(), 140'001, 0, Memory::own, false, nullptr, 0});
      Part allocated(member.context, member.world, {GetParam(), 140'001, 0, Memory::allocated, false, nullptr, 0});
      const auto run_in = [](Part& part, std::uint64_t run) {
        part.fill(run);
        must(part.blocking(), part.describe());
        part.verify(run);
      };
      std::uint64_t run = 0;
      for (int i = 0; i < 8; ++i) run_in(allocated, ++run);
      for (int i = 0; i < 8; ++i) run_in(member.world.rank() == 0 ? own : allocated, ++run);
      for (int i = 0; i < 5; ++i) run_in(own, ++run);
      for (std::uint32_t i = 0; i < 9; ++i) run_in((i + member.world.rank()) % 3 == 0 ? own : allocated, ++run);
    });
    ASSERT_FALSE(HasFailure()) << ranks << " ranks";
  }
}

TEST_P(OperationsOf, PipelinesInSegmentsThatDoNotDivideTheBytes) {
  for (const std::uint32_t ranks : {2U, 5U}) {
    run_members(ranks, "shm", [&](const Member& member) {
      for (const char* algorithm : algorithms_for(GetParam(), ranks)) {
        if (algorithm == nullptr) continue;
        Part part(member.context, member.world, {GetParam(), 5000, 0, Memory::allocated, false, algorithm, 700});
        part.run(Form::persistent, 3);
      }
    });
    ASSERT_FALSE(HasFailure()) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace heddle::test::collective_operations_test
