// A team: some ranks of a job, in an order, that call collective operations together.
//
// Any thread may use a team, one at a time for what is collective on it: the calls below that say so are made by all members
// in the same order. Several of their operations may be under way at once.
//
// What members have to tell each other for that goes through the team's assembly, one setup after the other, in the order of the
// calls. setup_mutex_ guards both; who moves things on takes it if it is free.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "collective/assembly.hpp"
#include "collective/call.hpp"
#include "collective/commons.hpp"
#include "engine/handles.hpp"

namespace heddle::collective {

class Collective;

// Something that all members make ready together: each tells its record; then each does its part; and where a part may go wrong at
// some members alone, each tells how it went, so that it is ready for all or for none. All within the team's setup_mutex_.
class Setup {
 public:
  Setup() = default;
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;
  virtual ~Setup() = default;
  // What this member tells all others, or, where they are told different things or in several rounds, each of them.
  [[nodiscard]] virtual const Record& record() const = 0;
  virtual void tell(std::uint32_t round, std::span<Record> members);
  // What they have told in this round; the last round's records are those of assembled(), too.
  virtual void heard(std::uint32_t round, std::span<const Record> records);
  // They are being told.
  virtual void told() {}
  // What all have told: does this member's part, and says how that went. *doubtful: members may differ in it (all set it alike).
  virtual base::Status assembled(std::span<const Record> records, bool* doubtful) = 0;
  // How it ends; the text of an error is the thread's last message. The object may be gone when it returns.
  virtual void settled(base::Status status) = 0;
};

class Team {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::team;

  // All ranks of the job. Collective over the job; each call makes a team of its own.
  static base::Result<Team*> world(engine::Context& context);
  // Collective over this team. Members of one colour make a team, in the order of key, then of rank here. No colour: null, this
  // rank is in none of the new teams.
  base::Result<Team*> split(std::optional<std::uint32_t> colour, std::int64_t key);
  // Collective over this team. The members `ranks` of this team in this order; all members name the same ones. Null: this
  // rank is none of them. RANK, ARGUMENT (twice the same, none).
  base::Result<Team*> subset(std::span<const std::uint32_t> ranks);
  // Local. STATE: operations of it are open.
  base::Status close();

  Team(Commons& commons, std::vector<std::uint32_t> ranks, std::uint32_t member, std::uint64_t piece,
       std::unique_ptr<Assembly> assembly);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] std::uint64_t handle() const { return commons_.teams().handle(this); }
  [[nodiscard]] engine::Context& context() { return commons_.context(); }
  [[nodiscard]] Commons& commons() { return commons_; }
  [[nodiscard]] std::uint32_t rank() const { return member_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  [[nodiscard]] std::uint32_t rank_in_job(std::uint32_t member) const { return ranks_[member]; }
  [[nodiscard]] std::optional<std::uint32_t> member(std::uint32_t rank_in_job) const;
  // All members store to each other's memory, though others of the job may be out of reach. Alike for all members.
  [[nodiscard]] bool mapped() const { return mapped_; }

  // Collective. A persistent operation, not started: memory, addresses and schedule are ready when it returns.
  base::Result<Collective*> init(const Call& call);
  // Collective. Begins one run; returns at once. The operation is gone when test() or wait() has told its end.
  base::Result<Collective*> start(const Call& call);
  // Collective. start and wait.
  base::Status run(const Call& call);

  // ---- for the operations of the team -----------------------------------------------------------------------------------
  void submit(Setup& setup);
  void withdraw(Setup& setup);  // it will never be assembled
  // Moves on what members have to tell each other. Any thread.
  void advance_setups();
  // For who waits for that: brings the helper here that is at it. False: none is.
  bool fetch_setup(std::int64_t sleep_ns) { return setup_mutex_.fetch(sleep_ns); }
  // The member that has failed first, as far as this rank knows; empty: all live.
  [[nodiscard]] std::optional<std::uint32_t> failed_member() const;
  [[nodiscard]] std::uint64_t failure_epoch() const;
  base::Status report_failed(std::uint32_t member) const;
  // The same of the one that has failed, or to which a connection was lost.
  [[nodiscard]] base::Status report_dead() const;
  // Of the network's interface, for one operation; null: there are none. In the order of the calls.
  std::shared_ptr<TeamGates> open_gates() { return open_network(made_ + 1); }
  // For a blocking call: those that blocking calls have in common. The first operation that asks decides, by becoming ready, whether the
  // team has any.
  std::shared_ptr<TeamGates> gates();
  void opened() { open_.fetch_add(1, std::memory_order_relaxed); }
  // The last that an operation does with its team.
  void closed() { open_.fetch_sub(1, std::memory_order_release); }

 private:
  struct Key {
    Operation operation;
    std::uint32_t root;
    std::uint64_t bytes;
    std::uint64_t whole;
    std::uint64_t element_bytes;
    std::uint32_t reduction_name;
    std::uint32_t turn;  // pieces of one call take turns, so that one is filled while the other is emptied
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  struct Kept {
    Key key;
    std::unique_ptr<Collective> collective;
  };
  base::Result<Team*> make(Record record);
  static base::Result<Team*> confirmed(engine::Context& context, base::Result<Team*> made);
  // taken: the piece of mine is the team's.
  base::Result<Team*> build(const Record& mine, std::span<const Record> records, bool* taken);
  [[nodiscard]] base::Status judge_verdicts() const;
  void start_round(Setup& first);
  bool heard_round(Setup& first);
  base::Result<Collective*> kept(const Call& call, std::uint32_t turn);
  base::Status make_ready(Collective& made);
  std::shared_ptr<TeamGates> open_network(std::uint32_t network);
  bool without_gates(const Collective& made, base::Status status);
  base::Status run_piece(const Call& call, std::uint32_t turn = 0);
  base::Status run_whole(const Call& call);

  Commons& commons_;
  const std::vector<std::uint32_t> ranks_;  // in the job, by member
  const std::uint32_t member_;
  const bool mapped_;
  const std::uint64_t piece_;  // of the arena, for assembly_
  std::unordered_map<std::uint32_t, std::uint32_t> members_;
  queue::FetchingMutex setup_mutex_;
  std::unique_ptr<Assembly> assembly_;
  std::deque<Setup*> setups_;
  std::uint32_t round_ = 0;  // of the first one's records
  bool assembling_ = false;  // the first one's record is on its way, or
  bool confirming_ = false;  // how its part went is
  base::Status verdict_ = HEDDLE_DONE;
  // Persistent and nonblocking operations. Release by closed(), partner: the acquire load in close().
  std::atomic<std::size_t> open_{0};
  // For the one thread that is in a collective call, as what follows; all members count and decide alike.
  std::uint32_t made_ = 0;      // persistent operations, and those of blocking calls, that have become ready
  bool gates_refused_ = false;  // the interface did not take the settings of gates at some member
  enum class Gates : std::uint8_t { unknown, asked, decided } has_gates_ = Gates::unknown;
  std::shared_ptr<TeamGates> gates_;  // null: unknown, or there are none
  // Of blocking calls, the one used last first. For the one thread that is in a collective call; all members keep and drop alike.
  std::list<Kept> kept_;
  std::unordered_map<Key, std::list<Kept>::iterator, KeyHash> kept_by_key_;
};

}  // namespace heddle::collective
