// The regions of a rank. If workers have domains of their own, each region is registered in all of
// them, under one key, so that any worker serves accesses to it; a worker that is opened later
// registers the existing regions. Otherwise a region is registered once, at the device
// (DomainPlan).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/ofi/fabric.hpp"
#include "transport/ofi/wire.hpp"

namespace heddle::transport::ofi {

class Device;

// Any thread.
class Regions {
 public:
  explicit Regions(Device& device);

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes);
  // Memory that libfabric does not deregister stays mapped: peers may still write there.
  void free(const LocalMemory& memory);
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes);
  // False: libfabric refuses, and peers may still write there.
  bool deregister(std::uint64_t id);

  // The key comes from the network. PROTOCOL: it is no key of that rank.
  // handle: [0] libfabric's key, [1] its first byte as accesses name it, [2] its address there.
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint32_t rank, const MemoryKey& key) const;

  // From add() to remove() all regions are registered in that scope too. NO_MEMORY, ARGUMENT.
  base::Status add(const Scope& scope);
  void remove(fid_domain* domain);
  // Before the device's endpoint is closed: nothing is registered any more.
  void close();

 private:
  struct Region {
    void* address;
    std::uint64_t bytes;
    std::map<fid_domain*, fid_mr*> in;
  };
  base::Status register_in_scope(std::uint64_t number, Region* region, const Scope& scope);
  // False: libfabric does not deregister it everywhere.
  static bool deregister_all(Region* region);
  LocalMemory describe(std::uint64_t number, const Region& region) const;

  Device& device_;
  std::mutex mutex_;  // guards what follows; taken with no other
  // by number, which is the key where the provider does not choose it
  std::unordered_map<std::uint64_t, Region> regions_;
  std::vector<Scope> scopes_;
};

}  // namespace heddle::transport::ofi
