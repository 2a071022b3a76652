#include "transport/verbs/callers_memory.hpp"

#include <cerrno>

namespace heddle::transport::verbs {

void CallersMemory::open(const Adapter& adapter, const base::Environment& environment) {
  adapter_ = &adapter;
  const auto options = memory::RegistrationCache::Options::from(environment.config);
  cache_.emplace(static_cast<memory::Registrar&>(*this), memory::RegistrationCache::watch_for(options, environment.log),
                 options);
}

base::Status CallersMemory::register_memory(std::byte* begin, std::uint64_t bytes, memory::Access access,
                                            std::uint64_t* handle) {
  const int rights = access == memory::Access::write ? IBV_ACCESS_LOCAL_WRITE : 0;
  ibv_mr* registered = (adapter_->call().reg_mr)(adapter_->domain(), begin, bytes, rights);
  if (registered == nullptr) {
    return base::fail_errno(errno == ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                            "%llu bytes at %p cannot be registered with %s", static_cast<unsigned long long>(bytes),
                            static_cast<void*>(begin), adapter_->name().c_str());
  }
  *handle = reinterpret_cast<std::uintptr_t>(registered);
  return HEDDLE_DONE;
}

void CallersMemory::deregister(std::uint64_t handle) {
  adapter_->call().dereg_mr(registration(handle));
}

}  // namespace heddle::transport::verbs
