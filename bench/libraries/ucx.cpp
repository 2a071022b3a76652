// UCX as a library that is measured: puts, gets, atomics, tagged and active messages; a waiting
// thread makes progress in a loop, as UCX's programs do.
#include <sched.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "libraries/main.hpp"
#include "measure/all.hpp"

namespace heddle::bench::libraries {
namespace {

using measure::Identity;
using measure::kAny;
using measure::ServiceCall;

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

// A rank's data for the others, in memory that all share since before the fork.
struct Card {
  std::uint64_t base;
  std::byte key[4096];
  std::byte addresses[measure::kLanes][4096];
};
struct Cards {
  std::atomic<std::uint32_t> arrived;  // in all meetings so far; partner: the others' acquire of it
  Card card[measure::kManyProcesses];
};

// The source's rank stands above the program's tag, so that a receive can take one or any.
constexpr unsigned kRankShift = 48;
constexpr unsigned kOnCall = 1;
constexpr unsigned kOnReply = 2;
constexpr unsigned kOnMessage = 3;
constexpr unsigned kOnAsk = 4;

class Context {
 public:
  Context(Cards& cards, const harness::Channel& channel, std::uint64_t region_bytes, bool threads)
      : cards_(cards), rank_(channel.rank()), size_(channel.size()) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_TAG;
    params.mt_workers_shared = threads ? 1 : 0;
    ucp_config_t* config = nullptr;
    must(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    must(ucp_init(&params, config, &handle_), "ucp_init");
    ucp_config_release(config);
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    map.length = region_bytes;
    map.flags = UCP_MEM_MAP_ALLOCATE;
    must(ucp_mem_map(handle_, &map, &memory_), "ucp_mem_map");
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    must(ucp_mem_query(memory_, &attributes), "ucp_mem_query");
    own_ = static_cast<std::byte*>(attributes.address);
    std::memset(own_, 0, region_bytes);
    Card& mine = cards_.card[rank_];
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
  // UCX has no barrier: uses the launcher's, and makes progress meanwhile.
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
  using Request = ucs_status_ptr_t;
  static Request nothing() { return nullptr; }

  // `name`: of the sharing, in records. `patience`: looks in vain before the core is given away,
  // where threads may share one.
  Ucx(Context& context, std::uint32_t lanes, std::uint32_t workers, const char* name, std::uint32_t patience)
      : context_(context),
        name_(name),
        shared_(std::strcmp(name, "shared") == 0 || std::strcmp(name, "one") == 0),
        patience_(patience),
        workers_(workers),
        lanes_(lanes),
        desks_(lanes) {
    for (std::uint32_t i = 0; i < workers; ++i) open(&workers_[i], i);
    context_.meet([] {});
    for (std::uint32_t i = 0; i < workers; ++i) connect(&workers_[i], i);
    context_.meet([&] { progress_all(); });
    for (std::uint32_t i = 0; i < lanes; ++i) {
      lanes_[i].worker = &workers_[i % workers];
      desks_[i].answer.reset(static_cast<std::byte*>(std::calloc(1, measure::kMostBytes)));
      std::memcpy(desks_[i].answer.get(), &i, sizeof i);
    }
    // The first operation on an endpoint connects it; that takes both sides.
    for (std::uint32_t i = 0; i < workers; ++i) {
      for (std::uint32_t rank = 0; rank < context_.size(); ++rank) set_word(i, rank, measure::word_at(i), 0);
      quiet(i);
      meet();
    }
  }
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;
  ~Ucx() {
    meet();
    for (std::uint32_t i = 0; i < workers_.size(); ++i) quiet(i);
    meet();
    for (Worker& worker : workers_) {
      for (const ucp_rkey_h key : worker.keys) ucp_rkey_destroy(key);
      ucp_worker_destroy(worker.handle);
    }
    context_.meet([] {});
  }

  [[nodiscard]] Identity identity() const { return {kName, name_, "allocated", !shared_, false, false}; }
  [[nodiscard]] std::byte* own(std::uint64_t offset) const { return context_.own() + offset; }

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
  bool put(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    Worker& mine = worker(lane);
    ucs_status_t status = UCS_OK;
    while ((status = ucp_put_nbi(mine.endpoints[to], data, bytes, context_.card(to).base + offset, mine.keys[to])) ==
           UCS_ERR_NO_RESOURCE) {
      ucp_worker_progress(mine.handle);
    }
    must(status, "ucp_put_nbi");
    return true;
  }
  bool get(std::uint32_t lane, std::uint32_t from, std::uint64_t offset, void* data, std::uint64_t bytes) {
    Worker& mine = worker(lane);
    ucs_status_t status = UCS_OK;
    while ((status = ucp_get_nbi(mine.endpoints[from], data, bytes, context_.card(from).base + offset,
                                 mine.keys[from])) == UCS_ERR_NO_RESOURCE) {
      ucp_worker_progress(mine.handle);
    }
    must(status, "ucp_get_nbi");
    return true;
  }
  void flush(std::uint32_t lane, std::uint32_t rank) {
    const ucp_request_param_t params{};
    finish(worker(lane), checked(ucp_ep_flush_nbx(worker(lane).endpoints[rank], &params), "ucp_ep_flush_nbx"));
  }
  template <measure::Atomic kOp>
  bool atomic(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, std::uint64_t operand,
              std::uint64_t* result) {
    using measure::Atomic;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    params.datatype = ucp_dt_make_contig(8);
    if constexpr (kOp == Atomic::fetch_add || kOp == Atomic::swap || kOp == Atomic::compare_swap) {
      params.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
      params.reply_buffer = result;
      if constexpr (kOp == Atomic::compare_swap) *result = 1;  // in: the new value
    }
    constexpr ucp_atomic_op_t kOps[] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP, UCP_ATOMIC_OP_ADD,
                                        UCP_ATOMIC_OP_XOR, UCP_ATOMIC_OP_AND,  UCP_ATOMIC_OP_OR};
    Worker& mine = worker(lane);
    finish(mine, ucp_atomic_op_nbx(mine.endpoints[to], kOps[static_cast<std::size_t>(kOp)], &operand, 1,
                                   context_.card(to).base + offset, mine.keys[to], &params));
    return true;
  }
  void quiet(std::uint32_t lane) {
    const ucp_request_param_t params{};
    finish(worker(lane), checked(ucp_worker_flush_nbx(worker(lane).handle, &params), "ucp_worker_flush_nbx"));
  }
  bool progress(std::uint32_t lane) { return ucp_worker_progress(worker(lane).handle) != 0; }
  // The value must lie still while the put may be on its way: programs wait for an answer within as
  // many signals.
  bool put_signal(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes,
                  std::uint64_t word, std::uint64_t value) {
    put(lane, to, offset, data, bytes);
    must(ucp_worker_fence(worker(lane).handle), "ucp_worker_fence");
    set_word(lane, to, word, value);
    return false;
  }
  void set_word(std::uint32_t lane, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    Lane& mine = lanes_[lane];
    std::uint64_t& source = mine.values[mine.next++ % kValues];
    source = value;
    put(lane, to, word, &source, sizeof source);
  }
  void wait_signal(std::uint32_t lane, std::uint64_t word, std::uint64_t value) {
    const std::atomic_ref<std::uint64_t> here(*reinterpret_cast<std::uint64_t*>(own(word)));
    while (here.load(std::memory_order_acquire) < value) ucp_worker_progress(worker(lane).handle);
  }
  void meet() {
    context_.meet([&] { progress_all(); });
  }

  // ---- active messages, eager at every size, so that the handler is all there is ----
  void message(std::uint32_t lane, std::uint32_t to, const void* data, std::uint64_t bytes, bool answered) {
    send_active(worker(lane).endpoints[to], answered ? kOnAsk : kOnMessage, data, bytes);
  }
  [[nodiscard]] std::uint64_t arrived(std::uint32_t lane) const {
    return desks_[lane].arrived.load(std::memory_order_relaxed);
  }
  void await(std::uint32_t lane, std::uint64_t count) {
    std::uint32_t idle = 0;
    while (arrived(lane) < count) {
      idle = progress(lane) ? 0 : idle + 1;
      if (idle > 200) sched_yield();
    }
  }
  void call(std::uint32_t to, const ServiceCall& call) {
    send_active(worker(static_cast<std::uint32_t>(call.lane)).endpoints[to], kOnCall, &call, sizeof call);
  }
  void wait_reply(std::uint32_t lane) {
    Desk& desk = desks_[lane];
    while (desk.taken == desk.replied) ucp_worker_progress(worker(lane).handle);
  }
  bool next_reply(std::uint32_t lane, ServiceCall* reply) {
    Desk& desk = desks_[lane];
    if (desk.taken == desk.replied) return false;
    *reply = desk.came[desk.taken++ % measure::kMostOutstanding];
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
    std::array<ServiceCall, measure::kMostOutstanding> replies{};  // by slot
    std::uint64_t called = 0;
    std::uint64_t served = 0;
    std::array<ServiceCall, measure::kMostOutstanding> came{};
    std::uint64_t replied = 0;
    std::uint64_t taken = 0;
    // relaxed: a shared worker's handlers run in whichever thread makes progress
    std::atomic<std::uint64_t> arrived{0};
    // zeros behind the lane
    std::unique_ptr<std::byte, decltype(&std::free)> answer{nullptr, std::free};
  };

  Worker& worker(std::uint32_t lane) { return *lanes_[lane].worker; }
  static ucs_status_ptr_t checked(ucs_status_ptr_t request, const char* what) {
    if (UCS_PTR_IS_ERR(request)) must(UCS_PTR_STATUS(request), what);
    return request;
  }
  void finish(Worker& worker, ucs_status_ptr_t request) const {
    if (request == nullptr) return;
    checked(request, "an operation");
    for (std::uint32_t idle = 0; ucp_request_check_status(request) == UCS_INPROGRESS;) {
      idle = ucp_worker_progress(worker.handle) != 0 ? 0 : idle + 1;
      if (idle > patience_) sched_yield();
    }
    must(ucp_request_check_status(request), "an operation");
    ucp_request_free(request);
  }
  void progress_all() {
    for (Worker& worker : workers_) ucp_worker_progress(worker.handle);
  }
  void open(Worker* worker, std::uint32_t number);
  void connect(Worker* worker, std::uint32_t number);

  // It ends by itself, since the sent data does not change.
  static void send_active(ucp_ep_h endpoint, unsigned id, const void* data, std::uint64_t bytes) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    const ucs_status_ptr_t request =
        checked(ucp_am_send_nbx(endpoint, id, nullptr, 0, data, bytes, &params), "ucp_am_send_nbx");
    if (request != nullptr) ucp_request_free(request);
  }
  static Desk& desk_of(void* self, const void* data) {
    std::uint64_t lane = 0;
    std::memcpy(&lane, data, sizeof lane);
    return static_cast<Ucx*>(self)->desks_[lane];
  }
  static void count(std::atomic<std::uint64_t>& to) {
    to.store(to.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  static ucs_status_t on_message(void* self, const void*, size_t, void* data, size_t, const ucp_am_recv_param_t*) {
    count(desk_of(self, data).arrived);
    return UCS_OK;
  }
  // Only ranks 0 and 1 ask each other.
  static ucs_status_t on_ask(void* self, const void*, size_t, void* data, size_t bytes, const ucp_am_recv_param_t*) {
    const Ucx& me = *static_cast<Ucx*>(self);
    Desk& desk = desk_of(self, data);
    const Lane& lane = me.lanes_[static_cast<std::size_t>(&desk - me.desks_.data())];
    send_active(lane.worker->endpoints[1 - me.context_.rank()], kOnMessage, desk.answer.get(), bytes);
    count(desk.arrived);
    return UCS_OK;
  }
  static ucs_status_t on_call(void* arg, const void*, size_t, void* data, size_t, const ucp_am_recv_param_t*) {
    Ucx& self = *static_cast<Ucx*>(arg);
    ServiceCall call;
    std::memcpy(&call, data, sizeof call);
    call.number = measure::answer_to(call.number);
    Desk& desk = self.desks_[call.lane];
    ServiceCall& reply = desk.replies[call.slot];
    reply = call;
    send_active(self.worker(static_cast<std::uint32_t>(call.lane)).endpoints[0], kOnReply, &reply, sizeof reply);
    ++desk.called;
    return UCS_OK;
  }
  static ucs_status_t on_reply(void* arg, const void*, size_t, void* data, size_t, const ucp_am_recv_param_t*) {
    Ucx& self = *static_cast<Ucx*>(arg);
    ServiceCall reply;
    std::memcpy(&reply, data, sizeof reply);
    Desk& desk = self.desks_[reply.lane];
    desk.came[desk.replied++ % measure::kMostOutstanding] = reply;
    return UCS_OK;
  }

  Context& context_;
  const char* name_;
  const bool shared_;
  std::uint32_t patience_;
  std::vector<Worker> workers_;
  std::vector<Lane> lanes_;
  std::vector<Desk> desks_;  // by lane
};

void Ucx::open(Worker* worker, std::uint32_t number) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = shared_ ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE;
  must(ucp_worker_create(context_.handle(), &params, &worker->handle), "ucp_worker_create");
  const std::pair<unsigned, ucp_am_recv_callback_t> handlers[] = {
      {kOnCall, on_call}, {kOnReply, on_reply}, {kOnMessage, on_message}, {kOnAsk, on_ask}};
  for (const auto& [id, callback] : handlers) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.cb = callback;
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

constexpr std::uint32_t kNever = ~std::uint32_t{0};
constexpr std::uint32_t kPatience = 2000;

void run(harness::BenchSession& session, Cards& cards) {
  measure::Bench bench(session);
  const measure::Needs needs = measure::needs_of(session);
  const bool programs = measure::only_programs(session.options());
  Context context(cards, session.channel(), needs.region_bytes, !programs || needs.lanes > 1);
  {
    Ucx own(context, needs.lanes, needs.lanes, programs && needs.lanes == 1 ? "single" : "own",
            programs ? kNever : kPatience);
    bench.use(own);
    programs ? run_programs(bench, own) : run_all(bench, own);
  }
  if (programs && needs.lanes == 1) return;
  Ucx one(context, needs.lanes, 1, programs ? "one" : "shared", programs ? kNever : kPatience);
  bench.use(one);
  programs ? run_shared_programs(bench, one, false) : run_shared(bench, one);
}

}  // namespace
}  // namespace heddle::bench::libraries

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const harness::BenchOptions options = libraries::options_or_exit(argc, argv);
  if (options.processes != 2 && options.processes != measure::kManyProcesses) {
    std::fprintf(stderr, "%s: needs 2 or %u processes\n", argv[0], measure::kManyProcesses);
    return 2;
  }
  harness::Channel channel = libraries::channel_or_exit(options);
  void* shared = mmap(nullptr, sizeof(libraries::Cards), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  return harness::run_group(channel, options.processes, [&](std::uint32_t) {
    harness::BenchSession session(channel, options, harness::print_sample);
    libraries::run(session, *static_cast<libraries::Cards*>(shared));
    return 0;
  });
}
