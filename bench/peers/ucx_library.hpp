// UCX as a library of suite.hpp: a context, workers, one region in each rank, and their operations.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "harness/shared_memory.hpp"
#include "suite.hpp"

namespace heddle::bench::peers {

inline void must(ucs_status_t status, const char* what) {
  if (status == UCS_OK || status == UCS_INPROGRESS) return;
  std::fprintf(stderr, "peer_ucx: %s: %s\n", what, ucs_status_string(status));
  std::exit(1);
}

inline ucp_params_t context_params() {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_TAG;
  params.mt_workers_shared = 1;
  return params;
}

inline constexpr unsigned kAmCount = 1;
inline constexpr unsigned kAmFinished = 2;
inline constexpr unsigned kAmNumbered = 3;

struct alignas(harness::kApart) Arrivals {
  // relaxed: a shared worker's handlers run in whichever thread makes progress
  std::atomic<std::uint64_t> messages{0};
  std::atomic<std::uint64_t> finished{0};
};

// By thread: messages that begin with its number. Who holds the worker runs the handler, so there
// is one at a time.
struct alignas(harness::kApart) Numbered {
  std::atomic<std::uint64_t> messages{0};
};
using AllNumbered = std::array<Numbered, 64>;

struct alignas(harness::kApart) Worker {
  ucp_worker_h worker = nullptr;
  ucp_ep_h endpoints[2] = {};  // by rank of the owner
  ucp_rkey_h keys[2] = {};
  Arrivals arrivals;
};

// What a rank shows to the other, in memory that both map.
struct Card {
  std::uint64_t base;
  std::uint64_t key_bytes;
  std::uint64_t address_bytes[64];
  std::byte key[4096];
  std::byte addresses[64][4096];
};

class Ucx {
 public:
  Ucx(Session& session, std::uint32_t workers, bool shared, std::uint64_t bytes)
      : session_(session), shared_(shared), workers_(workers) {
    const ucp_params_t params = context_params();
    ucp_config_t* config = nullptr;
    must(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    must(ucp_init(&params, config, &context_), "ucp_init");
    ucp_config_release(config);
    map_memory(bytes);
    for (Worker& worker : workers_) open_worker(&worker);
    exchange();
  }
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;
  ~Ucx();

  [[nodiscard]] static const char* transport() { return "ucx"; }
  [[nodiscard]] const char* sharing() const { return shared_ ? "shared" : "own"; }
  [[nodiscard]] std::uint32_t workers(std::uint32_t threads) const { return shared_ ? 1 : threads; }
  [[nodiscard]] std::byte* own() const { return own_; }

  void put(std::uint32_t thread, std::uint32_t owner, std::uint64_t offset, const void* source, std::uint64_t size) {
    Worker& worker = of(thread);
    while (ucp_put_nbi(worker.endpoints[owner], source, size, base_[owner] + offset, worker.keys[owner]) ==
           UCS_ERR_NO_RESOURCE) {
      ucp_worker_progress(worker.worker);
    }
  }
  void get(std::uint32_t thread, std::uint32_t owner, std::uint64_t offset, void* target, std::uint64_t size) {
    Worker& worker = of(thread);
    while (ucp_get_nbi(worker.endpoints[owner], target, size, base_[owner] + offset, worker.keys[owner]) ==
           UCS_ERR_NO_RESOURCE) {
      ucp_worker_progress(worker.worker);
    }
  }
  template <Atomic kOp>
  void atomic(std::uint32_t thread, std::uint32_t owner, std::uint64_t offset, std::uint64_t operand,
              std::uint64_t* result) {
    Worker& worker = of(thread);
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = ucp_dt_make_contig(8);
    constexpr bool kFetch = kOp == Atomic::fetch_add || kOp == Atomic::swap || kOp == Atomic::compare_swap;
    if constexpr (kFetch) {
      params.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
      params.reply_buffer = result;
      if constexpr (kOp == Atomic::compare_swap) *result = 1;  // in: the new value
    }
    finish(worker, ucp_atomic_op_nbx(worker.endpoints[owner], opcode<kOp>(), &operand, 1, base_[owner] + offset,
                                     worker.keys[owner], &params));
  }
  void flush(std::uint32_t thread, std::uint32_t owner) {
    const ucp_request_param_t params{};
    finish(of(thread), ucp_ep_flush_nbx(of(thread).endpoints[owner], &params));
  }
  void quiet(std::uint32_t thread) {
    const ucp_request_param_t params{};
    finish(of(thread), ucp_worker_flush_nbx(of(thread).worker, &params));
  }
  void fence(std::uint32_t thread) { must(ucp_worker_fence(of(thread).worker), "ucp_worker_fence"); }
  void push(std::uint32_t) {}
  void progress(std::uint32_t thread) { ucp_worker_progress(of(thread).worker); }

  // With progress until the request is done.
  void finish(Worker& worker, ucs_status_ptr_t request) {
    if (request == nullptr) return;
    if (UCS_PTR_IS_ERR(request)) must(UCS_PTR_STATUS(request), "an operation");
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker.worker);
    ucp_request_free(request);
  }
  [[nodiscard]] std::uint64_t numbered(std::uint32_t thread) const {
    return numbered_[thread].messages.load(std::memory_order_relaxed);
  }
  Worker& of(std::uint32_t thread) { return workers_[shared_ ? 0 : thread]; }
  [[nodiscard]] std::uint32_t peer() const { return 1 - session_.rank(); }

 private:
  template <Atomic kOp>
  static constexpr ucp_atomic_op_t opcode() {
    switch (kOp) {
      case Atomic::swap:
        return UCP_ATOMIC_OP_SWAP;
      case Atomic::compare_swap:
        return UCP_ATOMIC_OP_CSWAP;
      case Atomic::bit_xor:
        return UCP_ATOMIC_OP_XOR;
      case Atomic::bit_and:
        return UCP_ATOMIC_OP_AND;
      case Atomic::bit_or:
        return UCP_ATOMIC_OP_OR;
      default:
        return UCP_ATOMIC_OP_ADD;
    }
  }
  void map_memory(std::uint64_t bytes);
  void open_worker(Worker* worker);
  void exchange();

  Session& session_;
  bool shared_;
  std::vector<Worker> workers_;
  ucp_context_h context_ = nullptr;
  ucp_mem_h memory_ = nullptr;
  std::byte* own_ = nullptr;
  std::uint64_t base_[2] = {};
  AllNumbered numbered_;
};

inline ucs_status_t on_count(void* arg, const void*, size_t, void* data, size_t, const ucp_am_recv_param_t* params) {
  auto& arrivals = *static_cast<Arrivals*>(arg);
  // A rendezvous message counts where its data has been fetched; refusing it here would be no
  // receive. See Active.
  if ((params->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    std::fprintf(stderr, "peer_ucx: an eager message came by rendezvous\n");
    std::exit(1);
  }
  static_cast<void>(data);
  arrivals.messages.store(arrivals.messages.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return UCS_OK;
}

inline ucs_status_t on_finished(void* arg, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) {
  static_cast<Arrivals*>(arg)->finished.fetch_add(1, std::memory_order_relaxed);
  return UCS_OK;
}

inline ucs_status_t on_numbered(void* arg, const void*, size_t, void* data, size_t bytes, const ucp_am_recv_param_t*) {
  std::uint64_t thread = 0;
  if (bytes == sizeof thread) std::memcpy(&thread, data, sizeof thread);
  auto& messages = (*static_cast<AllNumbered*>(arg))[thread % 64].messages;
  messages.store(messages.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return UCS_OK;
}

inline void Ucx::map_memory(std::uint64_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  must(ucp_mem_map(context_, &params, &memory_), "ucp_mem_map");
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  must(ucp_mem_query(memory_, &attributes), "ucp_mem_query");
  own_ = static_cast<std::byte*>(attributes.address);
  std::memset(own_, 0, bytes);
}

inline void Ucx::open_worker(Worker* worker) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = shared_ ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE;
  must(ucp_worker_create(context_, &params, &worker->worker), "ucp_worker_create");
  for (const unsigned id : {kAmCount, kAmFinished, kAmNumbered}) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.cb = id == kAmCount ? on_count : id == kAmFinished ? on_finished : on_numbered;
    handler.arg = id == kAmNumbered ? static_cast<void*>(&numbered_) : &worker->arrivals;
    must(ucp_worker_set_am_recv_handler(worker->worker, &handler), "ucp_worker_set_am_recv_handler");
  }
}

// Addresses and keys of both ranks pass through memory that both map; each worker connects to its
// own counterpart.
inline void Ucx::exchange() {
  harness::SharedMemory cards(session_.channel(), 2 * sizeof(Card));
  if (cards.data() == nullptr) std::exit(1);
  auto* card = reinterpret_cast<Card*>(cards.data());
  Card& mine = card[session_.rank()];
  mine.base = reinterpret_cast<std::uint64_t>(own_);
  void* key = nullptr;
  size_t bytes = 0;
  must(ucp_rkey_pack(context_, memory_, &key, &bytes), "ucp_rkey_pack");
  if (bytes > sizeof mine.key) must(UCS_ERR_BUFFER_TOO_SMALL, "a packed key");
  std::memcpy(mine.key, key, bytes);
  ucp_rkey_buffer_release(key);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    ucp_address_t* address = nullptr;
    must(ucp_worker_get_address(workers_[i].worker, &address, &bytes), "ucp_worker_get_address");
    if (bytes > sizeof mine.addresses[i]) must(UCS_ERR_BUFFER_TOO_SMALL, "a worker's address");
    std::memcpy(mine.addresses[i], address, bytes);
    ucp_worker_release_address(workers_[i].worker, address);
  }
  session_.channel().barrier();
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    base_[rank] = card[rank].base;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      ucp_ep_params_t params{};
      params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
      params.address = reinterpret_cast<const ucp_address_t*>(card[rank].addresses[i]);
      Worker& worker = workers_[i];
      must(ucp_ep_create(worker.worker, &params, &worker.endpoints[rank]), "ucp_ep_create");
      must(ucp_ep_rkey_unpack(worker.endpoints[rank], card[rank].key, &worker.keys[rank]), "ucp_ep_rkey_unpack");
    }
  }
  session_.channel().barrier();
  // The first operation on an endpoint connects it; that takes both sides.
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    std::uint64_t value = 0;
    put(static_cast<std::uint32_t>(i), peer(), slot_offset(static_cast<std::uint32_t>(i)), &value, 8);
    put(static_cast<std::uint32_t>(i), session_.rank(), slot_offset(static_cast<std::uint32_t>(i)), &value, 8);
    quiet(static_cast<std::uint32_t>(i));
    session_.channel().barrier_while([&] { progress(static_cast<std::uint32_t>(i)); });
  }
}

inline Ucx::~Ucx() {
  for (Worker& worker : workers_) {
    for (const ucp_rkey_h key : worker.keys) ucp_rkey_destroy(key);
  }
  for (std::uint32_t i = 0; i < workers_.size(); ++i) {
    quiet(i);
    session_.channel().barrier_while([&] { progress(i); });
  }
  for (Worker& worker : workers_) ucp_worker_destroy(worker.worker);
  session_.channel().barrier();
  ucp_mem_unmap(context_, memory_);
  ucp_cleanup(context_);
}

}  // namespace heddle::bench::peers
