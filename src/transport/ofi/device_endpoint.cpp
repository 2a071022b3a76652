#include "transport/ofi/device_endpoint.hpp"

#include <cstring>

#include "transport/ofi/device.hpp"

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
                    "rank %u has libfabric %s, this rank %s; use one libfabric in all ranks (HEDDLE_OFI_LIBRARY)", rank,
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

// libfabric has taken nothing for HEDDLE_OFI_TIMEOUT.
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

// libfabric answers "again" while it connects, and as long as it is refused: a rank that is not
// there any more.
base::Status DeviceEndpoint::not_sent(std::uint32_t rank, long answer) {
  if (is_temporary(answer)) {
    if (!is_over(ranks_[rank])) return HEDDLE_AGAIN;
    device_.directory().broken(rank, "no answer within HEDDLE_OFI_TIMEOUT");
  } else {
    device_.directory().broken(rank, device_.library().why(answer));
  }
  return HEDDLE_ERR_PEER_FAILED;
}

void DeviceEndpoint::on_receive(const std::byte* data, std::size_t bytes) {
  device_.directory().note(data, data != nullptr ? bytes : 0);
}

void DeviceEndpoint::on_finished(Operation& operation, int error) {
  auto* note = static_cast<Note*>(&operation);
  const std::uint32_t rank = note->rank;
  notes_.give_back(note);
  --sending_;
  if (error != FI_SUCCESS && ranks_[rank].open) {
    device_.directory().broken(rank, device_.library().why(-error));
  }
}

}  // namespace heddle::transport::ofi
