// A rank for tests/system/wait_storm.py: many threads in every kind of wait of MPI, whose answers
// come from ranks that are stopped for a while, share the core, or are killed.
//
//   mpi_wait_rank ROUNDS SEED THREADS one|own polls|waits [VICTIM]
//
// Thread t of each rank exchanges with thread t of the others, ROUNDS times, in a way that the seed
// decides for all ranks alike; on `one` communicator or its own; in loops of tests and probes, too,
// or only in calls that wait. Every kMeetEach rounds all meet.
// At the end each rank knows what its windows must hold. "done RANK ROUNDS": of all its threads.
// VICTIM will be killed: then a wait of which only that rank could be the end must end by itself
// with MPI_ERR_PROC_ABORTED, and the others are given up ("survived RANK").
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

constexpr int kNobody = -1;
constexpr std::uint64_t kMeetEach = 16;
constexpr std::size_t kWindow = 6;        // messages
constexpr std::size_t kShortWords = 32;   // at most
constexpr std::size_t kLongWords = 5000;  // 40 KB: more than a message has at once
constexpr std::size_t kPutWords = 256;
constexpr int kTags = 1 << 20;

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

// What a rank's window has for each of its threads and each other rank.
struct Slot {
  std::uint64_t sum;    // of slot 0 of a thread: of what its partners have added
  std::uint64_t total;  // of slot 0 of thread 0 of rank 0: how often anybody has added
  std::uint64_t put[kPutWords];
};
// Memory of MPI_Win_allocate, which is mapped, and memory of the program's, which its owner serves.
constexpr std::size_t kWindows = 2;
struct Area {
  MPI_Win win = MPI_WIN_NULL;
  Slot* slots = nullptr;
};

class Thread;
struct Job {
  int rank = 0;
  int size = 0;
  std::uint64_t rounds = 0;
  std::uint64_t seed = 0;
  int threads = 0;
  bool own_communicators = false;
  bool polls = false;
  int victim = kNobody;
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Comm gather = MPI_COMM_NULL;
  MPI_Comm shared = MPI_COMM_NULL;
  std::vector<MPI_Comm> own;
  std::array<Area, kWindows> areas;
  std::vector<Slot> memory;
  int last_words = 0;  // which the victim never sends
  MPI_Request death = MPI_REQUEST_NULL;
  std::vector<std::unique_ptr<Thread>> all;
  std::atomic<bool> over{false};  // a thread has been told of the death
  std::atomic<int> ended{0};      // threads; release
  std::atomic<std::uint64_t> rounds_done{0};
  std::array<std::atomic<std::uint64_t>, kWindows> added{};  // by this rank, to the total
};

// False: the job is over for this rank.
bool good(Job& job, int code) {
  if (code == MPI_SUCCESS) return true;
  CHECK(job.victim != kNobody);
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  CHECK(error_class == MPI_ERR_PROC_ABORTED);
  job.over.store(true);
  return false;
}

class Thread {
 public:
  Thread(Job& job, int number) : job_(job), number_(number), words_(static_cast<std::uint64_t>(number)) {
    const std::size_t most = std::max(kWindow * kLongWords, static_cast<std::size_t>(job.size));
    sent_.resize(most);
    received_.resize(most);
  }

  void run() {
    for (round_ = 1; round_ <= job_.rounds; ++round_) {
      if (!one()) break;
      job_.rounds_done.fetch_add(1);
      if (round_ % kMeetEach == 0 && !meet()) break;
    }
    if (!over()) meet();
    job_.ended.fetch_add(1, std::memory_order_release);
    if (job_.victim == kNobody) return;
    // The first thread answers peers of the others meanwhile.
    int flag = 0;
    while (number_ == 0 && job_.ended.load(std::memory_order_acquire) < job_.threads)
      MPI_Iprobe(job_.rank, 3 * job_.threads, job_.gather, &flag, MPI_STATUS_IGNORE);
  }

  void check_sums(std::size_t area) const { CHECK(slot(area, 0).sum == expected_sum_[area]); }

 private:
  // ---- waits ------------------------------------------------------------------------------------

  [[nodiscard]] bool over() {
    if (job_.victim == kNobody) return false;
    if (number_ == 0 && !job_.over.load()) {
      int flag = 0;
      (void)good(job_, MPI_Test(&job_.death, &flag, MPI_STATUS_IGNORE));
    }
    return job_.over.load();
  }
  // Whether a call that needs that rank, and no other, may wait for ever.
  [[nodiscard]] bool patient(int rank) const { return job_.victim == kNobody || rank == job_.victim; }

  bool good_all(int code, int count) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (error_class != MPI_ERR_IN_STATUS) return good(job_, code);
    bool all = true;
    for (int i = 0; i < count; ++i)
      if (statuses_[i].MPI_ERROR != MPI_ERR_PENDING) all = good(job_, statuses_[i].MPI_ERROR) && all;
    CHECK(!all);
    return false;
  }

  bool test_until_complete(int count, MPI_Request* requests) {
    int flag = 0;
    for (;;) {
      if (!good_all(MPI_Testall(count, requests, &flag, statuses_.data()), count)) return false;
      if (flag != 0) return true;
      if (over()) return false;
    }
  }

  // Of requests that need only that rank.
  bool complete(int rank, int count, MPI_Request* requests, std::uint64_t way) {
    if (!patient(rank)) return test_until_complete(count, requests);
    int index = 0;
    int flag = 0;
    int indices[2 * kWindow];
    switch (way % (job_.polls ? 5 : 3)) {
      case 0:
        return good_all(MPI_Waitall(count, requests, statuses_.data()), count);
      case 1:
        for (int i = 0; i < count; ++i)
          if (!good(job_, MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE))) return false;
        CHECK(index != MPI_UNDEFINED);
        return true;
      case 2:
        for (int done = 0; done < count; done += index) {
          const int code = MPI_Waitsome(count, requests, &index, indices, statuses_.data());
          if (!good_all(code, index)) return false;
          CHECK(index > 0);
        }
        return true;
      case 3:
        return test_until_complete(count, requests);
      default:
        for (int i = 0; i < count; ++i) {
          if (i % 2 == 0) {
            if (!good(job_, MPI_Wait(&requests[i], MPI_STATUS_IGNORE))) return false;
          } else {
            for (flag = 0; flag == 0;)
              if (!good(job_, MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE))) return false;
          }
        }
        return true;
    }
  }

  // Of a collective: nobody waits for those who have given up.
  bool complete(MPI_Request* request) {
    return job_.victim == kNobody ? good(job_, MPI_Wait(request, MPI_STATUS_IGNORE)) : test_until_complete(1, request);
  }

  // ---- what the others know too -----------------------------------------------------------------

  [[nodiscard]] Slot& slot(std::size_t area, int rank) const {
    return job_.areas[area].slots[number_ * job_.size + rank];
  }
  // In thread `thread`'s slot for this rank at another one.
  [[nodiscard]] MPI_Aint at(int thread, int mine, std::size_t offset) const {
    return static_cast<MPI_Aint>(sizeof(Slot)) * (thread * job_.size + mine) + static_cast<MPI_Aint>(offset);
  }
  void fill(std::size_t count, std::size_t first = 0) {
    for (std::size_t i = first; i < first + count; ++i)
      sent_[i] = drawn_word(words_, round_, static_cast<std::uint64_t>(job_.rank), i);
  }
  void compare(std::size_t count, int from, std::size_t first = 0) const {
    for (std::size_t i = first; i < first + count; ++i)
      CHECK(received_[i] == drawn_word(words_, round_, static_cast<std::uint64_t>(from), i));
  }
  [[nodiscard]] int tag(std::size_t i) const { return static_cast<int>((round_ * kWindow + i) % kTags) * 16 + number_; }

  // ---- rounds -----------------------------------------------------------------------------------

  bool one() {
    Drawn random = drawn_for(job_.seed, words_, round_);
    const int distance = 1 + static_cast<int>(drawn_below(&random, static_cast<std::uint64_t>(job_.size - 1)));
    to_ = (job_.rank + distance) % job_.size;
    from_ = (job_.rank + job_.size - distance) % job_.size;
    comm_ = job_.own_communicators || drawn_below(&random, 2) == 0 ? job_.own[static_cast<std::size_t>(number_)]
                                                                   : job_.shared;
    switch (drawn_below(&random, 6)) {
      case 0:
        return exchange(random);
      case 1:
        return exchange_window(random);
      case 2:
        return probe(random);
      case 3:
        return collective(random);
      case 4:
        return add(random);
      default:
        return put_and_get(random);
    }
  }

  int start_receive(std::size_t count, std::size_t i, int from, MPI_Request* request) {
    return MPI_Irecv(&received_[i * count], static_cast<int>(count), MPI_UINT64_T, from, tag(i), comm_, request);
  }

  // There, and back again.
  bool exchange(Drawn& random) {
    const std::size_t count = 1 + drawn_below(&random, kShortWords);
    const int n = static_cast<int>(count);
    const auto way = drawn_below(&random, 5);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    for (int turn = 0; turn < 2; ++turn) {
      const int target = turn == 0 ? to_ : from_;
      const int source = turn == 0 ? from_ : to_;
      fill(count, static_cast<std::size_t>(turn) * count);
      const std::uint64_t* const data = &sent_[static_cast<std::size_t>(turn) * count];
      const auto i = static_cast<std::size_t>(turn);
      if (way == 0 && job_.victim == kNobody) {
        MUST(MPI_Sendrecv(data, n, MPI_UINT64_T, target, tag(i), &received_[i * count], n, MPI_UINT64_T, source, tag(i),
                          comm_, MPI_STATUS_IGNORE));
      } else {
        const auto send = way == 1 ? MPI_Issend : MPI_Isend;
        const int from = way == 2 ? MPI_ANY_SOURCE : source;
        if (!good(job_, send(data, n, MPI_UINT64_T, target, tag(i), comm_, &requests[0]))) return false;
        if (way == 3 && patient(source)) {
          if (!good(job_, MPI_Recv(&received_[i * count], n, MPI_UINT64_T, source, tag(i), comm_, MPI_STATUS_IGNORE)))
            return false;
        } else {
          if (!good(job_, start_receive(count, i, from, &requests[1])) || !complete(source, 1, &requests[1], way))
            return false;
        }
        if (!complete(target, 1, &requests[0], way + 1)) return false;
      }
      compare(count, source, i * count);
    }
    return true;
  }

  bool exchange_window(Drawn& random) {
    const std::size_t messages = 1 + drawn_below(&random, kWindow);
    const std::size_t count = drawn_below(&random, 4) == 0 ? kLongWords : 1 + drawn_below(&random, kShortWords);
    const auto way = drawn_below(&random, 5);
    const bool receives_first = drawn_below(&random, 2) == 0;
    MPI_Request receives[kWindow];
    MPI_Request sends[kWindow];
    const int n = static_cast<int>(messages);
    fill(messages * count);
    const auto receive_all = [&] {
      for (std::size_t i = 0; i < messages; ++i)
        if (!good(job_, start_receive(count, i, from_, &receives[i]))) return false;
      return true;
    };
    if (receives_first && !receive_all()) return false;
    for (std::size_t i = 0; i < messages; ++i) {
      if (!good(job_,
                MPI_Isend(&sent_[i * count], static_cast<int>(count), MPI_UINT64_T, to_, tag(i), comm_, &sends[i])))
        return false;
    }
    if (!receives_first && !receive_all()) return false;
    if (!complete(from_, n, receives, way) || !complete(to_, n, sends, way + 1)) return false;
    compare(messages * count, from_);
    return true;
  }

  bool probe(Drawn& random) {
    const std::size_t count = 1 + drawn_below(&random, kShortWords);
    const int n = static_cast<int>(count);
    const auto way = drawn_below(&random, job_.polls ? 4 : 2);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    int flag = 0;
    fill(count);
    if (!good(job_, MPI_Isend(sent_.data(), n, MPI_UINT64_T, to_, tag(0), comm_, &request))) return false;
    if (patient(from_) && way < 2) {
      if (!good(job_, way == 0 ? MPI_Probe(from_, tag(0), comm_, &status)
                               : MPI_Mprobe(from_, tag(0), comm_, &message, &status)))
        return false;
    }
    while ((!patient(from_) || way >= 2) && flag == 0) {
      if (!good(job_, way % 2 == 0 ? MPI_Iprobe(from_, tag(0), comm_, &flag, &status)
                                   : MPI_Improbe(from_, tag(0), comm_, &flag, &message, &status)))
        return false;
      if (!patient(from_) && flag == 0 && over()) return false;
    }
    int words = 0;
    MPI_Get_count(&status, MPI_UINT64_T, &words);
    CHECK(words == n && status.MPI_SOURCE == from_ && status.MPI_TAG == tag(0));
    const int code = message == MPI_MESSAGE_NULL
                         ? MPI_Recv(received_.data(), n, MPI_UINT64_T, from_, tag(0), comm_, MPI_STATUS_IGNORE)
                         : MPI_Mrecv(received_.data(), n, MPI_UINT64_T, &message, MPI_STATUS_IGNORE);
    if (!good(job_, code) || !complete(to_, 1, &request, way)) return false;
    compare(count, from_);
    return true;
  }

  bool collective(Drawn& random) {
    const MPI_Comm comm = job_.own[static_cast<std::size_t>(number_)];
    const bool blocking = job_.victim == kNobody && drawn_below(&random, 2) == 0;
    const auto size = static_cast<std::uint64_t>(job_.size);
    const int root = static_cast<int>(round_ % size);
    MPI_Request request = MPI_REQUEST_NULL;
    fill(size);
    std::uint64_t* const to = received_.data();
    switch (drawn_below(&random, 4)) {
      case 0:
        if (blocking) return good(job_, MPI_Barrier(comm));
        return good(job_, MPI_Ibarrier(comm, &request)) && complete(&request);
      case 1: {
        constexpr int kCount = 16;
        fill(kCount);
        if (job_.rank == root) std::copy_n(sent_.data(), kCount, to);
        if (blocking ? !good(job_, MPI_Bcast(to, kCount, MPI_UINT64_T, root, comm))
                     : !good(job_, MPI_Ibcast(to, kCount, MPI_UINT64_T, root, comm, &request)) || !complete(&request))
          return false;
        compare(kCount, root);
        return true;
      }
      case 2: {
        if (blocking ? !good(job_, MPI_Alltoall(sent_.data(), 1, MPI_UINT64_T, to, 1, MPI_UINT64_T, comm))
                     : !good(job_, MPI_Ialltoall(sent_.data(), 1, MPI_UINT64_T, to, 1, MPI_UINT64_T, comm, &request)) ||
                           !complete(&request))
          return false;
        for (std::uint64_t from = 0; from < size; ++from)
          CHECK(to[from] == drawn_word(words_, round_, from, static_cast<std::uint64_t>(job_.rank)));
        return true;
      }
      default: {
        if (blocking ? !good(job_, MPI_Allreduce(sent_.data(), to, 2, MPI_UINT64_T, MPI_SUM, comm))
                     : !good(job_, MPI_Iallreduce(sent_.data(), to, 2, MPI_UINT64_T, MPI_SUM, comm, &request)) ||
                           !complete(&request))
          return false;
        for (std::uint64_t i = 0; i < 2; ++i) {
          std::uint64_t sum = 0;
          for (std::uint64_t from = 0; from < size; ++from) sum += drawn_word(words_, round_, from, i);
          CHECK(to[i] == sum);
        }
        return true;
      }
    }
  }

  bool flush(Drawn& random, const Area& area, int rank) {
    if (job_.victim == kNobody && drawn_below(&random, 4) == 0) return good(job_, MPI_Win_flush_all(area.win));
    return good(job_, MPI_Win_flush(rank, area.win));
  }

  bool add(Drawn& random) {
    const std::size_t which = drawn_below(&random, kWindows);
    const Area& area = job_.areas[which];
    const std::uint64_t addend = 1 + drawn_below(&random, 1000);
    const std::uint64_t one = 1;
    std::uint64_t before = 0;
    if (!good(job_,
              MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 0, at(0, 0, offsetof(Slot, total)), MPI_SUM, area.win)) ||
        !flush(random, area, 0))
      return false;
    CHECK(before >= last_total_[which]);
    last_total_[which] = before + 1;
    job_.added[which].fetch_add(1);
    expected_sum_[which] += addend;
    const MPI_Aint sum = at(number_, 0, offsetof(Slot, sum));
    const int code = drawn_below(&random, 2) == 0
                         ? MPI_Fetch_and_op(&addend, &before, MPI_UINT64_T, to_, sum, MPI_SUM, area.win)
                         : MPI_Accumulate(&addend, 1, MPI_UINT64_T, to_, sum, 1, MPI_UINT64_T, MPI_SUM, area.win);
    return good(job_, code) && flush(random, area, to_);
  }

  bool put_and_get(Drawn& random) {
    const Area& area = job_.areas[drawn_below(&random, kWindows)];
    const std::size_t count = 1 + drawn_below(&random, kPutWords);
    const int n = static_cast<int>(count);
    const MPI_Aint there = at(number_, job_.rank, offsetof(Slot, put));
    MPI_Request request = MPI_REQUEST_NULL;
    fill(count);
    if (!good(job_, MPI_Put(sent_.data(), n, MPI_UINT64_T, to_, there, n, MPI_UINT64_T, area.win)) ||
        !flush(random, area, to_))
      return false;
    if (drawn_below(&random, 2) == 0) {
      if (!good(job_, MPI_Rget(received_.data(), n, MPI_UINT64_T, to_, there, n, MPI_UINT64_T, area.win, &request)) ||
          !complete(to_, 1, &request, drawn_below(&random, 5)))
        return false;
    } else if (!good(job_, MPI_Get(received_.data(), n, MPI_UINT64_T, to_, there, n, MPI_UINT64_T, area.win)) ||
               !flush(random, area, to_)) {
      return false;
    }
    compare(count, job_.rank);
    return true;
  }

  // ---- all threads of all ranks -----------------------------------------------------------------

  // By messages to this rank itself.
  bool tell(int thread) {
    MPI_Request request = MPI_REQUEST_NULL;
    return good(job_, MPI_Isend(nullptr, 0, MPI_INT, job_.rank, thread, job_.gather, &request)) &&
           complete(job_.rank, 1, &request, round_);
  }
  bool hear(int thread) {
    if (job_.victim == kNobody)
      return good(job_, MPI_Recv(nullptr, 0, MPI_INT, job_.rank, thread, job_.gather, MPI_STATUS_IGNORE));
    MPI_Request request = MPI_REQUEST_NULL;
    return good(job_, MPI_Irecv(nullptr, 0, MPI_INT, job_.rank, thread, job_.gather, &request)) &&
           test_until_complete(1, &request);
  }
  bool meet() {
    if (number_ > 0) return tell(number_) && hear(job_.threads + number_);
    for (int thread = 1; thread < job_.threads; ++thread)
      if (!hear(thread)) return false;
    if (!meet_ranks()) return false;
    for (int thread = 1; thread < job_.threads; ++thread)
      if (!tell(job_.threads + thread)) return false;
    return true;
  }
  bool meet_ranks() {
    const std::uint64_t mine = static_cast<std::uint64_t>(job_.rank) + round_;
    std::uint64_t sum = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    if (job_.victim == kNobody) {
      MUST(MPI_Barrier(job_.world));
      MUST(MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, job_.world));
    } else if (!good(job_, MPI_Ibarrier(job_.world, &request)) || !complete(&request) ||
               !good(job_, MPI_Iallreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, job_.world, &request)) ||
               !complete(&request)) {
      return false;
    }
    const auto n = static_cast<std::uint64_t>(job_.size);
    CHECK(sum == n * (n - 1) / 2 + n * round_);
    return true;
  }

  Job& job_;
  int number_;
  std::uint64_t words_;  // the number, for what is drawn
  std::uint64_t round_ = 0;
  int to_ = 0;
  int from_ = 0;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::array<std::uint64_t, kWindows> last_total_{};
  std::array<std::uint64_t, kWindows> expected_sum_{};
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::array<MPI_Status, 2 * kWindow> statuses_{};
};

// False: a rank has died meanwhile.
bool open(Job& job) {
  const MPI_Errhandler handler = job.victim == kNobody ? MPI_ERRORS_ARE_FATAL : MPI_ERRORS_RETURN;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);  // which duplicates inherit
  MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
  for (MPI_Comm* comm : {&job.world, &job.gather, &job.shared})
    if (!good(job, MPI_Comm_dup(MPI_COMM_WORLD, comm))) return false;
  job.own.resize(static_cast<std::size_t>(job.threads), MPI_COMM_NULL);
  for (MPI_Comm& comm : job.own)
    if (!good(job, MPI_Comm_dup(MPI_COMM_WORLD, &comm))) return false;
  const std::size_t slots = static_cast<std::size_t>(job.threads) * static_cast<std::size_t>(job.size);
  const auto bytes = static_cast<MPI_Aint>(slots * sizeof(Slot));
  job.memory.resize(slots);
  job.areas[1].slots = job.memory.data();
  if (!good(job, MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, job.world, &job.areas[0].slots, &job.areas[0].win)))
    return false;
  std::memset(static_cast<void*>(job.areas[0].slots), 0, static_cast<std::size_t>(bytes));
  if (!good(job, MPI_Win_create(job.memory.data(), bytes, 1, MPI_INFO_NULL, job.world, &job.areas[1].win)))
    return false;
  for (const Area& area : job.areas) {
    MPI_Win_set_errhandler(area.win, handler);
    if (!good(job, MPI_Win_lock_all(0, area.win))) return false;
  }
  if (job.victim != kNobody && job.victim != job.rank &&
      !good(job, MPI_Irecv(&job.last_words, 1, MPI_INT, job.victim, 3 * job.threads, job.gather, &job.death)))
    return false;
  return good(job, MPI_Barrier(job.world));
}

void work(Job& job) {
  for (int i = 0; i < job.threads; ++i) job.all.push_back(std::make_unique<Thread>(job, i));
  std::vector<std::thread> threads;
  for (int i = 1; i < job.threads; ++i)
    threads.emplace_back([&job, i] { job.all[static_cast<std::size_t>(i)]->run(); });
  job.all[0]->run();
  for (std::thread& thread : threads) thread.join();
}

void check_memory(const Job& job) {
  for (std::size_t area = 0; area < kWindows; ++area) {
    MUST(MPI_Win_sync(job.areas[area].win));
    for (const auto& thread : job.all) thread->check_sums(area);
    if (job.rank == 0)
      CHECK(job.areas[area].slots[0].total == job.added[area].load() * static_cast<std::uint64_t>(job.size));
  }
}

void close(Job& job) {
  for (Area& area : job.areas) {
    MUST(MPI_Win_unlock_all(area.win));
    MUST(MPI_Win_free(&area.win));
  }
  for (MPI_Comm& comm : job.own) MUST(MPI_Comm_free(&comm));
  for (MPI_Comm* comm : {&job.world, &job.gather, &job.shared}) MUST(MPI_Comm_free(comm));
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  if (argc != 6 && argc != 7) {
    std::fputs("usage: mpi_wait_rank ROUNDS SEED THREADS one|own polls|waits [VICTIM]\n", stderr);
    return 2;
  }
  auto job = std::make_unique<Job>();
  job->rounds = std::strtoull(argv[1], nullptr, 10);
  job->seed = std::strtoull(argv[2], nullptr, 10);
  job->threads = std::atoi(argv[3]);
  job->own_communicators = std::strcmp(argv[4], "own") == 0;
  job->polls = std::strcmp(argv[5], "polls") == 0;
  if (argc == 7) job->victim = std::atoi(argv[6]);
  MUST(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK(provided == MPI_THREAD_MULTIPLE && ranks() > 1 && job->threads <= 16);
  job->rank = my_rank();
  job->size = ranks();
  const bool all = open(*job);
  if (job->victim != kNobody) {
    std::printf("begun %d\n", job->rank);
    std::fflush(stdout);
  }
  if (all) work(*job);
  if (job->victim == kNobody) {
    check_memory(*job);
    close(*job);
    MUST(MPI_Finalize());
    std::printf("done %d %llu\n", job->rank, static_cast<unsigned long long>(job->rounds_done.load()));
    return 0;
  }
  CHECK(job->over.load());
  MPI_Finalize();
  std::printf("survived %d\n", job->rank);
  return 0;
}
