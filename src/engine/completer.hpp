// The completer of a worker: it turns the transport's reports into ends of operations, calls of
// handlers and arrivals at protocols. It also notices failed ranks and closed workers, and posts
// what is left of operations.
//
// For the thread inside the worker.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/core.hpp"
#include "engine/protocol.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

class Completer {
 public:
  explicit Completer(Core& core) : core_(core) {}
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;

  // Adds a row of the table (wire::row_of): its messages are for this protocol. The protocol is
  // told of progress, failures and closing once, however many rows it has. Not to be called after
  // the first progress. Throws std::bad_alloc.
  void add(std::uint32_t row, Protocol& protocol);
  [[nodiscard]] const std::vector<Protocol*>& protocols() const { return protocols_; }
  // Null: nobody's.
  [[nodiscard]] Protocol* at(std::uint32_t row) const { return row < rows_.size() ? rows_[row] : nullptr; }

  // Number of events, or ERR_STATE from inside a handler.
  int progress();
  void cancel_all(base::Status status);
  // Called when a thread rests after it has polled in vain.
  void note_rest();

  // True: something is left that only progress moves on, or that waits for an answer.
  [[nodiscard]] bool under_way() const {
    return core_.operations.under_way() > 0 || !core_.operations.pending().empty() || !core_.responder.idle();
  }
  // True: the operations have been told of all failed ranks.
  [[nodiscard]] bool knows_failures() const {
    return core_.failure_epoch.load(std::memory_order_relaxed) == seen_epoch_;
  }
  // For sleeping, see transport.hpp. False: the worker needs more polls, though arrivals ring.
  [[nodiscard]] bool arm() { return core_.transport.arm() && !under_way(); }

 private:
  [[nodiscard]] bool has_work() const;
  [[nodiscard]] bool looks_for_closed() const;
  int advance(std::size_t events);
  void completed(const transport::Completion& completion);
  void completed_otherwise(const transport::Completion& completion);
  void take_in(std::span<const transport::Completion> polled);
  std::size_t deliver(std::span<const transport::Completion> arrivals);
  void arrived(const transport::Completion& completion);
  std::size_t advance_pending();
  bool advance_protocols();
  void tell_progress(std::size_t events);
  bool note_failures();
  bool note_failed_ranks();
  bool note_closed();  // true: something has ended
  [[nodiscard]] bool begin_look();

  Core& core_;
  std::array<Protocol*, wire::kRows> rows_{};  // null: nobody's
  std::vector<Protocol*> protocols_;
  std::uint64_t seen_epoch_ = 0;   // of failures, dealt with
  std::uint64_t noted_epoch_ = 0;  // of failures that are being dealt with
  std::size_t failed_left_ = 0;    // operations that note_failures() has still to look at
  // of the operations, from 1, the next that note_closed() looks at; 0: it is not at it
  std::size_t closed_next_ = 0;
  std::uint64_t closed_polls_ = 0;  // when it began the last time
  std::uint32_t rests_ = 0;         // naps with operations outstanding since
  std::array<transport::Completion, 32> arrivals_;
};

}  // namespace heddle::engine
