// A team: some ranks of a job, in an order, that call collective operations together.
//
// Any thread may use a team, one at a time for what is collective on it: the calls below that say
// so are made by all members in the same order. Several of their operations may be under way at
// once.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "collective/call.hpp"
#include "collective/commons.hpp"
#include "collective/gate_offload.hpp"
#include "collective/setups.hpp"
#include "engine/handles.hpp"

namespace heddle::collective {

class Collective;

class Team {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::team;

  // All ranks of the job. Collective over the job; each call makes a team of its own.
  static base::Result<Team*> world(engine::Context& context);
  // Collective over this team. Members of one colour make a team, in the order of key, then of rank
  // here. No colour: null, this rank is in none of the new teams.
  base::Result<Team*> split(std::optional<std::uint32_t> colour, std::int64_t key);
  // Collective over this team. The members `ranks` of this team in this order; all members name the
  // same ones. Null: this rank is none of them. RANK, ARGUMENT (twice the same, none).
  base::Result<Team*> subset(std::span<const std::uint32_t> ranks);
  // Local. STATE: operations of it are open.
  base::Status close();

  Team(Commons& commons, std::vector<std::uint32_t> ranks, std::uint32_t member, std::uint64_t piece,
       std::unique_ptr<Assembly> assembly);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] std::uint64_t handle() const { return commons_.teams().handle(this); }
  [[nodiscard]] engine::Context& context() const { return commons_.context(); }
  [[nodiscard]] Commons& commons() { return commons_; }
  [[nodiscard]] std::uint32_t rank() const { return member_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  [[nodiscard]] std::uint32_t rank_in_job(std::uint32_t member) const { return ranks_[member]; }
  [[nodiscard]] std::optional<std::uint32_t> member(std::uint32_t rank_in_job) const;
  // All members store to each other's memory, though others of the job may be out of reach. Alike
  // for all members.
  [[nodiscard]] bool mapped() const { return mapped_; }

  // Collective. A persistent operation, not started: memory, addresses and schedule are ready when
  // it returns.
  base::Result<Collective*> init(const Call& call);
  // Collective. Begins one run; returns at once. The operation is gone when test() or wait() has
  // told its end.
  base::Result<Collective*> start(const Call& call);
  // Collective. start and wait.
  base::Status run(const Call& call);

  // ---- for the operations of the team -----------------------------------------------------------
  [[nodiscard]] Setups& setups() { return setups_; }
  // The member that has failed first, as far as this rank knows; empty: all live.
  [[nodiscard]] std::optional<std::uint32_t> failed_member() const;
  [[nodiscard]] std::uint64_t failure_epoch() const;
  base::Status report_failed(std::uint32_t member) const;
  // The same of the one that has failed, or to which a connection was lost.
  [[nodiscard]] base::Status report_dead() const;
  [[nodiscard]] TeamNetworks& networks() { return networks_; }
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
    // pieces of one call take turns, so that one is filled while the other is emptied
    std::uint32_t turn;
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
  base::Result<Collective*> kept(const Call& call, std::uint32_t turn);
  base::Status run_piece(const Call& call, std::uint32_t turn = 0);
  base::Status run_whole(const Call& call);

  Commons& commons_;
  const std::vector<std::uint32_t> ranks_;  // in the job, by member
  const std::uint32_t member_;
  const bool mapped_;
  const std::uint64_t piece_;  // of the arena, for assembly_
  std::unordered_map<std::uint32_t, std::uint32_t> members_;
  Setups setups_;
  // Persistent and nonblocking operations. Release by closed(), partner: the acquire load in
  // close().
  std::atomic<std::size_t> open_{0};
  TeamNetworks networks_;
  // Of blocking calls, the one used last first. For the one thread that is in a collective call;
  // all members keep and drop alike.
  std::list<Kept> kept_;
  std::unordered_map<Key, std::list<Kept>::iterator, KeyHash> kept_by_key_;
};

}  // namespace heddle::collective
