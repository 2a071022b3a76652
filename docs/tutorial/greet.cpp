// Each rank of the job says who it is.
#include <cstdio>
#include <heddle/heddle.hpp>

int main() {
  const auto context = heddle::Context::join();
  std::printf("rank %u of %u\n", context.rank(), context.size());
}
