// libfabric: its functions, the provider of a job and its demands, and the objects that all
// endpoints of a rank have in common.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/config.hpp"
#include "base/error.hpp"
#include "transport/network/symbols.hpp"

namespace heddle::transport::ofi {

// libfabric, opened at run time: one binary serves machines with and without it, and with any
// release from 1.17 on.

// The version of libfabric's interface that this transport asks for, whatever the release.
inline constexpr std::uint32_t kApi = FI_VERSION(1, 17);

// The longest message that libfabric's layer for providers with connections (ofi_rxm) sends at
// once. Receive buffers are as long: 1.17 ends a connection on which a message of this kind finds a
// shorter one, and does not use the buffer again that it had received into.
inline constexpr std::uint32_t kEagerBytes = 8448;

// The functions that the transport calls by name; the others are in libfabric's objects. Those that
// pass a fi_info are asked for in the shape that it has had since 1.3, which all releases still
// have: a newer shape would be longer than the header says.
struct Functions : network::Symbols {
  using Symbols::Symbols;
  decltype(&::fi_getinfo) getinfo = find("fi_getinfo", "FABRIC_1.3");
  decltype(&::fi_freeinfo) freeinfo = find("fi_freeinfo", "FABRIC_1.3");
  decltype(&::fi_dupinfo) dupinfo = find("fi_dupinfo", "FABRIC_1.3");
  decltype(&::fi_fabric) fabric = find("fi_fabric", "FABRIC_1.1");
  decltype(&::fi_version) version = find("fi_version");
  decltype(&::fi_strerror) strerror = find("fi_strerror");
};

// An answer that says "not now": libfabric has no room, or connects, or the process has no
// descriptor for a connection.
inline bool is_temporary(long answer) {
  return answer == -FI_EAGAIN || answer == -FI_EMFILE || answer == -ENFILE;
}

// The same for an address that libfabric does not accept: it may have no memory for it now.
inline bool is_temporary_for_addresses(long answer) {
  return is_temporary(answer) || answer == -FI_ENOMEM;
}

class Library {
 public:
  // Opens it, once per process and name; it stays open, since it has threads of its own. CONFIG:
  // there is none, it lacks a function, or it is older than 1.17.
  static base::Result<const Library*> open(const std::string& name);

  [[nodiscard]] const Functions& call() const { return call_; }
  [[nodiscard]] const std::string& version() const { return version_; }  // such as "1.17"
  [[nodiscard]] bool at_least(unsigned major, unsigned minor) const {
    return FI_VERSION_GE(call_.version(), FI_VERSION(major, minor));
  }
  // libfabric's words for a negative answer.
  [[nodiscard]] const char* why(long answer) const { return call_.strerror(static_cast<int>(-answer)); }

 private:
  Library() = default;
  base::Status load(const std::string& name);

  Functions call_{nullptr};
  std::string version_;
};

// Which provider of libfabric a job uses, and what it can do.

// libfabric's description of a provider, and of what was asked of it.
struct FreeInfo {
  const Library* library = nullptr;
  void operator()(fi_info* info) const { library->call().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// Whether atomics are asked of the network, if it has its own: see begin_atomic().
enum class Atomics : std::uint8_t { by_messages, by_network };

// The provider that HEDDLE_OFI_PROVIDER and HEDDLE_NET_DEVICES name, else the best that there is by
// the order of our table (fabric.cpp). CONFIG: there is none; the message says what there is.
base::Result<Info> choose_provider(const Library& library, const base::Config& config, Atomics atomics);

// Every provider that would serve, the best first: "tcp;ofi_rxm (eth0), …"; then those that would
// not, with the reason.
std::string list_providers(const Library& library);

// Whether the machine has an adapter that only libfabric drives: Slingshot, EFA, Omni-Path.
// `classes`: the kernel's folder of them, /sys/class.
[[nodiscard]] bool has_own_adapter(const std::filesystem::path& classes);
// Whether that provider is for such adapters.
[[nodiscard]] bool drives_own_adapter(std::string_view provider);

// The demands of the chosen provider on registered memory (FI_MR_*), and the domains that a rank
// has because of them.
//
// A domain for each worker is better if it is possible: providers lock, and make progress, by
// domain, so workers that share one wait for each other. It is possible if a region has the same
// key in every domain, because we choose it, or if regions are in the device's domain only.
struct DomainPlan {
  bool shared = false;         // one domain for the device and all workers
  bool local = false;          // FI_MR_LOCAL: buffers of this rank are registered too
  bool provider_keys = false;  // FI_MR_PROV_KEY: the provider chooses the keys of regions
  // FI_MR_ENDPOINT: memory is registered for one endpoint. Regions are for the device's: accesses
  // go there.
  bool by_endpoint = false;
  // FI_MR_VIRT_ADDR: accesses name the owner's address, not the offset in its region
  bool by_address = false;

  [[nodiscard]] std::string describe() const;
};

// `asked`: HEDDLE_OFI_DOMAINS. CONFIG: it is no such word, or the provider does not allow it.
base::Result<DomainPlan> plan_domains(int mr_mode, const std::string& asked);

// The objects that memory is registered for: a domain, and with FI_MR_ENDPOINT one endpoint, which
// is null otherwise.
struct Scope {
  fid_domain* domain = nullptr;
  fid_ep* endpoint = nullptr;
};

// libfabric's objects that all endpoints of a rank have in common, and how memory is registered
// with them.
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
