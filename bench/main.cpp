#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench.hpp"
#include "driver/driver.hpp"
#include "driver/tuning.hpp"
#include "harness/channel.hpp"
#include "harness/options.hpp"
#include "harness/session.hpp"
#include "limit/limit.hpp"
#include "report/report.hpp"
#include "work/work.hpp"

namespace heddle::bench {

namespace {

// The limit as a participant: both processes by fork, nothing of Heddle.
int run_limit_pair(const harness::BenchOptions& options) {
  auto channel = harness::Channel::open(options.channel);
  if (!channel) {
    std::perror("heddle bench: --channel");
    return 1;
  }
  const limit::SharedMemory memory(options);
  if (memory.data() == nullptr) {
    std::perror("heddle bench: memory that both processes map");
    return 1;
  }
  return harness::run_group(*channel, 2, [&](std::uint32_t) {
    harness::BenchSession session(*channel, options, harness::print_sample);
    limit::run(session, memory);
    return 0;
  });
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
      std::fputs(harness::kUsage, stdout);
      return 0;
    }
  }
  std::string error;
  const auto options = harness::parse_options(argc, argv, &error);
  if (!options) {
    std::fprintf(stderr, "heddle bench: %s\n%s", error.c_str(), harness::kHelpHint);
    return 2;
  }
  if (options->pair) return run_limit_pair(*options);
  if (options->tune) return driver::run_tuning(*options);
  if (std::getenv("HEDDLE_LOCAL_RANK") != nullptr) return work::take_part(*options);
  return options->demo ? driver::run_demo(*options) : driver::run_session(*options);
}

int report_main(int argc, char** argv) {
  return report::run(argc, argv);
}

}  // namespace heddle::bench
