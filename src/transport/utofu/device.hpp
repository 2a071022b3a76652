// The state that the workers of one rank share: the library, the device VCQ, the directory, the
// regions, the known peers.
//
// Peers read the directory through the device VCQ, without the owner's processor. The only notices
// on this VCQ are those of its own writes to the directory. Regions are reached through the ports,
// which the card names: the device VCQ, and one VCQ on each further TNI. Memory that Heddle has
// allocated is registered with all ports under one number, from which peers compute the STADDs. The
// caller's memory is registered with one port, in turn, since it may be needed for one message
// only.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "memory/unmap_watch.hpp"
#include "transport/utofu/layout.hpp"
#include "transport/utofu/library.hpp"

namespace heddle::transport::utofu {

// Pages of this process, zeros at first. The destructor unmaps them.
class Pages {
 public:
  static base::Result<Pages> create(std::uint64_t bytes);
  Pages() = default;
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// A worker's VCQ with its block. It lives as long as peers may write to it: also after the worker
// was closed.
struct OwnVcq {
  Vcq vcq;
  Pages block;
  utofu_stadd_t stadd = 0;
};

struct PeerProcess {
  std::uint32_t rank = 0;
  Ports ports;
  utofu_stadd_t directory_stadd = 0;
  [[nodiscard]] utofu_vcq_id_t device_vcq() const { return ports.vcq[0]; }
};

class Device {
 public:
  static base::Result<std::unique_ptr<Device>> create(bootstrap::Bootstrap& bootstrap,
                                                      const base::Environment& environment);
  ~Device();

  [[nodiscard]] Library& library() { return *library_; }
  [[nodiscard]] std::uint32_t rank() const { return bootstrap_.rank(); }
  [[nodiscard]] std::uint32_t size() const { return bootstrap_.size(); }
  [[nodiscard]] std::uint32_t max_workers() const { return max_workers_; }
  [[nodiscard]] const bootstrap::JobSecret& secret() const { return secret_; }
  [[nodiscard]] const base::Environment& environment() const { return environment_; }
  [[nodiscard]] bool failed(std::uint32_t rank) const { return bootstrap_.failed(rank); }
  // The NIC has met no peer there; only the first time counts. Any thread.
  void lose(std::uint32_t rank) {
    std::uint32_t not_yet = 0;
    if (lost(rank) != 0) return;
    lost_[rank].compare_exchange_strong(not_yet, losses_.fetch_add(1, std::memory_order_relaxed) + 1,
                                        std::memory_order_relaxed);
  }
  // See Transport::lost().
  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const { return lost_[rank].load(std::memory_order_relaxed); }
  [[nodiscard]] Sizes sizes(bool exclusive) const;

  // The peer, set up on first use. Returns at once. AGAIN: its card is not here yet, or another
  // thread is busy here; call again.
  [[nodiscard]] base::Result<const PeerProcess*> peer(std::uint32_t rank);

  // See Transport::check_peer().
  [[nodiscard]] base::Status check_peer(std::uint32_t rank);

  // A VCQ and a registered block for a worker. STATE: that worker's number was used before.
  [[nodiscard]] base::Result<std::unique_ptr<OwnVcq>> open_own_vcq(std::uint32_t worker, Sizes* sizes);
  // Writes a worker's entry, open or closed, into the directory; waits for the NIC.
  [[nodiscard]] base::Status announce(std::uint32_t worker, DirectoryEntry entry);
  // Keeps it until the destructor.
  void keep(std::unique_ptr<OwnVcq> own_vcq);

  // `pages`: the memory, if it was allocated here; empty if it is the caller's.
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes, Pages pages);
  void deregister(std::uint64_t id);
  // Writes kWays ways. PROTOCOL: the key names a port or a number that the peer does not have.
  [[nodiscard]] base::Status ways_to(const PeerProcess& peer, const KeyBytes& key, Way* ways) const;

 private:
  struct Region {
    std::uint16_t stag = KeyBytes::kNoStag;
    std::uint16_t port = 0;                 // if it has no stag
    utofu_stadd_t stadds[kMostPorts] = {};  // on the ports; if it has no stag, the first only
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    Pages pages;  // if it was allocated here
  };

  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, Library& library);
  static constexpr std::uint64_t kSharers = 8;  // VCQs that share one CQ, at most
  static constexpr std::size_t kStags = 256;    // stags that a program may choose itself

  base::Status set_up();
  base::Status open_ports();
  [[nodiscard]] Ports own_ports() const;
  bool register_with_all(void* address, std::uint64_t bytes, Region* region);
  void deregister(const Region& region);
  base::Result<std::unique_ptr<OwnVcq>> make_own_vcq(Sizes* sizes);
  [[nodiscard]] bool may_share() const { return mrq_depth_ / kSharers >= kLeastMrqDepth; }
  base::Result<const PeerProcess*> meet(std::uint32_t rank);
  base::Result<CardBytes> read_card(std::uint32_t rank);
  void release(OwnVcq& own_vcq);

  bootstrap::Bootstrap& bootstrap_;
  const base::Environment& environment_;
  Library* library_;
  const std::uint32_t max_workers_;
  const std::uint64_t mrq_depth_;
  const std::uint64_t most_exclusive_;  // of this process
  const bootstrap::JobSecret secret_;
  const Agreed agreed_;
  // set if unmapping is not watched, so that we must report what we unmap; else null
  const std::shared_ptr<memory::UnmapWatch> watch_;
  Vcq vcq_;                 // the device VCQ
  std::vector<Vcq> ports_;  // the device VCQ first
  Pages directory_;
  utofu_stadd_t directory_stadd_ = 0;
  // By rank, in which order they were lost; 0: not. Relaxed: for reports.
  std::vector<std::atomic<std::uint32_t>> lost_;
  std::atomic<std::uint32_t> losses_{0};
  // release in meet(); partner: the acquire load in peer()
  std::vector<std::atomic<const PeerProcess*>> peers_;
  // one announcement at a time, so that a notice on the device VCQ belongs to it
  std::mutex announcing_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<PeerProcess>> met_;
  bool version_told_ = false;
  std::vector<bool> used_;  // by worker number: it was opened
  std::vector<std::unique_ptr<OwnVcq>> kept_;
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t next_region_ = 0;
  std::mutex registering_;   // guards the next two; CQ locks are taken while it is held
  std::vector<bool> stags_;  // in use by this rank; other users of the CQs have numbers, too
  std::size_t next_stag_ = 0;
};

}  // namespace heddle::transport::utofu
