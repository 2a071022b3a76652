#include "transport/ofi/fabric.hpp"

namespace heddle::transport::ofi {

base::Status Fabric::open() {
  int answer = library_.call().fabric(info_->fabric_attr, &fabric_, nullptr);
  if (answer != 0) fabric_ = nullptr;
  if (answer == 0 && plan_.shared && (answer = open_domain(&domain_)) != 0) domain_ = nullptr;
  if (answer == 0) return HEDDLE_DONE;
  return base::fail(answer == -FI_ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM,
                    "libfabric opens no fabric %s of %s: %s", info_->fabric_attr->name, info_->fabric_attr->prov_name,
                    library_.why(answer));
}

void Fabric::close() {
  if (domain_ != nullptr) static_cast<void>(fi_close(&domain_->fid));
  if (fabric_ != nullptr) static_cast<void>(fi_close(&fabric_->fid));
  domain_ = nullptr;
  fabric_ = nullptr;
}

int Fabric::add(const Scope& scope, const Memory& memory, fid_mr** mr) const {
  int answer = fi_mr_reg(scope.domain, memory.address, memory.bytes, memory.access, 0, memory.key, 0, mr, nullptr);
  if (answer != 0 || scope.endpoint == nullptr) return answer;
  // It is of no use before it has its endpoint.
  answer = fi_mr_bind(*mr, &scope.endpoint->fid, 0);
  if (answer == 0) answer = fi_mr_enable(*mr);
  if (answer != 0) static_cast<void>(fi_close(&(*mr)->fid));
  return answer;
}

}  // namespace heddle::transport::ofi
