// The beginning of all programs that measure a library.
#pragma once

#include <cstdio>

#include "harness/channel.hpp"
#include "harness/options.hpp"

namespace heddle::bench::libraries {

// A tree configured with HEDDLE_PRECOMPILE compiles the programs quickly, not well.
inline void warn_unoptimised(const char* program) {
#if !defined(__OPTIMIZE__)
  std::fprintf(stderr,
               "%s is compiled without optimisation (HEDDLE_PRECOMPILE is ON): its figures tell nothing; configure "
               "with -D HEDDLE_PRECOMPILE=OFF\n",
               program);
#else
  static_cast<void>(program);
#endif
}

// Parses the arguments and opens the channel; exits with status 2 if that cannot be done.
inline harness::BenchOptions options_or_exit(int argc, char** argv) {
  std::string error;
  auto options = harness::parse_options(argc, argv, &error);
  if (options && options->channel.empty()) error = "--channel is missing; heddle bench --peers starts this program";
  if (!error.empty()) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.c_str());
    std::exit(2);
  }
  if (!options->quick) warn_unoptimised(argv[0]);
  return *options;
}

inline harness::Channel channel_or_exit(const harness::BenchOptions& options) {
  auto channel = harness::Channel::open(options.channel);
  if (!channel) {
    std::perror(options.channel.c_str());
    std::exit(1);
  }
  return std::move(*channel);
}

}  // namespace heddle::bench::libraries
