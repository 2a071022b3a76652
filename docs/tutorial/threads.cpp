// Every thread communicates: thread t of each rank has a worker of its own, puts a number to its right neighbour,
// waits for the one from the left, and adds that to a sum at rank 0.
#include <cstdio>
#include <future>
#include <heddle/heddle.hpp>
#include <vector>

constexpr std::uint32_t kThreads = 3;

struct Mailbox {
  std::uint64_t number;
  std::uint64_t arrived;
};

struct Shared {
  Mailbox mailboxes[kThreads];  // one for each thread
  std::uint64_t sum;            // that of rank 0 is used
};

void communicate(const heddle::Context& context, const heddle::Region& region,
                 const std::vector<heddle::RemoteRegion>& peers, std::uint32_t thread) {
  auto worker = context.open_worker(HEDDLE_SHARING_EXCLUSIVE);  // only this thread uses it
  const std::uint64_t place = thread * sizeof(Mailbox);
  const auto& right = peers[(context.rank() + 1) % context.size()];
  const std::uint64_t number = 10 * context.rank() + thread;
  const heddle_signal signal{right.at(place + offsetof(Mailbox, arrived)), 1, HEDDLE_SIGNAL_SET};
  heddle::check(worker.put_signal(heddle::bytes_of(number), right.at(place), signal));

  const Mailbox& mine = region.memory<Shared>()[0].mailboxes[thread];
  heddle::check(worker.wait(mine.arrived, HEDDLE_EQ, 1));
  heddle::check(worker.atomic(HEDDLE_ADD64, peers[0].at(offsetof(Shared, sum)), mine.number));
  heddle::check(worker.quiet());  // until the neighbour has our number, and rank 0 the sum
}

int main() try {
  const auto context = heddle::Context::join();
  const auto region = context.alloc(sizeof(Shared));
  const auto peers = context.exchange(region);

  std::vector<std::future<void>> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.push_back(std::async(std::launch::async, [&, t] { communicate(context, region, peers, t); }));
  }
  for (auto& thread : threads) thread.get();  // throws what the thread has thrown

  const Shared& mine = region.memory<Shared>()[0];
  std::printf("rank %u got", context.rank());
  for (const Mailbox& mailbox : mine.mailboxes) std::printf(" %lu", static_cast<unsigned long>(mailbox.number));
  std::printf("\n");
  context.barrier();  // all sums are made
  if (context.rank() == 0) std::printf("the sum is %lu\n", static_cast<unsigned long>(mine.sum));
} catch (const heddle::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
