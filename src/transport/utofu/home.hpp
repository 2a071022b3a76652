// What the workers of one rank share: the library, the home VCQ, the directory, the regions, the peers it has met.
//
// The home VCQ is the one that peers know from the card: they read the directory through it without the owner doing anything, and
// it is the target of puts, gets and atomics. It gets no notices but those of its own writes to the directory.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/utofu/layout.hpp"
#include "transport/utofu/library.hpp"

namespace heddle::transport::utofu {

// Pages of this process, zeros at first; registered with one VCQ if `enroll` was called.
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

// A VCQ with its block, as long as peers may write to it: also after its worker was closed.
struct Station {
  Vcq vcq;
  Pages block;
  utofu_stadd_t stadd = 0;
};

struct Peer {
  std::uint32_t rank = 0;
  utofu_vcq_id_t home_vcq = 0;
  utofu_stadd_t directory_stadd = 0;
};

class Home {
 public:
  static base::Result<std::unique_ptr<Home>> create(bootstrap::Bootstrap& bootstrap,
                                                    const base::Environment& environment);
  ~Home();

  [[nodiscard]] Library& library() { return *library_; }
  [[nodiscard]] std::uint32_t rank() const { return bootstrap_.rank(); }
  [[nodiscard]] std::uint32_t size() const { return bootstrap_.size(); }
  [[nodiscard]] std::uint32_t max_workers() const { return max_workers_; }
  [[nodiscard]] const bootstrap::JobSecret& secret() const { return secret_; }
  [[nodiscard]] const base::Environment& environment() const { return environment_; }
  [[nodiscard]] bool failed(std::uint32_t rank) const { return bootstrap_.failed(rank); }
  [[nodiscard]] Sizes sizes(bool exclusive) const;

  // The peer, met on first use. Returns at once; AGAIN: its card is under way; call again.
  [[nodiscard]] base::Result<const Peer*> peer(std::uint32_t rank);
  [[nodiscard]] base::Result<const Peer*> peer_wait(std::uint32_t rank);

  // A VCQ and a registered block for a worker. STATE: that number was used before.
  [[nodiscard]] base::Result<std::unique_ptr<Station>> open_station(std::uint32_t worker, Sizes* sizes);
  // Shows a worker to the peers, and that it was closed; waits for the NIC.
  [[nodiscard]] base::Status announce(std::uint32_t worker, Entry entry);
  // Kept until the rank ends.
  void keep(std::unique_ptr<Station> station);

  [[nodiscard]] base::Result<LocalMemory> enroll(void* address, std::uint64_t bytes, Pages pages);
  void withdraw(std::uint64_t id);

 private:
  struct Region {
    utofu_stadd_t stadd = 0;
    Pages pages;  // of allocated ones
  };

  Home(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, Library& library);
  static constexpr std::uint64_t kSharers = 8;  // VCQs of a CQ, at most

  base::Status set_up();
  base::Result<std::unique_ptr<Station>> make_station(Sizes* sizes);
  [[nodiscard]] bool may_share() const { return mrq_depth_ / kSharers >= kLeastMrqDepth; }
  base::Result<const Peer*> meet(std::uint32_t rank);
  void release(Station& station);

  bootstrap::Bootstrap& bootstrap_;
  const base::Environment& environment_;
  Library* library_;
  const std::uint32_t max_workers_;
  const std::uint64_t mrq_depth_;
  const std::uint64_t most_exclusive_;  // of this process
  const bootstrap::JobSecret secret_;
  const Agreed agreed_;
  Vcq vcq_;
  Pages directory_;
  utofu_stadd_t directory_stadd_ = 0;
  std::vector<std::atomic<const Peer*>> peers_;  // release in meet(); partner: the acquire load in peer()
  std::mutex announcing_;                        // notices on the home VCQ are those of one announcement
  std::mutex mutex_;                             // guards what follows
  std::vector<std::unique_ptr<Peer>> met_;
  bool version_told_ = false;
  std::vector<bool> used_;  // worker numbers
  std::vector<std::unique_ptr<Station>> kept_;
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t next_region_ = 0;
};

}  // namespace heddle::transport::utofu
