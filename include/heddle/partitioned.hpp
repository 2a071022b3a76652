// Partitioned send and receive of partitioned.h with owners and spans. Part of heddle.hpp, which
// includes it.
//
// Functions that make them throw heddle::Error; operations return the C status.
#ifndef HEDDLE_PARTITIONED_HPP
#define HEDDLE_PARTITIONED_HPP

#include "heddle/heddle.hpp"

namespace heddle {

// One side. Destroy it between runs: if a run is under way, the handle stays open until its worker
// is closed.
class Partitioned : public Owner<heddle_partitioned, heddle_partitioned_free> {
 public:
  using Owner::Owner;
  [[nodiscard]] Status start() const noexcept { return heddle_partitioned_start(handle_); }
  [[nodiscard]] Status test() const noexcept { return heddle_partitioned_test(handle_); }
  [[nodiscard]] Status wait(std::int64_t timeout_ns = HEDDLE_FOREVER) const noexcept {
    return heddle_partitioned_wait(handle_, timeout_ns);
  }
};

class PartitionedSend : public Partitioned {
 public:
  using Partitioned::Partitioned;
  // data in `partitions` parts of the same length: data.size() is a multiple of `partitions`.
  template <class T, std::size_t kExtent>
  PartitionedSend(const Worker& worker, std::span<T, kExtent> data, std::uint32_t partitions, heddle_peer target,
                  std::uint64_t tag) {
    check(heddle_psend_init(worker.handle(), data.data(), partitions,
                            partitions == 0 ? 0 : data.size_bytes() / partitions, target, tag, &handle_));
  }
  [[nodiscard]] Status ready(std::uint32_t partition) const noexcept { return heddle_pready(handle_, partition); }
  [[nodiscard]] Status ready(std::uint32_t low, std::uint32_t high) const noexcept {
    return heddle_pready_range(handle_, low, high);
  }
};

class PartitionedReceive : public Partitioned {
 public:
  using Partitioned::Partitioned;
  template <class T, std::size_t kExtent>
  PartitionedReceive(const Worker& worker, std::span<T, kExtent> data, std::uint32_t partitions, heddle_peer source,
                     std::uint64_t tag) {
    check(heddle_precv_init(worker.handle(), data.data(), partitions,
                            partitions == 0 ? 0 : data.size_bytes() / partitions, source, tag, &handle_));
  }
  [[nodiscard]] Status arrived(std::uint32_t partition) const noexcept { return heddle_parrived(handle_, partition); }
};

}  // namespace heddle

#endif  // HEDDLE_PARTITIONED_HPP
