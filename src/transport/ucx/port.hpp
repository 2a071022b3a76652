// This transport's part of a worker: one of UCX's workers, and its peer states. It outlives the
// TransportWorker: accepted messages leave although nobody polls for this worker any more, and
// peers that do not know of its end may still write to it. One thread at a time uses it: its owner,
// within a Turn; the helper, by serve(), while the owner is elsewhere; the device, once it is
// retired.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "queue/handover.hpp"
#include "transport/ucx/completions.hpp"
#include "transport/ucx/credits.hpp"
#include "transport/ucx/device.hpp"
#include "transport/ucx/endpoints.hpp"
#include "transport/ucx/incoming.hpp"
#include "transport/ucx/outgoing.hpp"
#include "transport/ucx/transfers.hpp"

namespace heddle::transport::ucx {

class Port {
 public:
  static base::Result<std::unique_ptr<Port>> create(Device& device, std::uint32_t index);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // For the parts: what they share.
  [[nodiscard]] Completions& completions() { return completions_; }
  [[nodiscard]] Endpoints& endpoints() { return endpoints_; }
  [[nodiscard]] Credits& credits() { return credits_; }
  [[nodiscard]] Outgoing& outgoing() { return outgoing_; }
  [[nodiscard]] Incoming& incoming() { return incoming_; }
  [[nodiscard]] Transfers& transfers() { return transfers_; }
  [[nodiscard]] const Functions& call() const { return call_; }
  [[nodiscard]] ucp_worker_h worker() const { return worker_; }
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::uint64_t now_ns() const { return device_.environment().clock->now_ns(); }
  void make_room_for(std::size_t peers);
  // Its owner has closed it, or closes it now: after that the caller's memory is not used any more.
  [[nodiscard]] bool closed() const { return closed_; }
  // UCX's progress. True: it had something.
  bool progress() {
    if (call_.worker_progress(worker_) == 0) return false;
    if (armed()) [[unlikely]]
      armed_.store(false, std::memory_order_relaxed);
    return true;
  }
  // UCX keeps something whose progress its descriptor does not report; or the device has a question
  // to send.
  void leaves_something();
  // Connections wait for an answer to the device. Relaxed: a thread that misses it looks again.
  void set_waits_for_device(bool waits) { waits_for_device_.store(waits, std::memory_order_relaxed); }

  // ---- the owner; see TransportWorker
  [[nodiscard]] std::size_t post(std::span<Command> batch) {
    if (batch.size() != 1) return post_batch(batch);
    return post_one(batch.front());
  }
  // Waits for the helper to leave: a caller whose post() was refused calls this next.
  [[nodiscard]] std::size_t poll(std::span<Completion> completions);
  [[nodiscard]] bool arm();

  // While it lives, its thread, the owner, has the port.
  class Turn {
   public:
    // Waits for the helper to leave.
    explicit Turn(Port& port) : handover_(port.handover_), inside_(true) { handover_.enter(); }
    // Does not wait.
    Turn(Port& port, std::try_to_lock_t) : handover_(port.handover_), inside_(handover_.try_enter()) {}
    ~Turn() {
      if (inside_) handover_.leave();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    // False: the helper is inside.
    [[nodiscard]] bool inside() const { return inside_; }

   private:
    queue::Handover<>& handover_;
    const bool inside_;
  };

  // ---- any thread
  // UCX is armed for an owner that wants to sleep, and nothing has come since.
  [[nodiscard]] bool armed() const { return armed_.load(std::memory_order_acquire); }
  // True: it was armed, and the caller must ring.
  [[nodiscard]] bool disarm() { return armed() && armed_.exchange(false, std::memory_order_acq_rel); }
  // A number that changes when its owner polls. Relaxed: a hint.
  [[nodiscard]] std::uint32_t polls() const { return polls_.load(std::memory_order_relaxed); }
  // UCX was armed, and the owner has left nothing to UCX since.
  [[nodiscard]] bool quiet() const { return quiet_.load(std::memory_order_acquire); }
  [[nodiscard]] bool waits_for_device() const { return waits_for_device_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool retired() const { return retired_.load(std::memory_order_acquire); }

  // ---- the helper
  // quiet: nothing is there, and UCX is armed. waiting: the same, but UCX has something whose end
  // it may not report (its shared memory does not report that a peer has room again). more: there
  // was something until the end. stuck: the owner is inside, or UCX cannot be armed now. not_ours:
  // its owner has armed it and sleeps, and what is taken from UCX now would wake nobody; or the
  // port has orphans; or the kernel has no membarrier.
  enum class Served : std::uint8_t { quiet, waiting, more, stuck, not_ours };
  // Makes progress in place of the owner; `thread`: the number of the helper's thread.
  [[nodiscard]] Served serve(std::uint32_t thread);

  // ---- the end
  // By the owner, at the end: nobody polls any more. After this the caller's memory is not used;
  // accepted messages still leave. The port belongs to the device.
  void retire();
  // By the device, afterwards: makes progress. True: something is still under way. It does nothing
  // if UCX has orphans: if their peer lives, progress on this worker may read or write memory that
  // the caller uses again. So only the owner makes progress then, nobody in its place.
  bool linger();
  // Nothing is under way that must not be cut off: destroys UCX's worker.
  void end();

 private:
  // Polls between two looks at the device. Only for speed: the helper answers notes if nobody
  // looks.
  static constexpr std::uint32_t kDevicePeriod = 32;
  static constexpr std::uint32_t kConnectingPeriod = 4;  // while something connects
  static constexpr int kMostRounds = 16;                 // of progress in one poll

  Port(Device& device, std::uint32_t index, std::uint32_t slots);
  base::Status open();
  std::size_t post_one(Command& command) {
    if (command.opcode == Opcode::message) return Outgoing::post(*this, command);
    if (command.opcode == Opcode::put) return Transfers::put(*this, command);
    if (command.opcode == Opcode::get) return Transfers::get(*this, command);
    return Transfers::post(*this, command);
  }
  std::size_t post_batch(std::span<Command> batch);
  [[nodiscard]] bool has_more_to_do(std::uint32_t poll) const {
    return (poll & (kDevicePeriod - 1)) == 0 || credits_.owes() || endpoints_.busy();
  }
  void ask_ucx();
  void do_more(std::uint32_t poll);
  bool move_on();
  [[nodiscard]] bool at_rest() const;
  // UCX still has messages of this port.
  [[nodiscard]] bool in_flight() const { return outgoing_.flying() != 0; }
  void close();

  Device& device_;
  const Functions call_;
  const std::uint32_t index_;
  ucp_worker_h worker_ = nullptr;
  bool closed_ = false;
  std::uint32_t skipped_ = 0;            // polls that have not asked UCX
  bool streams_ = false;                 // UCX had something when it was asked last
  std::atomic<std::uint32_t> polls_{0};  // written by the owner. Relaxed
  Completions completions_;
  Endpoints endpoints_;
  Credits credits_;
  Outgoing outgoing_;
  Incoming incoming_;
  Transfers transfers_;

  // between the owner and the helper; entered for good when retired
  queue::Handover<> handover_;
  int descriptor_ = -1;             // UCX's
  std::uint32_t watch_ = 0;         // the helper's number of it
  std::atomic<bool> armed_{false};  // set by arm(), cleared by the thread that finds something
  // set by the helper and by arm(), cleared by the owner, which then wakes the helper; both inside
  std::atomic<bool> quiet_{false};
  std::atomic<bool> waits_for_device_{false};
  // release by retire(), acquire by the helper, which does not touch it afterwards
  std::atomic<bool> retired_{false};
};

}  // namespace heddle::transport::ucx
