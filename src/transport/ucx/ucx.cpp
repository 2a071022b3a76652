#include "transport/ucx/ucx.hpp"

#include "transport/network/transport.hpp"
#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

class UcxTransport final : public network::TransportOf<Device, Port> {
 public:
  // Owns the device.
  explicit UcxTransport(Device* device)
      : TransportOf(device, device->memory_opcodes(), KeyBytes::kUsed), regions_(device->regions()) {}

  void release(const RemoteMemory& memory) override { regions_.release(memory); }

 private:
  Regions& regions_;
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto device = Device::create(bootstrap, environment);
  if (!device) return device.status();
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(device->release()));
}

base::Status probe(const base::Environment& environment) {
  return Library::open(environment.config.text(base::Var::ucx_library)).status();
}

}  // namespace heddle::transport::ucx
