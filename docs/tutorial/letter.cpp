// Each rank puts a number into its right neighbour's memory, and waits for the one from the left.
#include <cstdio>
#include <heddle/heddle.hpp>

struct Mailbox {
  std::uint64_t number;
  std::uint64_t arrived;
};

int main() try {
  const auto context = heddle::Context::join();
  auto worker = context.open_worker();
  const auto region = context.alloc(sizeof(Mailbox));  // zeroed
  const auto mailboxes = context.exchange(region);     // those of all ranks

  const auto& right = mailboxes[(context.rank() + 1) % context.size()];
  const std::uint64_t number = 10 * context.rank();
  const heddle_signal signal{right.at(offsetof(Mailbox, arrived)), 1, HEDDLE_SIGNAL_SET};
  heddle::check(worker.put_signal(heddle::bytes_of(number), right.at(0), signal));

  const Mailbox& mine = region.memory<Mailbox>()[0];
  heddle::check(worker.wait(mine.arrived, HEDDLE_EQ, 1));
  std::printf("rank %u got %lu\n", context.rank(), static_cast<unsigned long>(mine.number));
  heddle::check(worker.quiet());  // until our own number is there
} catch (const heddle::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
