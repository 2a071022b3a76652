#include "transport/verbs/verbs.hpp"

#include <algorithm>

#include "transport/network/transport.hpp"
#include "transport/verbs/port.hpp"

namespace heddle::transport::verbs {
namespace {

class VerbsTransport final : public network::TransportOf<Device, Port> {
 public:
  // Owns the device.
  explicit VerbsTransport(Device* device) : TransportOf(device, bit(Opcode::put) | bit(Opcode::get), KeyBytes::kUsed) {
    capabilities_.max_message = kMostMessage;
    for (const auto& adapter : device->adapters())
      capabilities_.max_transfer = std::min<std::uint64_t>(capabilities_.max_transfer, adapter->most_bytes());
    capabilities_.memory_per_peer = std::uint64_t{sizeof(Mailbox)} + device->window() + kMostMessage;
  }
};

}  // namespace

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment) {
  if (const auto status = Adapter::check_settings(environment.config); status != HEDDLE_DONE) return status;
  auto device = Device::create(bootstrap, environment);
  if (!device) return device.status();
  return std::unique_ptr<Transport>(std::make_unique<VerbsTransport>(device->release()));
}

base::Status probe(const base::Environment& environment) {
  if (const auto status = Adapter::check_settings(environment.config); status != HEDDLE_DONE) return status;
  const auto library = Library::open(environment.config.text(base::Var::verbs_library));
  if (!library) return library.status();
  return Adapter::open(**library, environment.config).status();
}

}  // namespace heddle::transport::verbs
