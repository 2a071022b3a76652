// One process's membership in a job: what all its workers share.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/fence.hpp"
#include "base/wait.hpp"
#include "bootstrap/bootstrap.hpp"
#include "engine/handles.hpp"
#include "engine/job.hpp"
#include "engine/objects.hpp"
#include "queue/locks.hpp"
#include "queue/meeting.hpp"
#include "worker/executor.hpp"
#include "worker/extension.hpp"
#include "worker/helpers.hpp"
#include "worker/inspection.hpp"
#include "worker/sharing.hpp"

namespace heddle::worker {

class Worker;

// The collective that a rank executes by an exchange. It travels before the bytes of the exchange,
// so that ranks that call different collectives get an error instead of being matched.
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

class Context : public engine::Job {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::context;

  static base::Result<std::unique_ptr<Context>> join(const ContextOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] std::uint64_t handle() const { return handle_; }

  // HEDDLE_SHARING, HEDDLE_SMALL_OFFLOAD.
  [[nodiscard]] Sharing default_sharing() const { return default_sharing_; }
  [[nodiscard]] OffloadPolicy small_offload() const { return small_offload_; }
  // Null: workers have none.
  [[nodiscard]] OpenExtension extension() const { return extension_; }
  struct WorkerOptions {
    Sharing sharing = Sharing::exclusive;
    bool no_help = false;  // helpers leave it alone
    // the library's own: it has the last number there is, so that the application's are not
    // disturbed
    bool internal = false;
    void* user = nullptr;  // the program's
    bool attends = false;  // waits on it move the other workers, too
  };
  // The internal worker has this number in every rank.
  [[nodiscard]] std::uint32_t internal_worker() const { return transport().capabilities().max_workers - 1; }
  base::Result<Worker*> open_worker(const WorkerOptions& options);
  [[nodiscard]] Helpers& helpers() { return *helpers_; }
  // Starts with the first call. Throws std::system_error if there can be no more threads.
  [[nodiscard]] Executor& executor();
  // Capabilities::one_thread: every worker is in offload mode, on the thread of
  // Executor::of_process().
  [[nodiscard]] bool one_thread() const { return transport().capabilities().one_thread; }
  base::Status close_worker(Worker* worker);
  // A context has one attachment, for as long as the context lives; null: none yet. Any thread; if
  // two threads attach, one wins.
  [[nodiscard]] Attachment* attachment() const { return attachment_.load(std::memory_order_acquire); }
  Attachment* attach(std::unique_ptr<Attachment> attachment);
  [[nodiscard]] std::uint64_t handle_of(const Worker* object) const { return workers_.handle(object); }
  // Regions, remote regions and counters.
  [[nodiscard]] engine::Objects& objects() { return objects_; }

  // Collective exchange of at most kMostExchanged bytes; makes progress on `worker`, if any. See
  // heddle_context_barrier and heddle_context_exchange. STATE: a rank is in another collective.
  struct Exchange {
    Collective kind = Collective::barrier;
    std::span<const std::byte> mine;
    Worker* worker = nullptr;
    std::int64_t timeout_ns = HEDDLE_FOREVER;
  };
  base::Status exchange(const Exchange& exchange, std::vector<std::vector<std::byte>>* all);
  // The result does not tell whether the context has been left; left() does.
  base::Status leave();
  [[nodiscard]] bool left() const { return left_; }
  // What waits have learned about the cores. Any thread.
  [[nodiscard]] base::Crowd& crowd() { return crowd_; }
  // Sleeps for `ns` (at most a second), or until something arrives for one of these workers. Call
  // it after progress on them has found nothing. Arrivals that do not ring (see transport.hpp) do
  // not end the sleep.
  void nap(std::span<Worker* const> workers, std::int64_t ns) {
    static_cast<void>(nap_unless(workers, {ns, ns}, nullptr));
  }
  // `attends`: as nap_attending().
  void nap(Worker* worker, std::int64_t ns, bool attends = false) {
    static_cast<void>(nap_unless({&worker, 1}, {ns, ns}, nullptr, attends));
  }
  struct Length {
    std::int64_t ns;
    std::int64_t rung_ns;  // if all that may come for the workers rings
  };
  // The same for one worker, unless it has moved since its moved() was `seen`: another thread may
  // have completed what this one waits for, and does not ring. False: the worker has moved, and
  // this thread has not slept.
  [[nodiscard]] bool nap_unless_moved(Worker* worker, Length length, std::uint64_t seen, bool attends = false) {
    return nap_unless({&worker, 1}, length, &seen, attends);
  }
  // The same for a thread that waits for other ranks and has called Helpers::attend() for what they
  // may wait for. Arrivals for those workers end the sleep, too.
  void nap_attending(std::span<Worker* const> workers, std::int64_t ns) {
    static_cast<void>(nap_unless(workers, {ns, ns}, nullptr, true));
  }
  // As nap_attending(), for a thread that waits for stores of peers which pull
  // Transport::stores_bell(). came(): one has come; asked once they ring. True: one has come, and
  // it has not slept.
  template <class Came>
  [[nodiscard]] bool nap_for_stores(std::span<Worker* const> workers, Length length, Came&& came) {
    Nap nap{.ns = length.ns, .stores = true};
    if (!begin_nap(workers, true, &nap)) return false;
    if (nap.stores) {
      if (nap.rings) helpers_->note_sleeper();
      if (came()) return true;
      if (nap.rings) nap.ns = length.rung_ns;
    }
    sleep(nap);
    return false;
  }
  // Collectives of the job that have been begun. Any thread.
  [[nodiscard]] std::uint64_t exchanges() const { return base::peek(exchanges_); }
  [[nodiscard]] Inspection& inspection() { return inspection_; }
  // In a traced job: notes that the calling thread comes to a collective. The numbers are as in
  // tap::Step.
  void note_entered(std::uint64_t team, std::uint64_t number, std::uint32_t members) const;
  // Reports the operations of all workers, in a report about a wait.
  void report_operations();
  [[noreturn]] void abort(int code, const char* message);

 private:
  explicit Context(base::Environment environment);
  // A sleep that begins.
  struct Nap {
    std::int64_t ns = 0;
    bool stores = false;       // peers' stores ring, too: wanted, then whether they do
    bool rings = false;        // all that may come for the workers rings
    queue::Places places = 0;  // what may wake the thread
    std::uint32_t seen = 0;    // Transport::bell()
  };
  // Arms what the sleep is to end by. False: there is something to do, or the sleep is over.
  bool begin_nap(std::span<Worker* const> workers, bool attends, Nap* nap);
  void sleep(const Nap& nap);
  bool nap_unless(std::span<Worker* const> workers, Length length, const std::uint64_t* moved, bool attends = false);
  void note_sleep(tap::TraceEvent event, std::int64_t ns) const;
  base::Status open_parts(const ContextOptions& options);
  base::Status open_transport(const std::string& name);
  void open_helpers(const Policy& policy);
  void end_worker(Worker* worker);
  [[nodiscard]] base::Status quiet_before_close(Worker* worker);
  class Leaving;  // leave.cpp
  int progress_attachment();
  int attend(std::uint32_t round, bool naps);
  base::Status start_exchange(Collective kind, std::span<const std::byte> mine);
  base::Status begin_exchange(Collective kind, std::span<const std::byte> mine);
  base::Status test_exchange(Collective kind, std::vector<std::vector<std::byte>>* all);
  [[nodiscard]] base::Status take_heads(Collective kind, std::vector<std::vector<std::byte>>* all);
  [[nodiscard]] std::string missing();
  void describe_awaited(Collective kind, tap::Wait& wait);
  [[nodiscard]] base::Status not_arrived(std::int64_t timeout_ns);

  base::Crowd crowd_;
  Inspection inspection_{*this};
  engine::Objects objects_{*this};
  Sharing default_sharing_ = Sharing::exclusive;
  OffloadPolicy small_offload_ = OffloadPolicy::off;
  OpenExtension extension_ = nullptr;
  bool handover_ = false;  // exclusive workers can be helped
  std::unique_ptr<Helpers> helpers_;
  std::mutex executor_mutex_;
  std::unique_ptr<Executor> executor_;
  std::uint64_t handle_ = 0;
  // Guarded by exchange_mutex_.
  bool in_exchange_ = false;     // an exchange was started and has not ended
  std::uint64_t exchanges_ = 0;  // begun so far
  bool by_memory_ = false;       // it is a barrier by meeting_, not one of the bootstrap
  queue::Meeting<> meeting_;
  bool meets_ = false;  // meeting_ is there, in all ranks
  bool left_ = false;
  std::mutex exchange_mutex_;

  // Owned. Release by attach(), partner: the acquire load in attachment().
  std::atomic<Attachment*> attachment_{nullptr};

  engine::Owned<Worker> workers_;

  // guards what follows; never held while a transport or bootstrap is called
  queue::FetchingMutex mutex_;
  std::uint32_t next_worker_ = 0;
  bool internal_open_ = false;  // the last number is taken
};

}  // namespace heddle::worker
