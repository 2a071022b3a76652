#include "transport/network/transport.hpp"

#include <limits>

namespace heddle::transport::network {
namespace {

// Data that does not fit into a few messages is better fetched by its receiver.
constexpr std::uint64_t kFetchBytes = std::uint64_t{32} << 10;

}  // namespace

NetworkTransport::NetworkTransport(std::unique_ptr<Device> owned, std::uint32_t opcodes, std::uint32_t key_bytes)
    : bootstrap_(owned->bootstrap()), device_(std::move(owned)) {
  Device& device = *device_;
  bootstrap_.set_bell(&device.helper().bell());
  // a wake-up of the library costs its senders nothing more
  capabilities_.sleeping = Sleeping::free;
  capabilities_.name = device.names().transport;
  capabilities_.opcodes = bit(Opcode::message) | opcodes;
  capabilities_.copies_messages = true;
  capabilities_.ordered_messages = true;
  capabilities_.max_message = kMostMessage;
  capabilities_.max_transfer = std::numeric_limits<std::int64_t>::max();
  capabilities_.fetch_bytes = kFetchBytes;
  capabilities_.max_workers = device.max_workers();
  capabilities_.memory_per_peer = std::uint64_t{device.window()} + cost_of(kMostMessage);
  capabilities_.key_bytes = key_bytes;
}

}  // namespace heddle::transport::network
