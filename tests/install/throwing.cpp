// An outside program with a mistake: rank 1 leaves its region, throws, and unwinds past its context, while the others wait
// for it: with the argument "barrier" in one, otherwise for a value that only it would put.
#include <cstdint>
#include <cstdio>
#include <heddle/heddle.hpp>
#include <string_view>

int main(int argc, char** argv) try {
  const bool in_barrier = argc > 1 && std::string_view(argv[1]) == "barrier";
  const heddle::Context context = heddle::Context::join();
  heddle::Worker worker = context.open_worker();
  const heddle::Region region = context.alloc(sizeof(std::uint64_t));
  const auto all = context.exchange(region);

  const std::uint64_t one = 1;
  const std::uint64_t offset = context.rank() == 1 ? 1000 : 0;
  heddle::check(worker.put(heddle::bytes_of(one), all[(context.rank() + 1) % context.size()].at(offset)));
  if (in_barrier) {
    context.barrier(worker);
  } else {
    heddle::check(worker.wait(region.memory<std::uint64_t>()[0], HEDDLE_EQ, 1));
  }
} catch (const heddle::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 3;
}
