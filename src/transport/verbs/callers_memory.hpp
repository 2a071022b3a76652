// The caller's memory that puts and gets use, registered with one adapter. The cache keeps
// registrations for the next use.
#pragma once

#include <optional>

#include "base/environment.hpp"
#include "memory/registration_cache.hpp"
#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {

class CallersMemory final : private memory::Registrar {
 public:
  CallersMemory() = default;
  ~CallersMemory() override { close(); }
  CallersMemory(const CallersMemory&) = delete;
  CallersMemory& operator=(const CallersMemory&) = delete;

  void open(const Adapter& adapter, const base::Environment& environment);
  // Deregisters all. The caller knows that the adapter does not use it any more.
  void close() { cache_.reset(); }

  [[nodiscard]] memory::RegistrationCache& cache() { return *cache_; }
  // The registration of the memory that a lease names by its handle.
  static ibv_mr* registration(std::uint64_t handle) {
    return reinterpret_cast<ibv_mr*>(handle);  // NOLINT(performance-no-int-to-ptr): made from it
  }

 private:
  // ---- Registrar
  [[nodiscard]] base::Status register_memory(std::byte* begin, std::uint64_t bytes, memory::Access access,
                                             std::uint64_t* handle) override;
  void deregister(std::uint64_t handle) override;

  const Adapter* adapter_ = nullptr;
  std::optional<memory::RegistrationCache> cache_;
};

}  // namespace heddle::transport::verbs
