// More processes and threads than cores. Each kind of operation by all processes at once, 4 and 8
// of them: what one takes when whoever must answer may have to get the core first. Given are the
// median and the 99th percentile of the process that is worst off. And a fixed amount of mixed work
// by 8 processes of 8 threads, beside the same by 2 processes of 1 thread.
//
// Ranks 0 and 1 have the Session; the others follow what rank 0 says in an exchange, where they
// sleep while nothing is measured.
#include <algorithm>
#include <array>
#include <cstring>

#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

constexpr std::uint32_t kPing = 920;
constexpr std::uint32_t kMixedMessage = 921;
constexpr std::uint64_t kRounds = 400;
// rounds of mixed work, of all threads together
constexpr std::uint64_t kMixedPerRepeat = 16 * 4096;
// rounds between two meetings of a thread and its partner
constexpr std::uint64_t kBurst = 16;
// Slots: of words that partners write to each other.
constexpr std::uint32_t kPingSlot = 0;
constexpr std::uint32_t kTokenSlot = 1;
constexpr std::uint32_t kMeetSlot = 8;    // and one for each thread
constexpr std::uint32_t kSumSlot = 80;    // likewise
constexpr std::uint32_t kDataSlot = 160;  // likewise

enum class Kind : std::uint64_t { put_signal, am, tagged, get, barrier, token, mixed, end };
struct Named {
  Kind kind;
  const char* name;
};
constexpr std::array<Named, 6> kKinds = {{{Kind::put_signal, "put_signal"},
                                          {Kind::am, "am"},
                                          {Kind::tagged, "tagged"},
                                          {Kind::get, "get"},
                                          {Kind::barrier, "barrier"},
                                          {Kind::token, "token"}}};

struct Order {
  Kind kind;
  std::uint64_t rounds;
};

struct Result {
  double median_ns;
  double p99_ns;
  std::uint64_t begin_ns;
  std::uint64_t end_ns;
  std::uint64_t right;
};

class Crew {
 public:
  Crew(Job& job, std::uint32_t threads) : job_(job), threads_(threads) {
    must(heddle_am_register(job_.context(), kPing, on_ping, this), "heddle_am_register");
    must(heddle_am_register(job_.context(), kMixedMessage, on_message, this), "heddle_am_register");
  }

  // Rank 0 says what is done; everybody does it. The result of the process that is worst off.
  Result together(Order order) {
    std::vector<Order> orders(job_.size());
    must(heddle_context_exchange(job_.context(), &order, sizeof order, orders.data()), "heddle_context_exchange");
    order = orders[0];
    if (order.kind == Kind::end) return {};
    const Result mine = order.kind == Kind::mixed ? mix(order.rounds) : time_each(order);
    std::vector<Result> all(job_.size());
    must(heddle_context_exchange(job_.context(), &mine, sizeof mine, all.data()), "heddle_context_exchange");
    Result worst = mine;
    for (const Result& one : all) {
      worst.median_ns = std::max(worst.median_ns, one.median_ns);
      worst.p99_ns = std::max(worst.p99_ns, one.p99_ns);
      worst.begin_ns = std::min(worst.begin_ns, one.begin_ns);
      worst.end_ns = std::max(worst.end_ns, one.end_ns);
      worst.right = std::min(worst.right, one.right);
    }
    last_ = order.kind;
    return worst;
  }
  // For those without a session: until rank 0 says that it is over.
  void follow() {
    do {
      last_ = Kind::end;
      together({Kind::end, 0});
    } while (last_ != Kind::end);
  }

 private:
  static void on_ping(const heddle_am_arrival* ping, void* arg) {
    std::uint64_t number = 0;
    std::memcpy(&number, ping->payload, sizeof number);
    std::atomic_ref(static_cast<Crew*>(arg)->pinged_).store(number, std::memory_order_release);
  }
  static void on_message(const heddle_am_arrival* message, void* arg) {
    std::uint64_t thread = 0;
    std::memcpy(&thread, message->payload, sizeof thread);
    std::atomic_ref(static_cast<Crew*>(arg)->messages_[thread]).fetch_add(1, std::memory_order_release);
  }

  Result time_each(const Order& order) {
    const heddle_worker worker = job_.worker(0);
    must(heddle_context_barrier(job_.context(), worker, HEDDLE_FOREVER), "heddle_context_barrier");
    std::vector<std::uint64_t> times(order.rounds);
    const std::uint64_t begin = harness::now_ns();
    for (std::uint64_t& time : times) {
      const std::uint64_t before = harness::now_ns();
      once(order.kind, worker);
      time = harness::now_ns() - before;
    }
    const std::uint64_t end = harness::now_ns();
    std::sort(times.begin(), times.end());
    return {static_cast<double>(times[times.size() / 2]), static_cast<double>(times[times.size() * 99 / 100]), begin,
            end, 1};
  }

  void once(Kind kind, heddle_worker worker) {
    switch (kind) {
      case Kind::put_signal:
        return there_and_back([&] { signal(worker, job_.slot(kPingSlot), numbers_); },
                              [&] { wait(worker, &job_.own_slot(kPingSlot), numbers_); });
      case Kind::am:
        return there_and_back(
            [&] {
              const heddle_am_message ping{kPing, 0, nullptr, &numbers_, sizeof numbers_};
              must(heddle_am(worker, {job_.peer(), 0}, &ping, nullptr), "heddle_am");
            },
            [&] {
              must(heddle_signal_wait(worker, &pinged_, HEDDLE_GE, numbers_, HEDDLE_FOREVER), "heddle_signal_wait");
            });
      case Kind::tagged:
        return there_and_back(
            [&] { must(heddle_send(worker, {job_.peer(), 0}, 1, &numbers_, sizeof numbers_, nullptr), "heddle_send"); },
            [&] {
              const heddle_wanted wanted{{job_.peer(), 0}, 1, UINT64_MAX};
              heddle_receive receive{};
              std::uint64_t got = 0;
              must(heddle_recv(worker, &wanted, &got, sizeof got, &receive, nullptr), "heddle_recv");
              must(heddle_recv_wait(worker, &receive, HEDDLE_FOREVER), "heddle_recv_wait");
            });
      case Kind::get: {
        std::uint64_t got = 0;
        return complete(job_, worker, heddle_get(worker, &got, sizeof got, job_.data(true), nullptr));
      }
      case Kind::barrier:
        must(heddle_context_barrier(job_.context(), worker, HEDDLE_FOREVER), "heddle_context_barrier");
        return;
      case Kind::token:
        // Through all ranks once; rank 0 starts it and waits for its return.
        ++tokens_;
        if (job_.rank() != 0) wait(worker, &job_.own_slot(kTokenSlot), tokens_);
        signal(worker, job_.slot_of((job_.rank() + 1) % job_.size(), kTokenSlot), tokens_);
        if (job_.rank() == 0) wait(worker, &job_.own_slot(kTokenSlot), tokens_);
        return;
      case Kind::mixed:
      case Kind::end:
        return;
    }
  }

  template <class Send, class Receive>
  void there_and_back(Send&& send, Receive&& receive) {
    ++numbers_;
    if (job_.rank() % 2 == 0) {
      send();
      receive();
    } else {
      receive();
      send();
    }
  }
  static void signal(heddle_worker worker, heddle_remote word, std::uint64_t value) {
    const heddle_signal how{word, value, HEDDLE_SIGNAL_SET};
    must(heddle_put_signal(worker, nullptr, 0, word, &how, nullptr), "heddle_put_signal");
  }
  static void wait(heddle_worker worker, const std::atomic<std::uint64_t>* word, std::uint64_t value) {
    must(heddle_signal_wait(worker, reinterpret_cast<const std::uint64_t*>(word), HEDDLE_GE, value, HEDDLE_FOREVER),
         "heddle_signal_wait");
  }

  // `rounds` of all threads of all processes together.
  Result mix(std::uint64_t rounds) {
    const std::uint64_t each = rounds / (std::uint64_t{threads_} * job_.size());
    must(heddle_context_barrier(job_.context(), job_.worker(0), HEDDLE_FOREVER), "heddle_context_barrier");
    const auto free = [](std::uint32_t) { harness::Cores::allowed().unpin(); };
    const harness::Interval time =
        harness::run_threads_between(threads_, free, [&](std::uint32_t thread) { mix_one(thread, each); });
    expected_ += each;
    bool right = true;
    for (std::uint32_t thread = 0; thread < threads_; ++thread) {
      right = right && messages_[thread] == expected_ && job_.own_slot(kSumSlot + thread).load() == expected_;
    }
    return {0, 0, time.begin_ns, time.end_ns, right ? 1U : 0U};
  }
  // A thread and the one of the same number at the peer, each on a worker of its own.
  void mix_one(std::uint32_t thread, std::uint64_t rounds) {
    const heddle_worker worker = job_.worker(thread);
    const std::uint64_t number = thread;
    std::array<std::uint64_t, 8> data{};
    std::uint64_t meetings = expected_ / kBurst;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      complete(job_, worker, heddle_put(worker, data.data(), sizeof data, job_.slot(kDataSlot + thread), nullptr));
      const heddle_am_message message{kMixedMessage, 0, nullptr, &number, sizeof number};
      must(heddle_am(worker, {job_.peer(), thread}, &message, nullptr), "heddle_am");
      must(heddle_atomic(worker, HEDDLE_ADD64, job_.slot(kSumSlot + thread), 1, nullptr), "heddle_atomic");
      complete(job_, worker, heddle_get(worker, data.data(), sizeof data, job_.data(true), nullptr));
      if ((i + 1) % kBurst != 0) continue;
      signal(worker, job_.slot(kMeetSlot + thread), ++meetings);
      wait(worker, &job_.own_slot(kMeetSlot + thread), meetings);
    }
    must(heddle_flush(worker, job_.peer()), "heddle_flush");
    must(heddle_signal_wait(worker, &messages_[thread], HEDDLE_GE, expected_ + rounds, HEDDLE_FOREVER),
         "heddle_signal_wait");
  }

  Job& job_;
  const std::uint32_t threads_;
  Kind last_ = Kind::end;
  std::uint64_t numbers_ = 0;
  std::uint64_t tokens_ = 0;
  // of messages and sums of each thread, by the measurements so far
  std::uint64_t expected_ = 0;
  alignas(8) std::uint64_t pinged_ = 0;                // written by a handler
  std::array<std::uint64_t, kMaxThreads> messages_{};  // likewise
};

harness::Figure figure(const Job& job, const std::string& op, std::uint64_t fixed, std::uint32_t threads) {
  harness::Figure out = job.figure("oversubscription", op, "latency", 8, 1);
  out.key.memory = op.starts_with("get") ? "registered" : "allocated";
  out.key.processes = job.size();
  out.key.threads = threads;
  out.key.workers = threads;
  out.fixed = fixed;
  return out;
}

void lead(Session& session, Job& job, Crew& crew) {
  const auto run = [&](Kind kind, std::uint64_t n) {
    session.cores().unpin();
    return crew.together({kind, n});
  };
  const std::uint32_t threads = harness::oversubscription_threads(job.size());
  if (job.size() > 2) {
    for (const Named& each : kKinds) {
      const harness::Figure figures[] = {figure(job, each.name, kRounds, 1),
                                         figure(job, std::string(each.name) + "_p99", kRounds, 1)};
      session.measure(figures, [&](std::uint64_t n) {
        const Result result = run(each.kind, n);
        return Run{result.median_ns, true, {result.median_ns, result.p99_ns}};
      });
    }
  }
  if (job.size() != 4) {
    // Of one round, as if all were done one after the other.
    session.measure(figure(job, "mixed", kMixedPerRepeat, threads), [&](std::uint64_t n) {
      const Result result = run(Kind::mixed, n);
      return Run{static_cast<double>(result.end_ns - result.begin_ns), result.right != 0};
    });
  }
  crew.together({Kind::end, 0});
}

}  // namespace

void run_oversubscription(Session* session, Job& job) {
  Crew crew(job, harness::oversubscription_threads(job.size()));
  session != nullptr ? lead(*session, job, crew) : crew.follow();
}

}  // namespace heddle::bench::work
