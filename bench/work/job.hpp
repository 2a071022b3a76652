// Heddle as a participant: membership, workers, memory and the measurements, written against
// heddle.h as any program is.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/crowd.hpp"
#include "harness/session.hpp"
#include "heddle/heddle.h"

namespace heddle::bench::work {

// False if these options ask for threads that share a worker and the sharing mode forbids it;
// *error says so.
bool workers_allowed(const harness::Options& options, std::string* error);

// Joins the job this process was started in, measures, leaves. Inside a driver's session
// (options.channel) samples go to stdout as lines; otherwise rank 0 prints the table itself. The
// exit status.
int take_part(const harness::Options& options);

// Ends the whole job with the library's message if `status` is an error; otherwise gives it back.
heddle_status must(heddle_status status, const char* what);

// Where the words for flags and counters end and the room for data begins, in the allocated region.
inline constexpr std::uint64_t kWordsBytes = 65536;
inline constexpr std::uint64_t kSlotBytes = 256;  // apart enough for every processor's lines
inline constexpr std::uint32_t kMaxThreads = 64;

class Job {
 public:
  // Collective, of an even number of processes: ranks 2i and 2i + 1 are each other's peers. Opens
  // `workers` workers and exchanges regions with room for transfers of `bytes` bytes.
  // `adopt`: what is called registered here is adopted.
  Job(heddle_context context, std::uint32_t workers, std::uint64_t bytes, bool adopt);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  [[nodiscard]] heddle_context context() const { return context_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(allocated_.size()); }
  [[nodiscard]] std::uint32_t peer() const { return rank_ ^ 1U; }
  [[nodiscard]] heddle_worker worker(std::uint32_t i) const { return workers_[i]; }
  // Remote addresses at the peer: word slot i, data in the allocated region, data in the registered
  // region.
  [[nodiscard]] heddle_remote slot(std::uint32_t i) const { return {allocated_[peer()], i * kSlotBytes}; }
  [[nodiscard]] heddle_remote data(bool registered) const {
    return registered ? heddle_remote{registered_[peer()], 0} : heddle_remote{allocated_[peer()], kWordsBytes};
  }
  [[nodiscard]] heddle_remote slot_of(std::uint32_t rank, std::uint32_t i) const {
    return {allocated_[rank], i * kSlotBytes};
  }
  // The same slot here.
  [[nodiscard]] std::atomic<std::uint64_t>& own_slot(std::uint32_t i) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(own_ + i * kSlotBytes);
  }
  [[nodiscard]] std::byte* own_data(bool registered) { return registered ? buffer_.get() : own_ + kWordsBytes; }
  // The kind of memory of a figure.
  [[nodiscard]] const char* kind(bool registered) const {
    return !registered ? "allocated" : adopt_ ? "adopted" : "registered";
  }
  // Ordinary memory to put from and get into.
  [[nodiscard]] std::byte* local() { return local_.get(); }
  // The figure's key with all that is the same for Heddle's own figures.
  [[nodiscard]] harness::Figure figure(const char* bench, const std::string& op, const char* metric, std::uint64_t size,
                                       double per_iteration) const;

 private:
  heddle_context context_;
  bool adopt_;
  std::uint32_t rank_ = 0;
  std::vector<heddle_worker> workers_;
  heddle_region allocated_region_{};
  heddle_region registered_region_{};
  std::vector<heddle_remote_region> allocated_;  // by rank
  std::vector<heddle_remote_region> registered_;
  std::byte* own_ = nullptr;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Pages = std::unique_ptr<std::byte[], Free>;  // zeroed, at the beginning of a page
  static Pages pages(std::uint64_t bytes);
  Pages buffer_;
  Pages local_;
};

// Waits until the operation whose call gave `status` is complete at the target.
inline void complete(const Job& job, heddle_worker worker, heddle_status status) {
  if (status == HEDDLE_DONE) return;
  must(status, "an operation");
  must(heddle_flush(worker, job.peer()), "heddle_flush");
}

// What each bench does; both ranks call all of them in the same order.
void run_pingpong(harness::Session& session, Job& job);
void run_messages(harness::Session& session, Job& job);  // active messages: pingpong and rate
void run_tagged(harness::Session& session, Job& job);    // tagged messages: pingpong and rate
void run_rate(harness::Session& session, Job& job);
void run_bandwidth(harness::Session& session, Job& job);
void run_atomics(harness::Session& session, Job& job);
void run_sharing(harness::Session& session, Job& job);  // rate: several threads on one worker
void run_gups(harness::Session& session, Job& job);
void run_reaction(harness::Session& session, Job& job);  // of a progress policy
void run_compute(harness::Session& session, Job& job);   // beside helpers that have nothing to do
void run_overhead(harness::Session& session, Job& job);  // of posting, as for LLCL

void run_convolution(harness::Session& session,
                     // under the progress policy of HEDDLE_PROGRESS, as for PIOMan
                     Job& job);
// of tagged messages and computing, as for PIOMan
void run_overlap(harness::Session& session, Job& job);
// small messages, on a busy transport and on a free one
void run_aggregation(harness::Session& session, Job& job);
// which thread runs the handlers, as for UCCS
void run_fairness(harness::Session& session, Job& job);
// Both directions at once, by threads or by processes; `session` is null in ranks from 2 on.
void run_duplex(harness::Session* session, const harness::Options& options, harness::Crowd& crowd, Job& job);
// Over a network, or over two transports at once; `session` is null in ranks from 2 on, which are
// there to be a second node.
void run_network(harness::Session* session, const harness::Options& options, Job& job);
// More processes and threads than cores; `session` as above. Of 2 processes: the ideal that the
// others are compared with.
void run_oversubscription(harness::Session* session, Job& job);

}  // namespace heddle::bench::work
