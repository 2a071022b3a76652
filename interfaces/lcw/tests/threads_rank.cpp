// Many threads: on one device, and on one each; queues that several threads poll; handlers that run
// on several threads. Every completion must be seen once, and every byte be right.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "support.hpp"

namespace {

constexpr int kThreads = 4;
constexpr int kWindow = 24;

test::CountingAllocator g_allocator;
std::atomic<long> g_handled;

// What a thread waits for, for a test that hangs: seldom, and then nothing else tells.
struct Place {
  std::atomic<const char*> what{"nothing yet"};
  std::atomic<long> round{0};
  std::atomic<long> step{0};
  void is(const char* now, long in_round, long at) {
    what.store(now, std::memory_order_relaxed);
    round.store(in_round, std::memory_order_relaxed);
    step.store(at, std::memory_order_relaxed);
  }
};
Place g_places[kThreads];
std::atomic<const char*> g_part{"the beginning"};

// Tells where all threads are, if the test does not end in time: before its launcher ends it.
class Watchdog {
 public:
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  static constexpr std::chrono::seconds kTime{240};  // lcw_test() in CMakeLists.txt: less than that
  void watch() {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kTime, [this] { return over_; })) return;
    const auto rank = static_cast<long long>(lcw::get_rank());
    std::fprintf(stderr, "rank %lld hangs in %s; %ld handled, %ld puts open\n", rank, g_part.load(), g_handled.load(),
                 g_allocator.open.load());
    for (int t = 0; t < kThreads; ++t) {
      std::fprintf(stderr, "rank %lld, thread %d: %s, round %ld, step %ld\n", rank, t, g_places[t].what.load(),
                   g_places[t].round.load(), g_places[t].step.load());
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_{[this] { watch(); }};
};

void meet(lcw::device_t device) {
  g_part = "a barrier";
  lcw::barrier(device);
}

template <typename Work>
void run_threads(const char* part, Work work) {
  g_part = part;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&work, t] { work(t); });
  for (std::thread& thread : threads) thread.join();
}

std::size_t bytes_of(int round, int i) {
  constexpr std::size_t kSome[] = {8, 0, 56, 57, 300, 8192, 9000, 70000};
  return kSome[(round + i) % 8];
}

// Each thread exchanges windows with the same thread of the next rank, and completes what it posts.
void own_queues(const std::vector<lcw::device_t>& devices, int rounds) {
  const lcw::rank_t me = lcw::get_rank();
  const lcw::rank_t next = (me + 1) % lcw::get_nranks();
  const lcw::rank_t before = (me + lcw::get_nranks() - 1) % lcw::get_nranks();
  run_threads("own queues", [&](int t) {
    const lcw::device_t device = devices[t % devices.size()];
    const lcw::comp_t queue = lcw::alloc_cq();
    std::vector<std::vector<unsigned char>> in(kWindow);
    std::vector<std::vector<unsigned char>> out(kWindow);
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < kWindow; ++i) {
        const std::size_t bytes = bytes_of(round, i);
        const lcw::tag_t tag = t * kWindow + i;
        in[i].assign(bytes, 0);
        out[i] = test::filled(test::seed_of(me, next, tag + round), bytes);
        g_places[t].is("posts", round, i);
        test::recv(device, before, tag, in[i].data(), static_cast<std::int64_t>(bytes), queue);
        test::send(device, next, tag, out[i].data(), static_cast<std::int64_t>(bytes), queue);
      }
      for (int i = 0; i < 2 * kWindow; ++i) {
        g_places[t].is("waits", round, i);
        const lcw::request_t request = test::wait(device, queue);
        REQUIRE(request.tag / kWindow == t);
        const auto at = static_cast<int>(request.tag % kWindow);
        REQUIRE(request.length == static_cast<std::int64_t>(bytes_of(round, at)));
        if (request.op != lcw::op_t::RECV) continue;
        REQUIRE(test::is_filled(request.buffer, test::seed_of(before, me, request.tag + round),
                                static_cast<std::size_t>(request.length)));
      }
    }
    lcw::free_cq(queue);
  });
}

// All threads post and poll on one queue. Any thread may complete any operation. Threads that are
// quick send all that they have before the others post any receive. So all messages together must
// fit the credit (HEDDLE_TAG_CREDIT_BYTES: 4 MiB; a message of a word takes 256 bytes) less what is
// received and not yet reported, an eighth of it.
void one_queue(const std::vector<lcw::device_t>& devices, int rounds) {
  constexpr int kMostRounds = (3 << 20) / 256 / kThreads / kWindow;
  rounds = std::min(rounds, kMostRounds);
  const lcw::rank_t me = lcw::get_rank();
  const lcw::rank_t next = (me + 1) % lcw::get_nranks();
  const lcw::rank_t before = (me + lcw::get_nranks() - 1) % lcw::get_nranks();
  const lcw::comp_t queue = lcw::alloc_cq();
  const long all = 2L * kThreads * rounds * kWindow;
  std::atomic<long> completed{0};
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(kThreads) * rounds * kWindow);
  run_threads("one queue", [&](int t) {
    const lcw::device_t device = devices[t % devices.size()];
    std::vector<long> in(static_cast<std::size_t>(rounds) * kWindow);
    std::vector<long> out(in.size());
    const auto poll = [&] {
      lcw::request_t request{};
      if (!lcw::poll_cq(queue, &request)) return false;
      if (request.op == lcw::op_t::RECV) {
        REQUIRE(*static_cast<long*>(request.buffer) == request.tag);
        ++seen[request.tag];
      }
      ++completed;
      return true;
    };
    for (int i = 0; i < rounds * kWindow; ++i) {
      const lcw::tag_t tag = static_cast<lcw::tag_t>(t) * rounds * kWindow + i;
      out[i] = tag;
      g_places[t].is("posts", 0, i);
      test::recv(device, before, tag, &in[i], sizeof(long), queue);
      test::send(device, next, tag, &out[i], sizeof(long), queue);
      poll();
    }
    while (completed < all) {
      g_places[t].is("polls; the step is what all have completed", 0, completed);
      if (!poll()) lcw::do_progress(device);
    }
  });
  for (const auto& times : seen) REQUIRE(times == 1);
  lcw::free_cq(queue);
}

void on_completion(lcw::request_t request) {
  REQUIRE(!test::t_posting);
  if (request.op == lcw::op_t::PUT_SIGNAL) {
    std::size_t bytes = 0;
    REQUIRE(request.length >= static_cast<std::int64_t>(sizeof bytes));
    __builtin_memcpy(&bytes, request.buffer, sizeof bytes);
    REQUIRE(bytes == static_cast<std::size_t>(request.length));
    g_allocator.deallocate(request.buffer);
  } else {
    delete static_cast<std::vector<unsigned char>*>(request.user_context);
  }
  ++g_handled;
}

// Puts of all threads to all ranks; handlers free what was sent and what has arrived.
void puts_with_handlers(const std::vector<lcw::device_t>& devices, lcw::comp_t handler, int rounds) {
  const lcw::rank_t ranks = lcw::get_nranks();
  // Puts of ranks that are ahead may have arrived during the barrier before, so the count goes on.
  static long all = 0;
  all += 2L * kThreads * rounds * ranks;
  run_threads("puts", [&](int t) {
    const lcw::device_t device = devices[t % devices.size()];
    for (int round = 0; round < rounds; ++round) {
      g_places[t].is("posts", round, 0);
      for (lcw::rank_t peer = 0; peer < ranks; ++peer) {
        auto* data = new std::vector<unsigned char>(8 + bytes_of(round, t));
        const std::size_t bytes = data->size();
        __builtin_memcpy(data->data(), &bytes, sizeof bytes);
        test::put(device, peer, data->data(), static_cast<std::int64_t>(bytes), handler, data);
      }
    }
    g_places[t].is("waits until so many are handled", rounds, all);
    test::progress_until(device, [&] { return g_handled >= all; });
  });
  REQUIRE(g_handled == all && g_allocator.open == 0);
}

// Some threads make progress for others, which only post and poll.
void progress_thread(lcw::device_t device, int rounds) {
  std::atomic<bool> over{false};
  std::thread mover([&] {
    while (!over) lcw::do_progress(device);
  });
  const lcw::rank_t me = lcw::get_rank();
  const lcw::rank_t next = (me + 1) % lcw::get_nranks();
  const lcw::rank_t before = (me + lcw::get_nranks() - 1) % lcw::get_nranks();
  run_threads("a thread that makes progress for others", [&](int t) {
    const lcw::comp_t queue = lcw::alloc_cq();
    for (long round = 0; round < rounds; ++round) {
      long in = -1;
      long out = round;
      g_places[t].is("posts", round, 0);
      while (!lcw::recv(device, before, 1000 + t, &in, sizeof in, queue, nullptr)) continue;
      while (!lcw::send(device, next, 1000 + t, &out, sizeof out, queue, nullptr)) continue;
      lcw::request_t request{};
      for (int i = 0; i < 2; ++i) {
        g_places[t].is("waits", round, i);
        while (!lcw::poll_cq(queue, &request)) continue;
      }
      REQUIRE(in == round);
    }
    lcw::free_cq(queue);
  });
  over = true;
  mover.join();
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::stoi(argv[1]) : 100;
  lcw::initialize();
  lcw::set_custom_allocator(&g_allocator);
  std::optional<Watchdog> watchdog(std::in_place);
  const lcw::comp_t handler = lcw::alloc_handler(on_completion);
  std::vector<lcw::device_t> devices;
  for (int t = 0; t < kThreads; ++t) devices.push_back(lcw::alloc_device(8192, handler));
  meet(devices[0]);
  for (const auto& some : {std::vector<lcw::device_t>{devices[0]}, devices}) {
    own_queues(some, rounds);
    meet(devices[0]);
    one_queue(some, rounds);
    meet(devices[0]);
    puts_with_handlers(some, handler, rounds);
    meet(devices[0]);
  }
  progress_thread(devices[1], rounds * 4);
  meet(devices[0]);
  for (const lcw::device_t device : devices) lcw::free_device(device);
  lcw::free_handler(handler);
  const bool first = lcw::get_rank() == 0;
  watchdog.reset();
  lcw::finalize();
  if (first) std::printf("threads: all is well\n");
  return 0;
}
