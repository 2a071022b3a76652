#include "transport/ofi/device.hpp"

#include <cstring>

#include "transport/network/streams.hpp"
#include "transport/network/transport.hpp"
#include "transport/ofi/ofi.hpp"
#include "transport/ofi/port.hpp"

namespace heddle::transport::ofi {

base::Status DeviceEndpoint::open() {
  ranks_.resize(device_.size());
  if (const base::Status status = endpoint_.open(device_.fabric()); status != HEDDLE_DONE) return status;
  const std::size_t most = kNoteBytes - sizeof(network::Note);
  if (endpoint_.address().size() > most) {
    return base::fail(HEDDLE_ERR_SYSTEM, "an address of libfabric has %zu bytes, and a note takes %zu",
                      endpoint_.address().size(), most);
  }
  return endpoint_.add_buffers(notes_.all().data(), notes_.all().size_bytes(), &descriptor_of_notes_);
}

void DeviceEndpoint::close() {
  endpoint_.close();
  if (endpoint_.kept()) notes_.keep();
}

const network::Bytes& DeviceEndpoint::address_of(std::uint32_t rank) const {
  return rank == device_.rank() ? endpoint_.address() : ranks_[rank].bytes;
}

base::Status DeviceEndpoint::check_card(const network::CardHead& card, std::uint32_t rank) const {
  const std::string provider = device_.provider();
  if (provider != card.provider) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "rank %u uses libfabric's provider %s, this rank %s; name one with HEDDLE_OFI_PROVIDER", rank,
                      card.provider, provider.c_str());
  }
  if (device_.library().version() == card.version) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_VERSION,
                    "rank %u has libfabric %s, this rank %s; use one libfabric in all ranks (HEDDLE_LIBRARIES)", rank,
                    card.version, device_.library().version().c_str());
}

base::Status DeviceEndpoint::connect(std::uint32_t rank, std::span<const std::byte> address) {
  if (address.size() != endpoint_.address().size()) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the address of rank %u has %zu bytes, that of this rank %zu", rank,
                      address.size(), endpoint_.address().size());
  }
  Rank& to = ranks_[rank];
  to.bytes.assign(address.begin(), address.end());
  if (const long answer = endpoint_.insert(address, &to.address); answer != 0) return not_inserted(rank, answer);
  to.patience.renew();
  to.open = true;
  return HEDDLE_DONE;
}

base::Status DeviceEndpoint::not_inserted(std::uint32_t rank, long answer) {
  if (is_temporary_for_addresses(answer) && !is_over(ranks_[rank])) return HEDDLE_AGAIN;
  device_.log().line(base::Level::error, "libfabric does not accept the address of rank %u: %s", rank,
                     device_.library().why(answer));
  device_.directory().broken(rank, "its address is not accepted");
  return HEDDLE_ERR_PEER_FAILED;
}

// libfabric has taken nothing for HEDDLE_NETWORK_TIMEOUT.
bool DeviceEndpoint::is_over(Rank& rank) {
  if (device_.timeout_ns() == 0) return false;
  return rank.patience.over(device_.environment().clock->now_ns(), device_.timeout_ns());
}

base::Status DeviceEndpoint::send(std::uint32_t rank, network::Bytes* bytes) {
  Rank& to = ranks_[rank];
  if (!to.open) return HEDDLE_ERR_PEER_FAILED;
  Note* note = notes_.front();
  if (note == nullptr || bytes->size() > sizeof note->data) return HEDDLE_AGAIN;
  std::memcpy(note->data, bytes->data(), bytes->size());
  const ssize_t answer =
      fi_send(endpoint_.ep(), note->data, bytes->size(), descriptor_of_notes_, to.address, &note->context);
  if (answer != 0) return not_sent(rank, answer);
  notes_.take()->rank = rank;
  ++sending_;
  to.patience.renew();
  bytes->clear();
  return HEDDLE_DONE;
}

// libfabric answers "again" while it connects, and as long as it is rejected: a rank that is not
// there any more.
base::Status DeviceEndpoint::not_sent(std::uint32_t rank, long answer) {
  if (is_temporary(answer)) {
    if (!is_over(ranks_[rank])) return HEDDLE_AGAIN;
    device_.directory().broken(rank, "no answer within HEDDLE_NETWORK_TIMEOUT");
  } else {
    device_.directory().broken(rank, device_.library().why(answer));
  }
  return HEDDLE_ERR_PEER_FAILED;
}

void DeviceEndpoint::on_receive(const std::byte* data, std::size_t bytes) {
  device_.directory().note(data, data != nullptr ? bytes : 0);
}

void DeviceEndpoint::on_finished(OperationContext& operation, int error) {
  auto* note = static_cast<Note*>(&operation);
  const std::uint32_t rank = note->rank;
  notes_.give_back(note);
  --sending_;
  if (error != FI_SUCCESS && ranks_[rank].open) {
    device_.directory().broken(rank, device_.library().why(-error));
  }
}

namespace {

constexpr network::Device::Names kNames{
    .transport = "ofi", .library = "libfabric", .usual_window = 42 << 10, .least_window = 24 << 10};

}  // namespace

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library, Info info,
               const DomainPlan& plan)
    : network::Device(bootstrap, environment, kNames, endpoint_, nullptr),
      fabric_(library, std::move(info), plan),
      endpoint_(*this),
      regions_(*this) {}

base::Result<std::unique_ptr<Device>> Device::create(bootstrap::Bootstrap& bootstrap,
                                                     const base::Environment& environment) {
  if (const base::Status status = network::Device::check_settings(environment.config, kNames); status != HEDDLE_DONE)
    return status;
  const auto library = Library::open(environment.config.text(base::Var::library_ofi));
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
  const auto library = Library::open(environment.config.text(base::Var::library_ofi));
  if (!library) return library.status();
  return choose_provider(**library, environment.config, Atomics::by_messages).status();
}

base::Status probe_own(const base::Environment& environment) {
  if (!has_own_adapter("/sys/class")) return base::fail(HEDDLE_ERR_CONFIG, "no adapter that only libfabric drives");
  const auto library = Library::open(environment.config.text(base::Var::library_ofi));
  if (!library) return library.status();
  const auto info = choose_provider(**library, environment.config, Atomics::by_messages);
  if (!info) return info.status();
  const char* provider = (*info)->fabric_attr->prov_name;
  if (drives_own_adapter(provider)) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_CONFIG, "this libfabric (%s) has no provider for the adapter here, only %s",
                    (*library)->version().c_str(), provider);
}

}  // namespace heddle::transport::ofi
