// The starts of a worker besides single commands, each as a plain value. So a sharing mode can
// execute a start at once, or let it wait in the worker's queue for the thread that will.
//
// A start has
//   start(worker)          on the thread that is inside the worker: DONE, POSTED, AGAIN or an error
//   ended(worker, status)  of one that has waited in the queue, with what start() returned, or with
//                          the error by which it ends unstarted
#pragma once

#include "engine/handler.hpp"
#include "worker/worker.hpp"

namespace heddle::engine {

// A put or get of any shape.
struct TransferStart {
  Kind kind;
  Pieces pieces;
  std::uint32_t rank;
  Completion completion;

  base::Status start(Worker& worker) const {
    return worker.core().requester.try_transfer(kind, pieces, rank, completion);
  }
  void ended(Worker& worker, base::Status status) const {
    worker.core().operations.end_queued(status, completion, rank, pieces);
  }
};

struct PutSignalStart {
  Pieces pieces;
  std::uint32_t rank;
  RemoteRegion* word;
  std::uint64_t word_offset;
  heddle_signal signal;
  Completion completion;

  base::Status start(Worker& worker) const {
    return worker.core().requester.try_put_signal(pieces, rank, word, word_offset, signal, completion);
  }
  void ended(Worker& worker, base::Status status) const {
    worker.core().operations.end_queued(status, completion, rank);
  }
};

struct AtomicStart {
  Requester::AtomicRequest request;
  std::uint32_t rank;
  Completion completion;

  base::Status start(Worker& worker) const { return worker.core().requester.try_atomic(request, completion); }
  void ended(Worker& worker, base::Status status) const {
    worker.core().operations.end_queued(status, completion, rank);
  }
};

// heddle_run_on_engine.
struct CallStart {
  void (*fn)(void* arg);
  void* arg;
  std::uint32_t rank;
  Completion completion;

  // gate.cpp
  base::Status start(Worker& worker) const;
  void ended(Worker& worker, base::Status status) const;
};

// An active message that is longer than one of the transport's. Credit and offer are reserved.
struct LongMessageStart {
  heddle_peer target;
  LongMessage message;
  Completion completion;

  base::Status start(Worker& worker) const { return worker.messages().try_long(target, message, completion); }
  void ended(Worker& worker, base::Status status) const {
    if (status < HEDDLE_DONE) worker.messages().give_back(target, message);
    worker.core().operations.end_queued(status, completion, target.rank);
  }
};

// A tagged message that is offered to its receiver. Credit and offer are reserved.
struct OfferStart {
  SendRequest request;
  Completion completion;

  base::Status start(Worker& worker) const { return worker.tagged().offer(request, completion); }
  void ended(Worker& worker, base::Status status) const {
    if (status < HEDDLE_DONE) worker.tagged().give_offer_back<true>(request.target);
    worker.core().operations.end_queued(status, completion, request.target.rank);
  }
};

// The end of a receive is also stored in its heddle_receive; without a completion, only there.
struct ReceiveStart {
  Wanted wanted;
  ReceiveRequest request;

  base::Status start(Worker& worker) const { return worker.tagged().receive(wanted, request); }
  void ended(Worker& /*worker*/, base::Status status) const {
    if (status <= HEDDLE_DONE) request.completion.fire(status);
  }
  void cancelled(base::Status status) const { Tagged::end_unposted(request, status); }
};

struct ClaimedStart {
  ReceiveRequest request;

  base::Status start(Worker& worker) const { return worker.tagged().receive_claimed(request); }
  void ended(Worker& /*worker*/, base::Status status) const {
    if (status <= HEDDLE_DONE) request.completion.fire(status);
  }
  void cancelled(base::Status status) const { Tagged::end_unposted(request, status); }
};

}  // namespace heddle::engine
