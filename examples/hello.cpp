// Every rank puts a greeting into its right neighbour's memory, a signal after it, and waits for
// its own.
#include <cstdio>
#include <heddle/heddle.hpp>

struct Mailbox {
  char text[56];
  std::uint64_t arrived;
};

int main() try {
  const auto context = heddle::Context::join();
  auto worker = context.open_worker();
  const auto region = context.alloc(sizeof(Mailbox));
  const auto mailboxes = context.exchange(region);  // those of all ranks

  Mailbox letter{};
  std::snprintf(letter.text, sizeof letter.text, "hello from rank %u of %u", context.rank(), context.size());
  const auto& right = mailboxes[(context.rank() + 1) % context.size()];
  const heddle_signal arrived{right.at(offsetof(Mailbox, arrived)), 1, HEDDLE_SIGNAL_SET};
  heddle::check(worker.put_signal(std::as_bytes(std::span(letter.text)), right.at(0), arrived));

  const Mailbox& mine = region.memory<Mailbox>()[0];
  heddle::check(worker.wait(mine.arrived, HEDDLE_EQ, 1));
  std::printf("rank %u got: %s\n", context.rank(), mine.text);
  // until our letter is there, it and the neighbour's mailbox are in use
  heddle::check(worker.quiet());
} catch (const heddle::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
