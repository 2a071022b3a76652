#include "transport/ofi/domain_plan.hpp"

namespace heddle::transport::ofi {

base::Result<DomainPlan> plan_domains(int mr_mode, const std::string& asked) {
  DomainPlan plan;
  plan.local = (mr_mode & FI_MR_LOCAL) != 0;
  plan.provider_keys = (mr_mode & FI_MR_PROV_KEY) != 0;
  plan.by_endpoint = (mr_mode & FI_MR_ENDPOINT) != 0;
  plan.by_address = (mr_mode & FI_MR_VIRT_ADDR) != 0;
  // A packed region has room for one key.
  const bool needs_one = plan.provider_keys && !plan.by_endpoint;
  plan.shared = asked == "shared" || (asked == "auto" && (plan.provider_keys || plan.by_endpoint));
  if (asked != "auto" && asked != "shared" && asked != "worker") {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_OFI_DOMAINS is \"%s\"; worker, shared or auto", asked.c_str());
  }
  if (needs_one && !plan.shared) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "HEDDLE_OFI_DOMAINS=worker, but this provider of libfabric chooses the keys of regions itself: "
                      "all workers of a rank need one domain; set auto");
  }
  return plan;
}

std::string DomainPlan::describe() const {
  std::string text = shared ? "one domain" : "a domain per worker";
  if (local) text += ", local memory registered";
  if (by_endpoint) text += ", regions at the device's endpoint";
  return text;
}

}  // namespace heddle::transport::ofi
