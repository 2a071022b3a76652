// Collective operations of a library, by as many processes as there are.
//
// All processes are on one machine and read one clock, so a run lasts from when the last member has
// begun it to when the last one has ended it; before each run there is a barrier. With computation:
// the same, each member computing between start and wait.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "harness/core_time.hpp"
#include "harness/session.hpp"
#include "harness/statistics.hpp"

namespace heddle::bench::measure {

// The functions that a library must offer. make(operation, form, doubles): makes an operation with
// blocks of so many; false: it has none. For the made operation: buffers to send from and to
// receive in, the algorithm's name ("none": not known), and start, wait (blocking: wait does all),
// drop. exchange: in the order of ranks.
template <class L>
concept Collectives = requires(L& l, const std::string& text, const void* mine, void* all, std::size_t n) {
  { l.name() } -> std::convertible_to<std::string>;
  l.barrier();
  l.exchange(mine, n, all);
  { l.make(text, text, n) } -> std::same_as<bool>;
  { l.send() } -> std::same_as<double*>;
  { l.receive() } -> std::same_as<double*>;
  { l.algorithm() } -> std::convertible_to<std::string>;
  l.start();
  l.wait();
  l.drop();
};

// A member's part in an operation. The root is 0; neighbours are a ring.
struct MemberPart {
  std::string_view operation;
  std::uint32_t rank;
  std::uint32_t ranks;
  std::size_t doubles;  // of a block

  // Blocks that this member gives and gets, as far as they are looked at.
  [[nodiscard]] std::uint32_t given_blocks() const {
    if (operation == "neighbor_alltoallv") return 2;
    return is("scatter") || is("alltoall") || operation == "reduce_scatter" ? ranks : 1;
  }
  [[nodiscard]] std::uint32_t got_blocks() const {
    if (operation == "neighbor_alltoallv") return 2;
    if (rank != 0 && (operation == "reduce" || is("gather"))) return 0;
    return is("gather") || is("allgather") || is("alltoall") ? ranks : 1;
  }
  // The value that a member gives in place i, and the value that this member has in place i in the
  // end.
  [[nodiscard]] static double given(std::uint32_t rank, std::size_t i) { return static_cast<double>(rank + 1 + i % 5); }
  [[nodiscard]] double got(std::size_t i) const {
    const auto block = static_cast<std::uint32_t>(i / doubles);
    const std::size_t mine = rank * doubles + i % doubles;  // in what is meant for all
    if (operation == "broadcast") return given(0, i);
    if (is("scatter")) return given(0, mine);
    if (is("gather") || is("allgather")) return given(block, i % doubles);
    if (is("alltoall")) return given(block, mine);
    // From the member before: its first block, which goes to the next member. From the next member:
    // its second block.
    if (operation == "neighbor_alltoallv") return given((rank + (block == 0 ? ranks - 1 : 1)) % ranks, i);
    const std::uint32_t givers = operation == "scan" ? rank + 1 : ranks;
    double sum = 0;
    for (std::uint32_t other = 0; other < givers; ++other)
      sum += given(other, operation == "reduce_scatter" ? mine : i);
    return sum;
  }

 private:
  [[nodiscard]] bool is(std::string_view beginning) const { return operation.starts_with(beginning); }
};

template <Collectives L>
class CollectiveTimes {
 public:
  CollectiveTimes(harness::BenchSession& session, L& library) : session_(session), library_(library) {}

  // All that the options name.
  void run() {
    const harness::BenchOptions& options = session_.options();
    for (const std::string& name : options.names) {
      const bool barrier = name == "barrier";
      for (const std::uint64_t bytes : options.sizes) {
        if (barrier && bytes != options.sizes.front()) continue;
        member_ = {name, session_.rank(), session_.size(), barrier ? 0 : bytes / sizeof(double)};
        for (const std::string& form : options.forms) measure(form);
      }
      if (barrier) measure_barriers();
    }
  }

 private:
  // The times of one run at one member: begun, started, ended.
  using Stamps = std::array<std::uint64_t, 3>;
  // Medians are taken over so many runs, the last ones: libraries exchange no more than a mebibyte.
  static constexpr std::uint64_t kMostStamps = 16384;

  [[nodiscard]] harness::Figure figure(const std::string& op) {
    harness::Figure out;
    out.key.bench = member_.operation;
    out.key.op = op;
    out.key.transport = library_.name();
    out.key.sharing = library_.algorithm();
    out.key.memory = session_.options().memory == "own" ? "own" : "allocated";
    out.key.metric = "latency";
    out.key.processes = session_.size();
    out.key.size_bytes = member_.doubles * sizeof(double);
    return out;
  }

  void measure(const std::string& form) {
    library_.barrier();
    const std::uint64_t begin = harness::now_ns();
    if (!library_.make(std::string(member_.operation), form, member_.doubles)) return;
    const double init_ns = worst(static_cast<double>(harness::now_ns() - begin));
    fill();
    std::vector<harness::Figure> figures = {figure(form)};
    if (form != "blocking") figures.insert(figures.end(), {figure(form + "_start"), figure(form + "_wait")});
    if (form == "persistent") figures.push_back(figure(form + "_init"));
    double total_ns = 0;
    session_.measure(figures, [&](std::uint64_t n) {
      harness::Run run = repeat(n, 0);
      total_ns = run.values.front();
      run.values.push_back(init_ns);
      return run;
    });
    if (session_.options().overlap) {
      session_.measure(figure(form + "_overlapped"),
                       [&](std::uint64_t n) { return repeat(n, static_cast<std::uint64_t>(total_ns)); });
    }
    library_.drop();
  }
  // Without a start that all wait for.
  void measure_barriers() {
    if (!library_.make("barrier", "blocking", 0)) return;
    session_.measure(figure("one_after_another"), [&](std::uint64_t n) {
      pin();
      const std::uint64_t begin = harness::now_ns();
      for (std::uint64_t i = 0; i < n; ++i) library_.barrier();
      return harness::Run{static_cast<double>(harness::now_ns() - begin)};
    });
    library_.drop();
  }

  // A core for each, or the scheduler's choice.
  void pin() const {
    const harness::Cores& cores = session_.cores();
    session_.size() <= cores.count() ? cores.pin_sharing(session_.rank(), 0) : cores.unpin();
  }
  void fill() {
    double* to = member_.operation == "broadcast" ? library_.receive() : library_.send();
    const bool gives = member_.operation != "broadcast" || member_.rank == 0;
    for (std::size_t i = 0; i < member_.given_blocks() * member_.doubles; ++i)
      to[i] = gives ? MemberPart::given(member_.rank, i) : -1;
    expected_.resize(member_.got_blocks() * member_.doubles);
    for (std::size_t i = 0; i < expected_.size(); ++i) expected_[i] = member_.got(i);
  }

  // Medians of so many runs: of the whole, and of starting and of waiting by the member that is
  // worst off.
  harness::Run repeat(std::uint64_t runs, std::uint64_t compute_ns) {
    pin();
    const std::uint64_t begin = harness::now_ns();
    const std::uint64_t kept = std::min(runs, kMostStamps);
    std::vector<Stamps> mine(kept);
    for (std::uint64_t i = 0; i < runs; ++i) {
      Stamps& stamps = mine[i % kept];
      library_.barrier();
      stamps[0] = harness::now_ns();
      library_.start();
      stamps[1] = harness::now_ns();
      if (compute_ns != 0) computation_.run(compute_ns);
      library_.wait();
      stamps[2] = harness::now_ns();
    }
    harness::Run out{static_cast<double>(harness::now_ns() - begin)};
    const std::uint32_t ranks = session_.size();
    std::vector<Stamps> all(kept * ranks);
    library_.exchange(mine.data(), kept * sizeof(Stamps), all.data());
    std::vector<double> times(kept);
    for (std::size_t i = 0; i < kept; ++i) {
      Stamps last{};
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t k = 0; k < last.size(); ++k) last[k] = std::max(last[k], all[rank * kept + i][k]);
      }
      times[i] = static_cast<double>(last[2] - last[0]);
    }
    out.values = {harness::median_of(times)};
    for (const std::size_t part : {1U, 2U}) {
      for (std::size_t i = 0; i < kept; ++i) times[i] = static_cast<double>(mine[i][part] - mine[i][part - 1]);
      out.values.push_back(worst(harness::median_of(times)));
    }
    out.verified = worst(std::equal(expected_.begin(), expected_.end(), library_.receive()) ? 0 : 1) == 0;
    return out;
  }
  double worst(double mine) {
    std::vector<double> all(session_.size());
    library_.exchange(&mine, sizeof mine, all.data());
    return *std::max_element(all.begin(), all.end());
  }

  harness::BenchSession& session_;
  L& library_;
  MemberPart member_{};
  std::vector<double> expected_;
  harness::Computation computation_;
};

}  // namespace heddle::bench::measure
