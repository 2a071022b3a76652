// Coroutines: many small activities in one thread. Each draws tickets from a counter in rank 0's
// memory. While one waits for its ticket, the others run. In the end every ticket was drawn exactly
// once.

#include <cstdio>
#include <deque>
#include <exception>
#include <heddle/heddle.hpp>

namespace {

constexpr std::uint64_t kActivities = 32;  // per rank
constexpr std::uint64_t kTickets = 100;    // per activity

// A coroutine that is not awaited: it starts at once, and frees itself at its end.
struct Activity {
  struct promise_type {
    Activity get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

// Coroutines whose operation was refused. The main loop resumes them after it has made progress.
struct Later {
  std::deque<std::coroutine_handle<>> waiting;
  auto wait() {
    struct Waiting {
      Later* later;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<> activity) { later->waiting.push_back(activity); }
      void await_resume() const noexcept {}
    };
    return Waiting{this};
  }
  void resume() {
    std::deque<std::coroutine_handle<>> now;
    now.swap(waiting);
    for (const auto activity : now) activity.resume();
  }
};

struct Draw {
  heddle::Worker& worker;
  heddle_remote counter;
  Later later;
  std::uint64_t sum = 0;  // of the tickets drawn by this rank
  std::uint64_t running = kActivities;
  heddle::Status error = HEDDLE_DONE;
};

Activity draw_tickets(Draw& draw) {
  for (std::uint64_t i = 0; i < kTickets && draw.error >= 0; ++i) {
    std::uint64_t ticket = 0;
    heddle::Status status = HEDDLE_AGAIN;
    while ((status = co_await draw.worker.async_fetch_add(draw.counter, 1, &ticket)) == HEDDLE_AGAIN) {
      co_await draw.later.wait();
    }
    if (status < 0) draw.error = status;
    draw.sum += ticket;
  }
  --draw.running;
}

}  // namespace

int main() try {
  const auto context = heddle::Context::join();
  auto worker = context.open_worker();
  const auto region = context.alloc(sizeof(std::uint64_t));
  const auto all = context.exchange(region);

  Draw draw{worker, all[0].at(0), {}};
  for (std::uint64_t i = 0; i < kActivities; ++i) draw_tickets(draw);
  while (draw.running > 0) {
    heddle::check(worker.wait());
    draw.later.resume();
  }
  heddle::check(draw.error);
  // before it rank 0 may still have to answer; after it nobody accesses its counter
  context.barrier(worker);

  std::vector<std::uint64_t> sums(context.size());
  heddle::check(heddle_context_exchange(context.handle(), &draw.sum, sizeof draw.sum, sums.data()));
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  const std::uint64_t tickets = context.size() * kActivities * kTickets;
  if (context.rank() == 0) std::printf("%llu tickets\n", static_cast<unsigned long long>(tickets));
  return total == tickets * (tickets - 1) / 2 ? 0 : 1;
} catch (const heddle::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
