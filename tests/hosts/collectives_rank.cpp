// A rank for hosts_test.py: collective operations at random, from a seed that all ranks share, each
// compared with the expected result.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "api/test_collective.hpp"
#include "base/random.hpp"

namespace heddle::test {
namespace {

Part::Asked random_part(base::Random& random, std::uint32_t ranks) {
  constexpr std::array<std::uint64_t, 5> kLimits = {1, 49, 600, 9000, 70'000};
  Part::Asked asked;
  asked.operation = all_operations()[random.below(all_operations().size())];
  asked.bytes = random.below(kLimits[random.below(kLimits.size())]);
  asked.root = static_cast<std::uint32_t>(random.below(ranks));
  asked.memory = random.below(2) != 0 ? Memory::allocated : Memory::own;
  asked.in_place = random.below(3) == 0;
  return asked;
}

void run(std::uint64_t seed, int operations) {
  const Context context = Context::join();
  const Team world = Team::world(context);
  base::Random random(seed);
  constexpr std::array kForms = {Form::blocking, Form::nonblocking, Form::persistent};
  for (int i = 0; i < operations; ++i) {
    Part part(context, world, random_part(random, context.size()));
    part.run(kForms[random.below(kForms.size())], 3);
  }
  must(heddle_barrier(world.handle()), "the last barrier");
  if (context.rank() == 0) std::printf("%d operations by %u ranks\n", operations, context.size());
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: collectives_rank SEED OPERATIONS");
    heddle::test::run(std::strtoull(argv[1], nullptr, 10), std::atoi(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wrong: %s\n", error.what());
    std::_Exit(99);  // the others must not be waited for
  }
  return 0;
}
