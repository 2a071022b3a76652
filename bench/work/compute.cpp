// What helpers cost a program that uses all its cores and does not communicate meanwhile: the same
// computation on both cores beside contexts of each progress policy, in turns, so that all see the
// same machine.
#include <array>

#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

constexpr std::uint32_t kTurns = 3;

// One unit: 4096 steps over 32 KiB, which others on the core would push out of the first cache.
class Computation {
 public:
  void unit() {
    for (std::size_t i = 0; i < table_.size(); ++i) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      table_[state_ >> 52] += state_;
    }
  }
  [[nodiscard]] bool computed() const { return state_ != 1; }

 private:
  std::uint64_t state_ = 1;
  std::array<std::uint64_t, 4096> table_{};
};

// A context of its own, with a worker that helpers watch while this process computes.
class Watched {
 public:
  explicit Watched(const char* policy) {
    heddle_context_options options{};
    options.size = sizeof options;
    options.bootstrap = "single";
    options.progress = policy;
    must(heddle_context_join(&options, &context_), "heddle_context_join");
    must(heddle_worker_open(context_, nullptr, &worker_), "heddle_worker_open");
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() { must(heddle_context_leave(context_), "heddle_context_leave"); }

 private:
  heddle_context context_{};
  heddle_worker worker_{};
};

}  // namespace

void run_compute(Session& session, Job& job) {
  if (!session.wants("compute")) return;
  const auto computation = std::make_unique<Computation>();
  for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
    for (const char* policy : {"none", "idle", "adaptive"}) {
      if (!session.wants("compute", policy)) continue;
      const Watched watched(policy);
      session.channel().barrier();
      session.measure(job.figure("compute", policy, "latency", sizeof(Computation), 1), [&](std::uint64_t n) {
        const std::uint64_t begin = harness::now_ns();
        for (std::uint64_t i = 0; i < n; ++i) computation->unit();
        const auto elapsed = static_cast<double>(harness::now_ns() - begin);
        // both compute while either is measured, but for the last moments
        session.channel().barrier();
        return Run{elapsed, computation->computed()};
      });
      session.channel().barrier();
    }
  }
}

}  // namespace heddle::bench::work
