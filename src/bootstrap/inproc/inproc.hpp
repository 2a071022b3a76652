// A job whose ranks are threads of one process: for tests, explorers and simulations, and the job
// of one rank.
#pragma once

#include <cstdint>
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/common.hpp"  // kMaxRanks

namespace heddle::bootstrap::inproc {

// The state that the members share; only inproc.cpp looks into it.
class Table;

// The state that the ranks of the job share. Pass its address as Options::inproc_job. It must
// outlive the bootstraps opened on it. All functions may be called from any thread.
class ThreadJob {
 public:
  // 1 to kMaxRanks ranks. With another number, or on a system without random numbers, open() on the
  // job fails.
  explicit ThreadJob(std::uint32_t size);
  ThreadJob(const ThreadJob&) = delete;
  ThreadJob& operator=(const ThreadJob&) = delete;
  ~ThreadJob();

  [[nodiscard]] std::uint32_t size() const;

  // Declares a rank dead, as a launcher does when a process dies: the others see it in failed(),
  // their epoch grows, its card is removed. The rank's own exchanges and fetches fail with
  // PEER_FAILED from now on. A rank that does not exist: HEDDLE_ERR_RANK.
  base::Status fail(std::uint32_t rank);

  // True: a bootstrap is open on it.
  [[nodiscard]] bool in_use();

  // Dead or left.
  [[nodiscard]] bool failed(std::uint32_t rank) const;

  // For open().
  [[nodiscard]] Table& table() { return *table_; }

 private:
  const std::unique_ptr<Table> table_;
};

// Errors: ARGUMENT (size of the job), RANK, BOOTSTRAP (that rank has been joined before), SYSTEM.
base::Result<std::unique_ptr<Bootstrap>> open(ThreadJob& job, std::uint32_t rank);

}  // namespace heddle::bootstrap::inproc

namespace heddle::bootstrap::single {

// The job of one: a process that no launcher has started.

// Errors: SYSTEM (no random numbers).
base::Result<std::unique_ptr<Bootstrap>> open();

}  // namespace heddle::bootstrap::single
