// What the parts of one worker share: how it is told that the worker has moved (Notifier), the
// answers to peers (Responder), and Core, which has both, the transport and the operations.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fence.hpp"
#include "engine/job.hpp"
#include "engine/objects.hpp"
#include "engine/operations.hpp"
#include "engine/requester.hpp"
#include "memory/regions.hpp"
#include "transport/transport.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

// Telling means that an eventfd becomes readable.
struct Eventfd {
  int descriptor = -1;
  void tell() const { static_cast<void>(::eventfd_write(descriptor, 1)); }
};

// A thread that moves a worker tells a thread that waits for that outside the calls of the worker
// (worker/descriptor.hpp). The thread that moves pays one read of a word that rarely changes.
//
//   thread that moves                thread that waits
//   move                             arm()
//   light fence                      heavy fence (membarrier over the threads of this process)
//   armed_ == 0 ? done               has it moved? then do not wait
//   armed_: 1 -> 0 ? tell            wait
//
// Invariants
//   Because of the two fences, the moving thread sees armed_ == 1, or the waiting thread sees that
//   the worker has moved (Dekker).
//   For each arm() at most one thread tells: the one whose exchange finds 1.
template <template <class> class Atomic = std::atomic, class Told = Eventfd>
class Notifier {
 public:
  Notifier() = default;
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  // Once, before the first arm().
  void open(Told told) { told_ = told; }

  // ---- the thread that waits
  void arm() { armed_.store(1, std::memory_order_release); }  // partner: the exchange in tell()
  // True: nobody has told, and nobody will.
  bool disarm() { return armed_.exchange(0, std::memory_order_acquire) != 0; }
  [[nodiscard]] bool armed() const { return armed_.load(std::memory_order_acquire) != 0; }

  // ---- any thread: after it has moved the worker
  void tell() {
    base::light_fence();
    if (armed_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      tell_now();
  }

 private:
  [[gnu::cold, gnu::noinline]] void tell_now() {
    // Acquire: told_ is as open() left it. Partner: arm().
    if (armed_.exchange(0, std::memory_order_acquire) != 0) told_.tell();
  }

  Atomic<std::uint32_t> armed_{0};
  Told told_;
};

// Executes put, get and atomic requests that arrive as messages: on transports that lack these
// operations, the owner of the memory executes them.
//
// Answers that the transport does not take now wait here. Their number is bounded by the requests
// that peers have in flight (a worker of a peer has at most HEDDLE_WORKER_OPERATIONS open
// requests). One thread at a time.
class Responder {
 public:
  Responder(transport::TransportWorker& transport, const memory::RegionTable& regions, std::uint32_t max_message)
      : transport_(transport), regions_(regions), max_data_(max_message - sizeof(wire::ReplyHeader)) {
    waiting_.reserve(kRoom);
  }

  // Executes the request and answers it, now or in a later flush(). Checks range and alignment;
  // answers a bad request with an error.
  void serve(heddle_peer source, const wire::DecodedRequest& request);

  // Answers a request whose outcome was decided elsewhere.
  void answer(heddle_peer source, std::uint64_t token, base::Status status);

  // Tells a sender of USER messages how many of the bytes that it sent have been handled. False:
  // memory is exhausted and the sender was not told.
  [[nodiscard]] bool grant(heddle_peer source, std::uint64_t bytes);

  // Sends the waiting answers. Returns how many left.
  std::size_t flush();

  void forget(std::uint32_t rank);
  [[nodiscard]] bool idle() const { return waiting_.empty(); }
  // Answers lost because memory was exhausted: they could neither be sent nor kept. Their requests
  // stay open at the peer until this worker is closed.
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  struct Answer {
    heddle_peer peer;
    wire::ReplyHeader head;
    std::span<const std::byte> data;  // of a get; lies in the region, sent in portions
    // region of a get; it may be released while the answer waits
    std::uint64_t region = 0;
    std::uint32_t immediate = wire::immediate_of(wire::Kind::reply);
  };
  static constexpr std::size_t kRoom = 64;  // answers that can wait without allocating
  bool send(Answer& answer) noexcept;       // false: not taken, or not completely
  bool send_waiting(Answer& answer) noexcept;
  bool dispatch(Answer answer) noexcept;  // false: it could be neither sent nor kept
  void keep_or_lose(const Answer& answer) noexcept;

  transport::TransportWorker& transport_;
  const memory::RegionTable& regions_;
  std::size_t max_data_;
  std::vector<Answer> waiting_;
  std::uint64_t lost_ = 0;
};

// Interface that is called, inside the worker, when the failure epoch has changed, for whatever
// reason (bootstrap::Bootstrap::call_attention()).
class Attentive {
 public:
  virtual void called() = 0;

 protected:
  ~Attentive() = default;
};

// The state that the parts of a worker share: its transport, its operations, the requester, the
// answers to peers, and the known failed ranks. The parts are the completer and the protocols;
// worker/worker.hpp puts them together.
//
// For the thread inside the worker, except for constant members, `moves`, `notifier`, and what
// Operations allows.
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
