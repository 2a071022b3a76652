// Heddle as a library of the programs, written against heddle.h as any program is: tagged messages,
// active messages, puts with signals, and the calls that wait for them.
#include "programs/heddle.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "programs/all.hpp"
#include "work/job.hpp"

namespace heddle::bench::programs {

namespace {

using work::must;

constexpr std::uint32_t kOnCall = 930;
constexpr std::uint32_t kOnReply = 931;

// What all modes have in common: the memory of all ranks.
class Memory {
 public:
  explicit Memory(heddle_context context) : context_(context) {
    std::uint32_t size = 0;
    must(heddle_context_size(context, &size), "heddle_context_size");
    must(heddle_region_alloc(context, kRegionBytes, &region_), "heddle_region_alloc");
    remote_.resize(size);
    must(heddle_region_exchange(context, region_, remote_.data()), "heddle_region_exchange");
    void* address = nullptr;
    must(heddle_region_address(region_, &address, nullptr), "heddle_region_address");
    own_ = static_cast<std::byte*>(address);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    must(heddle_context_barrier(context_, {}, HEDDLE_FOREVER), "heddle_context_barrier");
    for (const heddle_remote_region remote : remote_) {
      must(heddle_remote_region_release(remote), "heddle_remote_region_release");
    }
    must(heddle_region_release(region_), "heddle_region_release");
  }
  [[nodiscard]] heddle_context context() const { return context_; }
  [[nodiscard]] std::byte* own() const { return own_; }
  [[nodiscard]] heddle_remote at(std::uint32_t rank, std::uint64_t offset) const { return {remote_[rank], offset}; }

 private:
  heddle_context context_;
  heddle_region region_{};
  std::vector<heddle_remote_region> remote_;
  std::byte* own_ = nullptr;
};

struct Mode {
  const char* name;
  heddle_sharing sharing;
  bool own;  // a worker for each lane; else all lanes use one
};
constexpr Mode kModes[] = {{"exclusive", HEDDLE_SHARING_EXCLUSIVE, true}, {"auto", HEDDLE_SHARING_AUTO, true},
                           {"auto_one", HEDDLE_SHARING_AUTO, false},      {"shared", HEDDLE_SHARING_SHARED, false},
                           {"offload", HEDDLE_SHARING_OFFLOAD, false},    {"delegate", HEDDLE_SHARING_DELEGATE, false},
                           {"mutex", HEDDLE_SHARING_MUTEX, false}};

class Heddle {
 public:
  static constexpr bool kMessages = true;
  static constexpr bool kSignals = true;
  static constexpr bool kActive = true;
  static constexpr bool kCounts = true;

  // Of a send: what wait_all waits for stands in the lane.
  struct Request {
    heddle_receive receive;
    bool waits = false;
  };

  Heddle(Memory& memory, const Mode& mode, std::uint32_t lanes)
      : memory_(memory), mode_(mode), lanes_(lanes), desks_(lanes) {
    const bool own = mode.own;
    for (std::uint32_t i = 0; i < lanes; ++i) {
      Lane& lane = lanes_[i];
      if (own || i == 0) {
        heddle_worker_options options{};
        options.size = sizeof options;
        options.sharing = mode.sharing;
        must(heddle_worker_open(memory.context(), &options, &lane.worker), "heddle_worker_open");
        must(heddle_worker_index(lane.worker, &lane.index), "heddle_worker_index");
      } else {
        lane.worker = lanes_[0].worker;
        lane.index = lanes_[0].index;
      }
      heddle_counter_options options{};
      options.size = sizeof options;
      if (mode.sharing == HEDDLE_SHARING_EXCLUSIVE) options.worker = lane.worker;
      must(heddle_counter_create(memory.context(), &options, &lane.counter), "heddle_counter_create");
    }
    must(heddle_am_register(memory.context(), kOnCall, on_call, this), "heddle_am_register");
    must(heddle_am_register(memory.context(), kOnReply, on_reply, this), "heddle_am_register");
    meet();
  }
  Heddle(const Heddle&) = delete;
  Heddle& operator=(const Heddle&) = delete;
  ~Heddle() {
    meet();
    must(heddle_am_register(memory_.context(), kOnCall, nullptr, nullptr), "heddle_am_register");
    must(heddle_am_register(memory_.context(), kOnReply, nullptr, nullptr), "heddle_am_register");
    for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
      must(heddle_counter_free(lanes_[i].counter), "heddle_counter_free");
      if (i == 0 || lanes_[i].index != lanes_[0].index)
        must(heddle_worker_close(lanes_[i].worker), "heddle_worker_close");
    }
  }

  [[nodiscard]] static std::string transport() {
    for (const char* name : {"HEDDLE_TRANSPORT", "HEDDLE_TRANSPORTS"}) {
      const char* set = std::getenv(name);
      if (set != nullptr && *set != '\0') return std::strcmp(set, "shm") == 0 ? "shm" : std::string("heddle ") + set;
    }
    return "shm";
  }
  [[nodiscard]] const char* sharing() const { return mode_.name; }
  [[nodiscard]] bool is_variant() const { return mode_.sharing != HEDDLE_SHARING_EXCLUSIVE; }
  [[nodiscard]] std::uint32_t workers(std::uint32_t threads) const { return mode_.own ? threads : 1; }
  [[nodiscard]] std::byte* own() const { return memory_.own(); }

  // ---- messages ----
  void send(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes,
            Request& request) {
    Lane& mine = lanes_[lane];
    const heddle_completion completion{nullptr, nullptr, mine.counter, HEDDLE_WHEN_LOCAL};
    const heddle_status status =
        must(heddle_send(mine.worker, {to, mine.index}, tag, data, bytes, &completion), "heddle_send");
    if (status == HEDDLE_POSTED) ++mine.posted;
    request.waits = false;
  }
  void receive(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes,
               Request& request) {
    Lane& mine = lanes_[lane];
    const heddle_peer source = from == kAny ? heddle_peer{HEDDLE_ANY, HEDDLE_ANY} : heddle_peer{from, mine.index};
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

  // ---- puts and gets ----
  void put(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* source, std::uint64_t bytes) {
    must(heddle_put(lanes_[lane].worker, source, bytes, memory_.at(to, offset), nullptr), "heddle_put");
  }
  void get(std::uint32_t lane, std::uint32_t from, std::uint64_t offset, void* target, std::uint64_t bytes) {
    must(heddle_get(lanes_[lane].worker, target, bytes, memory_.at(from, offset), nullptr), "heddle_get");
  }
  void flush(std::uint32_t lane, std::uint32_t rank) { must(heddle_flush(lanes_[lane].worker, rank), "heddle_flush"); }
  void put_signal(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* source, std::uint64_t bytes,
                  std::uint64_t word, std::uint64_t value) {
    const heddle_signal signal{memory_.at(to, word), value, HEDDLE_SIGNAL_SET};
    must(heddle_put_signal(lanes_[lane].worker, source, bytes, memory_.at(to, offset), &signal, nullptr),
         "heddle_put_signal");
  }
  void wait_signal(std::uint32_t lane, std::uint64_t word, std::uint64_t value) {
    must(heddle_signal_wait(lanes_[lane].worker, reinterpret_cast<const std::uint64_t*>(own() + word), HEDDLE_GE, value,
                            HEDDLE_FOREVER),
         "heddle_signal_wait");
  }
  void meet() {
    must(heddle_context_barrier(memory_.context(), lanes_[0].worker, HEDDLE_FOREVER), "heddle_context_barrier");
  }

  // ---- buffers that are told of by words ----
  void put_now(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* source, std::uint64_t bytes) {
    const heddle_worker worker = lanes_[lane].worker;
    const heddle_status status = must(heddle_put(worker, source, bytes, memory_.at(to, offset), nullptr), "heddle_put");
    if (status == HEDDLE_POSTED) must(heddle_quiet(worker), "heddle_quiet");
  }
  void fence(std::uint32_t lane) { must(heddle_fence(lanes_[lane].worker), "heddle_fence"); }
  void set_word(std::uint32_t lane, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    put_now(lane, to, word, &value, sizeof value);
  }
  void add_word(std::uint32_t lane, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    must(heddle_atomic(lanes_[lane].worker, HEDDLE_ADD64, memory_.at(to, word), value, nullptr), "heddle_atomic");
  }
  void meet_complete() {
    must(heddle_quiet(lanes_[0].worker), "heddle_quiet");
    meet();
  }

  // ---- calls by active messages ----
  void call(std::uint32_t to, const Call& call) {
    const Lane& mine = lanes_[call.lane];
    const heddle_am_message message{kOnCall, 0, nullptr, &call, sizeof call};
    must(heddle_am(mine.worker, {to, mine.index}, &message, nullptr), "heddle_am");
  }
  void wait_reply(std::uint32_t lane) {
    Desk& desk = desks_[lane];
    wait_for(lane, &desk.replied, desk.taken + 1);
  }
  bool next_reply(std::uint32_t lane, Call* reply) {
    Desk& desk = desks_[lane];
    if (desk.taken == std::atomic_ref(desk.replied).load(std::memory_order_acquire)) return false;
    *reply = desk.arrived[desk.taken++ % kMostOutstanding];
    return true;
  }
  // Until n calls are answered. What the handler could not send now is sent here.
  void serve(std::uint32_t lane, std::uint64_t n) {
    Desk& desk = desks_[lane];
    const std::uint64_t all = desk.served + n;
    while (desk.served < all) {
      wait_for(lane, &desk.called, desk.served + 1);
      desk.served = std::atomic_ref(desk.called).load(std::memory_order_acquire);
      send_late(lane);
    }
  }

 private:
  struct alignas(harness::kApart) Lane {
    heddle_worker worker{};
    std::uint32_t index = 0;
    heddle_counter counter{};
    std::uint64_t posted = 0;  // sends that the counter will count
    std::uint64_t waited = 0;
  };
  // The calls of a lane: the server's side, then the client's.
  struct alignas(harness::kApart) Desk {
    std::array<Call, kMostOutstanding> replies{};  // by slot
    alignas(8) std::uint64_t called = 0;
    std::uint64_t served = 0;
    std::atomic<bool> late{false};
    std::mutex mutex;
    std::vector<std::pair<heddle_peer, std::uint64_t>> waiting;
    std::array<Call, kMostOutstanding> arrived{};
    alignas(8) std::uint64_t replied = 0;
    std::uint64_t taken = 0;
  };

  // What a handler counts.
  void wait_for(std::uint32_t lane, std::uint64_t* word, std::uint64_t value) {
    const std::atomic_ref<std::uint64_t> counted(*word);
    while (counted.load(std::memory_order_acquire) < value) {
      must(heddle_worker_wait(lanes_[lane].worker, HEDDLE_FOREVER), "heddle_worker_wait");
    }
  }
  // Handlers of a worker run one at a time, so that a store is enough; release: another thread than
  // the one that waits may run them.
  static void count(std::uint64_t* word) {
    const std::atomic_ref<std::uint64_t> counted(*word);
    counted.store(counted.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void send_late(std::uint32_t lane) {
    Desk& desk = desks_[lane];
    if (!desk.late.load(std::memory_order_acquire)) return;
    std::vector<std::pair<heddle_peer, std::uint64_t>> waiting;
    {
      const std::scoped_lock lock(desk.mutex);
      waiting.swap(desk.waiting);
      desk.late.store(false, std::memory_order_relaxed);
    }
    for (const auto& [to, slot] : waiting) {
      const heddle_am_message message{kOnReply, 0, nullptr, &desk.replies[slot], sizeof(Call)};
      must(heddle_am(lanes_[lane].worker, to, &message, nullptr), "heddle_am");
    }
  }
  static void on_call(const heddle_am_arrival* arrival, void* arg) {
    Heddle& self = *static_cast<Heddle*>(arg);
    Call call;
    std::memcpy(&call, arrival->payload, sizeof call);
    call.number = answer_to(call.number);
    Desk& desk = self.desks_[call.lane];
    Call& reply = desk.replies[call.slot];
    reply = call;
    const heddle_am_message message{kOnReply, 0, nullptr, &reply, sizeof reply};
    const heddle_worker worker = self.lanes_[call.lane].worker;
    if (must(heddle_try_am(worker, arrival->source, &message, nullptr), "heddle_try_am") == HEDDLE_AGAIN) {
      const std::scoped_lock lock(desk.mutex);
      desk.waiting.emplace_back(arrival->source, call.slot);
      desk.late.store(true, std::memory_order_release);
    }
    count(&desk.called);
  }
  static void on_reply(const heddle_am_arrival* arrival, void* arg) {
    Heddle& self = *static_cast<Heddle*>(arg);
    Call reply;
    std::memcpy(&reply, arrival->payload, sizeof reply);
    Desk& desk = self.desks_[reply.lane];
    desk.arrived[desk.replied % kMostOutstanding] = reply;
    count(&desk.replied);
  }

  Memory& memory_;
  const Mode& mode_;
  std::vector<Lane> lanes_;
  std::vector<Desk> desks_;  // by lane
};

}  // namespace

void run_heddle(heddle_context context, harness::Session* session, const harness::Options& options,
                harness::Channel& channel) {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  must(heddle_context_rank(context, &rank), "heddle_context_rank");
  must(heddle_context_size(context, &size), "heddle_context_size");
  harness::Crowd crowd(channel, rank, size);
  Bench bench(session, crowd, options);
  Memory memory(context);
  const std::uint32_t lanes = size == 2 ? kMostThreads : 1;
  for (const Mode& mode : kModes) {
    if (!harness::wants_mode(options, mode.name)) continue;
    // Where the thread that opens a worker may run, there its executor may.
    harness::Cores::parse(options.cores).unpin();
    Heddle library(memory, mode, lanes);
    if (mode.own) {
      run_own(bench, library);
      continue;
    }
    run_one(bench, library);
    run_variant(bench, library);
  }
}

}  // namespace heddle::bench::programs
