// Memory that is registered with libfabric: the caller's, for puts and gets, and the rank's regions
// with their keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "memory/registration_cache.hpp"
#include "transport/network/wire.hpp"
#include "transport/ofi/fabric.hpp"

namespace heddle::transport::ofi {

// The caller's memory, where the provider wants it registered for puts and gets (FI_MR_LOCAL): the
// registrations of one endpoint. One thread at a time.
class CallersMemory {
 public:
  CallersMemory(Fabric& fabric, const Scope& scope, const base::Config& config, const base::Log& log);

  // Registers a range, or finds it registered. Until release(*lease), *descriptor is what libfabric
  // wants with each transfer of it. AGAIN, NO_MEMORY, or what libfabric's answer means.
  [[nodiscard]] base::Status acquire(const void* address, std::uint64_t bytes, memory::Access access, void** descriptor,
                                     std::uint32_t* lease) {
    memory::RegistrationCache::Lease got{};
    const base::Status status = cache_.acquire(address, bytes, access, &got);
    *lease = got.entry;
    if (status == HEDDLE_DONE) [[likely]]
      *descriptor = fi_mr_desc(reinterpret_cast<fid_mr*>(got.handle));  // NOLINT(performance-no-int-to-ptr)
    return status;
  }
  void release(std::uint32_t lease) { cache_.release(lease); }
  // libfabric has not let go of the endpoint, and may use the registered memory: that stays
  // registered.
  void keep() { registrar_.keeps = true; }
  // For HEDDLE_STATS; empty: nothing was registered.
  [[nodiscard]] std::string describe() const { return cache_.describe(); }

 private:
  struct Registrar final : memory::Registrar {
    Registrar(Fabric& in, const Scope& at) : fabric(in), scope(at) {}
    [[nodiscard]] base::Status register_memory(std::byte* begin, std::uint64_t bytes, memory::Access access,
                                               std::uint64_t* handle) override;
    void deregister(std::uint64_t handle) override;
    Fabric& fabric;
    const Scope scope;
    bool keeps = false;
  };

  Registrar registrar_;
  memory::RegistrationCache cache_;
};

// The formats that are this transport's own; the others are in ../network/wire.hpp.

// The contents of a packed region.
struct KeyBytes {
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint64_t address = 0;  // in its owner
  std::uint64_t bytes = 0;
  std::uint64_t key = 0;  // libfabric's, one in all domains of the owner
  std::uint64_t seal = 0;
  std::uint64_t zero = 0;
  static constexpr std::uint32_t kMagic = 0x31464f48;  // "HOF1"
  static constexpr std::uint32_t kUsed = 40;           // bytes
};
static_assert(sizeof(KeyBytes) == kKeyBytes && offsetof(KeyBytes, zero) == KeyBytes::kUsed);

class Device;

// The regions of a rank. If workers have domains of their own, each region is registered in all of
// them, under one key, so that any worker serves accesses to it; a worker that is opened later
// registers the existing regions. Otherwise a region is registered once, at the device
// (DomainPlan).
//
// Any thread.
class Regions {
 public:
  explicit Regions(Device& device);

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes);
  // Memory that libfabric does not deregister stays mapped: peers may still write there.
  void free(const LocalMemory& memory);
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes);
  // False: libfabric rejects, and peers may still write there.
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
