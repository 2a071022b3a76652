// More processes and threads than cores. All processes, 4 and 8 of them, do each kind of operation
// at the same time. The figure is the time of one operation when the process that must answer may
// have to get a core first: the median and the 99th percentile of the slowest process. Also
// measured: a fixed amount of mixed work by 8 processes of 8 threads, compared with the same work
// by 2 processes of 1 thread.
#include <algorithm>
#include <array>

#include "measure/messages.hpp"
#include "work/work.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using measure::word_at;

constexpr std::uint64_t kRounds = 400;
// rounds of mixed work, of all threads together
constexpr std::uint64_t kMixedPerRepeat = 16 * 4096;
constexpr std::uint64_t kBurst = 16;  // rounds between two meetings of partners
// Words that partners write to each other: one each, or one for each thread.
constexpr std::uint64_t kPing = word_at(0);
constexpr std::uint64_t kToken = word_at(1);
constexpr std::uint64_t kMeet = 8;
constexpr std::uint64_t kSum = 80;
constexpr std::uint64_t kData = 160;

class Oversubscription {
 public:
  Oversubscription(Bench& bench, Heddle& library, Memory& memory)
      : bench_(bench), library_(library), memory_(memory), payloads_(bench, kThreads, 8) {
    const std::uint32_t threads = harness::oversubscription_threads(bench.size());
    const auto due = measure::arrived_so_far(library, threads);
    std::copy(due.begin(), due.end(), messages_.begin());
  }

  template <class Once>
  void time_each(const char* op, Once&& once) {
    const measure::Figure figures[] = {figure(op, kRounds, 1), figure(std::string(op) + "_p99", kRounds, 1)};
    bench_.session().measure(figures, [&](std::uint64_t n) {
      bench_.session().cores().unpin();
      library_.meet();
      std::vector<std::uint64_t> times(n);
      for (std::uint64_t& time : times) {
        const std::uint64_t before = harness::now_ns();
        once();
        time = harness::now_ns() - before;
      }
      std::sort(times.begin(), times.end());
      const std::array<std::uint64_t, 2> mine = {times[n / 2], times[n * 99 / 100]};
      std::vector<std::array<std::uint64_t, 2>> all(bench_.size());
      must(heddle_context_exchange(job_context, &mine, sizeof mine, all.data()), "heddle_context_exchange");
      std::vector<double> worst = {0, 0};
      for (const auto& one : all) {
        for (std::size_t i = 0; i < 2; ++i) worst[i] = std::max(worst[i], static_cast<double>(one[i]));
      }
      return Run{worst[0], true, worst};
    });
  }

  void run() {
    const auto there_and_back = [&](auto&& send, auto&& receive) {
      ++number_;
      if (bench_.rank() % 2 == 0) send();
      receive();
      if (bench_.rank() % 2 != 0) send();
    };
    const std::uint32_t peer = bench_.peer();
    time_each("put_signal", [&] {
      there_and_back([&] { signal(peer, kPing, number_); }, [&] { library_.wait_signal(0, kPing, number_); });
    });
    time_each("am", [&] {
      there_and_back([&] { library_.message(0, peer, payloads_[0], 8, false); },
                     [&] { library_.await(0, ++messages_[0]); });
    });
    time_each("tagged", [&] {
      std::uint64_t got = 0;
      there_and_back([&] { library_.send_now(0, peer, 1, &number_, sizeof number_); },
                     [&] { library_.receive_now(0, peer, 1, &got, sizeof got); });
    });
    time_each("get", [&] { get_registered(0, &number_); });
    time_each("barrier", [&] { library_.meet(); });
    // Through all ranks once; rank 0 starts it and waits for its return.
    time_each("token", [&] {
      ++tokens_;
      if (bench_.rank() != 0) library_.wait_signal(0, kToken, tokens_);
      signal((bench_.rank() + 1) % bench_.size(), kToken, tokens_);
      if (bench_.rank() == 0) library_.wait_signal(0, kToken, tokens_);
    });
  }

  // A thread and the one of the same number at the peer. Per round, as if all were done one after
  // the other.
  void mixed() {
    const std::uint32_t threads = harness::oversubscription_threads(bench_.size());
    const measure::Figure one = figure("mixed", kMixedPerRepeat, threads);
    bench_.measure(std::span(&one, 1), threads,
                   {{},
                    [&](std::uint32_t lane, std::uint64_t n) {
                      bench_.session().cores().unpin();
                      mix(lane, n / (std::uint64_t{threads} * bench_.size()));
                    },
                    [&](std::uint64_t) {
                      bool right = true;
                      for (std::uint32_t lane = 0; lane < threads; ++lane) {
                        right = right && library_.arrived(lane) == messages_[lane] &&
                                measure::own_word(library_, word_at(kSum + lane)).load() == rounds_[lane];
                      }
                      return right;
                    }});
  }

 private:
  static constexpr std::uint32_t kThreads = 8;

  [[nodiscard]] measure::Figure figure(const std::string& op, std::uint64_t fixed, std::uint32_t threads) const {
    measure::Figure out = bench_.figure({"oversubscription", op, "latency", 8, 1, threads});
    out.key.memory = op.starts_with("get") ? "registered" : "allocated";
    out.fixed = fixed;
    return out;
  }
  void signal(std::uint32_t to, std::uint64_t word, std::uint64_t value, std::uint32_t lane = 0) {
    library_.put_signal(lane, to, word, nullptr, 0, word, value);
  }
  void get_registered(std::uint32_t lane, std::uint64_t* into) {
    const heddle_remote from = memory_.registered_at(bench_.peer(), 0);
    std::uint64_t got = 0;
    if (must(heddle_get(library_.worker(lane), &got, sizeof got, from, nullptr), "heddle_get") == HEDDLE_POSTED)
      library_.flush(lane, bench_.peer());
    *into += got;  // 0: nobody writes there
  }
  void mix(std::uint32_t lane, std::uint64_t rounds) {
    std::array<std::uint64_t, 8> data{};
    std::uint64_t meetings = rounds_[lane] / kBurst;
    const std::uint32_t peer = bench_.peer();
    for (std::uint64_t i = 0; i < rounds; ++i) {
      library_.put_now(lane, peer, word_at(kData + lane), data.data(), sizeof data);
      library_.message(lane, peer, payloads_[lane], 8, false);
      library_.add_word(lane, peer, word_at(kSum + lane), 1);
      get_registered(lane, data.data());
      if ((i + 1) % kBurst != 0) continue;
      signal(peer, word_at(kMeet + lane), ++meetings, lane);
      library_.wait_signal(lane, word_at(kMeet + lane), meetings);
    }
    library_.flush(lane, peer);
    rounds_[lane] += rounds;
    library_.await(lane, messages_[lane] += rounds);
  }

  Bench& bench_;
  Heddle& library_;
  Memory& memory_;
  const measure::Payloads payloads_;
  std::uint64_t number_ = 0;
  std::uint64_t tokens_ = 0;
  std::array<std::uint64_t, kThreads> messages_{};  // that have come to each lane
  std::array<std::uint64_t, kThreads> rounds_{};
};

}  // namespace

void run_oversubscription(Bench& bench, Heddle& library, Memory& memory) {
  if (!bench.wants("oversubscription")) return;
  measure::clear_words(library, 0, measure::kWords);
  Oversubscription all(bench, library, memory);
  if (bench.size() > 2) all.run();
  if (bench.size() != 4) all.mixed();
}

}  // namespace heddle::bench::work
