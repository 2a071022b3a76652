// libfabric's objects that all endpoints of a rank have in common, and how memory is registered
// with them.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "transport/ofi/domain_plan.hpp"
#include "transport/ofi/provider.hpp"

namespace heddle::transport::ofi {

// The objects that memory is registered for: a domain, and with FI_MR_ENDPOINT one endpoint, which
// is null otherwise.
struct Scope {
  fid_domain* domain = nullptr;
  fid_ep* endpoint = nullptr;
};

class Fabric {
 public:
  Fabric(const Library& library, Info info, const DomainPlan& plan)
      : library_(library), info_(std::move(info)), plan_(plan) {}
  ~Fabric() { close(); }
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  // SYSTEM, NO_MEMORY.
  base::Status open();
  // After all endpoints. Objects that libfabric does not let go, because it kept an endpoint, stay.
  void close();

  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] fi_info* info() const { return info_.get(); }
  [[nodiscard]] const DomainPlan& plan() const { return plan_; }
  [[nodiscard]] fid_fabric* fabric() const { return fabric_; }
  // The one for all endpoints; null: each has its own.
  [[nodiscard]] fid_domain* domain() const { return domain_; }
  // Opens a new domain. Negative: libfabric's answer.
  int open_domain(fid_domain** domain) { return fi_domain(fabric_, info(), domain, nullptr); }

  // A number that no memory of this rank is registered under. Any thread.
  [[nodiscard]] std::uint64_t new_key() { return next_key_.fetch_add(1, std::memory_order_relaxed); }
  struct Memory {
    const void* address;
    std::uint64_t bytes;
    std::uint64_t access;  // FI_SEND …
    std::uint64_t key;     // unless the provider chooses it
  };
  // Registers it, until fi_close(). Negative: libfabric's answer. Any thread.
  int add(const Scope& scope, const Memory& memory, fid_mr** mr) const;

 private:
  const Library& library_;
  const Info info_;
  const DomainPlan plan_;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  std::atomic<std::uint64_t> next_key_{1};  // Relaxed: only that they differ
};

}  // namespace heddle::transport::ofi
