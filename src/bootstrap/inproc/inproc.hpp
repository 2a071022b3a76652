// A job whose ranks are threads of one process: for tests, explorers and simulations, and the job
// of one.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/gather.hpp"

namespace heddle::bootstrap::inproc {

class Member;

// What the ranks of the job share. Pass its address as Options::inproc_job. It must outlive the
// bootstraps opened on it. All functions may be called from any thread.
class Job {
 public:
  // 1 to kMaxRanks ranks. With another number, or on a system without random numbers, open() on the
  // job fails.
  explicit Job(std::uint32_t size);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  [[nodiscard]] std::uint32_t size() const { return size_; }

  // Declares a rank dead, as a launcher does when a process dies: the others see it in failed(),
  // their epoch grows, its card is removed. The rank's own exchanges and fetches fail with
  // PEER_FAILED from now on. A rank that does not exist: HEDDLE_ERR_RANK.
  base::Status fail(std::uint32_t rank);

  // True: a bootstrap is open on it.
  [[nodiscard]] bool in_use();

  // Dead or left.
  [[nodiscard]] bool failed(std::uint32_t rank) const;

 private:
  friend class Member;
  friend base::Result<std::unique_ptr<Bootstrap>> open(Job& job, std::uint32_t rank);

  struct Seat {
    Member* member = nullptr;  // while a bootstrap is open on it
    bool taken = false;        // each rank joins once
    bool published = false;
    base::Fd card_fd;
    Card card;                               // card.fd unused
    std::shared_ptr<const Gathered> result;  // of the exchange that this rank has yet to take
  };

  void remove(std::uint32_t rank);  // with mutex_ held: died or left
  void finish_round();              // with mutex_ held

  const std::uint32_t size_;
  base::Status status_ = HEDDLE_DONE;
  std::string why_;  // of status_
  JobSecret secret_{};
  // Release when raised, once, before the members' epochs; partner: the acquire load in failed().
  std::unique_ptr<std::atomic<bool>[]> gone_;
  std::mutex mutex_;  // guards what follows
  std::vector<Seat> seats_;
  Gather gather_;
};

// Errors: ARGUMENT (size of the job), RANK, BOOTSTRAP (that rank has been joined before), SYSTEM.
base::Result<std::unique_ptr<Bootstrap>> open(Job& job, std::uint32_t rank);

}  // namespace heddle::bootstrap::inproc
