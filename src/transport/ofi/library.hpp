// libfabric, opened at run time: one binary serves machines with and without it, and with any
// release from 1.17 on.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "transport/network/symbols.hpp"

namespace heddle::transport::ofi {

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

}  // namespace heddle::transport::ofi
