// The state that the workers of one process share: its segment, its regions, and the known peers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "queue/bell.hpp"
#include "queue/locks.hpp"
#include "queue/record_ring.hpp"
#include "transport/shm/bounce.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/region_key.hpp"
#include "transport/shm/segment.hpp"

namespace heddle::transport::shm {

enum class Cma : std::uint32_t { untried, allowed, forbidden };

// What this process knows of a process of the job, itself included. Lives as long as the Device.
struct PeerProcess {
  std::uint32_t rank = 0;
  std::int32_t pid = 0;
  Mapping* mapping = nullptr;
  ControlView control;
  Agreement agreement;
  // partner: none; any thread may find it out, and finding it out twice does no harm
  std::atomic<Cma> cma{Cma::untried};
  // its bounce pool; release and acquire in Transfers::pool_of
  std::atomic<std::byte*> pool{nullptr};
  std::unique_ptr<Mapping> owned_mapping;  // of other processes
};

class Device {
 public:
  ~Device();
  // Publishes the card, so from now on peers may write to the segment. CONFIG, SYSTEM, BOOTSTRAP, …
  static base::Result<std::unique_ptr<Device>> create(bootstrap::Bootstrap& bootstrap,
                                                      const base::Environment& environment);

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return layout_.size; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const base::Environment& environment() const { return environment_; }
  [[nodiscard]] const ControlView& control() const { return control_; }
  [[nodiscard]] Segment& segment() { return *segment_; }
  [[nodiscard]] BouncePool& bounce() { return bounce_; }
  [[nodiscard]] const queue::Bell<>& bell() const { return bell_; }
  // This process executes the barrier between arming and checking, so that its senders need not.
  [[nodiscard]] bool membarrier() const { return agreement_.membarrier != 0; }
  // A full fence in all threads of the job. False: it has failed.
  [[nodiscard]] static bool heavy_fence() { return base::membarrier_shared(); }
  // The calling thread has armed a worker whose senders execute no fence.
  static void want_heavy_fence();
  static void heavy_fence_if_wanted();
  // The bell pull that wakes that worker.
  [[nodiscard]] queue::BellPull bell_pull(const PeerProcess& peer, std::uint32_t worker) {
    return pull_of(peer, peer.control.worker(worker).armed, queue::place(worker));
  }
  // See Transport::stores_bell() and arm_stores().
  [[nodiscard]] std::optional<queue::BellPull> stores_bell(std::uint32_t rank);
  void arm_stores();
  [[nodiscard]] bool cma_enabled() const { return cma_enabled_; }
  [[nodiscard]] SegmentRegions& regions() { return regions_; }
  [[nodiscard]] bool failed(std::uint32_t rank) const { return bootstrap_.failed(rank); }

  // The peer, set up on first use. Returns at once. AGAIN: its card is under way or not published
  // yet, or another thread sets a peer up; call again. PEER_FAILED, VERSION, PROTOCOL, SYSTEM,
  // NO_MEMORY (descriptors).
  [[nodiscard]] base::Result<PeerProcess*> peer(std::uint32_t rank);
  // See Transport::check_peer().
  [[nodiscard]] base::Status check_peer(std::uint32_t rank);
  // Asks for the card that peer() of this rank will need.
  void prepare_peer(std::uint32_t rank) {
    if (rank != rank_ && peers_[rank].load(std::memory_order_acquire) == nullptr) bootstrap_.ask_ahead(rank);
  }
  [[nodiscard]] const queue::Bell<>* card_bell() const { return bootstrap_.card_bell(); }

  // Makes a new, empty ring from this process to a peer's worker and announces it.
  [[nodiscard]] base::Result<std::byte*> open_ring(std::uint32_t source_worker, PeerProcess& target,
                                                   std::uint32_t target_worker);

 private:
  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Agreement& agreement);
  base::Result<PeerProcess*> meet(std::uint32_t rank);
  base::Status introduce(PeerProcess& peer);
  queue::BellPull pull_of(const PeerProcess& peer, std::atomic<std::uint32_t>& armed, queue::Places place);

  bootstrap::Bootstrap& bootstrap_;
  const base::Environment& environment_;
  Agreement agreement_;
  Layout layout_;
  std::uint32_t rank_;
  std::unique_ptr<Segment> segment_;
  ControlView control_;
  queue::Bell<> bell_;
  std::atomic<std::uint32_t> always_{1};
  SegmentRegions regions_;
  BouncePool bounce_;
  bool cma_enabled_;
  std::vector<std::atomic<PeerProcess*>> peers_;  // release in meet(); acquire in peer()
  // Guards owned_peers_ and the stores to peers_. It also lets only one thread ask for cards: each
  // card brings a descriptor, which nobody would take over once the peer is known. Threads only try
  // it; none waits.
  std::mutex meeting_;
  std::vector<std::unique_ptr<PeerProcess>> owned_peers_;
  bool version_told_ = false;  // guarded by meeting_
  std::mutex ring_list_;       // guards the appending to the ring list
  // Guards what follows. A thread that waits for a helper fetches it.
  queue::FetchingMutex stores_mutex_;
  std::optional<queue::Arming<std::atomic<std::uint32_t>>> stores_arming_;
};

// Cross-memory attach: the kernel copies directly between this process's memory and a peer's, if it
// permits that.

enum class Direction : std::uint8_t { put, get };

// Copies `bytes` between `local` and `remote` (an address in the peer). UNSUPPORTED: the kernel
// forbids it for this peer; peer.cma records that. PEER_FAILED: the process is gone. RANGE: the
// peer has no memory there.
base::Status cma_copy(PeerProcess& peer, Direction direction, void* local, std::uint64_t remote, std::uint64_t bytes);

// Whether the kernel permits it for this peer. The first call tries, with a byte at `remote`.
bool cma_works(const Device& device, PeerProcess& peer, std::uint64_t remote);

// The two ends of a worker's rings, and what travels in them.

inline constexpr std::uint8_t kMessageType = 2;
inline constexpr std::uint8_t kPutType = 3;       // TransferRequest
inline constexpr std::uint8_t kGetType = 4;       // TransferRequest
inline constexpr std::uint8_t kSmallPutType = 5;  // SmallRequest, then the data
inline constexpr std::uint8_t kSmallGetType = 6;  // SmallRequest
inline constexpr std::uint8_t kCellType = 7;      // CellRecord: a message

// The outcome of a record that is no message by itself. no_memory: nothing has happened; look at it
// again later.
enum class Served : std::uint8_t { done, malformed, no_memory };

// A ring to a peer's worker.
struct OutgoingRing {
  queue::RecordProducer<> ring;
  queue::BellPull bell;
  PeerProcess* peer = nullptr;
  std::uint32_t worker = 0;
  WorkerEntry* entry = nullptr;  // the target's
  // The cells of its records that are not known as freed (cells.hpp), a queue; made with the first.
  struct LentCell {
    std::uint64_t end = 0;  // the ring's index behind its record
    std::uint32_t cell = 0;
  };
  std::unique_ptr<LentCell[]> cells;
  std::uint32_t first_cell = 0;
  std::uint32_t cell_count = 0;

  void publish() {
    ring.publish();
    bell.published();
  }
  [[nodiscard]] bool is_closed() const {
    return static_cast<WorkerState>(entry->state.load(std::memory_order_acquire)) == WorkerState::closed;
  }
};

// A ring from a peer's worker.
struct IncomingRing {
  queue::RecordConsumer<> ring;
  PeerProcess* peer = nullptr;
  std::uint32_t worker = 0;
  const std::byte* cells = nullptr;  // of that worker, as mapped here; null: not yet
  std::uint32_t cell_bytes = 0;      // taken from cells since they were last given back at once
  bool took_cells = false;           // among what is lent
  bool lent = false;                 // the next poll releases records of it
  std::uint32_t stream = 0;          // records taken lately, less the polls that found none
  std::uint32_t rest = 0;            // number of polls that skip it
  // A record that was taken from its copy; lent as records are.
  alignas(8) std::byte copy[queue::RecordConsumer<>::kCopyBytes];

  // Called when the ring was emptied and gave `records`. If a ring that is being filled all the
  // time were polled again at once, we would take the line of its tail from the producer for every
  // record. After a rest of about as long as a look takes, the ring gives several records. Bursts
  // shorter than kStream get no rest.
  void pace(std::size_t records) {
    if (records == 0) {
      if (stream > 0) --stream;
      return;
    }
    stream = stream + records < std::size_t{2} * kStream ? stream + static_cast<std::uint32_t>(records) : 2 * kStream;
    if (streams()) rest = std::clamp(look_ns / kPollNs, kLeastRest, kMostRest);
  }
  [[nodiscard]] bool streams() const { return stream >= kStream; }
  // A look that found records has taken so long: mostly for the line of the tail to come.
  void looked(std::uint64_t ns) {
    const auto taken = static_cast<std::uint32_t>(std::min<std::uint64_t>(ns, kMostLookNs));
    look_ns = (3 * look_ns + taken) / 4;
  }

  static constexpr std::uint32_t kStream = 32;
  static constexpr std::uint32_t kPollNs = 12;  // about what a poll that skips the ring takes
  static constexpr std::uint32_t kLeastRest = 8;
  static constexpr std::uint32_t kMostRest = 24;
  static constexpr std::uint32_t kMostLookNs = 1000;  // the thread has lost its core meanwhile

  std::uint32_t look_ns = 0;  // mean of the last few, while it streams
};

}  // namespace heddle::transport::shm
