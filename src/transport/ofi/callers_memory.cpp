#include "transport/ofi/callers_memory.hpp"

namespace heddle::transport::ofi {

CallersMemory::CallersMemory(Fabric& fabric, const Scope& scope, const base::Config& config, const base::Log& log)
    : registrar_(fabric, scope),
      cache_(registrar_, memory::RegistrationCache::watch_for(memory::RegistrationCache::Options::from(config), log),
             memory::RegistrationCache::Options::from(config)) {}

base::Status CallersMemory::Registrar::register_memory(std::byte* begin, std::uint64_t bytes, memory::Access access,
                                                       std::uint64_t* handle) {
  // Read: by puts. Written: by gets.
  const std::uint64_t uses = access == memory::Access::read ? FI_WRITE : FI_WRITE | FI_READ;
  fid_mr* mr = nullptr;
  const int answer = fabric.add(scope, {begin, bytes, uses, fabric.new_key()}, &mr);
  if (answer == 0) {
    *handle = reinterpret_cast<std::uint64_t>(mr);
    return HEDDLE_DONE;
  }
  const bool room = answer == -FI_ENOMEM || answer == -FI_ENOSPC;
  return base::fail(room ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                    "%llu bytes at %p cannot be registered with libfabric: %s", static_cast<unsigned long long>(bytes),
                    static_cast<void*>(begin), fabric.library().why(answer));
}

void CallersMemory::Registrar::deregister(std::uint64_t handle) {
  if (!keeps)
    static_cast<void>(fi_close(&reinterpret_cast<fid_mr*>(handle)->fid));  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace heddle::transport::ofi
