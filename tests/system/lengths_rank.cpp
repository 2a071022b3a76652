// A rank for lengths_test.cpp: in each round all ranks send each other a few tagged messages of any
// length at once, as a plan says that all draw from one seed, and compare what comes with it.
//
//   SEED ROUNDS MOST_BYTES VICTIM   VICTIM: the rank that is killed in the midst; -1: none
//
// Receives are posted before a rank's own sends or after them; some have too little room. Ranks
// compute for a while before some rounds, so that their peers find them outside the library. Prints
// "busyRANK PID" when it begins, "done RANK" at the end, and what it has received in bytes.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): any two numbers make one.
constexpr std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = (a + 0x9E3779B97F4A7C15ULL) ^ (b * 0xD1B54A32D192ED03ULL);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
  return z ^ z >> 31;
}

struct Message {
  std::uint64_t name = 0;  // of which all else is made
  std::size_t bytes = 0;
  std::size_t room = 0;
};

// What `from` sends to `to` in a round, in this order.
std::vector<Message> plan(std::uint64_t seed, std::uint64_t round, std::uint32_t from, std::uint32_t to,
                          std::size_t most) {
  const std::uint64_t pair = mixed(mixed(seed, round), std::uint64_t{from} << 32 | to);
  std::vector<Message> all(1 + pair % 4);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Message& one = all[i];
    one.name = mixed(pair, i);
    const int bits = static_cast<int>(mixed(one.name, 1) % static_cast<std::uint64_t>(std::bit_width(most)));
    one.bytes = std::min<std::size_t>(most, (std::size_t{1} << bits) + mixed(one.name, 2) % (std::size_t{1} << bits));
    one.room = mixed(one.name, 3) % 8 == 0 ? one.bytes - 1 - mixed(one.name, 4) % one.bytes : one.bytes;
  }
  return all;
}

std::uint64_t word_at(const Message& message, std::size_t i) {
  return message.name + i * 0x9E3779B97F4A7C15ULL;
}

std::vector<std::uint64_t> content(const Message& message) {
  std::vector<std::uint64_t> words(message.bytes / 8 + 1);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = word_at(message, i);
  return words;
}

class Rank {
 public:
  Rank(std::uint64_t seed, std::size_t most, std::int64_t victim) : seed_(seed), most_(most), victim_(victim) {
    done(heddle_context_join(nullptr, &context_), "join");
    done(heddle_context_rank(context_, &rank_), "rank");
    done(heddle_context_size(context_, &size_), "size");
    done(heddle_worker_open(context_, nullptr, &worker_), "worker");
    dead_.resize(size_);
    done(heddle_context_barrier(context_, worker_, Deadline::kNs), "the first barrier");
    say(("busy" + std::to_string(rank_)).c_str(), ::getpid());
  }

  void run(std::uint64_t rounds) {
    const std::uint64_t last = victim_ < 0 ? rounds : mixed(seed_, 5) % rounds;
    std::thread end;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      if (round == last && victim_ == rank_) end = std::thread([this] { die(); });
      run_round(round);
    }
    const heddle_status met = heddle_context_barrier(context_, worker_, Deadline::kNs);
    expect(met, victim_ < 0 ? HEDDLE_DONE : HEDDLE_ERR_PEER_FAILED, "the last barrier");
    if (victim_ == rank_) end.join();
    say("bytes", static_cast<long long>(received_));
    done(heddle_context_leave(context_), "leave");
    say("done", rank_);
  }

 private:
  struct Send {
    std::uint32_t to = 0;
    std::vector<std::uint64_t> words;
    bool over = false;
    heddle_status status = HEDDLE_DONE;
  };
  struct Receive {
    Message message;
    std::uint32_t from = 0;
    std::vector<std::uint64_t> words;
    heddle_receive receive{};
  };

  // At any instruction of the other thread, in the first moments of a round or some time later.
  [[noreturn]] void die() const {
    const std::int64_t moment = now_ns() + static_cast<std::int64_t>(mixed(seed_, 6) % 3'000'000);
    while (now_ns() < moment) {
    }
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }

  void compute(std::uint64_t ns) const {
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(ns);
    while (now_ns() < end) {
    }
  }

  void run_round(std::uint64_t round) {
    const std::uint64_t mine = mixed(mixed(seed_, round), std::uint64_t{1} << 63 | rank_);
    if (mine % 4 == 0) compute(mixed(mine, 1) % 500'000);
    const bool late = mine % 8 < 3;
    if (!late) post_receives(round);
    for (std::uint32_t step = 1; step < size_; ++step) post_sends(round, (rank_ + step) % size_);
    if (mine % 16 == 0) compute(mixed(mine, 2) % 500'000);
    if (late) post_receives(round);
    const Deadline deadline("a round does not end");
    while (!all_over()) {
      check(heddle_worker_progress(worker_) >= 0, "progress");
      deadline.idle();
    }
    for (Receive& one : receives_) compare(one);
    for (const Send& one : sends_) know(one.to, one.status, HEDDLE_DONE, "a send");
    receives_.clear();
    sends_.clear();
  }

  void post_receives(std::uint64_t round) {
    for (std::uint32_t step = 1; step < size_; ++step) {
      const std::uint32_t from = (rank_ + step) % size_;
      if (dead_[from]) continue;
      for (const Message& message : plan(seed_, round, from, rank_, most_)) {
        Receive& one = receives_.emplace_back();
        one.message = message;
        one.from = from;
        one.words.resize(message.room / 8 + 1);
        const heddle_wanted wanted{{from, HEDDLE_ANY}, round, ~std::uint64_t{0}};
        const heddle_status status =
            heddle_recv(worker_, &wanted, one.words.data(), message.room, &one.receive, nullptr);
        if (status < 0) one.receive.status = status;
      }
    }
  }

  void post_sends(std::uint64_t round, std::uint32_t to) {
    if (dead_[to]) return;
    for (const Message& message : plan(seed_, round, rank_, to, most_)) {
      Send& one = sends_.emplace_back();
      one.to = to;
      one.words = content(message);
      heddle_completion completion{};
      completion.fn = [](void* arg, heddle_status status) {
        static_cast<Send*>(arg)->status = status;
        static_cast<Send*>(arg)->over = true;
      };
      completion.arg = &one;
      const heddle_status status = heddle_send(worker_, {to, 0}, round, one.words.data(), message.bytes, &completion);
      if (status == HEDDLE_POSTED) continue;
      one.status = status;
      one.over = true;
    }
  }

  [[nodiscard]] bool all_over() const {
    return std::all_of(sends_.begin(), sends_.end(), [](const Send& one) { return one.over; }) &&
           std::all_of(receives_.begin(), receives_.end(),
                       [](const Receive& one) { return one.receive.status != HEDDLE_POSTED; });
  }

  // False: the peer is dead.
  bool know(std::uint32_t peer, heddle_status status, heddle_status wanted, const char* what) {
    if (status == HEDDLE_ERR_PEER_FAILED && peer == victim_) {
      dead_[peer] = true;
      return false;
    }
    expect(status, wanted, what);
    return true;
  }

  void compare(const Receive& one) {
    const Message& message = one.message;
    const bool fits = message.room == message.bytes;
    if (!know(one.from, one.receive.status, fits ? HEDDLE_DONE : HEDDLE_ERR_TRUNCATED, "a receive")) return;
    if (one.receive.bytes != message.bytes || one.receive.source.rank != one.from) {
      std::fprintf(stderr, "wrong: %" PRIu64 " bytes from %u, not %zu from %u\n", one.receive.bytes,
                   one.receive.source.rank, message.bytes, one.from);
      std::_Exit(99);
    }
    const std::size_t words = message.room / 8;
    std::size_t i = 0;
    while (i < words && one.words[i] == word_at(message, i)) ++i;
    const std::uint64_t rest = word_at(message, words);
    if (i < words || std::memcmp(&one.words[words], &rest, message.room % 8) != 0) {
      std::fprintf(stderr, "wrong: word %zu of %zu bytes from %u, room for %zu\n", i, message.bytes, one.from,
                   message.room);
      std::_Exit(99);
    }
    received_ += message.room;
  }

  const std::uint64_t seed_;
  const std::size_t most_;
  const std::int64_t victim_;
  heddle_context context_{};
  heddle_worker worker_{};
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  std::vector<bool> dead_;
  std::deque<Send> sends_;
  std::deque<Receive> receives_;
  std::uint64_t received_ = 0;
};

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;
  check(argc == 5, "usage: lengths_rank SEED ROUNDS MOST_BYTES VICTIM");
  Rank rank(std::stoull(argv[1]), std::stoull(argv[3]), std::stoll(argv[4]));
  rank.run(std::stoull(argv[2]));
  return 0;
}
