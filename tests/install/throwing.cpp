// An outside program with a mistake: rank 1 leaves its region, throws, and unwinds past its
// context, while the others wait for it: with the argument "barrier" in one, with "signal" for a
// value that only it would put. With "caught" it catches the error inside the context's scope, and
// all leave as usual.
#include <cstdint>
#include <cstdio>
#include <heddle/heddle.hpp>
#include <string_view>
#include <utility>

int main(int argc, char** argv) try {
  const std::string_view waiting = argc > 1 ? argv[1] : "";
  heddle::Context context = heddle::Context::join();
  heddle::Worker worker = context.open_worker();
  const heddle::Region region = context.alloc(sizeof(std::uint64_t));
  const auto all = context.exchange(region);

  const std::uint64_t one = 1;
  const std::uint64_t offset = context.rank() == 1 ? 1000 : 0;
  const auto put = [&] {
    heddle::check(worker.put(heddle::bytes_of(one), all[(context.rank() + 1) % context.size()].at(offset)));
  };
  if (waiting == "caught") {
    try {
      put();
    } catch (const heddle::Error& error) {
      std::printf("caught %s\n", error.what());
    }
    const heddle::Context moved = std::move(context);
    moved.barrier(worker);
    return 0;
  }
  put();
  if (waiting == "barrier") {
    context.barrier(worker);
  } else {
    heddle::check(worker.wait(region.memory<std::uint64_t>()[0], HEDDLE_EQ, 1));
  }
} catch (const heddle::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 3;
}
