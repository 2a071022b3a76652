#include "transport/ofi/ofi.hpp"

#include "transport/network/transport.hpp"
#include "transport/ofi/port.hpp"

namespace heddle::transport::ofi {
namespace {

class OfiTransport final : public network::TransportOf<Device, Port> {
 public:
  // Owns the device.
  explicit OfiTransport(Device* device) : TransportOf(device, device->memory_opcodes(), KeyBytes::kUsed) {
    capabilities_.max_transfer = device->info()->ep_attr->max_msg_size;
  }
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  auto device = Device::create(bootstrap, environment);
  if (!device) return device.status();
  return std::unique_ptr<Transport>(std::make_unique<OfiTransport>(device->release()));
}

base::Status probe(const base::Environment& environment) {
  const auto library = Library::open(environment.config.text(base::Var::ofi_library));
  if (!library) return library.status();
  return choose_provider(**library, environment.config, Atomics::by_messages).status();
}

base::Status probe_own(const base::Environment& environment) {
  if (!has_own_adapter("/sys/class")) return base::fail(HEDDLE_ERR_CONFIG, "no adapter that only libfabric drives");
  const auto library = Library::open(environment.config.text(base::Var::ofi_library));
  if (!library) return library.status();
  const auto info = choose_provider(**library, environment.config, Atomics::by_messages);
  if (!info) return info.status();
  const char* provider = (*info)->fabric_attr->prov_name;
  if (drives_own_adapter(provider)) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_CONFIG, "this libfabric (%s) has no provider for the adapter here, only %s",
                    (*library)->version().c_str(), provider);
}

}  // namespace heddle::transport::ofi
