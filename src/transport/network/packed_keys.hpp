// The packed keys of regions, by which peers name them. KeyBytes is a transport's format: it has
// magic, rank, address, bytes, seal and zero, and what the transport adds.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/error.hpp"
#include "transport/common/checks.hpp"
#include "transport/network/device.hpp"
#include "transport/network/wire.hpp"

namespace heddle::transport::network {

// Describes a region of this rank, with its packed key. The caller has filled what its transport
// adds to the key.
template <class KeyBytes>
[[nodiscard]] LocalMemory describe_region(const Device& device, void* address, std::uint64_t bytes, std::uint64_t id,
                                          KeyBytes key) {
  static_assert(sizeof key <= kKeyBytes);
  key.rank = device.rank();
  key.address = reinterpret_cast<std::uintptr_t>(address);
  key.bytes = bytes;
  seal(&key, device.secret());
  LocalMemory local;
  local.address = address;
  local.bytes = bytes;
  local.id = id;
  std::memcpy(local.key.bytes.data(), &key, sizeof key);
  return local;
}

// Reads a packed key, which comes from the network. PROTOCOL: it is no key of that rank.
// PEER_FAILED.
template <class KeyBytes>
[[nodiscard]] base::Result<KeyBytes> read_key(const Device& device, std::uint32_t rank, const MemoryKey& packed) {
  KeyBytes key;
  std::memcpy(&key, packed.bytes.data(), sizeof key);
  if (key.magic != KeyBytes::kMagic || !sealed(key, device.secret()) || key.rank != rank || key.zero != 0)
    return fail_key(device.names().transport, rank);
  if (device.failed(rank)) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
  return key;
}

}  // namespace heddle::transport::network
