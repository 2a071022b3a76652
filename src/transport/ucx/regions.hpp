// The regions of a rank, and those of its peers that it has imported. UCX's own keys are longer
// than a packed region may be: so a packed region carries a number, and its key is asked for on
// first use (network::Directory).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/network/courier.hpp"
#include "transport/ucx/common.hpp"
#include "transport/ucx/wire.hpp"

namespace heddle::transport::ucx {

class Device;

class Regions final : public network::KeyShelf {
 public:
  // `device`: not used before it is complete.
  Regions(Device& device, const Functions& call) : device_(device), call_(call) {}

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes);
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes);
  void free(const LocalMemory& memory) { deregister(memory.id); }  // UCX has allocated it
  void deregister(std::uint64_t id);
  // At the end.
  void deregister_all(ucp_context_h context);

  // The key comes from the network. PROTOCOL: it is no key of that rank.
  // handle: [0] number of the import, [1] its generation, [2] address in the owner. Imports of one
  // region share the first two, so that its key is unpacked once.
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint32_t rank, const MemoryKey& key);
  void release(const RemoteMemory& memory);
  // With the device's mutex. False: it was released.
  [[nodiscard]] bool import_is(std::uint64_t import, std::uint64_t generation);
  // Changes whenever an import is released. Relaxed: a late look does no harm.
  [[nodiscard]] std::uint64_t releases() const { return releases_.load(std::memory_order_relaxed); }
  // The packed key of an imported region. AGAIN. RANGE: its owner has deregistered it, or it was
  // released here.
  [[nodiscard]] base::Result<Bytes> key(std::uint64_t import, std::uint64_t generation);

  // ---- for the directory, with the device's mutex
  [[nodiscard]] const Bytes* packed(std::uint64_t id) const override;
  void learn(std::uint32_t rank, std::uint64_t id, const std::byte* key, std::uint32_t bytes) override;
  void ask_again(std::uint32_t rank, std::uint64_t id) override;

 private:
  enum class Known : std::uint8_t { nothing, asked, there, gone };
  struct Region {
    ucp_mem_h memory = nullptr;
    Bytes packed;
  };
  struct Import {
    std::uint64_t generation = 0;
    std::uint64_t uses = 0;  // imports of the same region
    std::uint32_t rank = 0;
    std::uint64_t id = 0;
    Known known = Known::nothing;
    Bytes packed;
  };
  // The import that waits for this key. Null: there is none.
  Import* asked(std::uint32_t rank, std::uint64_t id);
  base::Result<LocalMemory> enter(ucp_mem_h memory, void* address, std::uint64_t bytes);

  Device& device_;
  const Functions& call_;
  // The device's mutex guards what follows.
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t next_region_ = 1;
  std::vector<Import> imports_;
  std::vector<std::uint64_t> free_imports_;
  // by rank and region
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> import_of_;
  std::uint64_t next_generation_ = 1;
  std::atomic<std::uint64_t> releases_{0};
};

}  // namespace heddle::transport::ucx
