// The sharing modes by name, and a worker that all threads use in one of them.
#pragma once

#include <array>
#include <utility>

#include "work/job.hpp"

namespace heddle::bench::work {

inline constexpr std::array<std::pair<const char*, heddle_sharing>, 4> kModes = {{{"shared", HEDDLE_SHARING_SHARED},
                                                                                  {"offload", HEDDLE_SHARING_OFFLOAD},
                                                                                  {"delegate", HEDDLE_SHARING_DELEGATE},
                                                                                  {"mutex", HEDDLE_SHARING_MUTEX}}};

class ModeWorker {
 public:
  // Collective: both ranks open the same modes in the same order, so the numbers are the same.
  // Opening an offload worker starts its thread, on the cores that the caller may use now.
  ModeWorker(Job& job, heddle_sharing sharing) : job_(job) {
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = sharing;
    must(heddle_worker_open(job.context(), &options, &worker_), "heddle_worker_open");
    must(heddle_worker_index(worker_, &index_), "heddle_worker_index");
    meet();
  }
  ModeWorker(const ModeWorker&) = delete;
  ModeWorker& operator=(const ModeWorker&) = delete;
  ~ModeWorker() {
    must(heddle_quiet(worker_), "heddle_quiet");
    meet();
    must(heddle_worker_close(worker_), "heddle_worker_close");
  }

  [[nodiscard]] heddle_worker handle() const { return worker_; }
  [[nodiscard]] heddle_peer peer() const { return {job_.peer(), index_}; }

 private:
  void meet() { must(heddle_context_barrier(job_.context(), worker_, HEDDLE_FOREVER), "heddle_context_barrier"); }
  Job& job_;
  heddle_worker worker_{};
  std::uint32_t index_ = 0;
};

// Returns how many events there were.
inline int progress(heddle_worker worker) {
  const int events = heddle_worker_progress(worker);
  if (events < 0) must(static_cast<heddle_status>(events), "heddle_worker_progress");
  return events;
}

// One turn of a program's own loop, as the guide writes it: until something has moved, or another
// look is due.
inline void wait_moved(heddle_worker worker) {
  must(heddle_worker_wait(worker, HEDDLE_FOREVER), "heddle_worker_wait");
}

}  // namespace heddle::bench::work
