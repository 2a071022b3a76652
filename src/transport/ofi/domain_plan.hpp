// The demands of the chosen provider on registered memory (FI_MR_*), and the domains that a rank
// has because of them.
//
// A domain for each worker is better if it is possible: providers lock, and make progress, by
// domain, so workers that share one wait for each other. It is possible if a region has the same
// key in every domain, because we choose it, or if regions are in the device's domain only.
#pragma once

#include <string>

#include "transport/ofi/library.hpp"

namespace heddle::transport::ofi {

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

}  // namespace heddle::transport::ofi
