// This transport's part of a context, which the ports of one rank share: the provider, the endpoint
// for notes, the regions. The rest is network::Device's.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "transport/network/device.hpp"
#include "transport/ofi/device_endpoint.hpp"
#include "transport/ofi/fabric.hpp"
#include "transport/ofi/regions.hpp"

namespace heddle::transport::ofi {

class Device final : public network::Device {
 public:
  static base::Result<std::unique_ptr<Device>> create(bootstrap::Bootstrap& bootstrap,
                                                      const base::Environment& environment);
  ~Device() override;

  [[nodiscard]] const Library& library() const { return fabric_.library(); }
  [[nodiscard]] Fabric& fabric() { return fabric_; }
  [[nodiscard]] fi_info* info() const { return fabric_.info(); }
  [[nodiscard]] const DomainPlan& plan() const { return fabric_.plan(); }
  [[nodiscard]] std::string provider() const { return info()->fabric_attr->prov_name; }
  // True: its provider is "tcp", alone or below another one.
  [[nodiscard]] bool over_tcp() const { return std::strstr(info()->fabric_attr->prov_name, "tcp") != nullptr; }
  // Bytes that libfabric copies when it is called.
  [[nodiscard]] std::size_t inject_bytes() const { return info()->tx_attr->inject_size; }
  // The network itself executes all of Heddle's atomics on words of regions.
  [[nodiscard]] bool has_atomics() const { return has_atomics_; }
  [[nodiscard]] std::uint32_t memory_opcodes() const {
    return bit(Opcode::put) | bit(Opcode::get) | (has_atomics_ ? bit(Opcode::atomic) : 0);
  }
  [[nodiscard]] std::uint64_t timeout_ns() const { return names().timeout_ns; }
  [[nodiscard]] Regions& regions() { return regions_; }
  [[nodiscard]] DeviceEndpoint& endpoint() { return endpoint_; }
  [[nodiscard]] std::string describe() const;

 private:
  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library, Info info,
         const DomainPlan& plan);
  base::Status set_up();

  Fabric fabric_;
  bool is_set_up_ = false;
  bool has_atomics_ = false;
  DeviceEndpoint endpoint_;
  Regions regions_;
};

}  // namespace heddle::transport::ofi
