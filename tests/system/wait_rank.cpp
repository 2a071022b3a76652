// A rank for wait_storm.py: many threads in every kind of wait of the C API, whose answers come
// from ranks that are stopped for a while, share the core, or are killed.
//
//   wait_rank ROUNDS SEED THREADS one|own [VICTIM]
//
// Thread t of each rank exchanges with thread t of the others, ROUNDS times, in a way that the seed
// decides for all ranks alike. All threads have `one` worker, or each its own. Every kMeetEach
// rounds all meet. At the end each rank knows what its memory must hold. "done RANK ROUNDS": of all
// its threads. VICTIM will be killed: then a wait of which only that rank could be the end must end
// by itself with PEER_FAILED, and the others are given up ("survived RANK").
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kNobody = UINT32_MAX;
constexpr std::uint64_t kMeetEach = 16;
constexpr std::int64_t kLookNs = 20'000'000;  // between two looks whether to give a wait up
constexpr std::uint32_t kNetwork = 1;
constexpr std::uint32_t kUser = HEDDLE_AM_USER + 1;
constexpr std::uint32_t kAnswer = 2;
constexpr std::size_t kWindow = 6;        // messages
constexpr std::size_t kShortWords = 32;   // at most
constexpr std::size_t kLongWords = 5000;  // 40 KB: more than a message has at once
constexpr std::size_t kPutWords = 1000;

// Numbers that look random and are the same in all ranks that begin with the same seed: what they
// do, and the contents of what they send.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

struct Drawn {
  std::uint64_t state;
};

// Of one thread's round: thread t of all ranks draws the same.
Drawn drawn_for(std::uint64_t seed, std::uint64_t thread, std::uint64_t round) {
  const Drawn begun = {mixed(mixed(seed * 1000 + thread) + round)};
  return begun;
}

std::uint64_t drawn_below(Drawn* of, std::uint64_t bound) {
  of->state = mixed(of->state);
  return (of->state >> 8) % bound;
}

// Word i of what a thread sends to its partner in a round.
std::uint64_t drawn_word(std::uint64_t thread, std::uint64_t round, std::uint64_t from, std::uint64_t i) {
  return mixed(mixed(round * 64 + thread) + (from << 32) + i);
}

// What a rank's memory has for each of its threads and each other rank.
struct Slot {
  std::uint64_t signal;
  std::uint64_t taken;  // the last signal of mine that was taken there
  std::uint64_t sum;    // of slot 0 of a thread: of what its partners have added
  std::uint64_t total;  // of slot 0 of thread 0 of rank 0: how often anybody has added
  std::uint64_t signalled[kShortWords];
  std::uint64_t put[kPutWords];
};
// Memory that the library has allocated, and memory that was registered.
constexpr std::size_t kAreas = 2;

struct Area {
  heddle_region region{};
  Slot* slots = nullptr;
  std::vector<heddle_remote_region> all;
};

class Thread;
struct Job {
  heddle_context context{};
  heddle_team team{};
  heddle_worker worker{};  // the first thread's
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t rounds = 0;
  std::uint64_t seed = 0;
  std::uint32_t threads = 0;
  bool own_workers = false;
  std::uint32_t victim = kNobody;
  std::array<Area, kAreas> areas;
  std::vector<Slot> registered;
  std::vector<std::unique_ptr<Thread>> all;
  std::atomic<bool> over{false};           // a thread has been told of the death
  std::atomic<std::uint64_t> gathered{0};  // arrivals of threads where they meet; acq_rel
  std::atomic<std::uint32_t> ended{0};     // threads; release
  std::atomic<std::uint64_t> rounds_done{0};
  std::array<std::atomic<std::uint64_t>, kAreas> added{};  // by this rank, to the total
};

struct Question {
  std::uint64_t thread;
  std::uint64_t round;
};

class Thread {
 public:
  Thread(Job& job, std::uint32_t number, heddle_worker worker)
      : job_(job), number_(number), worker_(worker), signals_(job.size), questions_(job.size), owed_(job.size) {
    done(heddle_worker_index(worker_, &index_), "heddle_worker_index");
    heddle_counter_options options{};
    options.size = sizeof options;
    options.counts_done = 1;
    done(heddle_counter_create(job_.context, &options, &counter_), "heddle_counter_create");
    sent_.resize(kWindow * kLongWords);
    received_.resize(kWindow * kLongWords);
  }

  void run() {
    for (round_ = 1; round_ <= job_.rounds; ++round_) {
      if (!one()) break;
      job_.rounds_done.fetch_add(1);
      if (round_ % kMeetEach == 0 && !meet()) break;
    }
    // No thread's worker is left alone before all ranks have ended.
    if (!over()) meet();
    job_.ended.fetch_add(1, std::memory_order_release);
    if (number_ == 0) await_threads();
  }

  void check_sums(std::size_t area) const {
    check(slot(area, 0).sum == expected_sum_[area], "the sum of what was added to this rank's word");
  }
  void free() const { done(heddle_counter_free(counter_), "heddle_counter_free"); }

  // ---- by handlers, on any thread

  void asked(const heddle_am_arrival& message, const Question& question) {
    const std::uint32_t from = message.source.rank;
    const auto* words = static_cast<const std::uint64_t*>(message.payload);
    for (std::size_t i = 0; i < message.payload_bytes / sizeof *words; ++i)
      check(words[i] == value(question.round, from, i), "the payload of an active message");
    if (answer(from) != HEDDLE_DONE) owed_[from].fetch_add(1, std::memory_order_relaxed);
    questions_[from].fetch_add(1, std::memory_order_release);
  }
  void answered() { answers_.fetch_add(1, std::memory_order_release); }

 private:
  // ---- waits ------------------------------------------------------------------------------------

  [[nodiscard]] bool over() const {
    if (job_.victim == kNobody) return false;
    return job_.over.load() || heddle_context_peer_status(job_.context, job_.victim) == HEDDLE_ERR_PEER_FAILED;
  }
  // Whether a call that needs that rank, and no other, may wait for ever.
  [[nodiscard]] bool patient(std::uint32_t rank) const { return job_.victim == kNobody || rank == job_.victim; }

  // False: the job is over for this rank.
  bool good(heddle_status status, const char* what) {
    if (status == HEDDLE_DONE || status == HEDDLE_POSTED) return true;
    if (job_.victim == kNobody) wrong(what, status);
    expect(status, HEDDLE_ERR_PEER_FAILED, what);
    job_.over.store(true);
    return false;
  }

  // wait(timeout) -> heddle_status
  template <class Wait>
  bool wait(std::uint32_t rank, const char* what, const Wait& wait) {
    if (patient(rank)) return good(wait(HEDDLE_FOREVER), what);
    for (;;) {
      const heddle_status status = wait(kLookNs);
      if (status != HEDDLE_ERR_TIMEOUT) return good(status, what);
      if (over()) return false;
    }
  }

  // look() -> heddle_status: AGAIN to wait on.
  template <class Look>
  bool until(const char* what, Look look) {
    struct Both {
      Thread* thread;
      Look* look;
    } both{this, &look};
    const auto ready = [](void* arg) {
      auto* of = static_cast<Both*>(arg);
      const heddle_status status = (*of->look)();
      if (status == HEDDLE_POSTED) return HEDDLE_DONE;  // which would mean that the wait goes on
      return status == HEDDLE_AGAIN && of->thread->over() ? HEDDLE_ERR_PEER_FAILED : status;
    };
    const heddle_wait_condition condition{sizeof condition, ready, &both, "wait_rank", nullptr, nullptr};
    return good(heddle_worker_wait_for(worker_, &condition, HEDDLE_FOREVER), what);
  }

  // post(blocking) -> heddle_status
  template <class Post>
  bool post(std::uint32_t rank, const char* what, const Post& post) {
    if (patient(rank)) return good(post(true), what);
    return until(what, [&] { return post(false); });
  }

  bool counted(std::uint32_t rank) {
    return wait(rank, "heddle_counter_wait",
                [&](std::int64_t ns) { return heddle_counter_wait(worker_, counter_, posted_, ns); });
  }

  // A signal from a rank whose death this wait does not notice by itself.
  bool signalled(const std::uint64_t& word, std::uint64_t least) {
    for (;;) {
      const std::int64_t ns = job_.victim == kNobody ? HEDDLE_FOREVER : kLookNs;
      const heddle_status status = heddle_signal_wait(worker_, &word, HEDDLE_GE, least, ns);
      if (status != HEDDLE_ERR_TIMEOUT) return good(status, "heddle_signal_wait");
      if (over()) return false;
    }
  }

  // ---- what the others know too -----------------------------------------------------------------

  [[nodiscard]] std::uint64_t value(std::uint64_t round, std::uint32_t from, std::uint64_t i) const {
    return drawn_word(number_, round, from, i);
  }
  [[nodiscard]] Slot& slot(std::size_t area, std::uint32_t rank) const {
    return job_.areas[area].slots[number_ * job_.size + rank];
  }
  // In thread `thread`'s slot for this rank at another one.
  [[nodiscard]] heddle_remote at(std::size_t area, std::uint32_t rank, std::uint32_t thread, std::uint32_t mine,
                                 std::size_t offset) const {
    return {job_.areas[area].all[rank], (std::uint64_t{thread} * job_.size + mine) * sizeof(Slot) + offset};
  }
  void fill(std::uint64_t* words, std::size_t count, std::uint64_t first) const {
    for (std::size_t i = 0; i < count; ++i) words[i] = value(round_, job_.rank, first + i);
  }
  void compare(const std::uint64_t* words, std::size_t count, std::uint32_t from, std::uint64_t first,
               const char* what) const {
    for (std::size_t i = 0; i < count; ++i) check(words[i] == value(round_, from, first + i), what);
  }
  // Flush and quiet wait for what other threads of the worker have sent, too, and so for receives
  // of the other rank's threads, which may do the same: with one worker they have rounds of their
  // own.
  [[nodiscard]] bool may_be_long() const { return job_.own_workers || (round_ - 1) / kMeetEach % 2 == 0; }
  [[nodiscard]] bool may_flush() const { return job_.own_workers || !may_be_long(); }

  // ---- rounds -----------------------------------------------------------------------------------

  bool one() {
    Drawn random = drawn_for(job_.seed, number_, round_);
    const auto distance = static_cast<std::uint32_t>(1 + drawn_below(&random, job_.size - 1));
    to_ = (job_.rank + distance) % job_.size;
    from_ = (job_.rank + job_.size - distance) % job_.size;
    switch (drawn_below(&random, 6)) {
      case 0:
      case 1:
        return tagged(random);
      case 2:
        return put_and_signal(random);
      case 3:
        return add(random);
      case 4:
        return ask(random);
      default:
        return put_and_get(random);
    }
  }

  bool tagged(Drawn& random) {
    const std::size_t count = 1 + drawn_below(&random, kWindow);
    const bool is_long = may_be_long() && drawn_below(&random, 5) == 0;
    const std::size_t words = is_long ? kLongWords : 1 + drawn_below(&random, kShortWords);
    const auto way = drawn_below(&random, 4);
    if (way % 2 == 0) return receive(count, words) && send(count, words) && received(count, words, way) && counted(to_);
    return send(count, words) && probed() && receive(count, words) && received(count, words, way) && counted(to_);
  }
  [[nodiscard]] std::uint64_t tag(std::size_t i) const { return round_ << 16 | number_ << 8 | i; }

  bool send(std::size_t count, std::size_t words) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t* const data = &sent_[i * words];
      fill(data, words, i * words);
      const heddle_completion completion{nullptr, nullptr, counter_, HEDDLE_WHEN_LOCAL};
      ++posted_;
      if (!post(to_, "heddle_send", [&](bool blocking) {
            const auto call = blocking ? heddle_send : heddle_try_send;
            return call(worker_, {to_, index_}, tag(i), data, words * sizeof *data, &completion);
          }))
        return false;
    }
    return true;
  }
  bool probed() {
    heddle_receive found{};
    const heddle_wanted wanted{{from_, index_}, tag(0), UINT64_MAX};
    return until("heddle_try_probe", [&] { return heddle_try_probe(worker_, &wanted, &found); });
  }
  bool receive(std::size_t count, std::size_t words) {
    for (std::size_t i = 0; i < count; ++i) {
      const heddle_wanted wanted{{from_, index_}, tag(i), UINT64_MAX};
      if (!post(from_, "heddle_recv", [&](bool blocking) {
            const auto call = blocking ? heddle_recv : heddle_try_recv;
            return call(worker_, &wanted, &received_[i * words], words * sizeof(std::uint64_t), &receives_[i], nullptr);
          }))
        return false;
    }
    return true;
  }
  bool received(std::size_t count, std::size_t words, std::uint64_t way) {
    for (std::size_t i = 0; i < count; ++i) {
      heddle_receive& one = receives_[i];
      if (!wait(from_, "a receive", [&](std::int64_t ns) {
            return way < 2 ? heddle_recv_wait(worker_, &one, ns) : wait_until_moved(one, ns);
          }))
        return false;
      check(one.tag == tag(i) && one.source.rank == from_ && one.bytes == words * sizeof(std::uint64_t),
            "what a receive tells");
      compare(&received_[i * words], words, from_, i * words, "a tagged message");
    }
    return true;
  }
  heddle_status wait_until_moved(heddle_receive& one, std::int64_t ns) {
    for (;;) {
      const heddle_status status = std::atomic_ref(one.status).load(std::memory_order_acquire);
      if (status != HEDDLE_POSTED) return status;
      const heddle_status waited = heddle_worker_wait(worker_, ns);
      if (waited != HEDDLE_DONE) return waited;
      if (over() && !patient(from_)) return HEDDLE_ERR_TIMEOUT;
    }
  }

  bool put_and_signal(Drawn& random) {
    const std::size_t area = drawn_below(&random, kAreas);
    const std::size_t words = 1 + drawn_below(&random, kShortWords);
    std::uint64_t* const data = sent_.data();
    fill(data, words, 0);
    const std::uint64_t mine = ++signals_[to_].sent[area];
    const heddle_signal signal{at(area, to_, number_, job_.rank, offsetof(Slot, signal)), 1, HEDDLE_SIGNAL_ADD};
    if (!put_signal(to_, data, words * sizeof *data, at(area, to_, number_, job_.rank, offsetof(Slot, signalled)),
                    signal))
      return false;
    const std::uint64_t theirs = ++signals_[from_].taken[area];
    if (!signalled(slot(area, from_).signal, theirs)) return false;
    check(slot(area, from_).signal == theirs, "a signal more than was sent");
    compare(slot(area, from_).signalled, words, from_, 0, "what was put with a signal");
    const heddle_remote taken = at(area, from_, number_, job_.rank, offsetof(Slot, taken));
    if (!put_signal(from_, nullptr, 0, taken, {taken, theirs, HEDDLE_SIGNAL_SET})) return false;
    if (!signalled(slot(area, to_).taken, mine)) return false;
    return may_flush() && drawn_below(&random, 2) == 0 ? quiet(random) : counted(to_);
  }
  bool put_signal(std::uint32_t rank, const void* data, std::size_t bytes, heddle_remote target,
                  const heddle_signal& signal) {
    const heddle_completion completion{nullptr, nullptr, counter_, HEDDLE_WHEN_REMOTE};
    ++posted_;
    return post(rank, "heddle_put_signal", [&](bool blocking) {
      const auto call = blocking ? heddle_put_signal : heddle_try_put_signal;
      return call(worker_, data, bytes, target, &signal, &completion);
    });
  }
  bool quiet(Drawn& random) {
    if (drawn_below(&random, 2) == 0) {
      return post(to_, "heddle_flush",
                  [&](bool blocking) { return (blocking ? heddle_flush : heddle_try_flush)(worker_, to_); });
    }
    return post(kNobody, "heddle_quiet",
                [&](bool blocking) { return (blocking ? heddle_quiet : heddle_try_quiet)(worker_); });
  }

  bool add(Drawn& random) {
    const std::size_t area = drawn_below(&random, kAreas);
    const std::uint64_t addend = 1 + drawn_below(&random, 1000);
    std::uint64_t before = 0;
    const heddle_fetch one{1, 0, &before};
    const heddle_remote total = at(area, 0, 0, 0, offsetof(Slot, total));
    if (!good(heddle_fetch_atomic_wait(worker_, HEDDLE_ADD64, total, &one), "heddle_fetch_atomic_wait")) return false;
    check(before + 1 > last_total_[area], "a word that only grows");
    last_total_[area] = before + 1;
    job_.added[area].fetch_add(1);
    expected_sum_[area] += addend;
    const heddle_remote sum = at(area, to_, number_, 0, offsetof(Slot, sum));
    if (drawn_below(&random, 2) == 0) {
      const heddle_fetch more{addend, 0, &before};
      return good(heddle_fetch_atomic_wait(worker_, HEDDLE_ADD64, sum, &more), "heddle_fetch_atomic_wait");
    }
    const heddle_completion completion{nullptr, nullptr, counter_, HEDDLE_WHEN_REMOTE};
    ++posted_;
    return post(to_, "heddle_atomic",
                [&](bool blocking) {
                  const auto call = blocking ? heddle_atomic : heddle_try_atomic;
                  return call(worker_, HEDDLE_ADD64, sum, addend, &completion);
                }) &&
           (may_flush() ? quiet(random) : counted(to_));
  }

  bool put_and_get(Drawn& random) {
    const std::size_t area = drawn_below(&random, kAreas);
    const std::size_t count = 1 + drawn_below(&random, kWindow);
    const std::size_t words = kPutWords / kWindow;
    const heddle_completion completion{nullptr, nullptr, counter_, HEDDLE_WHEN_REMOTE};
    const std::size_t start = offsetof(Slot, put);
    fill(sent_.data(), count * words, 0);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t bytes = words * sizeof(std::uint64_t);
      ++posted_;
      if (!post(to_, "heddle_put", [&](bool blocking) {
            const auto call = blocking ? heddle_put : heddle_try_put;
            return call(worker_, &sent_[i * words], bytes, at(area, to_, number_, job_.rank, start + i * bytes),
                        &completion);
          }))
        return false;
    }
    if (!counted(to_)) return false;
    const heddle_remote there = at(area, to_, number_, job_.rank, start);
    const std::size_t bytes = count * words * sizeof(std::uint64_t);
    if (drawn_below(&random, 2) == 0) {
      if (!good(heddle_get_wait(worker_, received_.data(), bytes, there), "heddle_get_wait")) return false;
    } else {
      ++posted_;
      if (!post(to_, "heddle_get",
                [&](bool blocking) {
                  return (blocking ? heddle_get : heddle_try_get)(worker_, received_.data(), bytes, there, &completion);
                }) ||
          !counted(to_))
        return false;
    }
    compare(received_.data(), count * words, job_.rank, 0, "what was put, and got back");
    return true;
  }

  // Active messages that handlers answer.
  bool ask(Drawn& random) {
    const std::size_t count = 1 + drawn_below(&random, kWindow);
    const bool user = drawn_below(&random, 2) == 0;
    const bool is_long = may_be_long() && drawn_below(&random, 4) == 0;
    const std::size_t words = is_long ? kLongWords : drawn_below(&random, kShortWords);
    const Question question{number_, round_};
    fill(sent_.data(), words, 0);
    const heddle_am_message message{user ? kUser : kNetwork, sizeof question, &question, sent_.data(),
                                    words * sizeof(std::uint64_t)};
    const heddle_completion completion{nullptr, nullptr, counter_, HEDDLE_WHEN_LOCAL};
    answers_expected_ += count;
    signals_[from_].questions += count;
    for (std::size_t i = 0; i < count; ++i) {
      ++posted_;
      // Tasks that wait here may keep the other side from taking more.
      if (!until("heddle_try_am", [&] {
            serve();
            return heddle_try_am(worker_, {to_, index_}, &message, &completion);
          }))
        return false;
    }
    const auto look = [&] {
      serve();
      const std::uint64_t answers = answers_.load(std::memory_order_acquire);
      check(answers <= answers_expected_, "an answer more than there were questions");
      // That rank may be ahead, and ask again.
      const bool all = answers == answers_expected_ &&
                       questions_[from_].load(std::memory_order_acquire) >= signals_[from_].questions &&
                       owed_[from_].load(std::memory_order_relaxed) == 0;
      return all ? HEDDLE_DONE : HEDDLE_AGAIN;
    };
    if (user && drawn_below(&random, 2) == 0) {
      while (look() == HEDDLE_AGAIN) {
        if (over()) return false;
        check(heddle_run_tasks(worker_, 2, kLookNs / 20) >= 0, "heddle_run_tasks");
      }
    } else if (!until("answers", look)) {
      return false;
    }
    return counted(to_);
  }
  void serve() {
    check(heddle_run_tasks(worker_, 4, 0) >= 0, "heddle_run_tasks");
    for (std::uint32_t rank = 0; rank < job_.size; ++rank) {
      while (owed_[rank].load(std::memory_order_acquire) > 0 && answer(rank) == HEDDLE_DONE)
        owed_[rank].fetch_sub(1, std::memory_order_relaxed);
    }
  }
  // DONE: it is on its way, or nobody waits for it.
  heddle_status answer(std::uint32_t rank) {
    const Question question{number_, 0};
    const heddle_am_message message{kAnswer, sizeof question, &question, nullptr, 0};
    const heddle_status status = heddle_try_am(worker_, {rank, index_}, &message, nullptr);
    if (status == HEDDLE_AGAIN) return status;
    if (status < 0 && job_.victim == kNobody) wrong("an answer", status);
    return HEDDLE_DONE;
  }

  // ---- all threads of all ranks -----------------------------------------------------------------

  bool gather() {
    const std::uint64_t all = ++gathers_ * job_.threads;
    job_.gathered.fetch_add(1, std::memory_order_acq_rel);
    return until("the other threads",
                 [&] { return job_.gathered.load(std::memory_order_acquire) >= all ? HEDDLE_DONE : HEDDLE_AGAIN; });
  }
  bool meet() { return gather() && (number_ != 0 || meet_ranks()) && gather(); }

  bool meet_ranks() {
    if (!good(heddle_context_barrier(job_.context, worker_, HEDDLE_FOREVER), "heddle_context_barrier")) return false;
    constexpr std::size_t kCount = 3;
    std::array<double, kCount> mine{};
    std::array<double, kCount> sum{};
    for (std::size_t i = 0; i < kCount; ++i) mine[i] = static_cast<double>(job_.rank + i * round_);
    heddle_reduction how{};
    how.type = HEDDLE_DOUBLE;
    how.op = HEDDLE_SUM;
    if (round_ / kMeetEach % 2 == 0) {
      if (!good(heddle_allreduce(job_.team, mine.data(), sum.data(), kCount, &how), "heddle_allreduce")) return false;
    } else {
      heddle_collective run{};
      if (!good(heddle_allreduce_start(job_.team, mine.data(), sum.data(), kCount, &how, &run),
                "heddle_allreduce_start"))
        return false;
      if (!good(heddle_collective_wait(run, HEDDLE_FOREVER), "heddle_collective_wait")) return false;
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto n = static_cast<double>(job_.size);
      check(sum[i] == n * (n - 1) / 2 + n * static_cast<double>(i * round_), "an allreduce");
    }
    return good(heddle_barrier(job_.team), "heddle_barrier");
  }

  // The first thread answers peers of the others, which have no worker any more.
  void await_threads() {
    const auto all = [](void* arg) {
      const auto* job = static_cast<Job*>(arg);
      return job->ended.load(std::memory_order_acquire) == job->threads ? HEDDLE_DONE : HEDDLE_AGAIN;
    };
    const heddle_wait_condition condition{sizeof condition, all, &job_, "wait_rank", nullptr, nullptr};
    done(heddle_worker_wait_for(worker_, &condition, HEDDLE_FOREVER), "the end of all threads");
  }

  // With one other rank.
  struct Signals {
    std::array<std::uint64_t, kAreas> sent{};
    std::array<std::uint64_t, kAreas> taken{};
    std::uint64_t questions = 0;
  };

  Job& job_;
  std::uint32_t number_;
  heddle_worker worker_;
  std::uint32_t index_ = 0;
  heddle_counter counter_{};
  std::uint64_t posted_ = 0;  // that name the counter
  std::uint64_t round_ = 0;
  std::uint32_t to_ = 0;
  std::uint32_t from_ = 0;
  std::uint64_t gathers_ = 0;
  std::uint64_t answers_expected_ = 0;
  std::array<std::uint64_t, kAreas> last_total_{};
  std::array<std::uint64_t, kAreas> expected_sum_{};
  std::vector<Signals> signals_;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::array<heddle_receive, kWindow> receives_{};
  std::atomic<std::uint64_t> answers_{0};  // release by handlers; so are the next two
  std::vector<std::atomic<std::uint64_t>> questions_;
  std::vector<std::atomic<std::uint64_t>> owed_;
};

template <class Do>
void for_thread(const heddle_am_arrival* message, void* arg, const Do& act) {
  Question question{};
  check(message->header_bytes == sizeof question, "a header");
  std::memcpy(&question, message->header, sizeof question);
  const auto* job = static_cast<Job*>(arg);
  check(question.thread < job->threads, "a header's thread");
  act(*job->all[question.thread], question);
}
void on_question(const heddle_am_arrival* message, void* arg) {
  for_thread(message, arg, [&](Thread& thread, const Question& question) { thread.asked(*message, question); });
}
void on_answer(const heddle_am_arrival* message, void* arg) {
  for_thread(message, arg, [](Thread& thread, const Question&) { thread.answered(); });
}

void open(Job& job) {
  done(heddle_context_join(nullptr, &job.context), "heddle_context_join");
  done(heddle_context_rank(job.context, &job.rank), "heddle_context_rank");
  done(heddle_context_size(job.context, &job.size), "heddle_context_size");
  check(job.size > 1, "several ranks");
  std::vector<heddle_worker> workers(job.own_workers ? job.threads : 1);
  for (heddle_worker& worker : workers) done(heddle_worker_open(job.context, nullptr, &worker), "heddle_worker_open");
  job.worker = workers[0];
  for (std::uint32_t i = 0; i < job.threads; ++i)
    job.all.push_back(std::make_unique<Thread>(job, i, workers[i % workers.size()]));
  for (const std::uint32_t handler : {kNetwork, kUser})
    done(heddle_am_register(job.context, handler, on_question, &job), "heddle_am_register");
  done(heddle_am_register(job.context, kAnswer, on_answer, &job), "heddle_am_register");
  const std::size_t slots = std::size_t{job.threads} * job.size;
  job.registered.resize(slots);
  Area& own = job.areas[0];
  Area& lent = job.areas[1];
  void* address = nullptr;
  std::size_t bytes = slots * sizeof(Slot);
  done(heddle_region_alloc(job.context, bytes, &own.region), "heddle_region_alloc");
  done(heddle_region_address(own.region, &address, &bytes), "heddle_region_address");
  own.slots = static_cast<Slot*>(address);
  lent.slots = job.registered.data();
  done(heddle_region_register(job.context, lent.slots, slots * sizeof(Slot), &lent.region), "heddle_region_register");
}

// False: a rank has died meanwhile.
bool know_each_other(Job& job) {
  const auto good = [&](heddle_status status, const char* what) {
    if (status == HEDDLE_ERR_PEER_FAILED && job.victim != kNobody) return false;
    done(status, what);
    return true;
  };
  for (Area& area : job.areas) {
    area.all.resize(job.size);
    if (!good(heddle_region_exchange(job.context, area.region, area.all.data()), "heddle_region_exchange"))
      return false;
  }
  return good(heddle_team_world(job.context, &job.team), "heddle_team_world");
}

void work(Job& job) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 1; i < job.threads; ++i) threads.emplace_back([&job, i] { job.all[i]->run(); });
  job.all[0]->run();
  for (std::thread& thread : threads) thread.join();
}

// A rank that has been told before may have left, which is told likewise.
void await_death(Job& job) {
  const auto dead = [](void* arg) {
    const auto* of = static_cast<Job*>(arg);
    const heddle_status status = heddle_context_peer_status(of->context, of->victim);
    return status == HEDDLE_DONE ? HEDDLE_AGAIN : status;
  };
  const heddle_wait_condition condition{sizeof condition, dead, &job, "wait_rank", nullptr, nullptr};
  expect(heddle_worker_wait_for(job.worker, &condition, Deadline::kNs), HEDDLE_ERR_PEER_FAILED, "the victim's death");
}

void check_memory(const Job& job) {
  for (std::size_t area = 0; area < kAreas; ++area) {
    for (const auto& thread : job.all) thread->check_sums(area);
    if (job.rank == 0)
      check(job.areas[area].slots[0].total == job.added[area].load() * job.size, "how often anybody has added");
  }
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;
  check(argc == 5 || argc == 6, "usage: wait_rank ROUNDS SEED THREADS one|own [VICTIM]");
  Job job;
  job.rounds = std::strtoull(argv[1], nullptr, 10);
  job.seed = std::strtoull(argv[2], nullptr, 10);
  job.threads = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10));
  job.own_workers = std::string_view(argv[4]) == "own";
  if (argc == 6) job.victim = static_cast<std::uint32_t>(std::strtoul(argv[5], nullptr, 10));
  open(job);
  const bool all = know_each_other(job);
  if (job.victim != kNobody) say("begun", job.rank);
  if (all) work(job);
  const std::string rank = std::to_string(job.rank);
  if (job.victim == kNobody) {
    check_memory(job);
    for (const auto& thread : job.all) thread->free();
    done(heddle_context_leave(job.context), "heddle_context_leave");
    say(("done " + rank).c_str(), static_cast<long long>(job.rounds_done.load()));
    return 0;
  }
  await_death(job);
  done(heddle_context_leave(job.context), "heddle_context_leave");
  say("survived", job.rank);
  return 0;
}
