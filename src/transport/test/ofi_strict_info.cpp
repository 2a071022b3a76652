// The description that ofi_strict_fabric.cpp gives of itself, and the faults that tests ask it for.
#include <rdma/fabric.h>

#include <cstdlib>
#include <cstring>

#include "transport/test/ofi_strict_world.hpp"

namespace {

using namespace heddle::transport::ofi::strict;

template <class Part>
void copy(Part** to, const Part* from) {
  *to = static_cast<Part*>(std::calloc(1, sizeof(Part)));
  if (from != nullptr) **to = *from;
}
char* copy(const char* text) {
  return text != nullptr ? ::strdup(text) : nullptr;
}

}  // namespace

extern "C" {

void strict_fabric_fault(const char* name, int value) {
  const Lock lock(world().mutex);
  world().faults[name] = value;
}

std::uint32_t fi_version() {
  return FI_VERSION(1, 17);
}
const char* fi_strerror(int number) {
  return std::strerror(number);
}

fi_info* fi_dupinfo(const fi_info* from) {
  fi_info* info = nullptr;
  copy(&info, from);
  copy(&info->tx_attr, from != nullptr ? from->tx_attr : nullptr);
  copy(&info->rx_attr, from != nullptr ? from->rx_attr : nullptr);
  copy(&info->ep_attr, from != nullptr ? from->ep_attr : nullptr);
  copy(&info->domain_attr, from != nullptr ? from->domain_attr : nullptr);
  copy(&info->fabric_attr, from != nullptr ? from->fabric_attr : nullptr);
  info->next = nullptr;
  info->domain_attr->name = copy(info->domain_attr->name);
  info->fabric_attr->name = copy(info->fabric_attr->name);
  info->fabric_attr->prov_name = copy(info->fabric_attr->prov_name);
  return info;
}
void fi_freeinfo(fi_info* info) {
  if (info == nullptr) return;
  std::free(info->domain_attr->name);
  std::free(info->fabric_attr->name);
  std::free(info->fabric_attr->prov_name);
  for (void* part :
       {static_cast<void*>(info->tx_attr), static_cast<void*>(info->rx_attr), static_cast<void*>(info->ep_attr),
        static_cast<void*>(info->domain_attr), static_cast<void*>(info->fabric_attr), static_cast<void*>(info)})
    std::free(part);
}

int fi_getinfo(std::uint32_t, const char*, const char*, std::uint64_t, const fi_info* hints, fi_info** out) {
  const char* asked = hints->fabric_attr->prov_name;
  int modes = 0;
  if (wants("local")) modes |= FI_MR_LOCAL;
  if (wants("prov_key")) modes |= FI_MR_PROV_KEY;
  if (wants("virt_addr")) modes |= FI_MR_VIRT_ADDR;
  if (wants("endpoint")) modes |= FI_MR_ENDPOINT;
  const bool lacks = (hints->caps & FI_ATOMIC) != 0 && !wants("atomic");
  if ((asked != nullptr && std::strcmp(asked, provider()) != 0) || (modes & ~hints->domain_attr->mr_mode) != 0 || lacks)
    return -FI_ENODATA;
  fi_info* info = fi_dupinfo(hints);
  std::free(info->fabric_attr->prov_name);
  info->fabric_attr->prov_name = copy(provider());
  info->fabric_attr->name = copy("loop");
  info->domain_attr->name = copy("loop");
  info->domain_attr->mr_mode = modes;
  info->ep_attr->max_msg_size = std::size_t{1} << 30;
  *out = info;
  return 0;
}

}  // extern "C"
