// What looks at a worker from within the engine: three decorators of a transport's worker, each
// there only if it is asked for (tracing, static probes, the order that ThreadSanitizer is told),
// and the findings of a report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/handlers.hpp"
#include "engine/job.hpp"
#include "tap/snapshot.hpp"
#include "tap/tracer.hpp"
#include "transport/common/forwarding.hpp"

namespace heddle::engine {

// A worker of a job that is traced: notes each command that the transport accepts, each arrival and
// end that it reports, by the thread that posts or polls.
//
// It stands between a worker and its transport, and is itself a
// TransportWorker. In a job that is not traced it is not there.
class TracingWorker final : public transport::ForwardingWorker {
 public:
  struct Place {
    std::uint32_t index;  // of the worker
    std::uint32_t ranks;
    std::uint32_t max_workers;
  };
  TracingWorker(std::unique_ptr<transport::TransportWorker> inner, tap::Tracer& tracer, const Place& place);

  [[nodiscard]] std::size_t post(std::span<transport::Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<transport::Completion> completions) override;

 private:
  using Numbers = std::vector<std::unique_ptr<std::uint64_t[]>>;

  std::uint64_t next_number(Numbers& numbers, std::uint32_t rank, std::uint32_t worker, std::uint64_t count = 1);
  void make_row(std::unique_ptr<std::uint64_t[]>& row);
  [[nodiscard]] bool is_same(const transport::Command& command) const;
  std::size_t post_others(std::span<transport::Command> batch);
  void note_posted(tap::TraceRing& ring, const transport::Command& command, std::uint64_t ticks);
  void note_end_of_long(tap::TraceRing& ring, std::uint64_t ticks);
  void note_refused(tap::TraceRing& ring, const transport::Command& command, std::uint64_t ticks);
  std::size_t note(tap::TraceRing& ring, std::span<const transport::Completion> found, std::uint64_t ticks);
  void note_ended(tap::TraceRing& ring, const transport::Completion& completion, std::uint64_t ticks);
  void note_away(tap::TraceRing& ring, std::uint64_t now);

  tap::Tracer& tracer_;
  const Place place_;
  bool counts_ = true;
  // Messages so far, by rank and worker. Null: none.
  Numbers sent_;
  // The last message that was posted, inlined and without a slot. Most messages in a row do not
  // differ; then nothing is looked up for them.
  struct Same {
    tap::TraceRepeat repeat;
    std::uint64_t* number = nullptr;  // in sent_
    std::uint64_t bytes = 0;
    transport::Token token = 0;
    std::uint32_t rank = 0;
    std::uint32_t worker = 0;
    std::uint32_t immediate = 0;
  };
  Same same_;
  Numbers received_;
  // For `away`: when a thread last looked for arrivals, and how long that thread had computed by
  // then.
  std::uint64_t looked_ = base::ticks();
  std::uint32_t long_ones_ = 0;  // puts and gets under way without a completion
};

// A worker whose operations are probed (HEDDLE_PROBES): fires a static probe for each command that
// the transport accepts or refuses, each arrival and each end that it reports (tap/probes.hpp).
//
// It stands between a worker and its transport, as TracingWorker does. Without the setting it is
// not there, and costs nothing.
class ProbingWorker final : public transport::ForwardingWorker {
 public:
  // `index`: of this worker.
  ProbingWorker(std::unique_ptr<transport::TransportWorker> inner, std::uint32_t index);

  [[nodiscard]] std::size_t post(std::span<transport::Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<transport::Completion> completions) override;

 private:
  const std::uint32_t index_;
};

// A handler that fires the probes of its begin and end around `inner`, which stays where it is.
[[nodiscard]] Handler probed(const Handler& inner);

// A worker of a program that was compiled with -fsanitize=thread. It tells ThreadSanitizer the
// order of messages within this process: what a thread did before it posted a message happens
// before what the receiving thread does after it has taken the message in. The library's writes
// into its rings are hidden from ThreadSanitizer: the rings' own atomics order them, and
// ThreadSanitizer does not see these.
//
// It stands between a worker and its transport, as TracingWorker does. It is only there if the
// process has ThreadSanitizer.
class OrderingWorker final : public transport::ForwardingWorker {
 public:
  // `rank`, `index`: of this worker.
  OrderingWorker(std::unique_ptr<transport::TransportWorker> inner, std::uint32_t rank, std::uint32_t index);

  [[nodiscard]] std::size_t post(std::span<transport::Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<transport::Completion> completions) override;

 private:
  void* const here_;
};

// The operations that a worker has under way, for a report: in words, and as values for the verdict
// on why a job does not move (diagnosis/). Filled by the thread inside the worker. May throw
// std::bad_alloc.
class Findings {
 public:
  explicit Findings(const Job& job) : job_(job) {}

  // A line of the report.
  [[gnu::cold, gnu::format(printf, 2, 3)]] void say(const char* format, ...);
  // The first kMostListed of each kind are kept.
  void under_way(tap::Awaited&& awaited);
  // A message that has arrived and that no receive has matched. It is counted with those of the
  // same sender and tag.
  void kept(std::uint32_t rank, std::uint32_t worker, std::uint64_t tag);

  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] std::string tag_text(std::uint64_t tag, std::uint64_t mask = ~std::uint64_t{0}) const {
    return job_.tag_text(tag, mask);
  }

  tap::WorkerState state;
  std::vector<std::string> lines;

 private:
  const Job& job_;
};

}  // namespace heddle::engine
