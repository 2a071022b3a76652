// An outside program in C++20: the same as user.c over heddle.hpp.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <heddle/heddle.hpp>

static void exchange_ranks() {
  int major = -1;
  int minor = -1;
  int patch = -1;
  heddle_version(&major, &minor, &patch);
  const heddle::Context context = heddle::Context::join();
  heddle::Worker worker = context.open_worker();
  const heddle::Region region = context.alloc(sizeof(std::uint64_t));
  const auto all = context.exchange(region);

  const std::uint64_t mine = 100 + context.rank();
  heddle::check(worker.put(heddle::bytes_of(mine), all[(context.rank() + 1) % context.size()].at(0)));
  heddle::check(worker.quiet());
  context.barrier(worker);
  std::printf("c++ %d.%d.%d rank %u of %u got %llu\n", major, minor, patch, context.rank(), context.size(),
              static_cast<unsigned long long>(region.memory<std::uint64_t>()[0]));
}

int main() {
  try {
    exchange_ranks();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
