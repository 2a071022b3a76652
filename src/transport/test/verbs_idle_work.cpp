#include "transport/test/verbs_idle_work.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace heddle::transport::verbs::idle {
namespace {

// Addresses are numbers in work requests.
void* memory_at(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

void misused(const char* what) {
  std::fprintf(stderr, "idle_verbs: %s\n", what);
  std::abort();
}

World& world() {
  static World* one = new World;  // for calls at the end of the process
  return *one;
}

namespace {

// The number in the adapter's name, such as "idle3".
unsigned number_of(const ibv_context* of) {
  const char* const name = of->device->name;
  return static_cast<unsigned>(name[std::strlen(name) - 1] - '0');
}

}  // namespace

std::uint32_t most_bytes_of(const ibv_context* of) {
  constexpr std::uint32_t kMostBytes = 1U << 30;
  return number_of(of) == 1 ? idle_verbs.most_bytes_of_idle1.load(std::memory_order_relaxed) : kMostBytes;
}

Pair* pair_of(std::uint32_t number) {
  return number < world().pairs.size() ? world().pairs[number] : nullptr;
}

namespace {

bool reaches(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, int rights, const ibv_pd* domain) {
  const auto found = world().memories.find(key);
  if (found == world().memories.end()) return false;
  const Memory& memory = *found->second;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.addr);
  return memory.pd == domain && (memory.rights & rights) == rights && address >= begin && bytes <= memory.length &&
         address - begin <= memory.length - bytes;
}

void complete(ibv_cq* to, const ibv_wc& entry) {
  Queue& queue = *static_cast<Queue*>(to);
  if (queue.entries.size() == static_cast<std::size_t>(queue.cqe)) misused("a completion queue overflows");
  queue.entries.push_back(entry);
  queue.count.store(queue.entries.size(), std::memory_order_release);
  if (!std::exchange(queue.armed, false) || queue.channel == nullptr) return;
  static_cast<Channel*>(queue.channel)->events.push_back(&queue);
  const std::uint64_t one = 1;
  if (::write(queue.channel->fd, &one, sizeof one) < 0) misused("an event cannot be told");
}

// Copies as an adapter writes: aligned words whole.
void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == sizeof(std::uint32_t) && reinterpret_cast<std::uintptr_t>(to) % bytes == 0) {
    std::uint32_t word = 0;
    std::memcpy(&word, from, bytes);
    __atomic_store_n(static_cast<std::uint32_t*>(to), word, __ATOMIC_RELEASE);
  } else if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}

void end(Pair& pair, const Work& work, ibv_wc_status status) {
  const bool tells = pair.tells_all || (work.request.send_flags & IBV_SEND_SIGNALED) != 0;
  if (status == IBV_WC_SUCCESS && !tells) return;
  ibv_wc entry{};
  entry.wr_id = work.request.wr_id;
  entry.status = status;
  entry.opcode = work.request.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
  entry.qp_num = pair.qp_num;
  // for poll_cq: how far the send queue is free. Entries of sends have no length.
  entry.byte_len = pair.posted - static_cast<std::uint32_t>(pair.sends.size()) + 1;
  entry.src_qp = 1;  // it is one of a send
  complete(pair.send_cq, entry);
}

}  // namespace

void break_pair(Pair& pair) {
  pair.state = IBV_QPS_ERR;
  for (; !pair.sends.empty(); pair.sends.pop_front()) end(pair, pair.sends.front(), IBV_WC_WR_FLUSH_ERR);
  for (; !pair.receives.empty(); pair.receives.pop_front()) {
    ibv_wc entry{};
    entry.wr_id = pair.receives.front().number;
    entry.status = IBV_WC_WR_FLUSH_ERR;
    entry.opcode = IBV_WC_RECV;
    entry.qp_num = pair.qp_num;
    complete(pair.recv_cq, entry);
  }
}

void tell(Pair& receiver, std::uint32_t bytes, std::uint32_t immediate) {
  std::deque<Receive>& receives = static_cast<Shared*>(receiver.srq)->receives;
  ibv_wc entry{};
  entry.wr_id = receives.front().number;
  entry.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  entry.byte_len = bytes;
  entry.imm_data = immediate;
  entry.wc_flags = IBV_WC_WITH_IMM;
  entry.qp_num = receiver.qp_num;
  receives.pop_front();
  complete(receiver.recv_cq, entry);
}

namespace {

// True: the tests' settings concern the requests of this pair.
bool is_concerned(const Pair& pair) {
  return (idle_verbs.concerned.load(std::memory_order_relaxed) >> number_of(pair.context) & 1U) != 0;
}

// Executes a request to a connected pair. SUCCESS, an error, or RNR: it waits.
ibv_wc_status execute(Pair& pair, const Work& work) {
  const ibv_send_wr& request = work.request;
  Pair* const peer = pair_of(pair.peer);
  const bool cut = idle_verbs.cut.load(std::memory_order_relaxed) && is_concerned(pair);
  if (cut || peer == nullptr || has_failed(peer->context) || peer->qp_type != IBV_QPT_RC || peer->peer != pair.qp_num ||
      (peer->state != IBV_QPS_RTR && peer->state != IBV_QPS_RTS))
    return IBV_WC_RETRY_EXC_ERR;
  const std::uint32_t bytes = request.num_sge != 0 ? work.part.length : 0;
  const bool reads = request.opcode == IBV_WR_RDMA_READ;
  const bool tells = request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (!reads && !tells && request.opcode != IBV_WR_RDMA_WRITE) misused("an operation that it does not have");
  if (bytes != 0 && work.inlined == nullptr &&
      !reaches(work.part.lkey, work.part.addr, bytes, reads ? IBV_ACCESS_LOCAL_WRITE : 0, pair.pd))
    return IBV_WC_LOC_PROT_ERR;
  if (bytes != 0 && !reaches(request.wr.rdma.rkey, request.wr.rdma.remote_addr, bytes,
                             reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE, peer->pd)) {
    break_pair(*peer);
    return IBV_WC_REM_ACCESS_ERR;
  }
  Shared* const shared = static_cast<Shared*>(peer->srq);
  if (tells && shared->receives.empty()) {
    if (std::ranges::find(shared->starved, &pair) == shared->starved.end()) shared->starved.push_back(&pair);
    return IBV_WC_RNR_RETRY_EXC_ERR;
  }
  const void* mine = work.inlined != nullptr ? work.inlined.get() : memory_at(work.part.addr);
  auto* theirs = memory_at(request.wr.rdma.remote_addr);
  reads ? copy(const_cast<void*>(mine), theirs, bytes) : copy(theirs, mine, bytes);
  if (!tells) return IBV_WC_SUCCESS;
  tell(*peer, bytes, request.imm_data);
  return IBV_WC_SUCCESS;
}

}  // namespace

void go_on(Pair& pair) {
  const bool held = idle_verbs.holds.load(std::memory_order_relaxed) && is_concerned(pair);
  while (!pair.sends.empty() && !held && !has_failed(pair.context)) {
    const ibv_wc_status status = execute(pair, pair.sends.front());
    if (status == IBV_WC_RNR_RETRY_EXC_ERR) return;
    end(pair, pair.sends.front(), status);
    pair.sends.pop_front();
    if (status != IBV_WC_SUCCESS) return break_pair(pair);
  }
}

void forget_completions(const Pair& pair) {
  for (ibv_cq* cq : {pair.send_cq, pair.recv_cq}) {
    auto& queue = *static_cast<Queue*>(cq);
    for (ibv_wc& entry : queue.entries) {
      // for poll_cq: it frees no slot
      if (entry.qp_num == pair.qp_num) entry.src_qp = entry.byte_len = 0;
    }
    if (idle_verbs.keeps_completions.load(std::memory_order_relaxed)) continue;
    std::erase_if(queue.entries, [&pair](const ibv_wc& entry) { return entry.qp_num == pair.qp_num; });
    queue.count.store(queue.entries.size(), std::memory_order_release);
  }
}

bool deliver(std::uint32_t number, std::uint32_t qkey, const void* data, std::uint32_t bytes) {
  Pair* const pair = pair_of(number);
  if (pair == nullptr || has_failed(pair->context) || pair->qp_type != IBV_QPT_UD || pair->qkey != qkey ||
      pair->state < IBV_QPS_RTR || pair->receives.empty())
    return false;
  const Receive receive = pair->receives.front();
  pair->receives.pop_front();
  ibv_wc entry{};
  entry.wr_id = receive.number;
  entry.opcode = IBV_WC_RECV;
  entry.byte_len = kGrhBytes + bytes;
  entry.qp_num = number;
  if (entry.byte_len > receive.buffer.length) misused("a datagram that is longer than its buffer");
  if (!reaches(receive.buffer.lkey, receive.buffer.addr, entry.byte_len, IBV_ACCESS_LOCAL_WRITE, pair->pd))
    misused("a receive whose memory is not registered");
  std::memcpy(static_cast<std::byte*>(memory_at(receive.buffer.addr)) + kGrhBytes, data, bytes);
  complete(pair->recv_cq, entry);
  return true;
}

namespace {

// It may be lost, or come twice.
void send_datagram(Pair& pair, const Work& work) {
  const ibv_send_wr& request = work.request;
  const auto happens = [](std::uint32_t every) { return every != 0 && world().datagrams % every == every - 1; };
  if (request.wr.ud.ah == nullptr) misused("a datagram without a route");
  if (!reaches(work.part.lkey, work.part.addr, work.part.length, 0, pair.pd)) misused("a datagram of strange memory");
  const void* data = memory_at(work.part.addr);
  int times = 1;
  if (happens(idle_verbs.twice_every.load(std::memory_order_relaxed))) times = 2;
  if (happens(idle_verbs.lose_every.load(std::memory_order_relaxed))) times = 0;
  if (idle_verbs.cut.load(std::memory_order_relaxed)) times = 0;
  ++world().datagrams;
  for (; times != 0; --times) deliver(request.wr.ud.remote_qpn, request.wr.ud.remote_qkey, data, work.part.length);
}

}  // namespace

// 0, or the number of the error.
int accept(Pair& pair, const ibv_send_wr& request) {
  if (pair.posted - pair.freed >= pair.most.max_send_wr) misused("a send queue overflows");
  if (request.num_sge > 1) return EINVAL;
  if (request.num_sge != 0 && request.sg_list->length > most_bytes_of(pair.context)) return EINVAL;
  Work work{request, request.num_sge != 0 ? *request.sg_list : ibv_sge{}, nullptr};
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    if (work.part.length > pair.most.max_inline_data) return EINVAL;
    work.inlined.reset(new std::byte[work.part.length + 1]);
    copy(work.inlined.get(), memory_at(work.part.addr), work.part.length);
  }
  ++pair.posted;
  pair.sends.push_back(std::move(work));
  if (pair.state == IBV_QPS_ERR) {
    break_pair(pair);
  } else if (pair.qp_type == IBV_QPT_UD) {
    send_datagram(pair, pair.sends.front());
    end(pair, pair.sends.front(), IBV_WC_SUCCESS);
    pair.sends.pop_front();
  }
  return 0;
}

}  // namespace heddle::transport::verbs::idle
