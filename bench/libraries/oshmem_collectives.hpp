// Collective operations of OpenSHMEM: barrier, broadcast and allreduce, blocking; by the deprecated
// functions, since Open MPI 4.1 has no others.
#pragma once

#include <shmem.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "measure/collectives.hpp"

namespace heddle::bench::libraries {

// All in the heap: Open MPI finds static data of the executable on other PEs only where nothing is
// placed at random.
template <class T>
T* allocate(std::size_t count) {
  T* memory = static_cast<T*>(shmem_malloc(count * sizeof(T)));
  if (memory == nullptr) {
    std::fputs("heddle bench: OpenSHMEM has no symmetric memory; raise SHMEM_SYMMETRIC_SIZE\n", stderr);
    shmem_global_exit(1);
  }
  return memory;
}

class ShmemCollectives {
 public:
  ShmemCollectives(const char* name, std::size_t most_bytes) : name_(name) {
    const std::size_t most = most_bytes / sizeof(double);
    send_ = allocate<double>(most);
    receive_ = allocate<double>(most);
    work_ = allocate<double>(most + SHMEM_REDUCE_MIN_WRKDATA_SIZE);
    for (long*& sync : sync_) {
      sync = allocate<long>(kSync);
      std::fill_n(sync, kSync, SHMEM_SYNC_VALUE);
    }
    shmem_barrier_all();
  }
  [[nodiscard]] const char* name() const { return name_; }
  static void barrier() { shmem_barrier_all(); }
  void exchange(const void* mine, std::size_t bytes, void* all) {
    const auto pes = static_cast<std::size_t>(shmem_n_pes());
    auto* every = allocate<std::byte>(bytes * pes);
    for (std::size_t pe = 0; pe < pes; ++pe) {
      shmem_putmem(every + static_cast<std::size_t>(shmem_my_pe()) * bytes, mine, bytes, static_cast<int>(pe));
    }
    shmem_barrier_all();
    std::copy_n(every, bytes * pes, static_cast<std::byte*>(all));
    shmem_free(every);
  }
  [[nodiscard]] double* send() const { return send_; }
  [[nodiscard]] double* receive() const { return receive_; }
  [[nodiscard]] static const char* algorithm() { return "none"; }

  bool make(const std::string& operation, const std::string& form, std::size_t doubles) {
    operation_ = operation;
    doubles_ = doubles;
    fresh_ = true;
    return form == "blocking" && (operation == "barrier" || operation == "broadcast" || operation == "allreduce");
  }
  // Runs once: broadcasts are from `send`, which does not have the root's data yet.
  void start() {
    if (fresh_ && operation_ == "broadcast") std::copy_n(receive_, doubles_, send_);
    fresh_ = false;
  }
  void wait() {
    const int n = shmem_n_pes();
    if (operation_ == "barrier") return shmem_barrier_all();
    // By turns, so that no barrier is needed between two uses.
    long* sync = sync_[turn_++ % 2];
    if (operation_ == "broadcast") return shmem_broadcast64(receive_, send_, doubles_, 0, 0, 0, n, sync);
    shmem_double_sum_to_all(receive_, send_, static_cast<int>(doubles_), 0, 0, n, work_, sync);
  }
  void drop() {}

 private:
  static constexpr std::size_t kSync = std::max(SHMEM_BCAST_SYNC_SIZE, SHMEM_REDUCE_SYNC_SIZE);
  const char* name_;
  double* send_ = nullptr;
  double* receive_ = nullptr;
  double* work_ = nullptr;
  long* sync_[2] = {};
  std::uint64_t turn_ = 0;
  std::string operation_;
  std::size_t doubles_ = 0;
  bool fresh_ = true;
};

}  // namespace heddle::bench::libraries
