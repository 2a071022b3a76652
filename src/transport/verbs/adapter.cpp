#include "transport/verbs/adapter.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

namespace heddle::transport::verbs {
namespace {

// A port that works.
struct Candidate {
  ibv_device* device;
  std::uint8_t port;
  std::string name;  // with the port
  bool near;         // on the NUMA node of the calling thread
};

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

// All ports that are up. The kernel's files say so, so that no device is opened in vain.
std::vector<Candidate> candidates_of(const Functions& call, ibv_device** devices, int count) {
  std::vector<Candidate> all;
  for (int i = 0; i < count; ++i) {
    const std::string name = call.get_device_name(devices[i]);
    for (std::uint8_t port = 1; port <= 4; ++port) {
      const std::string state = first_line(folder_of(devices[i]) + "ports/" + std::to_string(port) + "/state");
      if (state.find("ACTIVE") == std::string::npos) continue;
      all.push_back({devices[i], port, name + ":" + std::to_string(port), is_near(devices[i])});
    }
  }
  std::vector<Candidate> sorted;  // the near ones first, else as they are
  for (const bool near : {true, false}) {
    for (const Candidate& one : all) {
      if (one.near == near) sorted.push_back(one);
    }
  }
  return sorted;
}

bool fits(const Candidate& candidate, const std::string& wanted) {
  return wanted.empty() || candidate.name == wanted || candidate.name.substr(0, candidate.name.find(':')) == wanted;
}

// RoCE has several GIDs a port. The second version over IPv4 crosses routers, and is what networks
// are set up for; the first entry is what is left.
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

}  // namespace

base::Result<std::unique_ptr<Adapter>> Adapter::open(const Library& library, const base::Config& config) {
  const Functions& call = library.call();
  const std::string& wanted = config.text(base::Var::verbs_device);
  int count = 0;
  ibv_device** devices = (call.get_device_list)(&count);
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> owned(devices, call.free_device_list);
  const std::vector<Candidate> all = candidates_of(call, devices, devices != nullptr ? count : 0);
  const auto chosen = std::ranges::find_if(all, [&](const Candidate& one) { return fits(one, wanted); });
  if (chosen == all.end()) {
    std::string names;
    for (const Candidate& one : all) names += (names.empty() ? "" : ", ") + one.name;
    return base::fail(HEDDLE_ERR_CONFIG, "there is no RDMA adapter with a port that is up%s%s%s; there are: %s",
                      wanted.empty() ? "" : " for HEDDLE_VERBS_DEVICE=\"", wanted.c_str(), wanted.empty() ? "" : "\"",
                      names.empty() ? "none" : names.c_str());
  }
  std::unique_ptr<Adapter> adapter(new Adapter(library));
  adapter->name_ = chosen->name;
  const std::string& index = config.text(base::Var::verbs_gid_index);
  int gid = 0;
  if (index.empty()) {
    gid = best_gid(chosen->device, chosen->port);
  } else if (std::from_chars(index.data(), index.data() + index.size(), gid).ptr != index.data() + index.size()) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_VERBS_GID_INDEX=\"%s\" is no number", index.c_str());
  }
  if (const base::Status status = adapter->set_up(chosen->device, chosen->port, gid); status != HEDDLE_DONE)
    return status;
  return adapter;
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

ibv_ah_attr Adapter::way_to(const Address& peer) const {
  ibv_ah_attr way{};
  way.port_num = port_;
  way.dlid = peer.lid;
  if (!by_gid_) return way;
  way.is_global = 1;
  way.grh.sgid_index = gid_index_;
  way.grh.hop_limit = 64;
  std::memcpy(way.grh.dgid.raw, peer.gid, sizeof peer.gid);
  return way;
}

}  // namespace heddle::transport::verbs
