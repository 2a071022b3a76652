// The caller's memory, where the provider wants it registered for puts and gets (FI_MR_LOCAL): the
// registrations of one endpoint. One thread at a time.
#pragma once

#include <cstdint>

#include "memory/registration_cache.hpp"
#include "transport/ofi/fabric.hpp"

namespace heddle::transport::ofi {

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

}  // namespace heddle::transport::ofi
