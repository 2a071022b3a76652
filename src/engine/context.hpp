// One process's membership in a job: what all its workers share.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/environment.hpp"
#include "base/wait.hpp"
#include "bootstrap/bootstrap.hpp"
#include "engine/attachment.hpp"
#include "engine/completion.hpp"
#include "engine/executor.hpp"
#include "engine/extension.hpp"
#include "engine/handler_table.hpp"
#include "engine/progress/helpers.hpp"
#include "engine/region.hpp"
#include "engine/sharing.hpp"
#include "engine/small_offload.hpp"
#include "memory/region_table.hpp"
#include "queue/fetching_mutex.hpp"
#include "queue/meeting.hpp"
#include "transport/transport.hpp"
#include "wire/packed_region.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

class Worker;

// Objects of one kind that a context owns, each with the handle under which the C API knows it. Any
// thread.
template <class T>
class Owned {
 public:
  ~Owned() {
    for (auto& [object, entry] : entries_) close_handle(entry.id);
  }
  // On an error, thrown ones included, the object is destroyed and no handle is open.
  base::Result<T*> add(std::unique_ptr<T> object) {
    T* raw = object.get();
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.emplace(raw, Entry{0, std::move(object)}).first;
    try {
      entry->second.id = open_handle(T::kType, raw);
    } catch (...) {
      entries_.erase(entry);
      throw;
    }
    if (entry->second.id != 0) return raw;
    entries_.erase(entry);
    return base::fail(HEDDLE_ERR_NO_MEMORY, "all %zu handles of this kind are open in this process; close some",
                      handle_entries(T::kType) - 1);
  }
  // The handle is closed first, so that nobody finds the object any more.
  std::unique_ptr<T> remove(const T* object) noexcept {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(object);
    if (it == entries_.end()) return nullptr;
    close_handle(it->second.id);
    std::unique_ptr<T> taken = std::move(it->second.object);
    entries_.erase(it);
    return taken;
  }
  std::unique_ptr<T> remove_any() noexcept { return remove(any()); }
  // Any one of them; null: there is none.
  [[nodiscard]] T* any() const noexcept {
    const std::lock_guard lock(mutex_);
    return entries_.empty() ? nullptr : entries_.begin()->second.object.get();
  }
  [[nodiscard]] std::uint64_t handle(const T* object) const {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(object);
    return it == entries_.end() ? 0 : it->second.id;
  }
  // Runs function(object) for each; none of them is destroyed meanwhile.
  template <class Function>
  void for_each(Function&& function) {
    const std::lock_guard lock(mutex_);
    for (auto& [object, entry] : entries_) function(*entry.object);
  }
  [[nodiscard]] std::vector<T*> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<T*> objects;
    for (const auto& [object, entry] : entries_) objects.push_back(entry.object.get());
    return objects;
  }

 private:
  struct Entry {
    std::uint64_t id;
    std::unique_ptr<T> object;
  };
  mutable queue::FetchingMutex mutex_;
  std::unordered_map<const T*, Entry> entries_;
};

// What a rank is in when it exchanges. Travels before the bytes of the exchange, so that ranks
// which call different collectives are told instead of being matched.
enum class Collective : std::uint8_t { barrier = 1, exchange, region_exchange, leave, team };
inline constexpr std::size_t kMostExchanged = std::size_t{1} << 20;  // bytes of each rank
inline constexpr std::size_t kExchangeHead = 2;                      // bytes before them
inline constexpr std::int64_t kAnswersNs =
    2'000'000'000;  // a worker that closes waits so long for room for its answers

struct ContextOptions {
  bootstrap::Options bootstrap;
  const char* transport = nullptr;    // null: as transport::choose() finds
  const char* progress = nullptr;     // null: HEDDLE_PROGRESS
  OpenExtension extension = nullptr;  // of every worker; null: none
};

class Context {
 public:
  static constexpr HandleType kType = HandleType::context;

  static base::Result<std::unique_ptr<Context>> join(const ContextOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] std::uint32_t rank() const { return bootstrap_->rank(); }
  [[nodiscard]] std::uint32_t size() const { return bootstrap_->size(); }
  [[nodiscard]] base::Environment& environment() { return environment_; }
  [[nodiscard]] base::Clock& clock() { return clock_; }
  [[nodiscard]] bootstrap::Bootstrap& bootstrap() { return *bootstrap_; }
  // That rank has died or left, or the transport has given it up (decision 0039): nothing comes
  // from it any more. What only keeps ranks together (barriers, exchanges,
  // heddle_context_peer_status) asks the bootstrap, which may reach it still. Any thread.
  [[nodiscard]] bool failed(std::uint32_t rank) const { return bootstrap_->failed(rank) || transport_->given_up(rank); }
  [[nodiscard]] transport::Transport& transport() { return *transport_; }
  [[nodiscard]] const memory::RegionTable& regions() const { return regions_; }
  // Of either class; its function null: none. Any thread.
  [[nodiscard]] Handler handler(std::uint32_t number) const { return handlers_.find(number); }
  void register_handler(std::uint32_t number, Handler handler);
  [[nodiscard]] std::uint64_t handle() const { return handle_; }

  // HEDDLE_SHARING, HEDDLE_SMALL_OFFLOAD.
  [[nodiscard]] Sharing default_sharing() const { return default_sharing_; }
  [[nodiscard]] OffloadPolicy small_offload() const { return small_offload_; }
  // Null: workers have none.
  [[nodiscard]] OpenExtension extension() const { return extension_; }
  struct WorkerOptions {
    Sharing sharing = Sharing::exclusive;
    bool no_help = false;  // helpers leave it alone
    bool aggregation = false;
    // the library's own: it has the last number there is, so that the application's are not
    // disturbed
    bool internal = false;
  };
  // The number of every rank's internal worker.
  [[nodiscard]] std::uint32_t internal_worker() const { return transport_->capabilities().max_workers - 1; }
  base::Result<Worker*> open_worker(const WorkerOptions& options);
  [[nodiscard]] Helpers& helpers() { return *helpers_; }
  [[nodiscard]] Executors& executors() { return *executors_; }
  // Capabilities::one_thread: every worker is in offload mode, on the thread of
  // ExecutorLoop::of_process().
  [[nodiscard]] bool one_thread() const { return transport_->capabilities().one_thread; }
  base::Status close_worker(Worker* worker);
  base::Result<Region*> open_region(void* address, std::uint64_t bytes);  // null address: allocate
  void close_region(Region* region);
  // The open region in which all of [address, address + bytes) lies; null: there is none. It stays
  // as long as the program lets it.
  [[nodiscard]] Region* region_around(const void* address, std::uint64_t bytes);
  // One for each context, for as long as it lives; null: none yet. Any thread; of two that attach
  // one wins.
  [[nodiscard]] Attachment* attachment() const { return attachment_.load(std::memory_order_acquire); }
  Attachment* attach(std::unique_ptr<Attachment> attachment);
  // Memory of the caller's for one operation with that rank. Any thread.
  base::Result<LentMemory> lend(std::uint32_t rank, void* address, std::uint64_t bytes);
  void take_back(const LentMemory& lent);
  base::Result<RemoteRegion*> import(std::span<const std::byte> packed);
  void close_remote(RemoteRegion* remote);
  base::Result<Counter*> open_counter(const Worker* only, bool counts_done);
  void close_counter(Counter* counter);

  // What was released while operations named it is destroyed when they have ended: true while there
  // is some, and a look at what has become free. Any thread.
  [[nodiscard]] bool retired() const { return retired_.load(std::memory_order_relaxed) > 0; }
  void reclaim() noexcept;

  [[nodiscard]] std::uint64_t handle_of(const Worker* object) const { return workers_.handle(object); }
  [[nodiscard]] std::uint64_t handle_of(const Region* object) const { return owned_regions_.handle(object); }
  [[nodiscard]] std::uint64_t handle_of(const RemoteRegion* object) const { return remotes_.handle(object); }
  [[nodiscard]] std::uint64_t handle_of(const Counter* object) const { return counters_.handle(object); }
  // For any rank, and how many bytes of that matter; for one rank.
  [[nodiscard]] std::array<std::byte, wire::kPackedRegionBytes> pack(const Region& region) const;
  [[nodiscard]] std::size_t packed_bytes(const Region& region) const;
  [[nodiscard]] std::array<std::byte, wire::kNarrowRegionBytes> pack_for(std::uint32_t rank,
                                                                         const Region& region) const;

  // Collective exchange of at most kMostExchanged bytes; makes progress on `worker`, if any. See
  // heddle_context_barrier and heddle_context_exchange. STATE: a rank is in another collective.
  struct Exchange {
    Collective kind = Collective::barrier;
    std::span<const std::byte> mine;
    Worker* worker = nullptr;
    std::int64_t timeout_ns = HEDDLE_FOREVER;
  };
  base::Status exchange(const Exchange& exchange, std::vector<std::vector<std::byte>>* all);
  // Whatever it returns, the context has been left if left() says so.
  base::Status leave();
  [[nodiscard]] bool left() const { return left_; }
  // What waits have learned about the cores. Any thread.
  [[nodiscard]] base::Crowd& crowd() { return crowd_; }
  // Sleeps for `ns` (at most a second), or until something arrives for one of these workers, after
  // progress on them has found nothing. What does not ring (see transport.hpp) does not end it.
  void nap(std::span<Worker* const> workers, std::int64_t ns);
  void nap(Worker* worker, std::int64_t ns) { nap({&worker, 1}, ns); }
  // Of all workers, in a report about a wait.
  void report_operations();
  [[noreturn]] void abort(int code, const char* message);

  // Called by workers when the failure epoch has moved: closes the regions of the dead for direct
  // access, reports each death once. Any thread.
  void note_failures();
  // The first arrival that had to be dropped is reported; the others are only counted.
  void report_drop(std::uint32_t worker, heddle_peer source, const char* why);

 private:
  explicit Context(base::Environment environment);
  base::Status open_parts(const ContextOptions& options);
  base::Status open_transport(const std::string& name);
  void open_executors(CompleterThread completer);
  void open_helpers(const Policy& policy);
  void free_region(const Region& region);
  base::Result<Region*> add_region(const transport::LocalMemory& memory, bool allocated);
  base::Result<RemoteRegion*> add_remote(const wire::PackedRegion& name, const transport::RemoteMemory& memory);
  void end_worker(Worker* worker);
  [[nodiscard]] base::Status quiet_before_close(Worker* worker);
  class Leaving;  // leave.cpp
  int progress_attachment();
  base::Status start_exchange(Collective kind, std::span<const std::byte> mine);
  base::Status begin_exchange(Collective kind, std::span<const std::byte> mine);
  base::Status test_exchange(Collective kind, std::vector<std::vector<std::byte>>* all);
  [[nodiscard]] base::Status take_heads(Collective kind, std::vector<std::vector<std::byte>>* all);
  [[nodiscard]] std::string missing();
  void describe_awaited(std::span<char> text);
  [[nodiscard]] base::Status not_arrived(std::int64_t timeout_ns);

  base::SystemClock clock_;
  base::Crowd crowd_;
  base::Environment environment_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::unique_ptr<transport::Transport> transport_;
  memory::RegionTable regions_;
  HandlerTable<wire::kHandlerNumbers> handlers_;  // set under mutex_
  Sharing default_sharing_ = Sharing::exclusive;
  OffloadPolicy small_offload_ = OffloadPolicy::off;
  OpenExtension extension_ = nullptr;
  bool handover_ = false;  // exclusive workers can be helped
  std::unique_ptr<Helpers> helpers_;
  std::unique_ptr<Executors> executors_;
  std::uint64_t job_ = 0;  // digest of the job's secret
  std::uint64_t handle_ = 0;
  // Guarded by exchange_mutex_.
  bool in_exchange_ = false;  // an exchange was started and has not ended
  bool by_memory_ = false;    // it is a barrier by meeting_, not one of the bootstrap
  queue::Meeting<> meeting_;
  bool meets_ = false;  // meeting_ is there, in all ranks
  bool left_ = false;
  std::mutex exchange_mutex_;

  // Owned. Release by attach(), partner: the acquire load in attachment().
  std::atomic<Attachment*> attachment_{nullptr};

  Owned<Worker> workers_;
  Owned<Region> owned_regions_;
  Owned<RemoteRegion> remotes_;
  Owned<Counter> counters_;

  // Released objects that some worker's MarkTable names, or may name.
  queue::FetchingMutex retired_mutex_;  // guards the two lists; taken before the workers' own
  std::vector<std::unique_ptr<RemoteRegion>> retired_remotes_;
  std::vector<std::unique_ptr<Counter>> retired_counters_;
  // entries of both; relaxed: who misses one leaves it to the next look
  std::atomic<std::size_t> retired_{0};

  // guards what follows; never held while a transport or bootstrap is called
  queue::FetchingMutex mutex_;
  std::vector<bool> known_failed_;
  std::uint32_t next_worker_ = 0;
  bool internal_open_ = false;  // the last number is taken
  bool drop_reported_ = false;
};

}  // namespace heddle::engine
