// A libibverbs without an adapter, for tests: all ranks are in one process, and what a pair is
// asked to do is done at once, in the call. HEDDLE_LIBRARIES=verbs=… names it.
//
// It is strict where adapters are: keys and their ranges and rights are checked, a queue that
// overflows ends the process, a slot in a send queue is free when the completion of a later
// signalled request was read, and only signalled requests complete, in their order. Requests for
// which the receiver has no entry wait for one (RNR), a pair with an error flushes the rest, and
// numbers of pairs are used again as soon as possible.
#include "transport/test/verbs_idle_work.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#undef ibv_reg_mr
#undef ibv_query_port

using heddle::transport::verbs::IdleVerbs;

IdleVerbs idle_verbs;

namespace {

using namespace heddle::transport::verbs::idle;

std::array<ibv_device, 7> adapters{};
constexpr std::size_t kIwarp = 4;
constexpr std::size_t kOther = 5;
constexpr std::size_t kWithoutShared = 6;

// ---- what the header calls ----------------------------------------------------------------------

int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  const std::lock_guard lock(world().mutex);
  Pair& pair = *static_cast<Pair*>(qp);
  const bool counts = pair.qp_type == IBV_QPT_RC;
  if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) {
    *bad = first;
    return EINVAL;
  }
  if (counts) idle_verbs.doorbells.fetch_add(1, std::memory_order_relaxed);
  for (; first != nullptr; first = first->next) {
    if (counts) idle_verbs.requests.fetch_add(1, std::memory_order_relaxed);
    if (counts && (first->send_flags & IBV_SEND_SIGNALED) != 0)
      idle_verbs.signalled.fetch_add(1, std::memory_order_relaxed);
    if (const int error = accept(pair, *first); error != 0) {
      *bad = first;
      return error;
    }
  }
  go_on(pair);
  return 0;
}

int poll_cq(ibv_cq* cq, int most, ibv_wc* out) {
  Queue& queue = *static_cast<Queue*>(cq);
  if (queue.count.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(world().mutex);
  int count = 0;
  for (; count < most && !queue.entries.empty(); queue.entries.pop_front()) {
    ibv_wc& entry = out[count++];
    entry = queue.entries.front();
    if (entry.src_qp != 1) continue;
    if (Pair* pair = pair_of(entry.qp_num)) pair->freed = entry.byte_len;
    entry.src_qp = entry.byte_len = 0;
  }
  queue.count.store(queue.entries.size(), std::memory_order_release);
  return count;
}

int req_notify_cq(ibv_cq* cq, int /*solicited_only*/) {
  const std::lock_guard lock(world().mutex);
  static_cast<Queue*>(cq)->armed = true;
  return 0;
}

int post_receives(std::deque<Receive>* to, std::uint32_t most, ibv_recv_wr* first) {
  for (; first != nullptr; first = first->next) {
    if (to->size() == most) misused("a receive queue overflows");
    to->push_back({first->wr_id, first->num_sge != 0 ? *first->sg_list : ibv_sge{}});
  }
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** /*bad*/) {
  const std::lock_guard lock(world().mutex);
  Pair& pair = *static_cast<Pair*>(qp);
  const int error = post_receives(&pair.receives, pair.most.max_recv_wr, first);
  if (pair.state == IBV_QPS_ERR) break_pair(pair);
  return error;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** /*bad*/) {
  const std::lock_guard lock(world().mutex);
  Shared& shared = *static_cast<Shared*>(srq);
  post_receives(&shared.receives, shared.most, first);
  for (Pair* pair : std::exchange(shared.starved, {})) go_on(*pair);
  return 0;
}

// True: this call fails.
bool fails(std::atomic<std::uint32_t>* count) {
  if (count->load(std::memory_order_relaxed) == 0) return false;
  count->fetch_sub(1, std::memory_order_relaxed);
  return true;
}

// One object more. False: there are to be no more, or the adapter has failed.
bool begins(const ibv_context* of) {
  if (has_failed(of)) {
    errno = EIO;
    return false;
  }
  std::uint64_t left = idle_verbs.objects_left.load(std::memory_order_relaxed);
  do {
    if (left == 0) {
      errno = ENOMEM;
      return false;
    }
  } while (left != UINT64_MAX &&
           !idle_verbs.objects_left.compare_exchange_weak(left, left - 1, std::memory_order_relaxed));
  idle_verbs.objects.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void ends() {
  idle_verbs.objects.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

// ---- what is exported ---------------------------------------------------------------------------

extern "C" {

void idle_verbs_go_on() {
  const std::lock_guard lock(world().mutex);
  for (Pair* pair : world().pairs) {
    if (pair != nullptr) go_on(*pair);
  }
}

void idle_verbs_break_datagrams() {
  const std::lock_guard lock(world().mutex);
  for (Pair* pair : world().pairs) {
    if (pair != nullptr && pair->qp_type == IBV_QPT_UD) break_pair(*pair);
  }
}

bool idle_verbs_forge(std::uint32_t number, const void* data, std::uint32_t bytes) {
  const std::lock_guard lock(world().mutex);
  const Pair* const pair = pair_of(number);
  return pair != nullptr && deliver(number, pair->qkey, data, bytes);
}

bool idle_verbs_forge_message(std::uint32_t number, std::uint32_t bytes) {
  const std::lock_guard lock(world().mutex);
  Pair* const pair = pair_of(number);
  if (pair == nullptr || pair->qp_type != IBV_QPT_RC || pair->state != IBV_QPS_RTS ||
      static_cast<Shared*>(pair->srq)->receives.empty())
    return false;
  tell(*pair, bytes, 0);
  return true;
}

bool idle_verbs_tell_event(std::uint32_t opened, int type) {
  const std::lock_guard lock(world().mutex);
  if (opened >= world().contexts.size()) return false;
  Context& context = *world().contexts[opened];
  ibv_async_event event{};
  event.event_type = static_cast<ibv_event_type>(type);
  if (type == IBV_EVENT_SRQ_ERR) {
    const auto& all = world().shared;
    const auto its = std::ranges::find_if(all, [&](const Shared* one) { return one->context == &context; });
    if (its == all.end()) return false;
    event.element.srq = *its;
  } else {
    event.element.port_num = 1;
  }
  if (type == IBV_EVENT_DEVICE_FATAL) context.failed = true;
  context.events.push_back(event);
  const std::uint64_t one = 1;
  return ::write(context.async_fd, &one, sizeof one) == static_cast<ssize_t>(sizeof one);
}

int ibv_fork_init() {
  const std::lock_guard lock(world().mutex);
  idle_verbs.fork_safe = world().next_key == World{}.next_key;
  return 0;
}

ibv_device** ibv_get_device_list(int* count) {
  auto** const list = new ibv_device*[adapters.size() + 1];
  *count = 0;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if ((idle_verbs.adapters.load(std::memory_order_relaxed) >> i & 1U) == 0) continue;
    std::snprintf(adapters[i].name, sizeof adapters[i].name, "idle%zu", i);
    std::snprintf(adapters[i].ibdev_path, sizeof adapters[i].ibdev_path, "%s/idle%zu", IDLE_VERBS_FOLDER, i);
    adapters[i].transport_type = IBV_TRANSPORT_IB;
    list[(*count)++] = &adapters[i];
  }
  adapters[kIwarp].transport_type = IBV_TRANSPORT_IWARP;
  adapters[kOther].transport_type = IBV_TRANSPORT_UNSPECIFIED;
  list[*count] = nullptr;
  return list;
}
void ibv_free_device_list(ibv_device** list) {
  delete[] list;
}
const char* ibv_get_device_name(ibv_device* of) {
  return of->name;
}

ibv_context* ibv_open_device(ibv_device* of) {
  const int descriptor = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  auto* context = new Context{};
  context->device = of;
  context->async_fd = descriptor;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.post_srq_recv = post_srq_recv;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  const std::lock_guard lock(world().mutex);
  world().contexts.push_back(context);
  return context;
}
int ibv_close_device(ibv_context* of) {
  const std::lock_guard lock(world().mutex);
  auto* context = static_cast<Context*>(of);
  std::erase(world().contexts, context);
  ::close(context->async_fd);
  delete context;
  return 0;
}

int ibv_get_async_event(ibv_context* of, ibv_async_event* event) {
  auto& context = *static_cast<Context*>(of);
  std::uint64_t one = 0;
  if (::read(context.async_fd, &one, sizeof one) != static_cast<ssize_t>(sizeof one)) return -1;
  const std::lock_guard lock(world().mutex);
  *event = context.events.front();
  context.events.pop_front();
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {
  idle_verbs.events.fetch_add(1, std::memory_order_relaxed);
}
const char* ibv_event_type_str(ibv_event_type type) {
  return type == IBV_EVENT_DEVICE_FATAL ? "local catastrophic error" : "an event of the idle adapter";
}

int ibv_query_device(ibv_context* context, ibv_device_attr* about) {
  *about = {};
  about->max_qp_rd_atom = about->max_qp_init_rd_atom = 16;
  if (context->device == &adapters[kWithoutShared]) return 0;
  about->max_srq = 1 << 10;
  about->max_srq_wr = static_cast<int>(idle_verbs.most_receives.load(std::memory_order_relaxed));
  return 0;
}
int ibv_query_port(ibv_context* context, std::uint8_t, _compat_ibv_port_attr* out) {
  auto* about = reinterpret_cast<ibv_port_attr*>(out);
  about->link_layer = IBV_LINK_LAYER_ETHERNET;
  about->max_msg_sz = most_bytes_of(context);
  about->active_mtu = IBV_MTU_4096;
  return 0;
}
int ibv_query_gid(ibv_context*, std::uint8_t, int, ibv_gid* gid) {
  gid->raw[15] = 1;
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (!begins(context)) return nullptr;
  return new ibv_pd{context, 0};
}
int ibv_dealloc_pd(ibv_pd* domain) {
  const std::lock_guard lock(world().mutex);
  for (const auto& [key, memory] : world().memories) {
    if (memory->pd == domain) misused("a domain ends before its memory");
  }
  ends();
  delete domain;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* begin, std::size_t bytes, int rights) {
  const std::lock_guard lock(world().mutex);
  if (idle_verbs.registered.load(std::memory_order_relaxed) + bytes >
      idle_verbs.most_registered.load(std::memory_order_relaxed)) {
    errno = ENOMEM;
    return nullptr;
  }
  if (!begins(domain->context)) return nullptr;
  idle_verbs.registered.fetch_add(bytes, std::memory_order_relaxed);
  if (reinterpret_cast<std::uintptr_t>(begin) % static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)) != 0)
    idle_verbs.unaligned.fetch_add(1, std::memory_order_relaxed);
  auto* memory = new Memory;
  static_cast<ibv_mr&>(*memory) = {domain->context, domain, begin, bytes, 0, world().next_key, world().next_key};
  memory->rights = rights;
  world().memories[world().next_key] = memory;
  world().next_key += 0x11;
  return memory;
}
int ibv_dereg_mr(ibv_mr* memory) {
  ends();
  const std::lock_guard lock(world().mutex);
  idle_verbs.registered.fetch_sub(memory->length, std::memory_order_relaxed);
  world().memories.erase(memory->lkey);
  delete static_cast<Memory*>(memory);
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  const int descriptor = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  if (!begins(context)) {
    ::close(descriptor);
    return nullptr;
  }
  auto* channel = new Channel;
  static_cast<ibv_comp_channel&>(*channel) = {context, descriptor, 0};
  return channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  if (channel->refcnt != 0) misused("a channel ends before its queues");
  ends();
  ::close(channel->fd);
  delete static_cast<Channel*>(channel);
  return 0;
}
int ibv_get_cq_event(ibv_comp_channel* of, ibv_cq** queue, void** user) {
  auto& channel = *static_cast<Channel*>(of);
  for (;;) {
    std::uint64_t one = 0;
    if (::read(channel.fd, &one, sizeof one) != static_cast<ssize_t>(sizeof one)) return -1;
    const std::lock_guard lock(world().mutex);
    if (channel.events.empty()) continue;  // of a queue that has ended
    *queue = channel.events.front();
    *user = (*queue)->cq_context;
    ++channel.events.front()->unacknowledged;
    channel.events.pop_front();
    return 0;
  }
}
void ibv_ack_cq_events(ibv_cq* queue, unsigned int count) {
  const std::lock_guard lock(world().mutex);
  static_cast<Queue*>(queue)->unacknowledged -= count;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel, int) {
  if (!begins(context)) return nullptr;
  auto* queue = new Queue;
  queue->context = context;
  queue->channel = channel;
  queue->cq_context = user;
  queue->cqe = entries;
  const std::lock_guard lock(world().mutex);
  if (channel != nullptr) ++channel->refcnt;
  return queue;
}
int ibv_destroy_cq(ibv_cq* cq) {
  const std::lock_guard lock(world().mutex);
  auto* queue = static_cast<Queue*>(cq);
  for (const Pair* pair : world().pairs) {
    if (pair != nullptr && (pair->send_cq == cq || pair->recv_cq == cq)) misused("a queue ends before its pairs");
  }
  if (queue->unacknowledged != 0) misused("an event was not acknowledged");
  ends();
  if (queue->channel != nullptr) {
    std::erase(static_cast<Channel*>(queue->channel)->events, queue);
    --queue->channel->refcnt;
  }
  delete queue;
  return 0;
}

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* make) {
  if (make->attr.max_wr > idle_verbs.most_receives.load(std::memory_order_relaxed)) return nullptr;
  if (!begins(domain->context)) return nullptr;
  auto* shared = new Shared;
  shared->context = domain->context;
  shared->srq_context = make->srq_context;
  shared->pd = domain;
  shared->most = make->attr.max_wr;
  const std::lock_guard lock(world().mutex);
  world().shared.push_back(shared);
  return shared;
}
int ibv_destroy_srq(ibv_srq* shared) {
  ends();
  const std::lock_guard lock(world().mutex);
  for (const Pair* pair : world().pairs) {
    if (pair != nullptr && pair->srq == shared) misused("a shared queue ends before its pairs");
  }
  std::erase(world().shared, static_cast<Shared*>(shared));
  delete static_cast<Shared*>(shared);
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* make) {
  if (make->cap.max_inline_data > idle_verbs.most_inline.load(std::memory_order_relaxed)) {
    errno = EINVAL;
    return nullptr;
  }
  if (!begins(domain->context)) return nullptr;
  auto* pair = new Pair;
  pair->context = domain->context;
  pair->pd = domain;
  pair->send_cq = make->send_cq;
  pair->recv_cq = make->recv_cq;
  pair->srq = make->srq;
  pair->qp_type = make->qp_type;
  pair->state = IBV_QPS_RESET;
  pair->most = make->cap;
  pair->tells_all = make->sq_sig_all != 0;
  const std::lock_guard lock(world().mutex);
  auto& pairs = world().pairs;
  const auto slot = std::find(pairs.begin() + 2, pairs.end(), nullptr);
  pair->qp_num = static_cast<std::uint32_t>(slot - pairs.begin());
  slot == pairs.end() ? pairs.push_back(pair) : void(*slot = pair);
  idle_verbs.pairs.fetch_add(1, std::memory_order_relaxed);
  return pair;
}
// Its attributes are taken as they are; the attributes that a state needs must be named.
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* to, int mask) {
  const std::lock_guard lock(world().mutex);
  auto& pair = *static_cast<Pair*>(qp);
  const bool connects = pair.qp_type == IBV_QPT_RC;
  if (has_failed(pair.context)) return EIO;
  const bool next = to->qp_state == IBV_QPS_ERR || to->qp_state == IBV_QPS_RESET || to->qp_state == pair.state + 1;
  if ((mask & IBV_QP_STATE) == 0 || !next) return EINVAL;
  if (to->qp_state == IBV_QPS_RESET && idle_verbs.refuses_resets.load(std::memory_order_relaxed)) return EIO;
  if (to->qp_state == IBV_QPS_RTR && connects && fails(&idle_verbs.fail_connects)) return EHOSTUNREACH;
  if (to->qp_state == IBV_QPS_RTR && connects && (mask & IBV_QP_DEST_QPN) == 0) return EINVAL;
  if (to->qp_state == IBV_QPS_RTS && (mask & IBV_QP_SQ_PSN) == 0) return EINVAL;
  if ((mask & IBV_QP_DEST_QPN) != 0) pair.peer = to->dest_qp_num;
  if ((mask & IBV_QP_QKEY) != 0) pair.qkey = to->qkey;
  pair.state = to->qp_state;
  if (pair.state == IBV_QPS_ERR) break_pair(pair);
  if (pair.state == IBV_QPS_RESET) {
    forget_completions(pair);
    pair.sends.clear();
    pair.receives.clear();
    pair.posted = pair.freed = 0;
  }
  return 0;
}
// Its completions go with it, as they do with most adapters.
int ibv_destroy_qp(ibv_qp* qp) {
  ends();
  const std::lock_guard lock(world().mutex);
  auto* pair = static_cast<Pair*>(qp);
  forget_completions(*pair);
  world().pairs[pair->qp_num] = nullptr;
  for (Shared* shared : world().shared) std::erase(shared->starved, pair);
  for (Pair* other : world().pairs) {
    if (other != nullptr && other->peer == pair->qp_num && other->qp_type == IBV_QPT_RC) go_on(*other);
  }
  idle_verbs.pairs.fetch_sub(1, std::memory_order_relaxed);
  delete pair;
  return 0;
}

ibv_ah* ibv_create_ah(ibv_pd* domain, ibv_ah_attr*) {
  if (fails(&idle_verbs.fail_routes)) {
    errno = EHOSTUNREACH;
    return nullptr;
  }
  if (!begins(domain->context)) return nullptr;
  auto* handle = new AddressHandle;
  handle->context = domain->context;
  handle->pd = domain;
  return handle;
}
int ibv_destroy_ah(ibv_ah* handle) {
  ends();
  delete static_cast<AddressHandle*>(handle);
  return 0;
}
const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_WR_FLUSH_ERR ? "Work Request Flushed Error" : "an error of the idle adapter";
}

}  // extern "C"
