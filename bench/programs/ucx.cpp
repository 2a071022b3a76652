// UCX as a library of the programs: tagged and active messages, puts, gets; who waits makes
// progress in a loop, as UCX's programs do.
#include <sched.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "peers/main.hpp"
#include "programs/all.hpp"

namespace heddle::bench::programs {
namespace {

#if defined(HEDDLE_PEER_NAME)
constexpr const char* kName = HEDDLE_PEER_NAME;
#else
constexpr const char* kName = "ucx";
#endif

void must(ucs_status_t status, const char* what) {
  if (status == UCS_OK || status == UCS_INPROGRESS) return;
  std::fprintf(stderr, "program_%s: %s: %s\n", kName, what, ucs_status_string(status));
  std::exit(1);
}

// What a rank shows to the others, in memory that all have from before the fork.
struct Card {
  std::uint64_t base;
  std::byte key[4096];
  std::byte addresses[kMostThreads][4096];
};
struct Cards {
  std::atomic<std::uint32_t> arrived;  // in all meetings so far; partner: the others' acquire of it
  Card card[kManyProcesses];
};

// The source's rank stands above the program's tag, so that a receive can take one or any.
constexpr unsigned kRankShift = 48;
constexpr unsigned kOnCall = 1;
constexpr unsigned kOnReply = 2;

class Context {
 public:
  Context(Cards& cards, std::uint32_t rank, std::uint32_t size, bool threads)
      : cards_(cards), rank_(rank), size_(size) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_TAG;
    params.mt_workers_shared = threads ? 1 : 0;
    ucp_config_t* config = nullptr;
    must(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    must(ucp_init(&params, config, &handle_), "ucp_init");
    ucp_config_release(config);
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    map.length = kRegionBytes;
    map.flags = UCP_MEM_MAP_ALLOCATE;
    must(ucp_mem_map(handle_, &map, &memory_), "ucp_mem_map");
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    must(ucp_mem_query(memory_, &attributes), "ucp_mem_query");
    own_ = static_cast<std::byte*>(attributes.address);
    std::memset(own_, 0, kRegionBytes);
    Card& mine = cards_.card[rank];
    mine.base = reinterpret_cast<std::uint64_t>(own_);
    void* key = nullptr;
    size_t bytes = 0;
    must(ucp_rkey_pack(handle_, memory_, &key, &bytes), "ucp_rkey_pack");
    if (bytes > sizeof mine.key) must(UCS_ERR_BUFFER_TOO_SMALL, "a packed key");
    std::memcpy(mine.key, key, bytes);
    ucp_rkey_buffer_release(key);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    ucp_mem_unmap(handle_, memory_);
    ucp_cleanup(handle_);
  }

  [[nodiscard]] ucp_context_h handle() const { return handle_; }
  [[nodiscard]] std::byte* own() const { return own_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] Card& card(std::uint32_t rank) const { return cards_.card[rank]; }
  // UCX has no barrier: the launcher's, while which there is progress.
  template <class Progress>
  void meet(Progress&& progress) {
    const std::uint32_t target = ++meetings_ * size_;
    cards_.arrived.fetch_add(1, std::memory_order_acq_rel);
    while (static_cast<std::int32_t>(cards_.arrived.load(std::memory_order_acquire) - target) < 0) {
      progress();
      if (size_ > 2) sched_yield();
    }
  }

 private:
  Cards& cards_;
  std::uint32_t rank_;
  std::uint32_t size_;
  std::uint32_t meetings_ = 0;
  ucp_context_h handle_ = nullptr;
  ucp_mem_h memory_ = nullptr;
  std::byte* own_ = nullptr;
};

struct alignas(harness::kApart) Worker {
  ucp_worker_h handle = nullptr;
  std::vector<ucp_ep_h> endpoints;  // by rank
  std::vector<ucp_rkey_h> keys;
};

// A worker for each lane, or one for all.
class Ucx {
 public:
  static constexpr bool kMessages = true;
  static constexpr bool kSignals = true;
  static constexpr bool kActive = true;
  static constexpr bool kCounts = false;
  using Request = ucs_status_ptr_t;

  Ucx(Context& context, std::uint32_t lanes, std::uint32_t workers)
      : context_(context), workers_(workers), lanes_(lanes), desks_(lanes) {
    for (std::uint32_t i = 0; i < workers; ++i) open(&workers_[i], i);
    context_.meet([] {});
    for (std::uint32_t i = 0; i < workers; ++i) connect(&workers_[i], i);
    context_.meet([&] { progress_all(); });
    for (std::uint32_t i = 0; i < lanes; ++i) lanes_[i].worker = &workers_[i % workers];
  }
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;
  ~Ucx() {
    meet();
    for (Worker& worker : workers_) {
      const ucp_request_param_t params{};
      finish(worker, ucp_worker_flush_nbx(worker.handle, &params));
    }
    meet();
    for (Worker& worker : workers_) {
      for (const ucp_rkey_h key : worker.keys) ucp_rkey_destroy(key);
      ucp_worker_destroy(worker.handle);
    }
    context_.meet([] {});
  }

  [[nodiscard]] static const char* transport() { return kName; }
  [[nodiscard]] const char* sharing() const {
    return lanes_.size() == 1 ? "single" : workers_.size() == 1 ? "one" : "own";
  }
  [[nodiscard]] static bool is_variant() { return false; }
  [[nodiscard]] std::uint32_t workers(std::uint32_t threads) const { return workers_.size() == 1 ? 1 : threads; }
  [[nodiscard]] std::byte* own() const { return context_.own(); }

  // ---- messages ----
  void send(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes,
            Request& request) {
    const ucp_request_param_t params{};
    const ucp_tag_t full = std::uint64_t{context_.rank()} << kRankShift | tag;
    request = checked(ucp_tag_send_nbx(worker(lane).endpoints[to], data, bytes, full, &params), "ucp_tag_send_nbx");
  }
  void receive(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes,
               Request& request) {
    constexpr ucp_tag_t kTagMask = (std::uint64_t{1} << kRankShift) - 1;
    const ucp_request_param_t params{};
    const ucp_tag_t full = (from == kAny ? 0 : std::uint64_t{from} << kRankShift) | tag;
    const ucp_tag_t mask = from == kAny ? kTagMask : ~ucp_tag_t{0};
    request = checked(ucp_tag_recv_nbx(worker(lane).handle, data, bytes, full, mask, &params), "ucp_tag_recv_nbx");
  }
  void wait_all(std::uint32_t lane, Request* requests, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) finish(worker(lane), requests[i]);
  }
  void send_now(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes) {
    Request request = nullptr;
    send(lane, to, tag, data, bytes, request);
    finish(worker(lane), request);
  }
  void receive_now(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes) {
    Request request = nullptr;
    receive(lane, from, tag, data, bytes, request);
    finish(worker(lane), request);
  }

  // ---- puts and gets ----
  void put(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    Worker& mine = worker(lane);
    ucs_status_t status = UCS_OK;
    while ((status = ucp_put_nbi(mine.endpoints[to], data, bytes, context_.card(to).base + offset, mine.keys[to])) ==
           UCS_ERR_NO_RESOURCE) {
      ucp_worker_progress(mine.handle);
    }
    must(status, "ucp_put_nbi");
  }
  void get(std::uint32_t lane, std::uint32_t from, std::uint64_t offset, void* data, std::uint64_t bytes) {
    Worker& mine = worker(lane);
    ucs_status_t status = UCS_OK;
    while ((status = ucp_get_nbi(mine.endpoints[from], data, bytes, context_.card(from).base + offset,
                                 mine.keys[from])) == UCS_ERR_NO_RESOURCE) {
      ucp_worker_progress(mine.handle);
    }
    must(status, "ucp_get_nbi");
  }
  void flush(std::uint32_t lane, std::uint32_t rank) {
    const ucp_request_param_t params{};
    finish(worker(lane), checked(ucp_ep_flush_nbx(worker(lane).endpoints[rank], &params), "ucp_ep_flush_nbx"));
  }
  // The value must lie still while the put may be on its way: programs wait for an answer within as
  // many signals.
  void put_signal(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes,
                  std::uint64_t word, std::uint64_t value) {
    Lane& mine = lanes_[lane];
    std::uint64_t& source = mine.values[mine.next++ % kValues];
    source = value;
    put(lane, to, offset, data, bytes);
    must(ucp_worker_fence(mine.worker->handle), "ucp_worker_fence");
    put(lane, to, word, &source, sizeof source);
  }
  void wait_signal(std::uint32_t lane, std::uint64_t word, std::uint64_t value) {
    const std::atomic_ref<std::uint64_t> here(*reinterpret_cast<std::uint64_t*>(own() + word));
    while (here.load(std::memory_order_acquire) < value) ucp_worker_progress(worker(lane).handle);
  }
  void meet() {
    context_.meet([&] { progress_all(); });
  }

  // ---- calls by active messages ----
  void call(std::uint32_t to, const Call& call) { send_call(kOnCall, to, call); }
  void wait_reply(std::uint32_t lane) {
    Desk& desk = desks_[lane];
    while (desk.taken == desk.replied) ucp_worker_progress(worker(lane).handle);
  }
  bool next_reply(std::uint32_t lane, Call* reply) {
    Desk& desk = desks_[lane];
    if (desk.taken == desk.replied) return false;
    *reply = desk.arrived[desk.taken++ % kMostOutstanding];
    return true;
  }
  void serve(std::uint32_t lane, std::uint64_t n) {
    Desk& desk = desks_[lane];
    desk.served += n;
    while (desk.called < desk.served) ucp_worker_progress(worker(lane).handle);
  }

 private:
  static constexpr std::uint64_t kValues = 512;
  struct alignas(harness::kApart) Lane {
    Worker* worker = nullptr;
    std::uint64_t next = 0;
    std::array<std::uint64_t, kValues> values{};
  };

  // The calls of a lane: the server's side, then the client's. Its own thread runs the handlers: by
  // one worker for all only one thread calls.
  struct alignas(harness::kApart) Desk {
    std::array<Call, kMostOutstanding> replies{};  // by slot
    std::uint64_t called = 0;
    std::uint64_t served = 0;
    std::array<Call, kMostOutstanding> arrived{};
    std::uint64_t replied = 0;
    std::uint64_t taken = 0;
  };

  Worker& worker(std::uint32_t lane) { return *lanes_[lane].worker; }
  static ucs_status_ptr_t checked(ucs_status_ptr_t request, const char* what) {
    if (UCS_PTR_IS_ERR(request)) must(UCS_PTR_STATUS(request), what);
    return request;
  }
  static void finish(Worker& worker, ucs_status_ptr_t request) {
    if (request == nullptr) return;
    checked(request, "an operation");
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker.handle);
    must(ucp_request_check_status(request), "an operation");
    ucp_request_free(request);
  }
  void progress_all() {
    for (Worker& worker : workers_) ucp_worker_progress(worker.handle);
  }
  void open(Worker* worker, std::uint32_t number);
  void connect(Worker* worker, std::uint32_t number);

  void send_call(unsigned id, std::uint32_t to, const Call& call) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    const ucs_status_ptr_t request =
        checked(ucp_am_send_nbx(worker(static_cast<std::uint32_t>(call.lane)).endpoints[to], id, nullptr, 0, &call,
                                sizeof call, &params),
                "ucp_am_send_nbx");
    // ends by itself; the call lies still until its reply
    if (request != nullptr) ucp_request_free(request);
  }
  static ucs_status_t on_call(void* arg, const void*, size_t, void* data, size_t, const ucp_am_recv_param_t*) {
    Ucx& self = *static_cast<Ucx*>(arg);
    Call call;
    std::memcpy(&call, data, sizeof call);
    call.number = answer_to(call.number);
    Desk& desk = self.desks_[call.lane];
    Call& reply = desk.replies[call.slot];
    reply = call;
    self.send_call(kOnReply, 0, reply);
    ++desk.called;
    return UCS_OK;
  }
  static ucs_status_t on_reply(void* arg, const void*, size_t, void* data, size_t, const ucp_am_recv_param_t*) {
    Ucx& self = *static_cast<Ucx*>(arg);
    Call reply;
    std::memcpy(&reply, data, sizeof reply);
    Desk& desk = self.desks_[reply.lane];
    desk.arrived[desk.replied++ % kMostOutstanding] = reply;
    return UCS_OK;
  }

  Context& context_;
  std::vector<Worker> workers_;
  std::vector<Lane> lanes_;
  std::vector<Desk> desks_;  // by lane
};

void Ucx::open(Worker* worker, std::uint32_t number) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = lanes_.size() > workers_.size() ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE;
  must(ucp_worker_create(context_.handle(), &params, &worker->handle), "ucp_worker_create");
  for (const unsigned id : {kOnCall, kOnReply}) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.cb = id == kOnCall ? on_call : on_reply;
    handler.arg = this;
    must(ucp_worker_set_am_recv_handler(worker->handle, &handler), "ucp_worker_set_am_recv_handler");
  }
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  must(ucp_worker_get_address(worker->handle, &address, &bytes), "ucp_worker_get_address");
  Card& mine = context_.card(context_.rank());
  if (bytes > sizeof mine.addresses[number]) must(UCS_ERR_BUFFER_TOO_SMALL, "a worker's address");
  std::memcpy(mine.addresses[number], address, bytes);
  ucp_worker_release_address(worker->handle, address);
}

void Ucx::connect(Worker* worker, std::uint32_t number) {
  worker->endpoints.resize(context_.size());
  worker->keys.resize(context_.size());
  for (std::uint32_t rank = 0; rank < context_.size(); ++rank) {
    const Card& card = context_.card(rank);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(card.addresses[number]);
    must(ucp_ep_create(worker->handle, &params, &worker->endpoints[rank]), "ucp_ep_create");
    must(ucp_ep_rkey_unpack(worker->endpoints[rank], card.key, &worker->keys[rank]), "ucp_ep_rkey_unpack");
  }
}

int run(harness::Channel& channel, const harness::Options& options, Cards& cards, std::uint32_t rank) {
  const std::uint32_t size = options.processes;
  const bool threads = size == 2 && has_threads(options);
  harness::Crowd crowd(channel, rank, size);
  std::optional<harness::Session> session;
  if (crowd.leads()) session.emplace(channel, options, harness::print_sample);
  Bench bench(session ? &*session : nullptr, crowd, options);
  Context context(cards, rank, size, threads);
  const std::uint32_t lanes = threads ? kMostThreads : 1;
  {
    Ucx own(context, lanes, lanes);
    run_own(bench, own);
  }
  if (!threads) return 0;
  Ucx one(context, lanes, 1);
  run_one(bench, one);
  return 0;
}

}  // namespace
}  // namespace heddle::bench::programs

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const harness::Options options = peers::options_or_exit(argc, argv);
  if (options.processes != 2 && options.processes != programs::kManyProcesses) {
    std::fprintf(stderr, "program_%s: needs 2 or %u processes\n", programs::kName, programs::kManyProcesses);
    return 2;
  }
  harness::Channel channel = peers::channel_or_exit(options);
  void* shared = mmap(nullptr, sizeof(programs::Cards), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  auto& cards = *static_cast<programs::Cards*>(shared);
  return harness::run_group(channel, options.processes,
                            [&](std::uint32_t rank) { return programs::run(channel, options, cards, rank); });
}
