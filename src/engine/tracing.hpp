// A worker of a job that is traced: notes each command that the transport accepts, each arrival and
// end that it reports, by the thread that posts or polls.
//
// It stands between a worker and its transport, under the aggregator, and is itself a
// TransportWorker. In a job that is not traced it is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tap/tracer.hpp"
#include "transport/common/forwarding.hpp"

namespace heddle::engine {

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

}  // namespace heddle::engine
