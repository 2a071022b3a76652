// Replaces the benchmarks where this tool is built without them.
#include <cstdio>

#include "bench/bench.hpp"

namespace heddle::bench {
namespace {

int refuse(const char* word) {
  std::fprintf(stderr, "heddle %s: this tool was built without the benchmarks; build it with -DHEDDLE_BENCH=ON\n",
               word);
  return 1;
}

}  // namespace

int main(int, char**) {
  return refuse("bench");
}

int report_main(int, char**) {
  return refuse("report");
}

}  // namespace heddle::bench
