#include "transport/verbs/adapter.hpp"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

namespace heddle::transport::verbs {

base::Result<const Library*> Library::open(const std::string& name) {
  return network::open_once<Library>(name, [&]() -> base::Result<std::unique_ptr<Library>> {
    const auto handle =
        network::load_library(name, "it (Debian: libibverbs1, ibverbs-providers)", "HEDDLE_LIBRARIES=verbs=…");
    if (!handle) return handle.status();
    std::unique_ptr<Library> library(new Library);
    library->call_ = Functions(*handle);
    if (!library->call_.complete()) return base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is no libibverbs", name.c_str());
    // Before any memory is registered. The child of a fork then lacks what the adapter uses, unless
    // the kernel copies that (5.12): else the parent's next write would give the parent a new page,
    // and the adapter would go on with the old one. It fails where another library has registered
    // memory before; UCX goes on then too.
    static_cast<void>(library->call_.fork_init());
    return library;
  });
}

// A port that works.
struct Candidate {
  ibv_device* device;
  std::uint8_t port;
  std::string name;  // with the port
  bool near;         // on the NUMA node of the calling thread
};

namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The kernel's files about a device.
std::string folder_of(const ibv_device* device) {
  return std::string(device->ibdev_path) + "/";
}

bool is_near(const ibv_device* device) {
  unsigned cpu = 0;
  unsigned node = 0;
  if (::getcpu(&cpu, &node) != 0) return false;
  const std::string its = first_line(folder_of(device) + "device/numa_node");
  return its.empty() || its == "-1" || its == std::to_string(node);
}

// The ports as the kernel's files describe them, so that no device is opened in vain.
struct Found {
  std::vector<Candidate> up;  // the near ones first, else as they are
  std::string down;           // the others, for errors
  std::string left_out;       // devices, and what they lack

  void leave_out(const std::string& name, const std::string& why) {
    std::erase_if(up, [&name](const Candidate& one) { return one.name == name; });
    left_out.append(left_out.empty() ? "" : ", ").append(name).append(" (").append(why).append(")");
  }
};

// Why this transport cannot use such a device, as far as its kind shows that. Null: perhaps it can.
const char* lacks(const ibv_device* device) {
  switch (device->transport_type) {
    case IBV_TRANSPORT_IB:  // RoCE too
      return nullptr;
    case IBV_TRANSPORT_IWARP:
      return "iWARP has neither datagrams nor writes with immediate data";
    default:  // EFA, usNIC
      return "neither InfiniBand nor RoCE; HEDDLE_TRANSPORTS=shm,ofi may use it";
  }
}

Found ports_of(const Functions& call, ibv_device** devices, int count) {
  Found found;
  std::vector<Candidate> far;
  for (int i = 0; i < count; ++i) {
    const std::string name = call.get_device_name(devices[i]);
    if (const char* why = lacks(devices[i]); why != nullptr) {
      found.leave_out(name, why);
      continue;
    }
    const bool near = is_near(devices[i]);
    for (std::uint8_t port = 1; port <= 4; ++port) {
      const std::string state = first_line(folder_of(devices[i]) + "ports/" + std::to_string(port) + "/state");
      const std::string its = name + ":" + std::to_string(port);
      if (state.find("ACTIVE") != std::string::npos) {
        (near ? found.up : far).push_back({devices[i], port, its, near});
      } else if (!state.empty()) {
        found.down.append(found.down.empty() ? "" : ", ").append(its).append(" (").append(state).append(")");
      }
    }
  }
  found.up.insert(found.up.end(), far.begin(), far.end());
  return found;
}

// Says what was found, and what to do.
base::Status no_adapter(const Found& found, int devices, const std::string& wanted) {
  constexpr const char* kElse = "or use another network: HEDDLE_TRANSPORTS=shm,ucx or shm,ofi";
  if (!found.up.empty()) {
    std::string names;
    for (const Candidate& one : found.up) names += (names.empty() ? "" : ", ") + one.name;
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_NET_DEVICES: \"%s\" names no RDMA port that is up; up: %s%s%s%s%s",
                      wanted.c_str(), names.c_str(), found.down.empty() ? "" : "; not: ", found.down.c_str(),
                      found.left_out.empty() ? "" : "; left out: ", found.left_out.c_str());
  }
  if (found.down.empty() && !found.left_out.empty()) {
    return base::fail(HEDDLE_ERR_CONFIG, "the transport verbs can use none of the RDMA adapters: %s; %s",
                      found.left_out.c_str(), kElse);
  }
  if (devices != 0) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "no port of an RDMA adapter is up: %s%s%s; look at the cable and the network (`rdma link`), %s",
                      found.down.empty() ? "none of them has a port" : found.down.c_str(),
                      found.left_out.empty() ? "" : "; left out: ", found.left_out.c_str(), kElse);
  }
  return base::fail(
      HEDDLE_ERR_CONFIG,
      "libibverbs finds no RDMA adapter; if the machine has one, load its kernel module (such as mlx5_ib, "
      "irdma, bnxt_re, with ib_uverbs) and install its user-space driver (Debian: ibverbs-providers), %s",
      kElse);
}

bool fits(const Candidate& candidate, const std::string& wanted) {
  return wanted.empty() || candidate.name == wanted || candidate.name.substr(0, candidate.name.find(':')) == wanted;
}

// RoCE has several GIDs for each port. The second version over IPv4 crosses routers, and networks
// are set up for it. Otherwise the first entry is used.
int best_gid(const ibv_device* device, std::uint8_t port) {
  const std::string folder = folder_of(device) + "ports/" + std::to_string(port) + "/";
  int best = -1;
  for (int index = 0; index < 32; ++index) {
    const std::string type = first_line(folder + "gid_attrs/types/" + std::to_string(index));
    const std::string gid = first_line(folder + "gids/" + std::to_string(index));
    if (type.empty() || gid.find_first_not_of("0:") == std::string::npos) continue;
    if (type == "RoCE v2" && gid.starts_with("0000:0000:0000:0000:0000:ffff:")) return index;
    if (best < 0) best = index;
  }
  return std::max(best, 0);
}

constexpr const char* kAuto = "auto";

// The names that a setting lists; one that is empty for any adapter.
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

base::Status fail_devices(const std::string& several) {
  return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_NET_DEVICES=\"%s\": give auto, or up to %zu different adapters",
                    several.c_str(), kMostAdapters);
}

// The ports that the settings say. CONFIG.
base::Result<std::vector<const Candidate*>> choose(const Found& found, int devices, const base::Config& config) {
  const std::string& several = config.text(base::Var::network_devices);
  std::vector<const Candidate*> chosen;
  const bool all_near = several == kAuto;
  for (const std::string& name : names_in(all_near ? "" : several)) {
    const auto it = std::ranges::find_if(found.up, [&](const Candidate& up) { return fits(up, name); });
    if (it == found.up.end()) return no_adapter(found, devices, name);
    // as "mlx5_0" and "mlx5_0:1"
    if (std::ranges::find(chosen, &*it) != chosen.end()) return fail_devices(several);
    chosen.push_back(&*it);
  }
  for (const Candidate& up : found.up) {
    if (all_near && chosen.size() < kMostAdapters && &up != chosen.front() && up.near == chosen.front()->near)
      chosen.push_back(&up);
  }
  return chosen;
}

}  // namespace

base::Status Adapter::check_settings(const base::Config& config) {
  const std::string& several = config.text(base::Var::network_devices);
  if (several.empty()) return HEDDLE_DONE;
  std::vector<std::string> names = names_in(several);
  const std::size_t count = names.size();
  std::ranges::sort(names);
  const bool twice = std::ranges::adjacent_find(names) != names.end();
  const bool several_and_auto = count > 1 && std::ranges::find(names, kAuto) != names.end();
  if (count > kMostAdapters || twice || names.front().empty() || several_and_auto) return fail_devices(several);
  return HEDDLE_DONE;
}

// Only an open device says whether it has shared receive queues: if it has none, the choice is made
// anew without it.
base::Result<Adapter::Opened> Adapter::open(const Library& library, const base::Config& config) {
  const Functions& call = library.call();
  int count = 0;
  ibv_device** devices = (call.get_device_list)(&count);
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> owned(devices, call.free_device_list);
  if (devices == nullptr) count = 0;
  Found found = ports_of(call, devices, count);
  for (;;) {
    const auto chosen = choose(found, count, config);
    if (!chosen) return chosen.status();
    std::string unfit;
    auto adapters = open_all(library, config, *chosen, &unfit);
    if (adapters) return Opened{std::move(*adapters), std::move(found.left_out)};
    if (adapters.status() != HEDDLE_ERR_UNSUPPORTED) return adapters.status();
    found.leave_out(unfit, base::last_message());
  }
}

base::Result<std::vector<std::unique_ptr<Adapter>>> Adapter::open_all(const Library& library,
                                                                      const base::Config& config,
                                                                      const std::vector<const Candidate*>& chosen,
                                                                      std::string* unfit) {
  const std::string& index = config.text(base::Var::verbs_gid_index);
  std::uint8_t gid = 0;
  const char* const end = index.data() + index.size();
  const auto read = std::from_chars(index.data(), end, gid);
  if (!index.empty() && (read.ec != std::errc() || read.ptr != end))
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_VERBS_GID_INDEX=\"%s\" is no number from 0 to 255", index.c_str());
  std::vector<std::unique_ptr<Adapter>> adapters;
  for (const Candidate* one : chosen) {
    std::unique_ptr<Adapter> adapter(new Adapter(library));
    adapter->name_ = one->name;
    const int its = index.empty() ? best_gid(one->device, one->port) : gid;
    if (const base::Status status = adapter->set_up(one->device, one->port, its); status != HEDDLE_DONE) {
      *unfit = one->name;
      return status;
    }
    if (!adapters.empty() && !adapter->shares_network_with(*adapters.front())) {
      if (config.text(base::Var::network_devices) == kAuto) continue;
      return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_NET_DEVICES: %s and %s are in different networks",
                        adapters.front()->name().c_str(), adapter->name().c_str());
    }
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

// The subnet is known on InfiniBand; nothing is known on RoCE.
bool Adapter::shares_network_with(const Adapter& other) const {
  return by_gid_ == other.by_gid_ &&
         (by_gid_ || std::memcmp(address_.gid, other.address_.gid, sizeof address_.gid / 2) == 0);
}

base::Status Adapter::set_up(ibv_device* device, std::uint8_t port, int gid_index) {
  context_ = call_.open_device(device);
  if (context_ == nullptr) return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s cannot be opened", name_.c_str());
  domain_ = call_.alloc_pd(context_);
  if (domain_ == nullptr) return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no protection domain", name_.c_str());
  ibv_port_attr about{};
  // the shape that the library has had since its beginning is the first part of this one
  if (call_.query_device(context_, &limits_) != 0 ||
      (call_.query_port)(context_, port, reinterpret_cast<_compat_ibv_port_attr*>(&about)) != 0)
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s says nothing of its port", name_.c_str());
  if (limits_.max_srq <= 0 || limits_.max_srq_wr <= 0)
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "it has no shared receive queues");
  ibv_gid gid{};
  if (call_.query_gid(context_, port, gid_index, &gid) != 0)
    return base::fail_errno(HEDDLE_ERR_CONFIG, "%s has no GID %d (HEDDLE_VERBS_GID_INDEX)", name_.c_str(), gid_index);
  port_ = port;
  gid_index_ = static_cast<std::uint8_t>(gid_index);
  by_gid_ = about.link_layer == IBV_LINK_LAYER_ETHERNET || about.lid == 0;
  most_bytes_ = about.max_msg_sz;
  std::memcpy(address_.gid, gid.raw, sizeof address_.gid);
  address_.mtu = about.active_mtu;
  address_.reads = static_cast<std::uint16_t>(std::min(limits_.max_qp_rd_atom, 16));
  address_.lid = by_gid_ ? 0 : about.lid;
  return HEDDLE_DONE;
}

Adapter::~Adapter() {
  if (domain_ != nullptr) call_.dealloc_pd(domain_);
  if (context_ != nullptr) call_.close_device(context_);
}

ibv_ah_attr Adapter::route_to(const PortAddress& peer) const {
  ibv_ah_attr route{};
  route.port_num = port_;
  route.dlid = peer.lid;
  if (!by_gid_) return route;
  route.is_global = 1;
  route.grh.sgid_index = gid_index_;
  route.grh.hop_limit = 64;
  std::memcpy(route.grh.dgid.raw, peer.gid, sizeof peer.gid);
  return route;
}

base::Status CompletionChannel::open(const Adapter& adapter) {
  adapter_ = &adapter;
  channel_ = adapter.call().create_comp_channel(adapter.context());
  if (channel_ == nullptr || ::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0)
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no completion channel", adapter.name().c_str());
  return HEDDLE_DONE;
}

void CompletionChannel::close() {
  if (channel_ != nullptr) adapter_->call().destroy_comp_channel(channel_);
  channel_ = nullptr;
}

void CompletionChannel::drain() {
  ibv_cq* queue = nullptr;
  void* nothing = nullptr;
  while (adapter_->call().get_cq_event(channel_, &queue, &nothing) == 0) adapter_->call().ack_cq_events(queue, 1);
}

base::Status CompletionQueue::open(const Adapter& adapter, const CompletionChannel& channel, std::uint32_t entries,
                                   void* owner) {
  adapter_ = &adapter;
  queue_ = adapter.call().create_cq(adapter.context(), static_cast<int>(entries), owner, channel.get(), 0);
  if (queue_ != nullptr) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no completion queue of %u entries", adapter.name().c_str(),
                          entries);
}

void CompletionQueue::close() {
  if (queue_ != nullptr) adapter_->call().destroy_cq(queue_);
  queue_ = nullptr;
}

namespace {

// To connect over RoCE, the kernel looks for the neighbour's address, which may not be known yet.
bool is_passing(int error) {
  return error == EAGAIN || error == ENOMEM || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
}

}  // namespace

bool prepare_pair(const Adapter& adapter, ibv_qp* pair) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = adapter.port();
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return adapter.call().modify_qp(pair, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0;
}

base::Status connect_pair(const Adapter& adapter, ibv_qp* pair, std::uint32_t number, const PortAddress& address) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = static_cast<ibv_mtu>(std::min(adapter.address().mtu, address.mtu));
  to.dest_qp_num = number;
  to.max_dest_rd_atomic = static_cast<std::uint8_t>(adapter.address().reads);
  to.min_rnr_timer = 12;  // 0.64 ms
  to.ah_attr = adapter.route_to(address);
  int failed = adapter.call().modify_qp(pair, &to,
                                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (is_passing(failed)) return HEDDLE_AGAIN;
  if (failed == 0) {
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 18;  // a packet without an answer is sent again after 1 s, seven times
    to.retry_cnt = 7;
    to.rnr_retry = 7;  // for ever: a receiver that computes is not lost
    // not more RDMA reads than the peer's adapter answers at a time: it may be another model
    to.max_rd_atomic = static_cast<std::uint8_t>(std::min<int>(adapter.limits().max_qp_init_rd_atom, address.reads));
    failed = adapter.call().modify_qp(
        pair, &to,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  if (failed == 0) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "%s does not connect a queue pair: %s", adapter.name().c_str(),
                    std::strerror(failed));
}

void stop_pair(const Adapter& adapter, ibv_qp* pair) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_ERR;
  static_cast<void>(adapter.call().modify_qp(pair, &to, IBV_QP_STATE));
}

}  // namespace heddle::transport::verbs
