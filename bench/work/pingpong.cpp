// Latency: put there and back, and get, fetch-and-add and put + flush at the origin.
#include <cstring>

#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;
using harness::spin_until;

constexpr std::uint32_t kWordSlot = 0;

double since(std::uint64_t begin) {
  return static_cast<double>(harness::now_ns() - begin);
}

enum class Watch {
  poll,     // the program loads the word itself
  progress  // heddle_signal_wait: a wait that makes progress
};

// A word (with `size` - 8 bytes of data before it, as a put with signal) goes there and back.
class PutPingPong {
 public:
  PutPingPong(Session& session, Job& job, std::uint64_t size, bool registered, Watch watch)
      : session_(session), job_(job), worker_(job.worker(0)), size_(size), registered_(registered), watch_(watch) {
    // turn_ starts at the word's present value in both, whatever ran before.
    session.channel().barrier();
    job.own_slot(kWordSlot).store(0, std::memory_order_relaxed);
    session.channel().barrier();
  }

  Run operator()(std::uint64_t n) {
    const std::uint64_t begin = harness::now_ns();
    for (std::uint64_t i = 0; i < n; ++i) {
      ++turn_;
      if (session_.rank() == 0) send();
      receive();
      if (session_.rank() == 1) send();
    }
    const double elapsed = since(begin);
    return {elapsed, size_ == 8 || job_.own_data(registered_)[size_ - 1] == static_cast<std::byte>(turn_)};
  }

 private:
  void send() {
    if (size_ == 8) {
      must(heddle_put(worker_, &turn_, 8, job_.slot(kWordSlot), nullptr), "heddle_put");
      return;
    }
    job_.local()[size_ - 1] = static_cast<std::byte>(turn_);
    const heddle_signal signal{job_.slot(kWordSlot), turn_, HEDDLE_SIGNAL_SET};
    const heddle_status status =
        heddle_put_signal(worker_, job_.local(), size_, job_.data(registered_), &signal, nullptr);
    // The source is written again in the next round.
    complete(job_, worker_, status);
  }
  void receive() {
    std::atomic<std::uint64_t>& word = job_.own_slot(kWordSlot);
    if (watch_ == Watch::poll) {
      spin_until([&] { return word.load(std::memory_order_acquire) == turn_; });
    } else {
      must(heddle_signal_wait(worker_, reinterpret_cast<const std::uint64_t*>(&word), HEDDLE_EQ, turn_, HEDDLE_FOREVER),
           "heddle_signal_wait");
    }
  }

  Session& session_;
  Job& job_;
  heddle_worker worker_;
  std::uint64_t size_;
  bool registered_;
  Watch watch_;
  std::uint64_t turn_ = 0;
};

void measure_put(Session& session, Job& job, std::uint64_t size, bool registered, Watch watch) {
  const bool wait = watch == Watch::progress && !registered;  // registered memory needs it anyway
  harness::Figure figure = job.figure("pingpong", wait ? "put_wait" : "put", "latency", size, 2);
  figure.key.memory = job.kind(registered);
  PutPingPong body(session, job, size, registered, watch);
  session.measure(figure, [&](std::uint64_t n) { return body(n); });
}

// Rank 0 does `operation` n times, each complete before the next; the other sleeps, or makes
// progress where the memory needs it.
template <class Operation>
void measure_origin(Session& session, Job& job, const char* op, std::uint64_t size, bool registered,
                    Operation&& operation) {
  harness::Figure figure = job.figure("pingpong", op, "latency", size, 1);
  figure.key.memory = job.kind(registered);
  const heddle_worker worker = job.worker(0);
  session.measure(figure, [&](std::uint64_t n) {
    double elapsed = 0;
    if (session.rank() == 0) {
      const std::uint64_t begin = harness::now_ns();
      for (std::uint64_t i = 0; i < n; ++i) operation(worker);
      elapsed = since(begin);
    }
    if (session.rank() == 1 && registered) {
      session.channel().barrier_while([&] { heddle_worker_progress(worker); });
    } else {
      session.channel().barrier();
    }
    return Run{elapsed};
  });
}

void measure_kind(Session& session, Job& job, bool registered) {
  const auto sizes = harness::sizes_or(session.options(), {8, 64, 512, 4096, 65536, 1U << 20});
  for (const std::uint64_t size : sizes) {
    // A word in registered memory is not polled by the program: it arrives in the owner's progress.
    // So no 8-byte form.
    if (session.wants("pingpong", "put") && (!registered || size > 8)) {
      measure_put(session, job, size, registered, registered ? Watch::progress : Watch::poll);
    }
    if (session.wants("pingpong", "put_wait") && !registered && size == 8) {
      measure_put(session, job, size, registered, Watch::progress);
    }
    if (session.wants("pingpong", "put_flush")) {
      measure_origin(session, job, "put_flush", size, registered, [&](heddle_worker worker) {
        must(heddle_put(worker, job.local(), size, job.data(registered), nullptr), "heddle_put");
        must(heddle_flush(worker, job.peer()), "heddle_flush");
      });
    }
    if (session.wants("pingpong", "get")) {
      measure_origin(session, job, "get", size, registered, [&](heddle_worker worker) {
        complete(job, worker, heddle_get(worker, job.local(), size, job.data(registered), nullptr));
      });
    }
  }
  if (session.wants("pingpong", "fadd")) {
    measure_origin(session, job, "fadd", 8, registered, [&](heddle_worker worker) {
      std::uint64_t old = 0;
      const heddle_fetch fetch{1, 0, &old};
      complete(job, worker, heddle_fetch_atomic(worker, HEDDLE_ADD64, job.data(registered), &fetch, nullptr));
    });
  }
}

}  // namespace

void run_pingpong(Session& session, Job& job) {
  if (!session.wants("pingpong")) return;
  const std::string& memory = session.options().memory;
  if (memory == "allocated" || memory == "both") measure_kind(session, job, false);
  if (memory != "allocated") measure_kind(session, job, true);
}

}  // namespace heddle::bench::work
