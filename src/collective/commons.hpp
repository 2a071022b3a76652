// What all teams of a context share: memory that all ranks reach (Arena), regions for longer slots
// (Scratch), offers of teams (Offers), and the rest (Commons).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/cache_line.hpp"
#include "base/wait.hpp"
#include "collective/select.hpp"
#include "collective/session_queue.hpp"
#include "heddle/collectives.h"
#include "queue/bell.hpp"
#include "queue/locks.hpp"
#include "wire/packet.hpp"
#include "worker/context.hpp"
#include "worker/extension.hpp"
#include "worker/watch.hpp"

namespace heddle::collective {

// Memory that all ranks can reach, for the counters and slots of collective operations: pieces of
// one region.
//
// The piece of a closed operation is reused only when all credits that peers owe to its counters
// have arrived, since their puts come before these credits: a rank that is behind may still be in
// the last run. If such credits can no longer arrive, since a peer has died, the piece stays in use
// until the context ends.
class Arena {
 public:
  Arena(std::byte* base, std::uint64_t bytes);

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  // Offset of a new piece of that many bytes, aligned to a cache line; empty: no room. Any thread.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  // Frees the piece at once. Any thread.
  void give_back(std::uint64_t offset);
  // Frees the piece when its counters have at least these values, and then runs `last`, unless it
  // is empty: in this call, or in a later take() or sweep().
  void give_back_after(std::uint64_t offset, std::vector<std::uint64_t> counters, std::function<void()> last);
  // Frees the pieces whose counters have reached their values.
  void sweep();

 private:
  struct Late {
    std::uint64_t offset;
    std::vector<std::uint64_t> counters;
    std::function<void()> last;
  };
  [[nodiscard]] bool arrived(const Late& late) const;
  void release(std::uint64_t offset);

  std::byte* const base_;
  const std::uint64_t bytes_;
  queue::FetchingMutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_;   // bytes by offset; neighbouring pieces are merged
  std::map<std::uint64_t, std::uint64_t> taken_;  // bytes by offset
  std::vector<Late> late_;
};

// Memory for operations whose slots are too large for the arena: regions that peers reach. Those of
// the last operations are kept, since a new one costs a page fault for each of its pages.
//
// Invariant: a kept region is one that no peer will access any more (Places::give_back()), so the
// next operation may have it as it is: slots are written before they are read.
class Scratch {
 public:
  // Keeps regions of at most `most_kept` bytes together.
  Scratch(worker::Context& context, std::uint64_t most_kept) : context_(context), most_kept_(most_kept) {
    kept_.reserve(kMostRegions);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // A region of at least `bytes`. Any thread.
  base::Result<engine::Region*> take(std::uint64_t bytes);
  // Any thread.
  void give_back(engine::Region* region);

 private:
  static constexpr std::size_t kMostRegions = 64;

  engine::Region* take_kept(std::uint64_t bytes);
  engine::Region* keep(engine::Region* region);
  engine::Region* take_surplus();

  worker::Context& context_;
  const std::uint64_t most_kept_;
  queue::FetchingMutex mutex_;         // guards the two below
  std::vector<engine::Region*> kept_;  // the longest kept first; they end with the context
  std::uint64_t kept_bytes_ = 0;
};

// A rank's part of a team that is being made: a piece of its arena, for the team's assembly. Also
// the offers of this rank that no team has used yet (heddle_team_offer).

// Prepared, so that other members may be told of it and may use it at once. Given back with this
// object, unless it is kept.
class TeamPiece {
 public:
  // Empty: the arena has no room.
  static std::optional<TeamPiece> take(Arena& arena, std::uint32_t members);
  TeamPiece(TeamPiece&& other) noexcept : arena_(std::exchange(other.arena_, nullptr)), offset_(other.offset_) {}
  TeamPiece& operator=(TeamPiece&&) = delete;
  ~TeamPiece() {
    if (arena_ != nullptr) arena_->give_back(offset_);
  }
  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  // Keeps the piece: from now on a team owns it, or a peer may use it, and then it stays until the
  // context ends.
  void keep() { arena_ = nullptr; }

 private:
  TeamPiece(Arena& arena, std::uint64_t offset) : arena_(&arena), offset_(offset) {}
  Arena* arena_;
  std::uint64_t offset_;
};

// The record that the program carries from one member to the others, as heddle_team_offer writes
// it. All ranks of a job run the same library on the same kind of machine.
struct TeamRecord {
  static constexpr std::uint64_t kMagic = 0x3172'6D65'7464'6568ULL;  // "hedtemr1" in a dump

  std::uint64_t magic = kMagic;
  std::uint64_t job = 0;              // digest of its secret
  std::uint64_t number = 0;           // of the offer, at its rank
  std::uint64_t piece = 0;            // offset in the arena of its rank
  std::uint32_t rank = 0;             // in the job
  std::uint32_t size = 0;             // of the team
  std::int32_t status = HEDDLE_DONE;  // why the rank has nothing to offer
  std::uint32_t unused[5] = {};       // zero
};
static_assert(sizeof(TeamRecord) == HEDDLE_TEAM_RECORD_BYTES && std::is_trivially_copyable_v<TeamRecord>);

// Any thread.
class Offers {
 public:
  // Makes the piece an offer. The record names the offer.
  void add(TeamPiece piece, TeamRecord* record);
  // Takes the offer, which ends it. Empty: this record names no offer, or one that has ended.
  std::optional<TeamPiece> take(const TeamRecord& record);

 private:
  struct Offer {
    TeamRecord record;
    TeamPiece piece;
  };
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, Offer> open_;  // by number
};

class Team;
class Collective;

// How threads wait in calls on a team, besides: heddle_team_set_waits.
struct Waits {
  worker::Worker* worker = nullptr;  // null: none
  int (*progress)(void* arg) = nullptr;
  heddle_tell_wait tell = nullptr;
  void* arg = nullptr;
};

using PackedRegion = std::array<std::byte, wire::kPackedRegionBytes>;

// A digest of a team's members, in their order; not 0.
[[nodiscard]] std::uint64_t digest_of(std::span<const std::uint32_t> ranks);

// The state that all teams of a context share: memory that every rank reaches, access to the other
// ranks' memory, and the list of operations that helpers advance. Created with the first team; ends
// with the context.
class Commons final : public worker::Attachment {
 public:
  // Local. The first call in a context creates it.
  static base::Result<Commons*> of(worker::Context& context);
  explicit Commons(worker::Context& context, Selection selection, engine::Region& region);
  ~Commons() override;

  [[nodiscard]] worker::Context& context() { return context_; }
  [[nodiscard]] const worker::Context& context() const { return context_; }
  [[nodiscard]] Arena& arena() { return arena_; }
  [[nodiscard]] Scratch& scratch() { return scratch_; }
  // This rank's, to teams that are not made yet.
  [[nodiscard]] Offers& offers() { return offers_; }
  [[nodiscard]] const Selection& selection() const { return selection_; }
  [[nodiscard]] PackedRegion packed_arena() const { return context_.objects().pack(region_); }

  // True: this rank and those ranks map each other's memory.
  [[nodiscard]] bool direct_to(std::span<const std::uint32_t> ranks) const;
  // True: all ranks map each other's memory here.
  [[nodiscard]] bool direct() const;
  // Opens the internal worker if they do not. Further calls do nothing.
  base::Status open_port();
  // Sets where the ranks' arenas are, in the order of ranks. Further calls do nothing.
  void know(std::span<const PackedRegion> arenas);
  [[nodiscard]] bool knows() const;
  // The arena of a rank of the job. Any thread.
  base::Result<engine::RemoteRegion*> arena_of(std::uint32_t rank);
  // What to pull after a store into that rank's arena, which arena_of() has returned; null: nobody
  // there can be woken. It lives as long as this object. Any thread.
  queue::BellPull* bell_of(std::uint32_t rank);
  // The number of ranks that arena_of() was called for: those that this rank has met. Any thread.
  [[nodiscard]] std::size_t met() const;
  // The worker that carries bytes and credits to ranks whose memory this process does not map;
  // null: there are no such ranks.
  [[nodiscard]] worker::Worker* port() const { return port_.load(std::memory_order_acquire); }

  // Operations that helpers advance. After delist() no helper uses the operation.
  void enlist(Collective& collective);
  void delist(Collective& collective);
  Found advance() override;
  [[nodiscard]] bool active() const override;
  void end() override;
  [[nodiscard]] std::uint64_t moves() const override;
  void tell(tap::Snapshot* snapshot) const override;

  // Calls look() until what it waits for is over, and makes progress in between, on the context's
  // workers too (Helpers::attend()). False: time-out. `call`: for reports of long waits.
  // `fetch(ns)`: brings the helper that holds what is waited for to this core, and sleeps for at
  // most that long; false: there is no such helper.
  enum class Look : std::uint8_t {
    nothing,
    moved,  // not over, but nearer to it: the thread does not rest
    over
  };
  static Look looked(bool over, bool moved) { return over ? Look::over : moved ? Look::moved : Look::nothing; }
  // Of a wait that may be one of several in a row for the same thing.
  struct Waited {
    std::uint64_t idle_since = 0;  // 0: the last one did not end in vain; Clock
    std::uint64_t returned = 0;    // then: when it did
  };
  // `waited`: a wait that follows one that ended in vain goes on with its naps; or null.
  template <class LookAt, class Describe, class Fetch>
  bool wait(const worker::WaitCall& wait, LookAt&& look, Describe&& describe, Fetch&& fetch, const Waits& waits = {},
            Waited* waited = nullptr);

  // Counts a persistent operation that is ready, and who runs it, for the report at the end
  // (HEDDLE_STATS).
  void count_persistent(bool offloaded) {
    (offloaded ? offloaded_ : not_offloaded_).fetch_add(1, std::memory_order_relaxed);
  }

  // Memory that teams keep for blocking calls, about.
  void keep(std::uint64_t bytes) { kept_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void keep_no_longer(std::uint64_t bytes) { kept_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  // True: it is so much that teams had better drop some.
  [[nodiscard]] bool crowded() const { return kept_bytes_.load(std::memory_order_relaxed) > 4 * arena_.bytes(); }

  // How many teams of these members have been made in this context before.
  [[nodiscard]] std::uint32_t count_team(std::span<const std::uint32_t> ranks);

  engine::Owned<Team>& teams() { return *teams_; }
  engine::Owned<Collective>& collectives() { return *collectives_; }

 private:
  int progress();
  int progress_all();
  int attend();
  // Worker::moved() of its worker.
  static std::uint64_t moved_on(const Waits& waits);
  // *rings: all that it waits for wakes who sleeps.
  static int progress_beside(const Waits& waits, bool* rings);
  // came(): what the thread waits for has come nearer. True: so it has.
  template <class Came>
  bool rest(worker::Worker* beside, std::int64_t ns, std::int64_t rung_ns, Came&& came) {
    std::array<worker::Worker*, 2> workers{};
    std::size_t count = 0;
    for (worker::Worker* const worker : {port(), beside})
      if (worker != nullptr) workers[count++] = worker;
    return context_.nap_for_stores(std::span(workers).first(count), {ns, rung_ns}, came);
  }
  // brings a helper that advances some operation here; false: there is none
  bool fetch_any(std::int64_t sleep_ns);

  worker::Context& context_;
  const Selection selection_;
  engine::Region& region_;
  Arena arena_;
  Scratch scratch_;
  Offers offers_;
  std::atomic<worker::Worker*> port_{nullptr};  // release by open_port()
  mutable queue::FetchingMutex peers_mutex_;    // guards the three below
  std::vector<PackedRegion> packed_;
  std::vector<engine::RemoteRegion*> arenas_;       // by rank; null: not yet imported
  std::map<std::uint32_t, queue::BellPull> bells_;  // by rank
  mutable queue::FetchingMutex list_mutex_;         // guards list_; visitors are counted under it
  std::vector<Collective*> list_;
  // by a digest of members; list_mutex_
  std::unordered_map<std::uint64_t, std::uint32_t> teams_made_;
  // How many threads are in advance(), and whether the context has ended. seq_cst: either end()
  // sees a thread in advance(), or the thread sees ended_.
  std::atomic<std::uint32_t> inside_{0};
  std::atomic<bool> ended_{false};
  std::atomic<std::uint64_t> kept_bytes_{0};  // relaxed: of several teams
  std::atomic<std::uint64_t> offloaded_{0};
  std::atomic<std::uint64_t> not_offloaded_{0};
  std::unique_ptr<engine::Owned<Team>> teams_;
  std::unique_ptr<engine::Owned<Collective>> collectives_;
};

template <class LookAt, class Describe, class Fetch>
bool Commons::wait(const worker::WaitCall& wait, LookAt&& look, Describe&& describe, Fetch&& fetch, const Waits& waits,
                   Waited* waited) {
  // In one of kOthers rounds a waiting thread also looks at everything else that other ranks may be
  // waiting for. In one of kUndisturbed rounds it looks at the part of it that disturbs nobody.
  constexpr std::uint32_t kOthers = 256;
  constexpr std::uint32_t kUndisturbed = 64;
  // While the thread spins, it looks at the worker of `waits` only in one of kBeside rounds: a look
  // in each would hold up the collective. Later rounds are long.
  constexpr std::uint32_t kSpinning = 1024;
  constexpr std::uint32_t kBeside = 8;
  if (look() == Look::over) return true;
  base::Waiter waiter(context_.clock(), wait.timeout_ns, &context_.crowd());
  worker::Watch watch(context_, port(), wait.call);
  // The caller has only looked at other things since then.
  constexpr std::uint64_t kLookedNs = 1'000'000;
  if (waited != nullptr && waited->idle_since != 0) [[unlikely]] {
    const Waited last = std::exchange(*waited, {});
    if (context_.clock().now_ns() - last.returned < kLookedNs) waiter.resume(last.idle_since);
  }
  worker::ToldWait told(context_, waits.worker, {wait.call, waits.tell, waits.arg});
  std::uint64_t seen = 0;  // Worker::moved()
  bool rings = true;
  const auto progress_of_caller = [&] {
    seen = moved_on(waits);
    return progress_beside(waits, &rings);
  };
  for (std::uint32_t round = 1;; ++round) {
    int events = round % kOthers == 0 ? progress_all() : progress();
    const Look found = look();
    if (found == Look::over) return true;
    if (found == Look::moved) ++events;
    if (round > kSpinning || round % kUndisturbed == 0) events += attend();
    if (round > kSpinning || round % kBeside == 0) events += progress_of_caller();
    if (!(events > 0 ? waiter.busy() : waiter.idle())) {
      watch.may_resume();
      if (waited != nullptr) *waited = {waiter.idle_since(), context_.clock().now_ns()};
      return false;
    }
    // Before each nap; the next look tells whether the time is over.
    if (waiter.nap_ns() > 0 && progress_all() + progress_of_caller() > 0) static_cast<void>(waiter.busy());
    const std::int64_t ns = waiter.nap_ns();
    if (ns > 0 && told.tells()) [[unlikely]] {
      told.note();
      watch.set_reports(!told.speaks());
    }
    if (ns > 0 && !fetch(ns)) [[unlikely]] {
      // What another thread has moved on the caller's worker may concern the caller's progress.
      const auto came = [&] { return look() != Look::nothing || advance() == Found::moved || moved_on(waits) != seen; };
      if (rest(waits.worker, ns, rings ? waiter.rung_nap_ns() : ns, came)) static_cast<void>(waiter.busy());
    }
    watch.round(describe, ns > 0);
  }
}

}  // namespace heddle::collective
