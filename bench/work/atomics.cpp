// Atomic operations at the origin: how long one takes with its result, and how many go by without.
#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

struct Kind {
  const char* name;
  heddle_atomic_op op;
  bool fetch;
};
constexpr Kind kKinds[] = {
    {"fadd", HEDDLE_ADD64, true}, {"swap", HEDDLE_SWAP64, true}, {"cswap", HEDDLE_COMPARE_SWAP64, true},
    {"add", HEDDLE_ADD64, false}, {"xor", HEDDLE_XOR64, false},  {"and", HEDDLE_AND64, false},
    {"or", HEDDLE_OR64, false},
};

// latency: each is complete before the next; rate: all are complete at the end.
void measure(Session& session, Job& job, const Kind& kind, bool latency) {
  const heddle_worker worker = job.worker(0);
  const harness::Figure figure = job.figure("atomics", kind.name, latency ? "latency" : "rate", 8, 1);
  session.measure(figure, [&](std::uint64_t n) {
    double elapsed = 0;
    if (session.rank() == 0) {
      std::uint64_t old = 0;
      const heddle_fetch fetch{1, 0, &old};
      const std::uint64_t begin = harness::now_ns();
      for (std::uint64_t i = 0; i < n; ++i) {
        const heddle_status status = kind.fetch ? heddle_fetch_atomic(worker, kind.op, job.slot(0), &fetch, nullptr)
                                                : heddle_atomic(worker, kind.op, job.slot(0), 1, nullptr);
        must(status, kind.name);
        if (latency) must(heddle_flush(worker, job.peer()), "heddle_flush");
      }
      must(heddle_flush(worker, job.peer()), "heddle_flush");
      elapsed = static_cast<double>(harness::now_ns() - begin);
    }
    session.channel().barrier();
    return Run{elapsed};
  });
}

}  // namespace

void run_atomics(Session& session, Job& job) {
  if (!session.wants("atomics")) return;
  for (const Kind& kind : kKinds) {
    if (!session.wants("atomics", kind.name)) continue;
    measure(session, job, kind, true);
    measure(session, job, kind, false);
  }
}

}  // namespace heddle::bench::work
