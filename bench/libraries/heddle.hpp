// Heddle as a library that is measured, written against heddle.h as any program is: puts, gets,
// atomics, tagged messages, active messages, puts with signals, and the calls that wait for them.
#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "harness/session.hpp"
#include "heddle/heddle.h"
#include "measure/library.hpp"
#include "measure/service.hpp"

namespace heddle::bench::libraries {

using measure::Identity;
using measure::kDataAt;
using measure::ServiceCall;

// The one job of this program. must() ends all of it with the library's message if `status` is an
// error; otherwise gives it back.
inline heddle_context job_context{};
heddle_status must_fail(heddle_status status, const char* what);
inline heddle_status must(heddle_status status, const char* what) {
  return status >= 0 ? status : must_fail(status, what);
}

// The transports in use, by their name in records. It differs from the name of UCX itself, which is
// a peer.
std::string transport_name();
// The collectives that the options name, on the team of all ranks.
void measure_collectives(harness::BenchSession& session);

// The part that all objects share: the memory of all ranks. It has words and data that peers can
// map, and as much data in the program's own memory (registered or adopted).
class Memory {
 public:
  // Collective.
  Memory(std::uint64_t bytes, bool registered, bool adopt);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  [[nodiscard]] std::byte* own() const { return own_; }
  [[nodiscard]] std::byte* own_registered() const { return buffer_.get(); }
  [[nodiscard]] heddle_remote at(std::uint32_t rank, std::uint64_t offset) const { return {allocated_[rank], offset}; }
  [[nodiscard]] heddle_remote registered_at(std::uint32_t rank, std::uint64_t offset) const {
    return {registered_[rank], offset};
  }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(allocated_.size()); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  heddle_region region_{};
  heddle_region registered_region_{};
  std::vector<heddle_remote_region> allocated_;  // by rank
  std::vector<heddle_remote_region> registered_;
  std::byte* own_ = nullptr;
  std::unique_ptr<std::byte, Free> buffer_;
};

struct SharingMode {
  const char* name;
  heddle_sharing sharing;
  bool own;             // a worker for each lane; else all lanes use one
  bool locked = false;  // by LockedHeddle
};
inline constexpr SharingMode kModes[] = {
    {"exclusive", HEDDLE_SHARING_EXCLUSIVE, true},   {"auto", HEDDLE_SHARING_AUTO, true},
    {"auto_one", HEDDLE_SHARING_AUTO, false},        {"shared", HEDDLE_SHARING_SHARED, false},
    {"offload", HEDDLE_SHARING_OFFLOAD, false},      {"delegate", HEDDLE_SHARING_DELEGATE, false},
    {"mutex", HEDDLE_SHARING_EXCLUSIVE, false, true}};
inline constexpr const SharingMode& kExclusive = kModes[0];

class Heddle {
 public:
  // For a send: wait_all uses the count in the lane.
  struct Request {
    heddle_receive receive;
    bool waits = false;
  };

  // Collective: all ranks make the same objects in the same order, so that workers have the same
  // numbers. Opening an offload worker starts its thread, on the cores that the caller may use now.
  // The most recently made object has the handlers. The first one's first worker is the process's
  // worker 0, which serves registered memory.
  Heddle(Memory& memory, const SharingMode& mode, std::uint32_t lanes);
  Heddle(const Heddle&) = delete;
  Heddle& operator=(const Heddle&) = delete;
  ~Heddle();

  // Sets where data is from now on: allocated, registered or adopted.
  void set_memory(const char* kind) {
    kind_ = kind;
    registered_ = std::strcmp(kind, "allocated") != 0;
  }

  [[nodiscard]] Identity identity() const;
  [[nodiscard]] std::byte* own(std::uint64_t offset) const {
    return registered_ && offset >= kDataAt ? memory_.own_registered() + (offset - kDataAt) : memory_.own() + offset;
  }
  [[nodiscard]] heddle_remote at(std::uint32_t rank, std::uint64_t offset) const {
    return registered_ && offset >= kDataAt ? memory_.registered_at(rank, offset - kDataAt) : memory_.at(rank, offset);
  }
  [[nodiscard]] heddle_worker worker(std::uint32_t lane) const { return lanes_[lane].worker; }
  // That lane's worker at another rank.
  [[nodiscard]] heddle_peer at_lane(std::uint32_t rank, std::uint32_t lane) const { return {rank, lanes_[lane].index}; }

  // ---- messages ----
  void send(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes,
            Request& request) {
    send_to(lane, at_lane(to, lane), tag, data, bytes);
    request.waits = false;
  }
  void send_to(std::uint32_t lane, heddle_peer to, std::uint64_t tag, const void* data, std::uint64_t bytes) {
    Lane& mine = lanes_[lane];
    const heddle_completion completion{nullptr, nullptr, mine.counter, HEDDLE_WHEN_LOCAL};
    if (must(heddle_send(mine.worker, to, tag, data, bytes, &completion), "heddle_send") == HEDDLE_POSTED)
      ++mine.posted;
  }
  void receive(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes,
               Request& request) {
    Lane& mine = lanes_[lane];
    const heddle_peer source =
        from == measure::kAny ? heddle_peer{HEDDLE_ANY, HEDDLE_ANY} : heddle_peer{from, mine.index};
    const heddle_wanted wanted{source, tag, UINT64_MAX};
    const heddle_status status =
        must(heddle_recv(mine.worker, &wanted, data, bytes, &request.receive, nullptr), "heddle_recv");
    request.waits = status == HEDDLE_POSTED;
  }
  void wait_all(std::uint32_t lane, Request* requests, std::uint64_t count) {
    Lane& mine = lanes_[lane];
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!requests[i].waits) continue;
      must(heddle_recv_wait(mine.worker, &requests[i].receive, HEDDLE_FOREVER), "heddle_recv_wait");
      requests[i].waits = false;
    }
    if (mine.waited == mine.posted) return;
    must(heddle_counter_wait(mine.worker, mine.counter, mine.posted, HEDDLE_FOREVER), "heddle_counter_wait");
    mine.waited = mine.posted;
  }
  // One look at what wait_all() waits for.
  bool test_all(std::uint32_t lane, Request* requests, std::uint64_t count) {
    Lane& mine = lanes_[lane];
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!requests[i].waits) continue;
      if (!has_come(heddle_recv_wait(mine.worker, &requests[i].receive, 0), "heddle_recv_wait")) return false;
      requests[i].waits = false;
    }
    if (mine.waited == mine.posted) return true;
    if (!has_come(heddle_counter_wait(mine.worker, mine.counter, mine.posted, 0), "heddle_counter_wait")) return false;
    mine.waited = mine.posted;
    return true;
  }
  void send_now(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes) {
    Request request;
    send(lane, to, tag, data, bytes, request);
    wait_all(lane, &request, 1);
  }
  void receive_now(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes) {
    Request request;
    receive(lane, from, tag, data, bytes, request);
    wait_all(lane, &request, 1);
  }

  // ---- puts, gets, atomics ----
  bool put(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* source, std::uint64_t bytes) {
    return must(heddle_put(lanes_[lane].worker, source, bytes, at(to, offset), nullptr), "heddle_put") == HEDDLE_POSTED;
  }
  bool get(std::uint32_t lane, std::uint32_t from, std::uint64_t offset, void* target, std::uint64_t bytes) {
    return must(heddle_get(lanes_[lane].worker, target, bytes, at(from, offset), nullptr), "heddle_get") ==
           HEDDLE_POSTED;
  }
  template <measure::Atomic kOp>
  bool atomic(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, std::uint64_t operand,
              std::uint64_t* result) {
    using measure::Atomic;
    constexpr bool kFetch = kOp == Atomic::fetch_add || kOp == Atomic::swap || kOp == Atomic::compare_swap;
    if constexpr (kFetch) {
      const heddle_fetch fetch{operand, 0, result};
      return must(heddle_fetch_atomic(lanes_[lane].worker, opcode(kOp), at(to, offset), &fetch, nullptr),
                  "heddle_fetch_atomic") == HEDDLE_POSTED;
    } else {
      return must(heddle_atomic(lanes_[lane].worker, opcode(kOp), at(to, offset), operand, nullptr), "heddle_atomic") ==
             HEDDLE_POSTED;
    }
  }
  void flush(std::uint32_t lane, std::uint32_t rank) { must(heddle_flush(lanes_[lane].worker, rank), "heddle_flush"); }
  void quiet(std::uint32_t lane) { must(heddle_quiet(lanes_[lane].worker), "heddle_quiet"); }
  bool put_signal(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* source, std::uint64_t bytes,
                  std::uint64_t word, std::uint64_t value) {
    const heddle_signal signal{at(to, word), value, HEDDLE_SIGNAL_SET};
    return must(heddle_put_signal(lanes_[lane].worker, source, bytes, at(to, offset), &signal, nullptr),
                "heddle_put_signal") == HEDDLE_POSTED;
  }
  void wait_signal(std::uint32_t lane, std::uint64_t word, std::uint64_t value) {
    must(heddle_signal_wait(lanes_[lane].worker, reinterpret_cast<const std::uint64_t*>(memory_.own() + word),
                            HEDDLE_GE, value, HEDDLE_FOREVER),
         "heddle_signal_wait");
  }
  bool progress(std::uint32_t lane) {
    const int events = heddle_worker_progress(lanes_[lane].worker);
    if (events < 0) must(static_cast<heddle_status>(events), "heddle_worker_progress");
    if (registered_ && previous_ != nullptr && lane == 0) return previous_->progress(0) || events > 0;
    return events > 0;
  }
  void meet() { must(heddle_context_barrier(job_context, lanes_[0].worker, HEDDLE_FOREVER), "heddle_context_barrier"); }

  // ---- buffers that are told of by words ----
  void put_now(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* source, std::uint64_t bytes) {
    if (put(lane, to, offset, source, bytes)) quiet(lane);
  }
  void fence(std::uint32_t lane) { must(heddle_fence(lanes_[lane].worker), "heddle_fence"); }
  void set_word(std::uint32_t lane, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    Lane& mine = lanes_[lane];
    std::uint64_t& source = mine.values[mine.next++ % mine.values.size()];
    source = value;
    put(lane, to, word, &source, sizeof source);
  }
  void add_word(std::uint32_t lane, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    must(heddle_atomic(lanes_[lane].worker, HEDDLE_ADD64, at(to, word), value, nullptr), "heddle_atomic");
  }
  void meet_complete() {
    quiet(0);
    meet();
  }

  // ---- active messages ----
  void message(std::uint32_t lane, std::uint32_t to, const void* data, std::uint64_t bytes, bool answered) {
    const Lane& mine = lanes_[lane];
    const heddle_am_message message{answered ? kOnAsk : kOnMessage, 0, nullptr, data, bytes};
    must(heddle_am(mine.worker, {to, mine.index}, &message, nullptr), "heddle_am");
  }
  [[nodiscard]] std::uint64_t arrived(std::uint32_t lane) const {
    return desks_[lane].arrived.load(std::memory_order_acquire);
  }
  void await(std::uint32_t lane, std::uint64_t count) { wait_for(lane, desks_[lane].arrived, count); }
  // One look at what await() waits for.
  bool test_arrived(std::uint32_t lane, std::uint64_t count) {
    progress(lane);
    if (desks_[lane].late.load(std::memory_order_acquire)) send_late(lane);
    return arrived(lane) >= count;
  }

  // ---- calls: a message whose handler computes an answer ----
  void call(std::uint32_t to, const ServiceCall& call) {
    const Lane& mine = lanes_[call.lane];
    const heddle_am_message message{kOnCall, 0, nullptr, &call, sizeof call};
    must(heddle_am(mine.worker, {to, mine.index}, &message, nullptr), "heddle_am");
  }
  void wait_reply(std::uint32_t lane) { wait_for(lane, desks_[lane].replied, desks_[lane].taken + 1); }
  bool next_reply(std::uint32_t lane, ServiceCall* reply) {
    Desk& desk = desks_[lane];
    if (desk.taken == desk.replied.load(std::memory_order_acquire)) return false;
    *reply = desk.came[desk.taken++ % measure::kMostOutstanding];
    return true;
  }
  // Waits until n calls are answered.
  void serve(std::uint32_t lane, std::uint64_t n) {
    Desk& desk = desks_[lane];
    desk.served += n;
    wait_for(lane, desk.called, desk.served);
  }

 private:
  static constexpr std::uint32_t kOnCall = 930;
  static constexpr std::uint32_t kOnReply = 931;
  static constexpr std::uint32_t kOnMessage = 932;
  static constexpr std::uint32_t kOnAsk = 933;

  struct alignas(harness::kApart) Lane {
    heddle_worker worker{};
    std::uint32_t index = 0;
    heddle_counter counter{};
    std::uint64_t posted = 0;  // sends that the counter will count
    std::uint64_t waited = 0;
    // The values of set_word. They must not change while the put may be on its way. Programs wait
    // for an answer within as many signals.
    std::uint64_t next = 0;
    std::array<std::uint64_t, 64> values{};
  };
  // An answer that found no room in the handler.
  struct Late {
    heddle_peer to;
    heddle_am_message message;
  };
  // The counts of a lane's handlers. The handlers run one at a time, perhaps on another thread than
  // the one that waits.
  struct alignas(harness::kApart) Desk {
    std::atomic<std::uint64_t> arrived{0};
    std::atomic<std::uint64_t> called{0};
    std::atomic<std::uint64_t> replied{0};
    std::atomic<bool> late{false};
    std::uint64_t served = 0;
    std::uint64_t taken = 0;
    std::mutex mutex;
    std::vector<Late> waiting;
    std::array<ServiceCall, measure::kMostOutstanding> replies{};  // by slot
    std::array<ServiceCall, measure::kMostOutstanding> came{};
    // zeros behind the lane
    std::unique_ptr<std::byte, decltype(&std::free)> answer{nullptr, std::free};
  };

  static bool has_come(heddle_status status, const char* what) {
    return status != HEDDLE_ERR_TIMEOUT && must(status, what) == HEDDLE_DONE;
  }
  static heddle_atomic_op opcode(measure::Atomic op) {
    constexpr heddle_atomic_op kOps[] = {HEDDLE_ADD64, HEDDLE_SWAP64, HEDDLE_COMPARE_SWAP64, HEDDLE_ADD64, HEDDLE_XOR64,
                                         HEDDLE_AND64, HEDDLE_OR64};
    return kOps[static_cast<std::size_t>(op)];
  }
  void wait_for(std::uint32_t lane, const std::atomic<std::uint64_t>& count, std::uint64_t value) {
    while (count.load(std::memory_order_acquire) < value) {
      must(heddle_worker_wait(lanes_[lane].worker, HEDDLE_FOREVER), "heddle_worker_wait");
      if (desks_[lane].late.load(std::memory_order_acquire)) send_late(lane);
    }
    if (desks_[lane].late.load(std::memory_order_acquire)) send_late(lane);
  }
  // Handlers of a worker run one at a time, so that a store is enough.
  static void count(std::atomic<std::uint64_t>& to) {
    to.store(to.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void send_late(std::uint32_t lane);
  static void answer(Desk& desk, const heddle_am_arrival& to, const heddle_am_message& message);
  static Desk& desk_of(const heddle_am_arrival* arrival, void* self);
  static void on_message(const heddle_am_arrival* arrival, void* self);
  static void on_ask(const heddle_am_arrival* arrival, void* self);
  static void on_call(const heddle_am_arrival* arrival, void* self);
  static void on_reply(const heddle_am_arrival* arrival, void* self);
  void register_handlers(Heddle* self);

  static inline Heddle* last_ = nullptr;
  Memory& memory_;
  const SharingMode& mode_;
  const char* kind_ = "allocated";
  bool registered_ = false;
  Heddle* const previous_;  // that had the handlers
  std::vector<Lane> lanes_;
  std::vector<Desk> desks_;  // by lane
};

// One lock around each call of an exclusive worker that all lanes use: the baseline that sharing
// modes are measured against. A wait gives the lock away between its looks.
class LockedHeddle : public Heddle {
 public:
  using Heddle::Heddle;

  void send(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes,
            Request& request) {
    const std::scoped_lock lock(mutex_);
    Heddle::send(lane, to, tag, data, bytes, request);
  }
  void receive(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes,
               Request& request) {
    const std::scoped_lock lock(mutex_);
    Heddle::receive(lane, from, tag, data, bytes, request);
  }
  void wait_all(std::uint32_t lane, Request* requests, std::uint64_t count) {
    until([&] { return test_all(lane, requests, count); });
  }
  void send_now(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes) {
    Request request;
    send(lane, to, tag, data, bytes, request);
    wait_all(lane, &request, 1);
  }
  void receive_now(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes) {
    Request request;
    receive(lane, from, tag, data, bytes, request);
    wait_all(lane, &request, 1);
  }
  bool put(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* source, std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    return Heddle::put(lane, to, offset, source, bytes);
  }
  bool get(std::uint32_t lane, std::uint32_t from, std::uint64_t offset, void* target, std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    return Heddle::get(lane, from, offset, target, bytes);
  }
  template <measure::Atomic kOp>
  bool atomic(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, std::uint64_t operand,
              std::uint64_t* result) {
    const std::scoped_lock lock(mutex_);
    return Heddle::atomic<kOp>(lane, to, offset, operand, result);
  }
  void flush(std::uint32_t lane, std::uint32_t rank) {
    const std::scoped_lock lock(mutex_);
    Heddle::flush(lane, rank);
  }
  void quiet(std::uint32_t lane) {
    const std::scoped_lock lock(mutex_);
    Heddle::quiet(lane);
  }
  bool progress(std::uint32_t lane) {
    const std::scoped_lock lock(mutex_);
    return Heddle::progress(lane);
  }
  void message(std::uint32_t lane, std::uint32_t to, const void* data, std::uint64_t bytes, bool answered) {
    const std::scoped_lock lock(mutex_);
    Heddle::message(lane, to, data, bytes, answered);
  }
  void await(std::uint32_t lane, std::uint64_t count) {
    until([&] { return test_arrived(lane, count); });
  }

 private:
  template <class Look>
  void until(Look&& look) {
    for (;; std::this_thread::yield()) {
      const std::scoped_lock lock(mutex_);
      if (look()) return;
    }
  }

  std::mutex mutex_;
};

}  // namespace heddle::bench::libraries
