// How many small one-sided operations per second threads with a worker each can do, to a target
// that sleeps.
#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

// `operation(worker, thread, n)` does n operations and waits for them. Rank 0 works; the other
// sleeps in the barrier, so its core is free for the second thread.
template <class Operation>
void measure(Session& session, Job& job, const char* op, std::uint64_t size, std::uint32_t threads,
             Operation&& operation) {
  harness::Figure figure = job.figure("rate", op, "rate", size, threads);
  figure.key.threads = figure.key.workers = threads;
  const auto pin = [&](std::uint32_t thread) { session.cores().pin_alone(session.rank(), thread); };
  session.measure(figure, [&](std::uint64_t n) {
    double elapsed = 0;
    if (session.rank() == 0) {
      elapsed =
          harness::run_threads(threads, pin, [&](std::uint32_t thread) { operation(job.worker(thread), thread, n); });
    }
    session.channel().barrier();
    return Run{elapsed};
  });
}

// Puts with one completion counter, which is waited for at the end.
void put_many(Job& job, heddle_worker worker, heddle_counter counter, std::uint32_t thread, std::uint64_t size,
              std::uint64_t n) {
  must(heddle_counter_reset(counter), "heddle_counter_reset");
  heddle_completion completion{};
  completion.counter = counter;
  heddle_remote target = size <= kSlotBytes ? job.slot(thread) : job.data(false);
  std::uint64_t posted = 0;
  std::uint64_t value = thread;
  const void* source = size == 8 ? static_cast<const void*>(&value) : job.local();
  for (std::uint64_t i = 0; i < n; ++i) {
    // An operation that is done already raises nothing.
    posted += must(heddle_put(worker, source, size, target, &completion), "heddle_put") == HEDDLE_POSTED ? 1 : 0;
  }
  must(heddle_counter_wait(worker, counter, posted, HEDDLE_FOREVER), "heddle_counter_wait");
  must(heddle_flush(worker, job.peer()), "heddle_flush");
}

void measure_puts(Session& session, Job& job, std::uint64_t size, std::uint32_t threads) {
  std::vector<heddle_counter> counters(threads);
  for (std::uint32_t i = 0; i < threads; ++i) {
    heddle_counter_options options{};
    options.size = sizeof options;
    options.worker = job.worker(i);
    must(heddle_counter_create(job.context(), &options, &counters[i]), "heddle_counter_create");
  }
  measure(session, job, "put", size, threads, [&](heddle_worker worker, std::uint32_t thread, std::uint64_t n) {
    put_many(job, worker, counters[thread], thread, size, n);
  });
  for (const heddle_counter counter : counters) must(heddle_counter_free(counter), "heddle_counter_free");
}

void measure_gets(Session& session, Job& job, std::uint64_t size, std::uint32_t threads) {
  measure(session, job, "get", size, threads, [&](heddle_worker worker, std::uint32_t thread, std::uint64_t n) {
    std::byte own[kSlotBytes];
    for (std::uint64_t i = 0; i < n; ++i) {
      must(heddle_get(worker, own, size, job.slot(thread), nullptr), "heddle_get");
    }
    must(heddle_flush(worker, job.peer()), "heddle_flush");
  });
}

void measure_fadds(Session& session, Job& job, std::uint32_t threads) {
  measure(session, job, "fadd", 8, threads, [&](heddle_worker worker, std::uint32_t thread, std::uint64_t n) {
    std::uint64_t old = 0;
    const heddle_fetch fetch{1, 0, &old};
    for (std::uint64_t i = 0; i < n; ++i) {
      must(heddle_fetch_atomic(worker, HEDDLE_ADD64, job.slot(thread), &fetch, nullptr), "heddle_fetch_atomic");
    }
    must(heddle_flush(worker, job.peer()), "heddle_flush");
  });
}

}  // namespace

void run_rate(Session& session, Job& job) {
  if (!session.wants("rate")) return;
  for (const std::uint32_t threads : harness::threads_of(session.options())) {
    for (const std::uint64_t size : harness::sizes_or(session.options(), {8})) {
      if (session.wants("rate", "put") && size <= 4096) measure_puts(session, job, size, threads);
      if (session.wants("rate", "get") && size <= kSlotBytes) measure_gets(session, job, size, threads);
    }
    if (session.wants("rate", "fadd")) measure_fadds(session, job, threads);
  }
}

}  // namespace heddle::bench::work
