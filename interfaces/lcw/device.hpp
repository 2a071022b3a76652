// An LCW device: one worker of Heddle, the k-th of this process, which talks to the k-th of its
// peers. Any thread may call any function at any time, unless it says otherwise.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <lcw.hpp>

#include "heddle/heddle.h"
#include "lcw/completion.hpp"
#include "lcw/record.hpp"

namespace heddle::for_lcw {

struct JoinedJob {
  heddle_context context;
  std::uint32_t rank;
  std::uint32_t size;
  // The memory for arriving puts; the program may replace it while devices are open.
  std::atomic<::lcw::allocator_base_t*> allocator;
};

class WorkerDevice {
 public:
  // Tags of the program are 0 to this.
  static constexpr ::lcw::tag_t kMaxTag = (::lcw::tag_t{1} << 62) - 1;
  // As a rank to receive from: any.
  static constexpr ::lcw::rank_t kAnyRank = -1;

  // Opens the worker, whose number must be `index`: the number also names the handlers of active
  // messages, which are registered before a peer can reach the worker.
  WorkerDevice(JoinedJob* job, std::uint32_t index, ::lcw::comp_t put_completion);
  // Waits for sends and puts, cancels receives and drops what arrives later. Completions that
  // nobody has polled are lost, and handlers that have not run yet never run. No other thread may
  // use the device.
  ~WorkerDevice();
  WorkerDevice(const WorkerDevice&) = delete;
  WorkerDevice& operator=(const WorkerDevice&) = delete;

  // False: no resource now; nothing has happened. None of the three runs a handler.
  bool send(::lcw::rank_t rank, ::lcw::tag_t tag, void* buffer, std::int64_t length, CompletionObject* completion,
            void* context);
  bool receive(::lcw::rank_t rank, ::lcw::tag_t tag, void* buffer, std::int64_t length, CompletionObject* completion,
               void* context);
  bool put(::lcw::rank_t rank, void* buffer, std::int64_t length, CompletionObject* completion, void* context);
  // Whether anything was done. Handlers run here, on no lock: they may call everything.
  bool progress();
  // One thread of each rank. Makes progress on the device, and on the others if it takes long.
  void barrier();

  [[nodiscard]] ::lcw::device_t handle() { return reinterpret_cast<::lcw::device_t>(this); }
  static WorkerDevice* of(::lcw::device_t device) { return reinterpret_cast<WorkerDevice*>(device); }

 private:
  // Handler numbers of the context: one for puts and one for barriers of each worker.
  static constexpr std::uint32_t kPutHandler = 0;
  static constexpr std::uint32_t kBarrierHandler = 512;
  static constexpr std::uint32_t kMostWorkers = 512;
  static constexpr std::uint32_t kRounds = 32;  // of a barrier: enough for 2^32 ranks

  // Callbacks of Heddle, which run while a thread is inside the worker.
  static void on_sent(void* record, heddle_status status);
  static void on_received(void* record, heddle_status status);
  static void on_put(const heddle_am_arrival* arrival, void* device);
  static void on_barrier(const heddle_am_arrival* arrival, void* device);

  OperationRecord* new_record(::lcw::op_t op, ::lcw::rank_t rank, ::lcw::tag_t tag, void* buffer, std::int64_t length,
                              CompletionObject* completion, void* context);
  // Handles the status of the call that has posted the record's operation.
  bool posted(OperationRecord* record, heddle_status status);
  // The operation is complete: tells the queue, or leaves the record to the next progress().
  void deliver(OperationRecord* record);
  void received(OperationRecord* record);
  [[nodiscard]] bool handlers_wait() const {
    return completed_.load(std::memory_order_relaxed) != nullptr || ready_.load(std::memory_order_relaxed) != nullptr;
  }
  bool run_handlers();
  OperationRecord* next_handler();
  void open_worker();
  void close_worker();
  void wait_for_round(std::uint32_t round, std::uint32_t source, std::uint64_t epoch);
  void signal_round(std::uint32_t round, std::uint32_t target);
  [[noreturn, gnu::cold]] void failed(const OperationRecord* record, heddle_status status) const;
  [[gnu::cold]] void check(const OperationRecord* record) const;

  JoinedJob* const job_;
  heddle_worker worker_{};
  const std::uint32_t index_;
  CompletionObject* const put_completion_;
  std::atomic<bool> closing_{false};
  // Completed operations whose handlers wait: pushed by any thread, latest first …
  alignas(64) std::atomic<OperationRecord*> completed_{nullptr};
  // … and moved here in their order, to be taken one at a time. So a handler may make progress
  // until another handler has run, without waiting for itself. Both under ready_busy_.
  std::atomic_flag ready_busy_ = ATOMIC_FLAG_INIT;
  std::atomic<OperationRecord*> ready_{nullptr};
  // Barriers: arrivals in each round, of all barriers together; and how many began.
  alignas(64) std::array<std::atomic<std::uint64_t>, kRounds> arrivals_{};
  std::uint64_t barriers_ = 0;
};

}  // namespace heddle::for_lcw
