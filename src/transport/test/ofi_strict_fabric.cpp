// A libfabric for tests, whose only provider connects the endpoints of one process and enforces
// what a provider may want of registered memory. STRICT_FABRIC names it, by words of: local,
// prov_key, virt_addr, endpoint (FI_MR_…), and atomic.
//
// Uses that a real provider would not notice, or would answer with wrong data, are refused here,
// reported on standard error and counted: local memory that is not registered, or not any more when
// it is accessed; a descriptor where none is wanted; memory of another domain or endpoint; regions
// that are open when what they belong to is closed. The process then ends with status 70. Keys that
// were not handed out fail as they do in a network.
//
// A transfer is executed by the second read of its completion queue, so it is under way for a
// while.
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "transport/test/ofi_objects.hpp"
#include "transport/test/ofi_strict_world.hpp"

namespace {

using namespace heddle::transport::ofi::strict;
using namespace heddle::transport::ofi::test;

[[gnu::destructor]] void report() {
  World& all = world();
  // what could not be closed is open, and so is all around it
  if (all.busy) ::_exit(all.wrong != 0 ? 70 : 0);
  if (!all.regions.empty()) refuse(0, "%zu regions are open at the end", all.regions.size());
  if (all.domains != 0) refuse(0, "%d domains are open at the end", all.domains);
  if (all.wrong != 0) ::_exit(70);
}

// ---- regions ------------------------------------------------------------------------------------

int close_region(struct fid* fid) {
  const Lock lock(world().mutex);
  auto* region = object_of<Region>(fid);
  if (fault_of(fault::kRegions) != 0) {
    world().busy = true;
    return -FI_EBUSY;
  }
  world().regions.erase(reinterpret_cast<std::uint64_t>(region->fid.mem_desc));
  world().keys.erase({region->domain, region->fid.key});
  --region->domain->uses;
  if (region->endpoint != nullptr && (region->access & FI_REMOTE_WRITE) != 0) --region->endpoint->regions;
  delete region;
  return 0;
}
int bind_region(struct fid* fid, struct fid* to, std::uint64_t) {
  const Lock lock(world().mutex);
  auto* region = object_of<Region>(fid);
  if (!wants("endpoint")) return refuse(FI_EINVAL, "a region is bound where that is not wanted");
  region->endpoint = object_of<Endpoint>(to);
  if ((region->access & FI_REMOTE_WRITE) != 0) ++region->endpoint->regions;
  return 0;
}
int control_region(struct fid* fid, int command, void*) {
  const Lock lock(world().mutex);
  auto* region = object_of<Region>(fid);
  if (command != FI_ENABLE || region->endpoint == nullptr) return refuse(FI_EINVAL, "a region without endpoint");
  region->enabled = true;
  return 0;
}

int register_region(struct fid* fid, const void* address, std::size_t bytes, std::uint64_t access, std::uint64_t offset,
                    std::uint64_t key, std::uint64_t flags, fid_mr** out, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) {
    all.close = close_region;
    all.bind = bind_region;
    all.control = control_region;
  });
  const Lock lock(world().mutex);
  auto* domain = object_of<Domain>(fid);
  if (address == nullptr || bytes == 0 || offset != 0 || flags != 0) return refuse(FI_EINVAL, "a strange region");
  const std::uint64_t number = world().next++;
  if (wants("prov_key")) key = number * 0x9e3779b97f4a7c15;
  if (world().keys.count({domain, key}) != 0) return refuse(FI_ENOKEY, "a key is used twice in one domain");
  auto* region = make_object<Region>(FI_CLASS_MR, ops, out);
  region->fid.mem_desc = reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): a number is all it is
  region->fid.key = key;
  region->domain = domain;
  region->address = static_cast<const char*>(address);
  region->bytes = bytes;
  region->access = access;
  region->enabled = !wants("endpoint");
  ++domain->uses;
  world().regions[number] = world().keys[{domain, key}] = region;
  return 0;
}

// ---- completions --------------------------------------------------------------------------------

void ring(const Queue& queue) {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(queue.event, &one, sizeof one));
}
void complete(Queue& queue, void* context, std::uint64_t bytes, int error = 0) {
  if (error == 0) {
    queue.done.push_back({context, 0, bytes});
  } else {
    fi_cq_err_entry entry{};
    entry.op_context = context;
    entry.err = error;
    queue.failed.push_back(entry);
  }
  ring(queue);
}

template <class Word>
void change(char* at, Transfer& transfer) {
  auto* word = reinterpret_cast<Word*>(at);
  Word operand = 0;
  Word compare = 0;
  std::memcpy(&operand, &transfer.operand, sizeof operand);
  std::memcpy(&compare, &transfer.compare, sizeof compare);
  Word old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  for (;;) {
    Word next = operand;
    if (transfer.op == FI_SUM) next = static_cast<Word>(old + operand);
    if (transfer.op == FI_BAND) next = old & operand;
    if (transfer.op == FI_BOR) next = old | operand;
    if (transfer.op == FI_BXOR) next = old ^ operand;
    if (transfer.op == FI_CSWAP && old != compare) next = old;
    if (__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) break;
  }
  std::memcpy(transfer.local.at, &old, sizeof old);
}

void execute(Endpoint& endpoint, Transfer& transfer) {
  const std::uint64_t uses = transfer.kind == Transfer::put ? FI_WRITE : FI_READ;
  char* remote = find_remote(transfer);
  int error = remote == nullptr ? FI_EACCES : 0;
  if (error == 0 && transfer.inject.empty()) error = -check_local(endpoint, transfer.local, uses);
  if (error == 0 && transfer.kind == Transfer::get) std::memcpy(transfer.local.at, remote, transfer.local.bytes);
  if (error == 0 && transfer.kind == Transfer::put)
    std::memcpy(remote, transfer.inject.empty() ? transfer.local.at : transfer.inject.data(), transfer.local.bytes);
  if (error == 0 && transfer.kind == Transfer::atomic) {
    if (transfer.local.bytes == 8) change<std::uint64_t>(remote, transfer);
    if (transfer.local.bytes == 4) change<std::uint32_t>(remote, transfer);
  }
  complete(*endpoint.queue, transfer.local.context, 0, error);
}

ssize_t read_queue(fid_cq* fid, void* out, std::size_t count) {
  const Lock lock(world().mutex);
  auto* queue = object_of<Queue>(fid);
  for (Endpoint* endpoint : queue->endpoints) {
    if (fault_of(fault::kHold) != 0) break;
    for (std::size_t left = endpoint->transfers.size(); left > 0; --left) {
      if (++endpoint->transfers.front().reads < 2) break;
      execute(*endpoint, endpoint->transfers.front());
      endpoint->transfers.pop_front();
    }
  }
  if (!queue->failed.empty()) return -FI_EAVAIL;
  auto* entries = static_cast<fi_cq_msg_entry*>(out);
  std::size_t written = 0;
  for (; written < count && !queue->done.empty(); queue->done.pop_front()) entries[written++] = queue->done.front();
  return written != 0 ? static_cast<ssize_t>(written) : -FI_EAGAIN;
}
ssize_t read_error(fid_cq* fid, fi_cq_err_entry* entry, std::uint64_t) {
  const Lock lock(world().mutex);
  auto* queue = object_of<Queue>(fid);
  if (queue->failed.empty()) return -FI_EAGAIN;
  *entry = queue->failed.front();
  queue->failed.pop_front();
  return 1;
}
int try_wait(fid_fabric*, struct fid** fids, int) {
  const Lock lock(world().mutex);
  auto* queue = object_of<Queue>(fids[0]);
  std::uint64_t value = 0;
  // It does not block: NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
  static_cast<void>(!::read(queue->event, &value, sizeof value));
  bool some = !queue->done.empty() || !queue->failed.empty();
  for (const Endpoint* endpoint : queue->endpoints) some = some || !endpoint->transfers.empty();
  return some ? -FI_EAGAIN : 0;
}
int close_queue(struct fid* fid) {
  const Lock lock(world().mutex);
  auto* queue = object_of<Queue>(fid);
  if (world().busy && !queue->endpoints.empty()) return -FI_EBUSY;
  if (!queue->endpoints.empty()) return refuse(FI_EBUSY, "a queue is closed before its endpoint");
  ::close(queue->event);
  delete queue;
  return 0;
}
int control_queue(struct fid* fid, int command, void* out) {
  const Lock lock(world().mutex);
  if (command != FI_GETWAIT || fault_of(fault::kDescriptor) != 0) return -FI_ENOSYS;
  *static_cast<int*>(out) = object_of<Queue>(fid)->event;
  return 0;
}

// ---- messages and transfers ---------------------------------------------------------------------

ssize_t receive(fid_ep* fid, void* at, std::size_t bytes, void* descriptor, fi_addr_t, void* context) {
  const Lock lock(world().mutex);
  auto* endpoint = object_of<Endpoint>(fid);
  const Buffer buffer{at, bytes, descriptor, context};
  if (const int answer = check_local(*endpoint, buffer, FI_RECV); answer != 0) return answer;
  endpoint->receives.push_back(buffer);
  return 0;
}

ssize_t deliver(const Endpoint& from, const Buffer& buffer, fi_addr_t address) {
  const auto to = world().endpoints.find(from.vector->numbers.at(address));
  if (to == world().endpoints.end()) return -FI_ENOTCONN;
  Endpoint& target = *to->second;
  if (target.receives.empty()) return -FI_EAGAIN;
  const Buffer into = target.receives.front();
  target.receives.pop_front();
  if (buffer.bytes > into.bytes) {
    complete(*target.queue, into.context, 0, FI_ETRUNC);
  } else {
    const bool usable = check_local(target, into, FI_RECV) == 0;
    if (usable) std::memcpy(into.at, buffer.at, buffer.bytes);
    complete(*target.queue, into.context, buffer.bytes, usable ? 0 : FI_EINVAL);
  }
  return 0;
}
ssize_t send_message(fid_ep* fid, const void* at, std::size_t bytes, void* descriptor, fi_addr_t to, void* context) {
  const Lock lock(world().mutex);
  auto* endpoint = object_of<Endpoint>(fid);
  const Buffer buffer{const_cast<void*>(at), bytes, descriptor, context};
  if (const int answer = check_local(*endpoint, buffer, FI_SEND); answer != 0) return answer;
  const ssize_t answer = deliver(*endpoint, buffer, to);
  if (answer == 0 && fault_of(fault::kHold) != 0) {
    endpoint->held.push_back(context);
  } else if (answer == 0) {
    complete(*endpoint->queue, context, bytes);
  }
  return answer;
}
ssize_t inject_message(fid_ep* fid, const void* at, std::size_t bytes, fi_addr_t to) {
  const Lock lock(world().mutex);
  return deliver(*object_of<Endpoint>(fid), {const_cast<void*>(at), bytes, nullptr, nullptr}, to);
}

// `uses`: of the local memory; 0: none.
ssize_t begin(Endpoint& endpoint, Transfer transfer, fi_addr_t to, std::uint64_t uses) {
  if (endpoint.transfers.size() >= 64) return -FI_EAGAIN;
  if (uses != 0) {
    if (const int answer = check_local(endpoint, transfer.local, uses); answer != 0) return answer;
  }
  transfer.to = endpoint.vector->numbers.at(to);
  endpoint.transfers.push_back(std::move(transfer));
  ring(*endpoint.queue);
  return 0;
}
ssize_t read_memory(fid_ep* fid, void* at, std::size_t bytes, void* descriptor, fi_addr_t from, std::uint64_t address,
                    std::uint64_t key, void* context) {
  const Lock lock(world().mutex);
  return begin(*object_of<Endpoint>(fid), {Transfer::get, {at, bytes, descriptor, context}, {}, 0, address, key}, from,
               FI_READ);
}
ssize_t write_memory(fid_ep* fid, const fi_msg_rma* message, std::uint64_t flags) {
  const Lock lock(world().mutex);
  const iovec& local = *message->msg_iov;
  void* descriptor = message->desc != nullptr ? message->desc[0] : nullptr;
  Transfer transfer{Transfer::put,
                    {local.iov_base, local.iov_len, descriptor, message->context},
                    {},
                    0,
                    message->rma_iov->addr,
                    message->rma_iov->key};
  const bool injects = (flags & FI_INJECT) != 0;
  const auto* bytes = static_cast<const char*>(local.iov_base);
  if (injects) transfer.inject.assign(bytes, bytes + local.iov_len);
  return begin(*object_of<Endpoint>(fid), std::move(transfer), message->addr, injects ? 0 : FI_WRITE);
}
ssize_t compare_memory(fid_ep* fid, const void* at, std::size_t, void* descriptor, const void* compare,
                       void* compare_descriptor, void* result, void* result_descriptor, fi_addr_t to,
                       std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op, void* context) {
  const Lock lock(world().mutex);
  auto& endpoint = *object_of<Endpoint>(fid);
  const std::uint64_t bytes = type == FI_UINT64 ? 8 : 4;
  Transfer transfer{Transfer::atomic, {result, bytes, result_descriptor, context}, {}, 0, address, key, op};
  int answer = check_local(endpoint, {const_cast<void*>(at), bytes, descriptor, nullptr}, FI_WRITE);
  std::memcpy(&transfer.operand, at, bytes);
  if (answer == 0 && compare != nullptr) {
    answer = check_local(endpoint, {const_cast<void*>(compare), bytes, compare_descriptor, nullptr}, FI_WRITE);
    std::memcpy(&transfer.compare, compare, bytes);
  }
  return answer != 0 ? answer : begin(endpoint, transfer, to, FI_READ);
}
ssize_t change_memory(fid_ep* fid, const void* at, std::size_t count, void* descriptor, void* result,
                      void* result_descriptor, fi_addr_t to, std::uint64_t address, std::uint64_t key, fi_datatype type,
                      fi_op op, void* context) {
  return compare_memory(fid, at, count, descriptor, nullptr, nullptr, result, result_descriptor, to, address, key, type,
                        op, context);
}
int has_atomic(fid_ep*, fi_datatype, fi_op, std::size_t* count) {
  *count = 1;
  return 0;
}

// An adapter writes at any time to the memory that it was given.
void write_all(Endpoint& endpoint) {
  const auto mark = [](void* context) { std::memset(context, 0x55, sizeof(fi_context2)); };
  for (; !endpoint.held.empty(); endpoint.held.pop_front()) complete(*endpoint.queue, endpoint.held.front(), 0);
  for (; !endpoint.transfers.empty(); endpoint.transfers.pop_front()) execute(endpoint, endpoint.transfers.front());
  for (const fi_cq_msg_entry& entry : endpoint.queue->done) mark(entry.op_context);
  for (const fi_cq_err_entry& entry : endpoint.queue->failed) mark(entry.op_context);
  for (const Buffer& receive : endpoint.receives) {
    static_cast<void>(check_local(endpoint, receive, FI_RECV));
    std::memset(receive.at, 0x55, receive.bytes);
    mark(receive.context);
  }
}

// ---- endpoints and domains ----------------------------------------------------------------------

int get_name(struct fid* fid, void* name, std::size_t* bytes) {
  const std::size_t room = *bytes;
  *bytes = sizeof(std::uint64_t);
  if (room < *bytes) return -FI_ETOOSMALL;
  std::memcpy(name, &object_of<Endpoint>(fid)->number, *bytes);
  return 0;
}
int close_endpoint(struct fid* fid) {
  const Lock lock(world().mutex);
  auto* endpoint = object_of<Endpoint>(fid);
  if (fault_of(fault::kBusy) != 0) {
    world().busy = endpoint->kept = true;
    return -FI_EBUSY;
  }
  if (world().busy && endpoint->regions != 0) return -FI_EBUSY;
  if (endpoint->regions != 0) return refuse(FI_EBUSY, "%d regions are bound to a closed endpoint", endpoint->regions);
  if (endpoint->queue != nullptr) endpoint->queue->endpoints.erase(endpoint);
  world().endpoints.erase(endpoint->number);
  --endpoint->domain->uses;
  delete endpoint;
  return 0;
}
int bind_endpoint(struct fid* fid, struct fid* to, std::uint64_t) {
  const Lock lock(world().mutex);
  auto* endpoint = object_of<Endpoint>(fid);
  if (to->fclass == FI_CLASS_AV) {
    endpoint->vector = object_of<Vector>(to);
  } else {
    endpoint->queue = object_of<Queue>(to);
    endpoint->queue->endpoints.insert(endpoint);
  }
  return 0;
}
int enable_endpoint(struct fid*, int, void*) {
  return 0;
}

int open_endpoint(fid_domain* fid, fi_info*, fid_ep** out, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) {
    all.close = close_endpoint;
    all.bind = bind_endpoint;
    all.control = enable_endpoint;
  });
  static auto cm = table<fi_ops_cm>([](fi_ops_cm& all) { all.getname = get_name; });
  static auto msg = table<fi_ops_msg>([](fi_ops_msg& all) {
    all.recv = receive;
    all.send = send_message;
    all.inject = inject_message;
  });
  static auto rma = table<fi_ops_rma>([](fi_ops_rma& all) {
    all.read = read_memory;
    all.writemsg = write_memory;
  });
  static auto atomic = table<fi_ops_atomic>([](fi_ops_atomic& all) {
    all.readwrite = change_memory;
    all.compwrite = compare_memory;
    all.readwritevalid = all.compwritevalid = has_atomic;
  });
  const Lock lock(world().mutex);
  auto* endpoint = make_object<Endpoint>(FI_CLASS_EP, ops, out);
  endpoint->fid.cm = &cm;
  endpoint->fid.msg = &msg;
  endpoint->fid.rma = &rma;
  endpoint->fid.atomic = &atomic;
  endpoint->domain = object_of<Domain>(fid);
  endpoint->number = world().next++;
  ++endpoint->domain->uses;
  world().endpoints[endpoint->number] = endpoint;
  return 0;
}

int insert_address(fid_av* fid, const void* address, std::size_t, fi_addr_t* out, std::uint64_t flags, void* why) {
  const Lock lock(world().mutex);
  auto* vector = object_of<Vector>(fid);
  if (int& left = fault_of(fault::kAddresses); left != 0) {
    --left;
    if ((flags & FI_SYNC_ERR) != 0) *static_cast<int*>(why) = fault_of(fault::kWhy);
    *out = FI_ADDR_NOTAVAIL;
    return 0;
  }
  *out = vector->numbers.size();
  vector->numbers.emplace_back();
  std::memcpy(&vector->numbers.back(), address, sizeof(std::uint64_t));
  return 1;
}
int open_vector(fid_domain*, fi_av_attr*, fid_av** out, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) { all.close = delete_object<Vector>; });
  static auto av = table<fi_ops_av>([](fi_ops_av& all) { all.insert = insert_address; });
  make_object<Vector>(FI_CLASS_AV, ops, out)->fid.ops = &av;
  return 0;
}
int open_queue(fid_domain*, fi_cq_attr*, fid_cq** out, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) {
    all.close = close_queue;
    all.control = control_queue;
  });
  static auto cq = table<fi_ops_cq>([](fi_ops_cq& all) {
    all.read = read_queue;
    all.readerr = read_error;
  });
  auto* queue = make_object<Queue>(FI_CLASS_CQ, ops, out);
  queue->fid.ops = &cq;
  queue->event = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return 0;
}
int close_domain(struct fid* fid) {
  const Lock lock(world().mutex);
  auto* domain = object_of<Domain>(fid);
  if (world().busy && domain->uses != 0) return -FI_EBUSY;
  if (domain->uses != 0) return refuse(FI_EBUSY, "%d objects are open in a closed domain", domain->uses);
  --world().domains;
  delete domain;
  return 0;
}
int open_domain(fid_fabric*, fi_info*, fid_domain** out, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) { all.close = close_domain; });
  static auto domains = table<fi_ops_domain>([](fi_ops_domain& all) {
    all.av_open = open_vector;
    all.cq_open = open_queue;
    all.endpoint = open_endpoint;
  });
  static auto mr = table<fi_ops_mr>([](fi_ops_mr& all) { all.reg = register_region; });
  const Lock lock(world().mutex);
  auto* domain = make_object<Domain>(FI_CLASS_DOMAIN, ops, out);
  domain->fid.ops = &domains;
  domain->fid.mr = &mr;
  ++world().domains;
  return 0;
}

}  // namespace

// ---- what is called by name; the rest is in ofi_strict_info.cpp ---------------------------------

extern "C" {

void strict_fabric_write() {
  const Lock lock(world().mutex);
  std::erase_if(world().endpoints, [](const auto& one) {
    write_all(*one.second);
    return one.second->kept;  // a later test shall not meet it
  });
}

int fi_fabric(fi_fabric_attr*, fid_fabric** out, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) { all.close = delete_object<Fabric>; });
  static auto fabrics = table<fi_ops_fabric>([](fi_ops_fabric& all) {
    all.domain = open_domain;
    all.trywait = try_wait;
  });
  make_object<Fabric>(FI_CLASS_FABRIC, ops, out)->fid.ops = &fabrics;
  return 0;
}

}  // extern "C"
