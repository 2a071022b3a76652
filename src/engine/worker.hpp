// One queue of communication: requester, executor and completer of the operations posted on it.
//
// Direct operations are done by the inline functions of api/ without coming here. Everything else becomes an Operation: the
// requester (requester.cpp) cuts it into commands and hands them to the transport; the completer (completer.cpp) turns the
// transport's completions into finished operations, handlers and answers. One thread at a time (exclusive).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/wait.hpp"
#include "engine/context.hpp"
#include "engine/operation.hpp"
#include "protocol/reassembly.hpp"
#include "protocol/responder.hpp"

namespace heddle::engine {

class Worker {
 public:
  static constexpr HandleType kType = HandleType::worker;
  static base::Result<std::unique_ptr<Worker>> open(Context& context, std::uint32_t index);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] Context& context() { return context_; }
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(outstanding_.size()); }
  [[nodiscard]] std::uint32_t max_workers() const { return max_workers_; }
  [[nodiscard]] std::uint64_t max_payload() const { return max_payload_; }
  [[nodiscard]] std::uint32_t outstanding() const { return outstanding_total_; }
  [[nodiscard]] heddle_worker_stats& stats() { return stats_; }
  // An operation that was not direct. What is direct is the rest, so that the direct path has one number less to keep.
  void count_command() { ++commands_; }
  [[nodiscard]] heddle_worker_stats read_stats() const;
  // What its operations may still touch. Any thread.
  [[nodiscard]] const MarkTable& marks() const { return operations_.marks(); }

  // ---- requester. Arguments are checked; direct operations have been done. DONE, POSTED, AGAIN or an error. --------------
  base::Status try_transfer(Kind kind, const Pieces& pieces, std::uint32_t rank, const Completion& completion);
  base::Status try_put_signal(const Pieces& pieces, std::uint32_t rank, RemoteRegion* word, std::uint64_t word_offset,
                              const heddle_signal& signal, const Completion& completion);
  struct AtomicRequest {
    std::uint32_t op;
    RemoteRegion* remote;
    std::uint64_t offset;
    std::uint64_t operand;
    std::uint64_t compare;
    void* result;
  };
  base::Status try_atomic(const AtomicRequest& request, const Completion& completion);
  // The common case costs one call of the transport; `unsuitable`: try_message must do it.
  transport::TransportWorker::Sent try_send(heddle_peer target, const heddle_am_message& message) {
    if (message.payload_bytes > small_payload_) return transport::TransportWorker::Sent::unsuitable;
    return transport_->try_send({target.rank, target.worker}, wire::encode_am(message.handler, message.header_bytes),
                                {static_cast<const std::byte*>(message.header), message.header_bytes},
                                {static_cast<const std::byte*>(message.payload), message.payload_bytes});
  }
  base::Status try_message(heddle_peer target, const heddle_am_message& message, const Completion& completion) {
    const bool small = wire::pad8(message.header_bytes) + message.payload_bytes <= capabilities_.max_message;
    return small ? post_small_message(target, message, completion) : try_large_message(target, message, completion);
  }

  // ---- completer -----------------------------------------------------------------------------------------------------------
  // Number of events, or ERR_STATE from inside a handler.
  int progress();
  [[nodiscard]] bool in_handler() const { return in_progress_; }

  // DONE, AGAIN, or the first unreported error (which is then reported).
  base::Status try_flush(std::uint32_t rank);
  base::Status try_quiet();
  // Progress until attempt() says something else than AGAIN.
  template <class Attempt>
  base::Status until(std::int64_t timeout_ns, Attempt&& attempt);

  // Everything in flight ends with `status`; before closing when peers cannot be waited for.
  void cancel_all(base::Status status);

 private:
  Worker(Context& context, std::uint32_t index, std::unique_ptr<transport::TransportWorker> transport);

  // requester.cpp
  base::Status post_small_message(heddle_peer target, const heddle_am_message& message, const Completion& completion);
  base::Status try_large_message(heddle_peer target, const heddle_am_message& message, const Completion& completion);
  Operation* begin(Kind kind, std::uint32_t rank, const Completion& completion);
  void finish(Operation& operation);
  base::Status start(Operation* operation);
  base::Status keep(Operation* operation);
  bool advance(Operation& operation);  // posts what it can; false: nothing more could be posted now
  bool advance_pieces(Operation& operation);
  bool advance_message(Operation& operation);
  bool advance_word(Operation& operation);
  std::uint64_t post_piece(Operation& operation, const Piece& piece);
  std::uint64_t post_command(Operation& operation, const Piece& piece);
  std::uint64_t post_request(Operation& operation, const Piece& piece);
  bool post_message(transport::Command& command, Operation& operation, Role role);
  void direct_piece(const Operation& operation, const Piece& piece);
  std::size_t advance_pending();

  // completer.cpp
  bool deliver(const transport::Completion& completion);
  void handle(const transport::Completion& completion);
  void arrived(const transport::Completion& completion);
  void arrived_fragment(heddle_peer source, const wire::Fragment& fragment);
  void arrived_reply(heddle_peer source, const wire::Reply& reply);
  void run_handler(heddle_peer source, const wire::ActiveMessage& message, std::uint64_t payload_bytes);
  void drop(heddle_peer source, const char* why);
  void settle(Operation& operation, base::Status status);  // one command or request of it has ended
  void conclude(Operation& operation);                     // fires and frees it when nothing is left
  void note_failures();
  void note_closed();
  void end_served(Operation& operation, base::Status status);
  base::Status take_error(std::uint32_t rank);

  Context& context_;
  std::uint32_t index_;
  bool in_progress_ = false;
  std::uint32_t max_workers_;
  std::uint64_t max_payload_;
  std::uint64_t small_payload_;  // fits one message beside any header
  std::unique_ptr<transport::TransportWorker> transport_;
  const transport::Capabilities& capabilities_;
  const std::atomic<std::uint64_t>& failure_epoch_;  // the bootstrap's; partner: its release
  std::uint64_t seen_epoch_ = 0;
  heddle_worker handle_{};  // for arrivals; found at the first
  heddle_worker_stats stats_{};
  std::uint64_t commands_ = 0;

  OperationPool operations_;
  OperationQueue pending_;                  // have something left to post, in order
  std::vector<std::uint32_t> outstanding_;  // operations not finished, per rank
  std::uint32_t outstanding_many_ = 0;      // lists over several ranks
  std::uint32_t outstanding_total_ = 0;
  std::vector<base::Status> unreported_;  // per rank: first error of operations that nobody observes
  bool has_unreported_ = false;
  std::vector<bool> failed_;  // ranks whose failure this worker has dealt with
  std::uint64_t next_message_ = 1;
  protocol::Reassembly reassembly_;
  protocol::Responder responder_;
  std::array<transport::Completion, 32> arrivals_;
};

template <class Attempt>
base::Status Worker::until(std::int64_t timeout_ns, Attempt&& attempt) {
  base::Waiter waiter(context_.clock(), timeout_ns);
  for (;;) {
    const base::Status status = attempt();
    if (status != HEDDLE_AGAIN) return status;
    const int events = progress();
    if (events < 0) return static_cast<base::Status>(events);
    if (!(events > 0 ? waiter.busy() : waiter.idle())) return HEDDLE_ERR_TIMEOUT;
  }
}

}  // namespace heddle::engine
