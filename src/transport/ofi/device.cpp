#include "transport/ofi/device.hpp"

#include "transport/network/stream_port.hpp"
#include "transport/ofi/atomics.hpp"

namespace heddle::transport::ofi {
namespace {

network::Device::Names names_of(const base::Config& config) {
  return {.transport = "ofi",
          .library = "libfabric",
          .window_setting = "HEDDLE_OFI_WINDOW_BYTES",
          .timeout_setting = "HEDDLE_OFI_TIMEOUT",
          .window = static_cast<std::uint32_t>(config.number(base::Var::ofi_window_bytes)),
          .timeout_ns = config.number(base::Var::ofi_timeout)};
}

}  // namespace

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library, Info info,
               const DomainPlan& plan)
    : network::Device(bootstrap, environment, names_of(environment.config), endpoint_, nullptr),
      fabric_(library, std::move(info), plan),
      endpoint_(*this),
      regions_(*this) {}

base::Result<std::unique_ptr<Device>> Device::create(bootstrap::Bootstrap& bootstrap,
                                                     const base::Environment& environment) {
  const network::Device::Names names = names_of(environment.config);
  if (const base::Status status = network::check_silence(names.timeout_ns, names.timeout_setting);
      status != HEDDLE_DONE)
    return status;
  const auto library = Library::open(environment.config.text(base::Var::ofi_library));
  if (!library) return library.status();
  // An adapter's atomics are atomic among themselves only.
  const auto atomics = bootstrap.atomics_beside_processors() ? Atomics::by_messages : Atomics::by_network;
  auto info = choose_provider(**library, environment.config, atomics);
  if (!info) return info.status();
  const auto plan = plan_domains((*info)->domain_attr->mr_mode, environment.config.text(base::Var::ofi_domains));
  if (!plan) return plan.status();
  std::unique_ptr<Device> device(new Device(bootstrap, environment, **library, std::move(*info), *plan));
  if (const base::Status status = device->set_up(); status != HEDDLE_DONE) return status;
  return device;
}

base::Status Device::set_up() {
  if (const base::Status status = fabric_.open(); status != HEDDLE_DONE) return status;
  if (const base::Status status = endpoint_.open(); status != HEDDLE_DONE) return status;
  has_atomics_ = (info()->caps & FI_ATOMIC) != 0 && serves_atomics(endpoint_.ep());
  if (plan().shared || plan().by_endpoint) {
    if (const base::Status status = regions_.add(endpoint_.scope()); status != HEDDLE_DONE) return status;
  }
  if (const base::Status status = publish(library().version(), provider(), endpoint_.address()); status != HEDDLE_DONE)
    return status;
  const base::Status status = helper().start(endpoint_.descriptor());
  is_set_up_ = status == HEDDLE_DONE;
  return status;
}

std::string Device::describe() const {
  return "ofi (libfabric " + library().version() + ", provider " + provider() + ", domain " +
         info()->domain_attr->name + ", " + plan().describe() + (has_atomics_ ? ", its atomics" : "") +
         ", windows of " + std::to_string(window()) + " bytes)";
}

// Accepted messages leave, as long as the peers make progress; then everything is closed, whatever
// the peers do.
Device::~Device() {
  helper().stop();
  if (is_set_up_) leave();  // else libfabric may have an endpoint on which it makes no progress
  retired().clear();
  regions_.close();
  endpoint_.close();
}

}  // namespace heddle::transport::ofi
