#include "partitioned/partitioned.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>

#include "partitioned/switchboard.hpp"

namespace heddle::partitioned {
namespace {

using wire::PartitionedKind;

// Ignores the completion of a notice: if a notice is lost, its peer has failed, which is reported
// anyway.
void forget(void* /*arg*/, heddle_status /*status*/) {}

}  // namespace

// ---- the program's thread -----------------------------------------------------------------------

base::Status Partitioned::start() {
  if (active_) {
    return base::fail(HEDDLE_ERR_STATE,
                      "a run of this partitioned operation is under way: call heddle_partitioned_wait or _test first");
  }
  if (trouble() != HEDDLE_DONE) return explain();
  const base::Status status = begin_run(run() + 1);
  active_ = status == HEDDLE_DONE;
  return status;
}

base::Status Partitioned::settle() {
  const base::Status status = look();
  if (status != HEDDLE_AGAIN) active_ = false;
  return status < 0 ? explain() : status;
}

base::Status Partitioned::test() {
  if (!active_) return HEDDLE_DONE;
  if (const base::Status status = settle(); status != HEDDLE_AGAIN) return status;
  if (const int events = worker_.progress(); events < 0) return static_cast<base::Status>(events);
  return settle();
}

base::Status Partitioned::wait(std::int64_t timeout_ns) {
  if (!active_) return HEDDLE_DONE;
  const base::Status status = worker_.until(
      {"heddle_partitioned_wait", timeout_ns}, [this] { return settle(); },
      [this](tap::Wait& wait) { describe(wait); });
  if (status != HEDDLE_ERR_TIMEOUT || !active_) return status;
  tap::Wait wait;
  describe(wait);
  return base::fail(HEDDLE_ERR_TIMEOUT, "after %lld ns: %s; it goes on, and can be waited for again",
                    static_cast<long long>(timeout_ns), wait.awaited.c_str());
}

base::Status Partitioned::close() {
  if (active_) {
    return base::fail(HEDDLE_ERR_STATE,
                      "a run of this partitioned operation is under way: wait for its end before it is freed");
  }
  Switchboard& board = board_;
  visit(worker_, [&] { board.bury(*this); });
  return HEDDLE_DONE;
}

base::Status Partitioned::explain() const {
  const char* what = sends_ ? "send to" : "receive from";
  const auto tag = static_cast<unsigned long long>(shape_.tag);
  const heddle_peer peer = shape_.peer;
  switch (const base::Status status = trouble()) {
    case HEDDLE_ERR_PEER_FAILED:
      return base::fail(status, "a partitioned %s worker %u of rank %u, tag %llu: rank %u has failed", what,
                        peer.worker, peer.rank, tag, peer.rank);
    case HEDDLE_ERR_CANCELLED:
      return base::fail(status, "a partitioned %s worker %u of rank %u, tag %llu: %s", what, peer.worker, peer.rank,
                        tag, "the other side was freed, or a worker was closed");
    case HEDDLE_ERR_ARGUMENT:
      return base::fail(
          status,
          "a partitioned %s worker %u of rank %u, tag %llu: this side has %u partitions, %llu bytes in all, "
          "the other %u partitions, %llu bytes; the bytes must agree",
          what, peer.worker, peer.rank, tag, shape_.partitions, static_cast<unsigned long long>(shape_.total()),
          other_partitions_, static_cast<unsigned long long>(other_bytes_));
    default:
      return base::fail(status, "a partitioned %s worker %u of rank %u, tag %llu, has failed with %s; free it", what,
                        peer.worker, peer.rank, tag, heddle_status_name(status));
  }
}

// ---- inside -------------------------------------------------------------------------------------

void Partitioned::fail(base::Status status) {
  base::Status none = HEDDLE_DONE;
  trouble_.compare_exchange_strong(none, status, std::memory_order_release, std::memory_order_relaxed);
}

void Partitioned::fail_totals(std::uint32_t partitions, std::uint64_t bytes) {
  if (failed()) return;
  other_partitions_ = partitions;
  other_bytes_ = bytes;
  fail(HEDDLE_ERR_ARGUMENT);
}

bool Partitioned::send_owed() {
  for (const PartitionedKind kind : {PartitionedKind::offer, PartitionedKind::accept, PartitionedKind::begun,
                                     PartitionedKind::refused, PartitionedKind::freed}) {
    if ((owed_ & bit(kind)) == 0) continue;
    const base::Status status = send(kind);
    // Memory may be free later; and offers must reach the peer in order.
    if (status == HEDDLE_AGAIN || status == HEDDLE_ERR_NO_MEMORY) return false;
    owed_ &= ~bit(kind);
    if (status < 0) fail(status);
  }
  return true;
}

base::Status Partitioned::send(PartitionedKind kind) {
  wire::PartitionedHeader head{};
  head.kind = kind;
  head.status = kind == PartitionedKind::refused ? refusal_ : HEDDLE_DONE;
  head.to = kind == PartitionedKind::offer ? 0 : peer_number_;
  head.from = number_;
  head.tag = shape_.tag;
  head.number = notice_number(kind);
  head.bytes = shape_.total();
  head.partitions = shape_.partitions;
  std::span<const std::byte> payload;
  engine::Completion completion;
  completion.fn = forget;  // without a callback, flush would report the loss
  if (kind == PartitionedKind::accept) {
    payload = std::as_bytes(std::span(places(), 1));
    completion.arg = this;
    completion.fn = [](void* arg, heddle_status) {
      auto* own = static_cast<Partitioned*>(arg);
      --own->notices_;
      own->board_.want(*own);  // a caller may have waited for this
    };
  }
  const base::Status status = worker_.core().requester.try_message(
      shape_.peer, wire::kExtension, std::as_bytes(std::span(&head, 1)), payload, completion);
  if (kind == PartitionedKind::accept && status == HEDDLE_POSTED) ++notices_;
  return status;
}

}  // namespace heddle::partitioned
