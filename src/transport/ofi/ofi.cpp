#include "transport/ofi/ofi.hpp"

#include <filesystem>
#include <string>
#include <system_error>

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
  return choose_provider(**library, environment.config, false).status();
}

base::Status probe_own(const base::Environment& environment) {
  std::error_code none;
  bool own = std::filesystem::exists("/sys/class/cxi", none);
  std::filesystem::directory_iterator adapters("/sys/class/infiniband", none);
  for (; !none && adapters != std::filesystem::directory_iterator(); adapters.increment(none)) {
    const std::string name = adapters->path().filename();
    own = own || name.starts_with("efa") || name.starts_with("hfi1");
  }
  return own ? probe(environment) : base::fail(HEDDLE_ERR_CONFIG, "no adapter that only libfabric drives");
}

}  // namespace heddle::transport::ofi
