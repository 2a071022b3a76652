#include "limit/limit.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace heddle::bench::limit {

std::vector<std::uint64_t> copied_sizes(const harness::Options& options) {
  return harness::sizes_or(options, {4096, 65536, 1U << 20, 16U << 20});
}

SharedMemory::SharedMemory(const harness::Options& options) {
  const auto sizes = copied_sizes(options);
  bytes_ = std::max<std::uint64_t>(*std::max_element(sizes.begin(), sizes.end()), (4U << 20) + 4096);
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  data_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

harness::Figure limit_figure(const std::string& op, const char* metric, std::uint64_t size, double per_iteration) {
  harness::Figure figure;
  figure.key.bench = "limit";
  figure.key.op = op;
  figure.key.transport = "limit";
  figure.key.sharing = "none";
  figure.key.metric = metric;
  figure.key.workers = 0;
  figure.key.size_bytes = size;
  figure.per_iteration = per_iteration;
  return figure;
}

void run(harness::Session& session, const SharedMemory& memory) {
  if (!session.wants("limit")) return;
  run_lines(session, memory);
  run_copies(session, memory);
}

}  // namespace heddle::bench::limit
