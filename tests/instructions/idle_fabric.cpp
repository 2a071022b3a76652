// A libfabric whose only provider does the minimum: puts and gets are a copy of memory, messages a
// copy into a receive of an endpoint of this process. It is for counting the instructions that
// Heddle adds to libfabric: HEDDLE_LIBRARIES=ofi=…, HEDDLE_OFI_PROVIDER=idle.
//
// It has the functions that Heddle's ofi transport calls. Each queue has a mutex, for itself and
// the receives of its endpoint: workers do not wait for each other.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "transport/test/ofi_objects.hpp"

namespace {

using namespace heddle::transport::ofi::test;

// ---- infos --------------------------------------------------------------------------------------

// All parts of one in one piece, but the names that a caller may set.
struct Whole {
  fi_info info{};
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr ep{};
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};
  char name[8] = "idle";
};

Whole* link(Whole* whole) {
  whole->info.next = nullptr;
  whole->info.tx_attr = &whole->tx;
  whole->info.rx_attr = &whole->rx;
  whole->info.ep_attr = &whole->ep;
  whole->info.domain_attr = &whole->domain;
  whole->info.fabric_attr = &whole->fabric;
  return whole;
}

// ---- objects ------------------------------------------------------------------------------------

struct Fabric {
  fid_fabric fid{};
};
struct Domain {
  fid_domain fid{};
};
struct Region {
  fid_mr fid{};
};

struct Queue {
  fid_cq fid{};
  std::mutex mutex;  // guards what follows, and the receives of its endpoint
  std::deque<fi_cq_msg_entry> entries;
  int descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  bool armed = false;
  ~Queue() { ::close(descriptor); }
  void add(void* context, std::uint64_t flags, std::size_t bytes) {
    entries.push_back({context, flags, bytes});
    if (!armed) return;
    armed = false;
    eventfd_write(descriptor, 1);
  }
};

struct Endpoint;
struct Addresses {
  fid_av fid{};
  std::vector<Endpoint*> known;
};

struct Endpoint {
  fid_ep fid{};
  Queue* queue = nullptr;
  Addresses* addresses = nullptr;
  struct Receive {
    void* data;
    std::size_t bytes;
    void* context;
  };
  std::deque<Receive> receives;
};

// ---- what Heddle calls for each operation -------------------------------------------------------

void end(fid_ep* ep, void* context, std::uint64_t flags, size_t bytes) {
  Queue* queue = object_of<Endpoint>(ep)->queue;
  const std::lock_guard lock(queue->mutex);
  queue->add(context, flags, bytes);
}

ssize_t post_receive(fid_ep* ep, void* data, size_t bytes, void*, fi_addr_t, void* context) {
  const std::lock_guard lock(object_of<Endpoint>(ep)->queue->mutex);
  object_of<Endpoint>(ep)->receives.push_back({data, bytes, context});
  return 0;
}

ssize_t deliver(Endpoint* from, const void* data, size_t bytes, fi_addr_t to) {
  Endpoint* target = from->addresses->known[to];
  const std::lock_guard lock(target->queue->mutex);
  if (target->receives.empty()) return -FI_EAGAIN;
  const Endpoint::Receive receive = target->receives.front();
  if (bytes > receive.bytes) return -FI_EMSGSIZE;
  target->receives.pop_front();
  std::memcpy(receive.data, data, bytes);
  target->queue->add(receive.context, FI_RECV | FI_MSG, bytes);
  return 0;
}

ssize_t send(fid_ep* ep, const void* data, size_t bytes, void*, fi_addr_t to, void* context) {
  const ssize_t answer = deliver(object_of<Endpoint>(ep), data, bytes, to);
  if (answer == 0) end(ep, context, FI_SEND | FI_MSG, bytes);
  return answer;
}

ssize_t inject(fid_ep* ep, const void* data, size_t bytes, fi_addr_t to) {
  return deliver(object_of<Endpoint>(ep), data, bytes, to);
}

ssize_t write_message(fid_ep* ep, const fi_msg_rma* message, std::uint64_t /*flags*/) {
  const iovec& local = message->msg_iov[0];
  std::memcpy(reinterpret_cast<void*>(message->rma_iov[0].addr), local.iov_base, local.iov_len);
  end(ep, message->context, FI_WRITE | FI_RMA, local.iov_len);
  return 0;
}

ssize_t read(fid_ep* ep, void* data, size_t bytes, void*, fi_addr_t, std::uint64_t address, std::uint64_t,
             void* context) {
  std::memcpy(data, reinterpret_cast<const void*>(address), bytes);
  end(ep, context, FI_READ | FI_RMA, bytes);
  return 0;
}

ssize_t read_queue(fid_cq* cq, void* out, size_t count) {
  auto* queue = object_of<Queue>(cq);
  const std::lock_guard lock(queue->mutex);
  auto* to = static_cast<fi_cq_msg_entry*>(out);
  size_t done = 0;
  for (; done < count && !queue->entries.empty(); ++done) {
    to[done] = queue->entries.front();
    queue->entries.pop_front();
  }
  return done != 0 ? static_cast<ssize_t>(done) : -FI_EAGAIN;
}

ssize_t read_error(fid_cq*, fi_cq_err_entry*, std::uint64_t) {
  return -FI_EAGAIN;
}

int try_wait(fid_fabric*, fid** queues, int) {
  auto* queue = object_of<Queue>(queues[0]);
  const std::lock_guard lock(queue->mutex);
  if (!queue->entries.empty()) return -FI_EAGAIN;
  eventfd_t ignored = 0;
  eventfd_read(queue->descriptor, &ignored);
  queue->armed = true;
  return 0;
}

// ---- opening ------------------------------------------------------------------------------------

int bind_endpoint(fid* ep, fid* other, std::uint64_t) {
  if (other->fclass == FI_CLASS_CQ) object_of<Endpoint>(ep)->queue = object_of<Queue>(other);
  if (other->fclass == FI_CLASS_AV) object_of<Endpoint>(ep)->addresses = object_of<Addresses>(other);
  return 0;
}
int control_endpoint(fid*, int, void*) {
  return 0;
}
int control_queue(fid* queue, int, void* out) {
  *static_cast<int*>(out) = object_of<Queue>(queue)->descriptor;
  return 0;
}

// An endpoint's address is where it is.
int name_endpoint(fid* ep, void* out, size_t* bytes) {
  const size_t room = *bytes;
  *bytes = sizeof ep;
  if (room < sizeof ep) return -FI_ETOOSMALL;
  std::memcpy(out, &ep, sizeof ep);
  return 0;
}
int insert_addresses(fid_av* av, const void* address, size_t, fi_addr_t* number, std::uint64_t, void*) {
  auto& known = object_of<Addresses>(av)->known;
  *number = known.size();
  std::memcpy(&known.emplace_back(), address, sizeof(Endpoint*));
  return 1;
}

int open_addresses(fid_domain*, fi_av_attr*, fid_av** av, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) { all.close = delete_object<Addresses>; });
  static auto calls = table<fi_ops_av>([](fi_ops_av& all) { all.insert = insert_addresses; });
  make_object<Addresses>(FI_CLASS_AV, ops, av)->fid.ops = &calls;
  return 0;
}

int open_queue(fid_domain*, fi_cq_attr*, fid_cq** cq, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) {
    all.close = delete_object<Queue>;
    all.control = control_queue;
  });
  static auto calls = table<fi_ops_cq>([](fi_ops_cq& all) {
    all.read = read_queue;
    all.readerr = read_error;
  });
  make_object<Queue>(FI_CLASS_CQ, ops, cq)->fid.ops = &calls;
  return 0;
}

int open_endpoint(fid_domain*, fi_info*, fid_ep** ep, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) {
    all.close = delete_object<Endpoint>;
    all.bind = bind_endpoint;
    all.control = control_endpoint;
  });
  static auto names = table<fi_ops_cm>([](fi_ops_cm& all) { all.getname = name_endpoint; });
  static auto messages = table<fi_ops_msg>([](fi_ops_msg& all) {
    all.recv = post_receive;
    all.send = send;
    all.inject = inject;
  });
  static auto transfers = table<fi_ops_rma>([](fi_ops_rma& all) {
    all.read = read;
    all.writemsg = write_message;
  });
  auto* opened = make_object<Endpoint>(FI_CLASS_EP, ops, ep);
  opened->fid.cm = &names;
  opened->fid.msg = &messages;
  opened->fid.rma = &transfers;
  return 0;
}

int register_memory(fid*, const void*, size_t, std::uint64_t, std::uint64_t, std::uint64_t key, std::uint64_t,
                    fid_mr** mr, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) { all.close = delete_object<Region>; });
  make_object<Region>(FI_CLASS_MR, ops, mr)->fid.key = key;
  return 0;
}

int open_domain(fid_fabric*, fi_info*, fid_domain** domain, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) { all.close = delete_object<Domain>; });
  static auto calls = table<fi_ops_domain>([](fi_ops_domain& all) {
    all.av_open = open_addresses;
    all.cq_open = open_queue;
    all.endpoint = open_endpoint;
  });
  static auto memory = table<fi_ops_mr>([](fi_ops_mr& all) { all.reg = register_memory; });
  auto* opened = make_object<Domain>(FI_CLASS_DOMAIN, ops, domain);
  opened->fid.ops = &calls;
  opened->fid.mr = &memory;
  return 0;
}

}  // namespace

// ---- libfabric's own functions, whose versions are in idle_fabric.map ---------------------------

extern "C" {

std::uint32_t fi_version() {
  return FI_VERSION(1, 17);
}

const char* fi_strerror(int error) {
  return ::strerror(error);
}

fi_info* fi_dupinfo(const fi_info* info) {
  Whole* whole = link(info != nullptr ? new Whole(*reinterpret_cast<const Whole*>(info)) : new Whole);
  if (info != nullptr && info->fabric_attr->prov_name != nullptr)
    whole->fabric.prov_name = strdup(info->fabric_attr->prov_name);
  return &whole->info;
}

void fi_freeinfo(fi_info* info) {
  if (info == nullptr) return;
  std::free(info->fabric_attr->prov_name);
  delete reinterpret_cast<Whole*>(info);
}

int fi_getinfo(std::uint32_t, const char*, const char*, std::uint64_t, const fi_info* hints, fi_info** list) {
  fi_info* info = fi_dupinfo(hints);
  auto* whole = reinterpret_cast<Whole*>(info);
  if (whole->fabric.prov_name == nullptr) whole->fabric.prov_name = strdup("idle");
  whole->fabric.name = whole->domain.name = whole->name;
  whole->domain.mr_mode = FI_MR_VIRT_ADDR;
  whole->tx.inject_size = 4096;
  whole->ep.max_msg_size = std::size_t{1} << 30;
  *list = info;
  return 0;
}

int fi_fabric(fi_fabric_attr*, fid_fabric** fabric, void*) {
  static auto ops = table<fi_ops>([](fi_ops& all) { all.close = delete_object<Fabric>; });
  static auto calls = table<fi_ops_fabric>([](fi_ops_fabric& all) {
    all.domain = open_domain;
    all.trywait = try_wait;
  });
  auto* opened = make_object<Fabric>(FI_CLASS_FABRIC, ops, fabric);
  opened->fid.ops = &calls;
  opened->fid.api_version = FI_VERSION(1, 17);
  return 0;
}

}  // extern "C"
