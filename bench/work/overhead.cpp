// As for LLCL: each thread posts an operation with a completion, waits for it, and so on. t1 - t0
// is what posting costs, t2 - t0 the latency; and the rate when the threads post without waiting.
// For each sharing mode and number of threads.
//
//   get  of 8 bytes: their RDMA READ. From registered memory it passes the worker's queues and the
//        kernel's copy, and the peer does nothing; from allocated memory it is a load by the
//        caller, in every mode
//   am   a message, its t2 when the peer's answer is there. The peer is one thread on exclusive
//        workers, whatever the mode here
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/wait.hpp"
#include "harness/spread.hpp"
#include "harness/stamp.hpp"
#include "work/modes.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

constexpr std::uint32_t kAsk = 910;
constexpr std::uint32_t kAnswer = 911;
constexpr std::uint32_t kPatience = 200;  // looks in vain before the core is given away
constexpr std::int64_t kProbeNs = 100'000'000;

// What a completion callback or handler raises, on whichever thread it runs; its own thread waits
// for it.
struct alignas(harness::kApart) Done {
  std::atomic<std::uint64_t> count{0};  // release here, acquire where it is waited for
};

void raise(void* arg, heddle_status status) {
  must(status, "an operation");
  static_cast<Done*>(arg)->count.fetch_add(1, std::memory_order_release);
}

struct Thread {
  harness::Spread post;
  harness::Spread total;
};

struct Answers {
  std::array<Done, kMaxThreads> done;
  std::array<std::atomic<std::uint64_t>, kMaxThreads>
      // at the peer: those that found no room; its loop sends them
      owed{};
  std::atomic<std::uint64_t> asked{0};  // release in the handler, acquire in the loop
  std::uint64_t expected = 0;           // of asked, by the measurements so far
  bool owner_helps = false;             // registered memory is read with the help of its owner
};

struct Ask {
  std::uint32_t thread;
  std::uint32_t worker;
};

heddle_am_message message(std::uint32_t handler, const Ask& ask) {
  return {handler, sizeof ask, &ask, nullptr, 0};
}

void on_ask(const heddle_am_arrival* ask, void* arg) {
  auto* answers = static_cast<Answers*>(arg);
  const auto* from = static_cast<const Ask*>(ask->header);
  const heddle_am_message reply = message(kAnswer, *from);
  const heddle_status status = heddle_try_am(ask->worker, ask->source, &reply, nullptr);
  if (must(status, "heddle_try_am") == HEDDLE_AGAIN) answers->owed[from->thread].fetch_add(1);
  answers->asked.fetch_add(1, std::memory_order_release);
}

void on_answer(const heddle_am_arrival* answer, void* arg) {
  const auto* to = static_cast<const Ask*>(answer->header);
  static_cast<Answers*>(arg)->done[to->thread].count.fetch_add(1, std::memory_order_release);
}

enum class Operation { get, am };

// One way of sharing, one number of threads.
class Overhead {
 public:
  // `shared`: null for a worker each.
  Overhead(Session& session, Job& job, Answers& answers, const ModeWorker* shared, heddle_sharing sharing)
      : session_(session), job_(job), answers_(answers), shared_(shared), offload_(sharing == HEDDLE_SHARING_OFFLOAD) {}

  void measure(Operation operation, const char* mode, bool registered, std::uint32_t threads) {
    const bool get = operation == Operation::get;
    const std::string op = get ? "get" : "am";
    const auto figure = [&](const std::string& name, const char* metric) {
      harness::Figure out = job_.figure("overhead", name, metric, 8, threads);
      out.key.sharing = mode;
      out.key.memory = job_.kind(registered);
      out.key.threads = threads;
      out.key.workers = shared_ != nullptr ? 1 : threads;
      return out;
    };
    registered_ = registered;
    polls_ = !offload_ || !get;
    const harness::Figure figures[] = {figure(op + "_post", "latency"), figure(op + "_post", "cycles"),
                                       figure(op, "latency")};
    session_.measure(figures, [&](std::uint64_t n) { return timed(operation, threads, n); });
    if (get) session_.measure(figure(op, "rate"), [&](std::uint64_t n) { return streamed(threads, n); });
  }

 private:
  [[nodiscard]] heddle_worker worker(std::uint32_t thread) const {
    return shared_ != nullptr ? shared_->handle() : job_.worker(thread);
  }
  [[nodiscard]] heddle_remote source(std::uint32_t thread) const {
    return registered_ ? job_.data(true) : job_.slot(thread);
  }
  // LLCL polls from a thread of its own; so does an offload worker, while operations are under way
  // (nobody else looks for answers). In the other modes who waits does it.
  void look(heddle_worker worker, std::uint32_t* idle) const {
    const int events = polls_ ? progress(worker) : 0;
    if (!polls_) base::cpu_relax();
    *idle = events > 0 ? 0 : *idle + 1;
    if (*idle > kPatience) sched_yield();
  }
  void wait(heddle_worker worker, const Done& done, std::uint64_t target) const {
    std::uint32_t idle = 0;
    while (done.count.load(std::memory_order_acquire) < target) look(worker, &idle);
  }
  template <class Try>
  heddle_status post(heddle_worker worker, Try&& attempt) const {
    std::uint32_t idle = 0;
    heddle_status status = attempt();
    for (; status == HEDDLE_AGAIN; status = attempt()) look(worker, &idle);
    return must(status, "an operation");
  }

  void one_by_one(Operation operation, std::uint32_t thread, std::uint64_t n, Thread* times);
  Run timed(Operation operation, std::uint32_t threads, std::uint64_t n);
  Run streamed(std::uint32_t threads, std::uint64_t n);
  void serve(std::uint64_t asked);
  void finish();
  template <class Work>
  double at_origin(std::uint32_t threads, Work&& work);

  Session& session_;
  Job& job_;
  Answers& answers_;
  const ModeWorker* shared_;
  const bool offload_;
  bool registered_ = false;
  bool polls_ = true;  // who waits calls progress
};

void Overhead::one_by_one(Operation operation, std::uint32_t thread, std::uint64_t n, Thread* times) {
  const heddle_worker queue = worker(thread);
  Done& done = answers_.done[thread];
  const heddle_completion completion{raise, &done, {}, HEDDLE_WHEN_REMOTE};
  const Ask ask{thread, shared_ != nullptr ? shared_->peer().worker : thread};
  const heddle_am_message question = message(kAsk, ask);
  std::uint64_t value = 0;
  std::uint64_t target = done.count.load(std::memory_order_relaxed);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t t0 = harness::stamp();
    const bool get = operation == Operation::get;
    const heddle_status status =
        get ? post(queue, [&] { return heddle_try_get(queue, &value, sizeof value, source(thread), &completion); })
            : post(queue, [&] { return heddle_try_am(queue, {job_.peer(), 0}, &question, nullptr); });
    const std::uint64_t t1 = harness::stamp();
    // A get that is done raises nothing; an answer always comes.
    if (!get || status == HEDDLE_POSTED) wait(queue, done, ++target);
    const std::uint64_t t2 = harness::stamp();
    times->post.add(t1 - t0);
    times->total.add(t2 - t0);
  }
}

// Rank 0 works; the other sleeps, unless it has to answer.
template <class Work>
double Overhead::at_origin(std::uint32_t threads, Work&& work) {
  const auto pin = [&](std::uint32_t thread) { session_.cores().pin_alone(session_.rank(), thread); };
  return harness::run_threads(threads, pin, work);
}

Run Overhead::timed(Operation operation, std::uint32_t threads, std::uint64_t n) {
  Run run;
  if (session_.rank() == 0) {
    const harness::TickRate rate = harness::measure_ticks();
    std::vector<std::unique_ptr<Thread>> times;
    for (std::uint32_t i = 0; i < threads; ++i) times.push_back(std::make_unique<Thread>());
    run.elapsed_ns =
        at_origin(threads, [&](std::uint32_t thread) { one_by_one(operation, thread, n, times[thread].get()); });
    for (std::uint32_t i = 1; i < threads; ++i) {
      times[0]->post.merge(times[i]->post);
      times[0]->total.merge(times[i]->total);
    }
    run.values = harness::times_of(times[0]->post, times[0]->total, rate);
    run.verified = times[0]->post.count() == n * threads;
  } else if (operation == Operation::am) {
    answers_.expected += n * threads;
    serve(answers_.expected);
  }
  finish();
  return run;
}

// Each thread has as many in flight as its worker takes; it waits for the last of them.
Run Overhead::streamed(std::uint32_t threads, std::uint64_t n) {
  double elapsed = 0;
  if (session_.rank() == 0) {
    elapsed = at_origin(threads, [&](std::uint32_t thread) {
      const heddle_worker queue = worker(thread);
      Done& done = answers_.done[thread];
      const heddle_completion completion{raise, &done, {}, HEDDLE_WHEN_REMOTE};
      std::uint64_t value = 0;
      std::uint64_t target = done.count.load(std::memory_order_relaxed);
      for (std::uint64_t i = 0; i < n; ++i) {
        const heddle_status status =
            post(queue, [&] { return heddle_try_get(queue, &value, sizeof value, source(thread), &completion); });
        target += status == HEDDLE_POSTED ? 1 : 0;
      }
      wait(queue, done, target);
    });
  }
  finish();
  return Run{elapsed};
}

void Overhead::finish() {
  if (session_.rank() == 1 && answers_.owner_helps && registered_) {
    session_.channel().barrier_while([&] {
      if (progress(job_.worker(0)) == 0) sched_yield();
    });
  } else {
    session_.channel().barrier();
  }
}

// Until `asked` questions have come and all answers are on their way.
void Overhead::serve(std::uint64_t asked) {
  const heddle_worker own = job_.worker(0);
  std::uint32_t idle = 0;
  while (true) {
    const bool all = answers_.asked.load(std::memory_order_acquire) >= asked;
    bool owed = false;
    for (std::uint32_t thread = 0; thread < kMaxThreads; ++thread) {
      const std::uint64_t count = answers_.owed[thread].exchange(0);
      if (count == 0) continue;
      owed = true;
      const Ask to{thread, shared_ != nullptr ? shared_->peer().worker : thread};
      const heddle_am_message reply = message(kAnswer, to);
      for (std::uint64_t i = 0; i < count; ++i) {
        must(heddle_am(own, {job_.peer(), to.worker}, &reply, nullptr), "heddle_am");
      }
    }
    if (all && !owed) break;
    idle = progress(own) > 0 ? 0 : idle + 1;
    if (idle > kPatience) sched_yield();
  }
  must(heddle_flush(own, job_.peer()), "heddle_flush");
}

// Whether registered memory is read only while its owner makes progress (where the kernel refuses
// the copy). Collective.
bool owner_is_needed(Session& session, Job& job) {
  std::uint64_t needed = 0;
  if (session.rank() == 0) {
    heddle_counter counter{};
    must(heddle_counter_create(job.context(), nullptr, &counter), "heddle_counter_create");
    heddle_completion completion{};
    completion.counter = counter;
    if (must(heddle_get(job.worker(0), job.local(), 8, job.data(true), &completion), "heddle_get") == HEDDLE_POSTED) {
      const heddle_status status = heddle_counter_wait(job.worker(0), counter, 1, kProbeNs);
      needed = status == HEDDLE_ERR_TIMEOUT ? 1 : 0;
      if (needed == 0) must(status, "heddle_counter_wait");
    }
    needed = session.channel().share(needed);
    must(heddle_quiet(job.worker(0)), "heddle_quiet");
    must(heddle_counter_free(counter), "heddle_counter_free");
    session.channel().barrier();
  } else {
    needed = session.channel().share(0);
    session.channel().barrier_while([&] { progress(job.worker(0)); });
  }
  return needed != 0;
}

void measure_mode(Session& session, Overhead& overhead, const char* mode) {
  const bool exclusive = std::strcmp(mode, "exclusive") == 0;
  for (const std::uint32_t threads : harness::threads_or(session.options(), harness::kOverheadThreads)) {
    const std::string& memory = session.options().memory;
    if (session.wants("overhead", "get")) {
      if (memory != "allocated") overhead.measure(Operation::get, mode, true, threads);
      // The caller's own load, whatever the mode: one thread tells.
      if (memory == "allocated" || (memory == "both" && (exclusive || threads == 1))) {
        overhead.measure(Operation::get, mode, false, threads);
      }
    }
    if (session.wants("overhead", "am")) overhead.measure(Operation::am, mode, false, threads);
  }
}

}  // namespace

void run_overhead(Session& session, Job& job) {
  if (!session.wants("overhead")) return;
  const auto answers = std::make_unique<Answers>();
  must(heddle_am_register(job.context(), kAsk, on_ask, answers.get()), "heddle_am_register");
  must(heddle_am_register(job.context(), kAnswer, on_answer, answers.get()), "heddle_am_register");
  answers->owner_helps = owner_is_needed(session, job);
  session.channel().barrier();
  if (harness::wants_mode(session.options(), "exclusive")) {
    Overhead overhead(session, job, *answers, nullptr, HEDDLE_SHARING_EXCLUSIVE);
    measure_mode(session, overhead, "exclusive");
  }
  for (const auto& [name, sharing] : kModes) {
    if (!harness::wants_mode(session.options(), name)) continue;
    session.cores().unpin();  // an executor finds its core itself
    const ModeWorker shared(job, sharing);
    Overhead overhead(session, job, *answers, &shared, sharing);
    measure_mode(session, overhead, name);
  }
  session.channel().barrier();
  must(heddle_am_register(job.context(), kAsk, nullptr, nullptr), "heddle_am_register");
  must(heddle_am_register(job.context(), kAnswer, nullptr, nullptr), "heddle_am_register");
}

}  // namespace heddle::bench::work
