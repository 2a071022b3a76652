// Every operation in every form over every transport.
#include "api/test_collective.hpp"
#include "base/test_support.hpp"

namespace heddle::test::collective_transports_test {
namespace {

class CollectivesOver : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Settings, CollectivesOver, testing::ValuesIn(all_settings()), name_of);

TEST_P(CollectivesOver, EveryOperationInEveryForm) {
  const Variables variables(GetParam().variables);
  for (const std::uint32_t ranks : base::few_if_sanitized<std::vector<std::uint32_t>>({3}, {2, 3})) {
    run_members(ranks, GetParam().transport, [&](const Member& member) {
      for (const Operation operation : all_operations()) {
        for (const std::uint64_t bytes : base::few_if_sanitized<std::vector<std::uint64_t>>({20000}, {24, 20000})) {
          for (const Memory memory : {Memory::own, Memory::allocated}) {
            Part part(member.context, member.world,
                      {operation, bytes, ranks - 1, memory, memory == Memory::own, nullptr, 0});
            for (const Form form : {Form::blocking, Form::nonblocking, Form::persistent}) part.run(form, 2);
          }
        }
      }
    });
    ASSERT_FALSE(HasFailure()) << ranks << " ranks";
  }
}

// More than any ring or slot takes at once.
TEST_P(CollectivesOver, LargeBroadcastsAndReductions) {
  const Variables variables(GetParam().variables);
  run_members(3, GetParam().transport, [&](const Member& member) {
    for (const Operation operation : {Operation::broadcast, Operation::allreduce, Operation::alltoall}) {
      Part part(member.context, member.world, {operation, 300'001, 1, Memory::own, false, nullptr, 0});
      part.run(Form::blocking, 1);
      part.run(Form::persistent, 2);
    }
  });
}

// A team whose members are on one node stores to their memory, in a job that has other nodes.
TEST(CollectivesOfANode, EveryOperationInEveryForm) {
  const std::vector<std::pair<const char*, const char*>> nodes = {{"HEDDLE_NODE_RANKS", "3"}};
  const Variables variables(nodes);
  run_members(5, "shm,loopback-messages", [&](const Member& member) {
    const Team node = member.world.split(member.rank() / 3);
    for (const Operation operation : all_operations()) {
      for (const Memory memory : {Memory::own, Memory::allocated}) {
        Part part(member.context, node, {operation, 20000, node.size() - 1, memory, memory == Memory::own, nullptr, 0});
        for (const Form form : {Form::blocking, Form::nonblocking, Form::persistent}) part.run(form, 2);
      }
    }
    // Only members with mapped memory can do this.
    Part pull(member.context, node, {Operation::broadcast, 40000, 0, Memory::allocated, false, "broadcast.pull", 0});
    for (const Form form : {Form::nonblocking, Form::persistent}) pull.run(form, 2);
  });
}

}  // namespace
}  // namespace heddle::test::collective_transports_test
