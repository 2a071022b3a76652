// A rank for storm_test.cpp: threads that put, get, update and send of every kind to random peers,
// while peers are killed from outside.
// Arguments: the ranks that will be killed, separated by commas; threads on one worker (shared) or
// with one each (exclusive); how many threads; after how many steps the rank says that it is busy:
// 1 lets deaths come while ranks make their first contact; `all` or `atomics`.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kNetwork = 1;
constexpr std::uint32_t kUser = HEDDLE_AM_USER + 1;
constexpr std::uint32_t kOver = 2;
constexpr std::size_t kRegionBytes = std::size_t{1} << 18;
constexpr std::size_t kLong = std::size_t{64} << 10;
constexpr std::uint64_t kStepsAfter = 1000;  // once it knows of all deaths

struct Job {
  heddle_context context{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t threads = 0;
  std::uint64_t steps_before = 0;  // of a thread, until the rank says that it is busy
  bool atomics_only = false;
  std::vector<std::uint32_t> victims;
  std::vector<heddle_worker> workers;
  std::vector<std::byte> memory = std::vector<std::byte>(kRegionBytes);
  std::vector<heddle_remote_region> allocated;
  std::vector<heddle_remote_region> registered;
  std::atomic<std::uint64_t> arrived{0};  // relaxed: only looked at
  // threads of survivors that have nothing under way; release by the handler
  std::atomic<std::uint32_t> over{0};
  std::atomic<std::uint32_t> busy{0};
};

bool is_victim(const Job& job, std::uint32_t rank) {
  return std::find(job.victims.begin(), job.victims.end(), rank) != job.victims.end();
}

void on_message(const heddle_am_arrival* message, void* arg) {
  auto* job = static_cast<Job*>(arg);
  check(message->payload_bytes == 200 && *static_cast<const unsigned char*>(message->payload) == 0x5A,
        "a message's content");
  job->arrived.fetch_add(1, std::memory_order_relaxed);
}
void on_over(const heddle_am_arrival*, void* arg) {
  static_cast<Job*>(arg)->over.fetch_add(1, std::memory_order_release);
}

// One operation that may be under way. The callback runs on any thread.
struct Slot {
  std::vector<std::byte> data = std::vector<std::byte>(2 * kLong, std::byte{0x5A});
  std::uint64_t result = 0;
  std::uint32_t target = 0;
  heddle_receive receive{};
  std::atomic<bool> under_way{false};  // release by the callback
  std::atomic<heddle_status> ended{HEDDLE_DONE};
};

void on_end(void* arg, heddle_status status) {
  auto* slot = static_cast<Slot*>(arg);
  slot->ended.store(status, std::memory_order_relaxed);
  check(slot->under_way.exchange(false, std::memory_order_release), "a completion comes twice");
}

class Thread {
 public:
  Thread(Job& job, std::uint32_t number)
      : job_(job),
        index_(number % static_cast<std::uint32_t>(job.workers.size())),
        worker_(job.workers[index_]),
        random_((job.rank + 1) * 7919 + number * 104729 + 1) {}

  void run() {
    std::uint64_t after = 0;
    for (std::uint64_t step = 0; after < kStepsAfter; ++step) {
      if (step == job_.steps_before && job_.busy.fetch_add(1) + 1 == job_.threads) {
        say(("busy" + std::to_string(job_.rank)).c_str(), ::getpid());
      }
      one();
      move();
      if (all_told()) {
        ++after;
      } else {
        told_.idle();
      }
    }
    end();
  }

 private:
  std::uint64_t below(std::uint64_t bound) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return (random_ >> 11) % bound;
  }

  [[nodiscard]] bool all_told() const {
    return std::all_of(job_.victims.begin(), job_.victims.end(), [this](std::uint32_t victim) {
      return heddle_context_peer_status(job_.context, victim) == HEDDLE_ERR_PEER_FAILED;
    });
  }

  // The statuses with which an operation to that rank may end.
  void judge(heddle_status status, std::uint32_t target, const char* what) const {
    if (status >= 0) return;
    expect(status, HEDDLE_ERR_PEER_FAILED, what);
    check(is_victim(job_, target), "a peer is said to have failed that lives");
  }

  void one() {
    Slot& slot = slots_[below(slots_.size())];
    if (slot.under_way.load(std::memory_order_acquire)) return;
    judge(slot.ended.exchange(HEDDLE_DONE, std::memory_order_relaxed), slot.target, "a completion");
    slot.target = static_cast<std::uint32_t>((job_.rank + 1 + below(job_.size - 1)) % job_.size);
    const heddle_completion completion{on_end, &slot, {}, HEDDLE_WHEN_REMOTE};
    slot.under_way.store(true, std::memory_order_relaxed);
    const heddle_status status = post(slot, completion);
    if (status != HEDDLE_POSTED) slot.under_way.store(false, std::memory_order_relaxed);
    judge(status, slot.target, "a call");
  }

  heddle_status post(Slot& slot, const heddle_completion& completion) {
    const heddle_remote_region region = below(2) == 0 ? job_.allocated[slot.target] : job_.registered[slot.target];
    const std::size_t bytes = below(8) == 0 ? kLong : 64;
    const heddle_peer peer{slot.target, index_};
    switch (job_.atomics_only ? 2 + below(2) : below(7)) {
      case 0:
        return heddle_try_put(worker_, slot.data.data(), bytes, {region, 64}, &completion);
      case 1:
        return heddle_try_get(worker_, slot.data.data() + kLong, bytes, {region, 64}, &completion);
      case 2: {
        const heddle_fetch fetch{1, 0, &slot.result};
        return heddle_try_fetch_atomic(worker_, HEDDLE_ADD64, {region, 0}, &fetch, &completion);
      }
      case 3:
        return heddle_try_atomic(worker_, HEDDLE_ADD64, {region, 8}, 1, &completion);
      case 4:
      case 5: {
        const heddle_am_message message{below(2) == 0 ? kNetwork : kUser, 0, nullptr, slot.data.data(), 200};
        return heddle_try_am(worker_, peer, &message, &completion);
      }
      default:
        return heddle_try_send(worker_, peer, 1, slot.data.data(), bytes, &completion);
    }
  }

  // Progress, handlers of class USER, and receives for all arrivals.
  void move() {
    check(heddle_run_tasks(worker_, 4, 0) >= 0, "run_tasks");
    for (Slot& slot : receives_) {
      if (slot.under_way.load(std::memory_order_acquire)) continue;
      const heddle_status ended = slot.ended.exchange(HEDDLE_DONE, std::memory_order_relaxed);
      // A long message whose sender dies is received with an error.
      if (ended != HEDDLE_DONE) expect(ended, HEDDLE_ERR_PEER_FAILED, "a receive");
      const heddle_completion completion{on_end, &slot, {}, HEDDLE_WHEN_REMOTE};
      const heddle_wanted wanted{{HEDDLE_ANY, HEDDLE_ANY}, 1, UINT64_MAX};
      slot.under_way.store(true, std::memory_order_relaxed);
      const heddle_status status =
          heddle_try_recv(worker_, &wanted, slot.data.data(), slot.data.size(), &slot.receive, &completion);
      if (status != HEDDLE_POSTED) slot.under_way.store(false, std::memory_order_relaxed);
      if (status < 0) expect(status, HEDDLE_ERR_PEER_FAILED, "recv");
    }
  }

  template <class Done>
  void until(Done done, const char* what) {
    const Deadline deadline(what);
    while (!done()) {
      move();
      deadline.idle();
    }
  }

  // Survivors receive until no rank has operations under way.
  void end() {
    until(
        [this] {
          return std::none_of(slots_.begin(), slots_.end(),
                              [](const Slot& slot) { return slot.under_way.load(std::memory_order_acquire); });
        },
        "an operation never ends");
    for (Slot& slot : slots_) judge(slot.ended.load(std::memory_order_relaxed), slot.target, "a completion");
    for (std::uint32_t peer = 0; peer < job_.size; ++peer) {
      if (peer == job_.rank || is_victim(job_, peer)) continue;
      const heddle_am_message message{kOver, 0, nullptr, nullptr, 0};
      heddle_status status = HEDDLE_AGAIN;
      until([&] { return (status = heddle_try_am(worker_, {peer, index_}, &message, nullptr)) != HEDDLE_AGAIN; },
            "no place for a message");
      accepted(status, "over");
      // A rank that has got it from all others may leave at once.
      const heddle_status flushed = heddle_flush(worker_, peer);
      if (flushed != HEDDLE_DONE) expect(flushed, HEDDLE_ERR_PEER_FAILED, "flush");
    }
    const auto others = static_cast<std::uint32_t>(job_.size - job_.victims.size() - 1);
    until([&] { return job_.over.load(std::memory_order_acquire) == others * job_.threads; },
          "a survivor does not end");
    for (Slot& slot : receives_) {
      if (slot.under_way.load(std::memory_order_acquire)) done(heddle_recv_cancel(worker_, &slot.receive), "cancel");
    }
    const Deadline deadline("a cancelled receive does not end");
    for (Slot& slot : receives_) {
      while (slot.under_way.load(std::memory_order_acquire)) {
        check(heddle_worker_progress(worker_) >= 0, "progress");
        deadline.idle();
      }
    }
  }

  Job& job_;
  std::uint32_t index_;
  heddle_worker worker_;
  std::uint64_t random_;
  const Deadline told_{"the deaths are not told"};
  std::array<Slot, 6> slots_;
  std::array<Slot, 3> receives_;
};

void run(Job& job, bool shared) {
  done(heddle_context_join(nullptr, &job.context), "join");
  done(heddle_context_rank(job.context, &job.rank), "rank");
  done(heddle_context_size(job.context, &job.size), "size");
  done(heddle_am_register(job.context, kNetwork, on_message, &job), "handler");
  done(heddle_am_register(job.context, kUser, on_message, &job), "handler");
  done(heddle_am_register(job.context, kOver, on_over, &job), "handler");
  job.workers.resize(shared ? 1 : job.threads);
  for (heddle_worker& worker : job.workers) done(heddle_worker_open(job.context, nullptr, &worker), "worker");
  heddle_region allocated{};
  heddle_region registered{};
  done(heddle_region_alloc(job.context, kRegionBytes, &allocated), "alloc");
  done(heddle_region_register(job.context, job.memory.data(), job.memory.size(), &registered), "register");
  job.allocated.resize(job.size);
  job.registered.resize(job.size);
  done(heddle_region_exchange(job.context, allocated, job.allocated.data()), "exchange");
  done(heddle_region_exchange(job.context, registered, job.registered.data()), "exchange");
  std::vector<std::unique_ptr<Thread>> work;
  for (std::uint32_t i = 0; i < job.threads; ++i) work.push_back(std::make_unique<Thread>(job, i));
  std::vector<std::thread> threads;
  for (auto& thread : work) threads.emplace_back([&thread] { thread->run(); });
  for (std::thread& thread : threads) thread.join();
  expect(heddle_context_barrier(job.context, job.workers[0], Deadline::kNs), HEDDLE_ERR_PEER_FAILED, "barrier");
  done(heddle_context_leave(job.context), "leave");
  say("survived", job.rank);
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;
  check(argc == 6, "usage: storm_rank VICTIM,… shared|exclusive THREADS STEPS all|atomics");
  Job job;
  std::istringstream victims(argv[1]);
  for (std::string one; std::getline(victims, one, ',');) {
    job.victims.push_back(static_cast<std::uint32_t>(std::stoul(one)));
  }
  job.threads = static_cast<std::uint32_t>(std::stoul(argv[3]));
  job.steps_before = std::stoul(argv[4]);
  job.atomics_only = std::string(argv[5]) == "atomics";
  run(job, std::string(argv[2]) == "shared");
  return 0;
}
