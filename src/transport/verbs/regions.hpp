// The regions of a rank. Each is registered with every adapter of the rank that works.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {

class Device;

// Any thread.
class Regions {
 public:
  explicit Regions(Device& device) : device_(device) {}

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes);
  void free(const LocalMemory& memory);
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes);
  void deregister(std::uint64_t id);
  // At the end, before the adapters are closed.
  void deregister_all();

  // The key comes from the network. PROTOCOL: it is no key of that rank.
  // handle: [0] rkeys, that of the owner's first adapter in the lower half; [1] address in the
  // owner.
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint32_t rank, const MemoryKey& key) const;

 private:
  using Registered = std::array<ibv_mr*, kMostAdapters>;  // with each adapter; null: there is none

  void deregister(const Registered& registered) const;

  Device& device_;
  std::mutex mutex_;  // guards what follows; taken with no other
  std::unordered_map<std::uint64_t, Registered> regions_;
  std::uint64_t next_ = 1;
};

}  // namespace heddle::transport::verbs
