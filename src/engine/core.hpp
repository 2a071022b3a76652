// The state that the parts of a worker share: its transport, its operations, the requester, the
// answers to peers, and the known failed ranks. The parts are the completer and the protocols;
// worker/worker.hpp puts them together.
//
// For the thread inside the worker, except for constant members, `moves`, `notifier`, and what
// Operations allows.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/fence.hpp"
#include "engine/job.hpp"
#include "engine/notifier.hpp"
#include "engine/objects.hpp"
#include "engine/operations.hpp"
#include "engine/requester.hpp"
#include "engine/responder.hpp"
#include "transport/transport.hpp"

namespace heddle::engine {

// Interface that is called, inside the worker, when the failure epoch has changed, for whatever
// reason (bootstrap::Bootstrap::call_attention()).
class Attentive {
 public:
  virtual void called() = 0;

 protected:
  ~Attentive() = default;
};

struct Core {
  // `unshared`: one thread alone posts, and is inside whenever it does.
  Core(Objects& objects, std::uint32_t index, transport::TransportWorker& transport, bool unshared);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Counts an arrival that is not handled, and reports it for its worker once in a while.
  void drop(heddle_peer source, const char* why) {
    ++stats.dropped;
    job.report_drop(index, source, why);
  }
  // Protocol::advance() is to be called again.
  void want_advance() {
    if (protocol_work.pending) return;
    protocol_work.pending = true;
    operations.pending().push_back(&protocol_work);
  }
  // Notes that something has moved that a program may wait for. Called after its handlers and
  // callbacks have run.
  void note_moved() {
    moves.store(moves.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    notifier.tell();
  }

  // In a traced job: notes that an operation for this peer cannot go on now, because it needs
  // something that the peer gives. Any thread; several in a row are one record.
  [[gnu::cold]] void note_held(const char* wants, heddle_peer peer, std::uint64_t bytes) const;

  [[nodiscard]] bool can_ring() const { return capabilities.sleeping != transport::Sleeping::impossible; }

  // The word that shows ThreadSanitizer the order of the threads that are inside.
  [[nodiscard]] void* order() const { return base::order_of_messages(job.rank(), index); }

  Job& job;
  Objects& objects;
  const std::uint32_t index;
  const std::uint32_t max_workers;
  const bool unshared;
  heddle_worker handle{};  // before anything arrives
  const transport::Capabilities& capabilities;
  transport::TransportWorker& transport;
  tap::Tracer* const tracer;                        // null: the job is not traced
  const bool is_told;                               // a protocol wants progress: see advance()
  const std::atomic<std::uint64_t>& failure_epoch;  // the bootstrap's; partner: its release
  Operations operations;
  Requester requester;
  Responder responder;
  std::vector<bool> failed;     // ranks whose failure has been dealt with
  bool any_failed = false;      // one of them is true
  heddle_worker_stats stats{};  // but what Operations counts, and what is posted
  // written inside, with release; partner: Worker::moved()'s acquire load
  std::atomic<std::uint64_t> moves{0};
  Notifier<> notifier;             // of the worker's descriptor
  Attentive* attentive = nullptr;  // null: nobody
  // has no slot: stands in pending() while a protocol has something left to do
  Operation protocol_work;
};

}  // namespace heddle::engine
