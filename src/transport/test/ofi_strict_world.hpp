// The objects of ofi_strict_fabric.cpp, and what it checks before an endpoint uses memory; the
// faults that a test asks for, by strict_fabric_fault() in its library.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::transport::ofi::strict {

struct Fabric {
  fid_fabric fid{};
};
struct Domain {
  fid_domain fid{};
  int uses = 0;  // regions and endpoints that are open
};
struct Endpoint;
struct Region {
  fid_mr fid{};
  Domain* domain = nullptr;
  Endpoint* endpoint = nullptr;
  const char* address = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t access = 0;
  bool enabled = false;
};
struct Queue {
  fid_cq fid{};
  int event = -1;
  std::deque<fi_cq_msg_entry> done;
  std::deque<fi_cq_err_entry> failed;
  std::set<Endpoint*> endpoints;
};
struct Vector {
  fid_av fid{};
  std::vector<std::uint64_t> numbers;  // of endpoints
};
struct Buffer {
  void* at;
  std::uint64_t bytes;
  void* descriptor;
  void* context;
};
struct Transfer {
  enum Kind { put, get, atomic } kind;
  Buffer local;
  std::vector<char> inject;  // instead of the local bytes
  std::uint64_t to;
  std::uint64_t address;
  std::uint64_t key;
  fi_op op = FI_SUM;  // of an atomic: local is the result
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  int reads = 0;
};
struct Endpoint {
  fid_ep fid{};
  std::uint64_t number = 0;
  Domain* domain = nullptr;
  Queue* queue = nullptr;
  Vector* vector = nullptr;
  std::deque<Buffer> receives;
  std::deque<Transfer> transfers;
  std::deque<void*> held;  // contexts of messages that have left; see Fault::hold
  int regions = 0;         // for remote access, bound to it
  bool kept = false;       // close was refused
};

// The faults that strict_fabric_fault() sets, by name.
namespace fault {
// so many insertions of addresses fail, with the number `why`; 0: with none
inline constexpr const char* kAddresses = "addresses";
inline constexpr const char* kWhy = "why";
// endpoints cannot be closed, as if something still used them
inline constexpr const char* kBusy = "busy";
// registrations cannot be closed
inline constexpr const char* kRegions = "regions";
// queues have no descriptor
inline constexpr const char* kDescriptor = "descriptor";
// messages and transfers do not end, until strict_fabric_write()
inline constexpr const char* kHold = "hold";
}  // namespace fault

struct World {
  std::mutex mutex;  // for everything
  std::map<std::uint64_t, Endpoint*> endpoints;
  std::map<std::uint64_t, Region*> regions;  // by the number that is their descriptor
  std::map<std::pair<Domain*, std::uint64_t>, Region*> keys;
  std::uint64_t next = 1;
  std::map<std::string, int> faults;
  int domains = 0;
  int wrong = 0;
  bool busy = false;  // something could not be closed
};
inline World& world() {
  static World* one = new World;
  return *one;
}
using Lock = std::lock_guard<std::mutex>;

inline bool wants(const char* word) {
  const char* all = std::getenv("STRICT_FABRIC");
  return all != nullptr && std::strstr(all, word) != nullptr;
}
inline int& fault_of(const char* name) {
  return world().faults[name];
}
inline const char* provider() {
  return wants("endpoint") ? "cxi" : "verbs;ofi_rxm";
}

[[gnu::format(printf, 2, 3)]] inline int refuse(int answer, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("strict_fabric: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputs("\n", stderr);
  va_end(arguments);
  ++world().wrong;
  return -answer;
}

inline bool covers(const Region& region, const void* at, std::uint64_t bytes) {
  const char* begin = static_cast<const char*>(at);
  return begin >= region.address && begin + bytes <= region.address + region.bytes;
}

// 0: that endpoint may use this memory of its own process.
inline int check_local(const Endpoint& endpoint, const Buffer& buffer, std::uint64_t access) {
  if (!wants("local")) {
    return buffer.descriptor == nullptr ? 0 : refuse(FI_EINVAL, "a descriptor where none is wanted");
  }
  const auto found = world().regions.find(reinterpret_cast<std::uint64_t>(buffer.descriptor));
  if (found == world().regions.end()) return refuse(FI_EINVAL, "local memory is not registered (any more)");
  const Region& region = *found->second;
  if (region.domain != endpoint.domain) return refuse(FI_EINVAL, "local memory is registered in another domain");
  if (!covers(region, buffer.at, buffer.bytes)) return refuse(FI_EINVAL, "a registration does not cover its memory");
  if ((region.access & access) != access) return refuse(FI_EINVAL, "local memory is registered for other uses");
  if (!region.enabled || (wants("endpoint") && region.endpoint != &endpoint))
    return refuse(FI_EINVAL, "local memory is not enabled for its endpoint");
  return 0;
}

// The memory that an access names; null: none that it may access.
inline char* find_remote(const Transfer& transfer) {
  const auto to = world().endpoints.find(transfer.to);
  if (to == world().endpoints.end()) return nullptr;
  const auto found = world().keys.find({to->second->domain, transfer.key});
  if (found == world().keys.end()) return nullptr;
  const Region& region = *found->second;
  const std::uint64_t begin = wants("virt_addr") ? reinterpret_cast<std::uint64_t>(region.address) : 0;
  const std::uint64_t offset = transfer.address - begin;
  const std::uint64_t access = transfer.kind == Transfer::get ? FI_REMOTE_READ : FI_REMOTE_WRITE;
  if (!region.enabled || (wants("endpoint") && region.endpoint != to->second)) return nullptr;
  if ((region.access & access) == 0 || offset > region.bytes || transfer.local.bytes > region.bytes - offset)
    return nullptr;
  return const_cast<char*>(region.address) + offset;
}

}  // namespace heddle::transport::ofi::strict
