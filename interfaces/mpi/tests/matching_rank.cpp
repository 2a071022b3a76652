// Random programs of sends, receives, probes and wildcards on several communicators, checked
// against the standard's rule of matching (3.5, "nonovertaking"): a receive takes, of one sender's
// messages that fit it, the earliest that no receive posted before it has taken; and a message that
// fits a posted receive does not stay.
//
//   matching_rank [SEED [ROUNDS [threads|asserted|shared]]]
//
// threads: three a process, with communicators of their own. asserted: no wildcard for tags, and
// mpi_assert_no_any_tag says so. shared: asserted, with threads that have communicators in common
// and tags of their own.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

constexpr int kComms = 3;
constexpr int kTags = 4;
constexpr int kNone = -1;

// What a thread uses: tags from `first_tag` on.
struct Tags {
  bool wildcards = true;
  int first = 0;
};

// Every rank plans the same for all.
struct Message {
  int from;
  int to;
  int comm;
  int tag;
  int number;  // of its sender's messages
  int ints;    // length
  int mode;
};

struct Receive {
  int comm;
  int source;  // or MPI_ANY_SOURCE
  int tag;     // or MPI_ANY_TAG
  bool probed;
};

struct Plan {
  std::vector<Message> messages;               // in the order of sending
  std::vector<std::vector<Receive>> receives;  // [rank]: in the order of posting
};

using Random = std::mt19937_64;
int below(Random& random, int limit) {
  return static_cast<int>(random() % static_cast<std::uint64_t>(limit));
}

int random_length(Random& random) {
  switch (below(random, 10)) {
    case 0:
      return 0;
    case 1:
      return 3000 + below(random, 30000);  // some go by rendezvous
    case 2:
      return 200 + below(random, 800);
    default:
      return below(random, 24);
  }
}

Plan make_plan(std::uint64_t seed, int size, Tags tags) {
  Random random(seed);
  Plan plan;
  plan.receives.resize(static_cast<std::size_t>(size));
  std::vector<int> sent(static_cast<std::size_t>(size), 0);
  const int count = size * (4 + below(random, 20));
  for (int i = 0; i < count; ++i) {
    Message message{
        below(random, size),   below(random, size), below(random, kComms), tags.first + below(random, kTags), 0,
        random_length(random), below(random, 4)};
    message.number = sent[static_cast<std::size_t>(message.from)]++;
    plan.messages.push_back(message);
  }
  std::vector<Message> shuffled = plan.messages;
  std::ranges::shuffle(shuffled, random);
  const int wild = below(random, 3);  // of 4
  for (const Message& message : shuffled) {
    Receive receive{message.comm, message.from, message.tag, below(random, 8) == 0};
    if (below(random, 4) < wild) receive.source = MPI_ANY_SOURCE;
    if (below(random, 4) < wild && tags.wildcards) receive.tag = MPI_ANY_TAG;
    plan.receives[static_cast<std::size_t>(message.to)].push_back(receive);
  }
  return plan;
}

bool fits(const Receive& receive, const Message& message) {
  return receive.comm == message.comm && (receive.source == MPI_ANY_SOURCE || receive.source == message.from) &&
         (receive.tag == MPI_ANY_TAG || receive.tag == message.tag);
}

// ---- one rank -----------------------------------------------------------------------------------

constexpr int kMostInts = 40000;
constexpr int kHead = 4;  // ints that say which message it is

class Rank {
 public:
  Rank(const Plan& plan, Tags tags, int rank, const std::vector<MPI_Comm>& comms, MPI_Comm meeting)
      : plan_(plan), tags_(tags), rank_(rank), comms_(comms), meeting_(meeting) {}

  void run(std::uint64_t seed) {
    Random random(seed + static_cast<std::uint64_t>(rank_));
    const auto& receives = plan_.receives[static_cast<std::size_t>(rank_)];
    buffers_.resize(receives.size());
    requests_.assign(receives.size(), MPI_REQUEST_NULL);
    taken_.assign(receives.size(), kNone);
    posted_ = receives;
    std::size_t next_send = 0;
    std::size_t next_receive = 0;
    while (next_send < plan_.messages.size() || next_receive < receives.size()) {
      if (next_receive == receives.size() || (next_send < plan_.messages.size() && below(random, 2) == 0))
        send(plan_.messages[next_send++]);
      else
        post(next_receive++);
    }
    finish();
    judge();
  }

 private:
  void send(const Message& message) {
    if (message.from != rank_) return;
    std::vector<int>& data = sent_.emplace_back(static_cast<std::size_t>(kHead + message.ints));
    const int head[kHead] = {message.from, message.number, message.tag, message.ints};
    std::memcpy(data.data(), head, sizeof head);
    for (int i = 0; i < message.ints; ++i) data[static_cast<std::size_t>(kHead + i)] = message.number * 7 + i;
    const auto begin = message.mode == 1 ? MPI_Issend : MPI_Isend;
    MPI_Request request = MPI_REQUEST_NULL;
    MUST(begin(data.data(), kHead + message.ints, MPI_INT, message.to, message.tag,
               comms_[static_cast<std::size_t>(message.comm)], &request));
    sends_.push_back(request);
  }

  void post(std::size_t which) {
    const Receive& receive = posted_[which];
    MPI_Comm comm = comms_[static_cast<std::size_t>(receive.comm)];
    buffers_[which].resize(kMostInts);
    if (receive.probed) {
      int flag = 0;
      MPI_Message message;
      MPI_Status status;
      MUST(MPI_Improbe(receive.source, receive.tag, comm, &flag, &message, &status));
      if (flag != 0) {
        MUST(MPI_Imrecv(buffers_[which].data(), kMostInts, MPI_INT, &message, &requests_[which]));
        return;
      }
    }
    MUST(MPI_Irecv(buffers_[which].data(), kMostInts, MPI_INT, receive.source, receive.tag, comm, &requests_[which]));
  }

  // The message that the receive got.
  void note(std::size_t which, const MPI_Status& status) {
    const std::vector<int>& data = buffers_[which];
    int count = 0;
    MUST(MPI_Get_count(&status, MPI_INT, &count));
    for (std::size_t i = 0; i < plan_.messages.size(); ++i) {
      const Message& message = plan_.messages[i];
      if (message.from != data[0] || message.number != data[1]) continue;
      CHECK(message.to == rank_ && message.comm == posted_[which].comm);
      CHECK(status.MPI_SOURCE == message.from && status.MPI_TAG == message.tag);
      CHECK(count == kHead + message.ints);
      for (int k = 0; k < message.ints; ++k) CHECK(data[static_cast<std::size_t>(kHead + k)] == message.number * 7 + k);
      taken_[which] = static_cast<int>(i);
      return;
    }
    CHECK(!"a message that nobody has sent");
  }

  // All that is sent is received: by the receives that are posted, and, when they have taken what
  // they can, by others.
  void finish() {
    std::size_t mine = 0;
    for (const Message& message : plan_.messages) mine += message.to == rank_ ? 1 : 0;
    std::size_t got = 0;
    int sent = sends_.empty() ? 1 : 0;
    MPI_Request all_sent = MPI_REQUEST_NULL;
    bool met = false;
    int everybody = 0;
    while (everybody == 0) {
      got += poll();
      got += drain();
      if (sent == 0) MUST(MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &sent, MPI_STATUSES_IGNORE));
      if (sent != 0 && got == mine && !met) {
        MUST(MPI_Ibarrier(meeting_, &all_sent));
        met = true;
      }
      if (met) MUST(MPI_Test(&all_sent, &everybody, MPI_STATUS_IGNORE));
    }
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      int flag = 0;
      MPI_Status status;
      MUST(MPI_Cancel(&requests_[i]));
      MUST(MPI_Wait(&requests_[i], &status));
      MUST(MPI_Test_cancelled(&status, &flag));
      CHECK(flag != 0);
    }
    MUST(MPI_Barrier(meeting_));  // before the next round's messages
  }

  std::size_t poll() {
    std::size_t got = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      int flag = 0;
      MPI_Status status;
      MUST(MPI_Test(&requests_[i], &flag, &status));
      if (flag == 0) continue;
      note(i, status);
      ++got;
    }
    return got;
  }

  // A message that no posted receive fits.
  std::size_t drain() {
    for (int comm = 0; comm < kComms; ++comm) {
      if (tags_.wildcards && drain(comm, MPI_ANY_TAG)) return 1;
      for (int tag = 0; !tags_.wildcards && tag < kTags; ++tag)
        if (drain(comm, tags_.first + tag)) return 1;
    }
    return 0;
  }
  bool drain(int comm, int tag) {
    int flag = 0;
    MPI_Status status;
    MPI_Message message;
    MUST(MPI_Improbe(MPI_ANY_SOURCE, tag, comms_[static_cast<std::size_t>(comm)], &flag, &message, &status));
    if (flag == 0) return false;
    posted_.push_back({comm, MPI_ANY_SOURCE, tag, true});
    buffers_.emplace_back(kMostInts);
    taken_.push_back(kNone);
    MUST(MPI_Mrecv(buffers_.back().data(), kMostInts, MPI_INT, &message, &status));
    note(posted_.size() - 1, status);
    return true;
  }

  void judge() const {
    std::vector<int> taker(plan_.messages.size(), kNone);
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      if (taken_[i] == kNone) continue;
      int& by = taker[static_cast<std::size_t>(taken_[i])];
      CHECK(by == kNone);
      by = static_cast<int>(i);
    }
    for (std::size_t i = 0; i < taken_.size(); ++i) judge_one(i, taker);
  }

  void judge_one(std::size_t which, const std::vector<int>& taker) const {
    for (std::size_t m = 0; m < plan_.messages.size(); ++m) {
      const Message& other = plan_.messages[m];
      if (other.to != rank_ || !fits(posted_[which], other)) continue;
      CHECK(taker[m] != kNone);
      const bool nothing = taken_[which] == kNone;
      // A receive that got nothing, or a later message of the sender: this one went to a receive
      // posted before.
      const bool later = !nothing && plan_.messages[static_cast<std::size_t>(taken_[which])].from == other.from &&
                         static_cast<std::size_t>(taken_[which]) > m;
      if (nothing || later) CHECK(taker[m] < static_cast<int>(which));
    }
  }

  const Plan& plan_;
  const Tags tags_;
  const int rank_;
  const std::vector<MPI_Comm>& comms_;
  const MPI_Comm meeting_;
  std::vector<Receive> posted_;  // and those of drain()
  std::vector<std::vector<int>> buffers_;
  std::vector<MPI_Request> requests_;
  std::vector<int> taken_;  // [receive]: message; kNone
  std::vector<std::vector<int>> sent_;
  std::vector<MPI_Request> sends_;
};

void run_rounds(std::uint64_t seed, int rounds, Tags tags, const std::vector<MPI_Comm>& comms, MPI_Comm meeting) {
  int rank = 0;
  int size = 0;
  MUST(MPI_Comm_rank(meeting, &rank));
  MUST(MPI_Comm_size(meeting, &size));
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t own = seed * 1000 + static_cast<std::uint64_t>(round);
    const Plan plan = make_plan(own, size, tags);
    Rank(plan, tags, rank, comms, meeting).run(own);
  }
}

// The state of a thread.
struct Own {
  Tags tags;
  std::vector<MPI_Comm> comms;
  MPI_Comm meeting = MPI_COMM_NULL;
};

void make_comms(bool asserted, std::vector<MPI_Comm>* comms) {
  MPI_Info info;
  MUST(MPI_Info_create(&info));
  if (asserted) MUST(MPI_Info_set(info, "mpi_assert_no_any_tag", "true"));
  comms->resize(kComms);
  for (MPI_Comm& comm : *comms) MUST(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
  MUST(MPI_Info_free(&info));
}

// Checks that what was promised is kept.
void check_refusal(MPI_Comm comm) {
  int value = 0;
  int flag = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  CHECK(MPI_Irecv(&value, 1, MPI_INT, 0, MPI_ANY_TAG, comm, &request) == MPI_ERR_TAG);
  CHECK(MPI_Recv(&value, 1, MPI_INT, 0, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE) == MPI_ERR_TAG);
  CHECK(MPI_Iprobe(0, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE) == MPI_ERR_TAG);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 30;
  const std::string how = argc > 3 ? argv[3] : "";
  const bool shared = how == "shared";
  const bool asserted = shared || how == "asserted";
  const std::size_t threads = shared || how == "threads" ? 3 : 1;
  int provided = 0;
  MUST(MPI_Init_thread(&argc, &argv, how.empty() ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &provided));
  std::vector<Own> own(threads);
  for (std::size_t t = 0; t < threads; ++t) {
    own[t].tags = {!asserted, shared ? static_cast<int>(t) * kTags : 0};
    if (shared && t > 0)
      own[t].comms = own[0].comms;
    else
      make_comms(asserted, &own[t].comms);
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &own[t].meeting));
  }
  const auto run = [&](std::size_t t) { run_rounds(seed + t, rounds, own[t].tags, own[t].comms, own[t].meeting); };
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back(run, t);
  run(0);
  for (std::thread& one : others) one.join();
  if (asserted) check_refusal(own[0].comms[0]);
  for (std::size_t t = 0; t < threads; ++t) {
    for (MPI_Comm& comm : own[t].comms)
      if (t == 0 || !shared) MUST(MPI_Comm_free(&comm));
    MUST(MPI_Comm_free(&own[t].meeting));
  }
  MUST(MPI_Finalize());
  return 0;
}
