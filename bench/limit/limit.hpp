// The machine's own limits between two processes: caches, rings, copies and atomic instructions,
// without Heddle.
#pragma once

#include "harness/session.hpp"

namespace heddle::bench::limit {

// Memory that both processes map, made before they are forked. data() is null if there is none.
class SharedMemory {
 public:
  explicit SharedMemory(const harness::BenchOptions& options);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

void run(harness::BenchSession& session, const SharedMemory& memory);

// transfers of single cache lines
void run_lines(harness::BenchSession& session, const SharedMemory& memory);
// copies: mapped, by the kernel, by a ring
void run_copies(harness::BenchSession& session, const SharedMemory& memory);
std::vector<std::uint64_t> copied_sizes(const harness::BenchOptions& options);
harness::Figure limit_figure(const std::string& op, const char* metric, std::uint64_t size, double per_iteration);

}  // namespace heddle::bench::limit
