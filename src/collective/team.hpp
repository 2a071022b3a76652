// A team: some ranks of a job, in an order, that call collective operations together.
//
// Any thread may use a team, but only one at a time for its collective calls: those that all
// members make in the same order, marked below. Several of its operations may be under way at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "collective/assembly.hpp"
#include "collective/commons.hpp"
#include "collective/gate_offload.hpp"
#include "collective/runner.hpp"
#include "engine/handles.hpp"

namespace heddle::collective {

class BlockingCalls;
class Collective;

class Team {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::team;

  // All ranks of the job. Collective over the job; each call creates another team.
  static base::Result<Team*> world(worker::Context& context);
  // Collective over this team. The members of one colour form a team, in the order of key, then of
  // rank in this team. No colour: returns null, this rank is in none of the new teams.
  base::Result<Team*> split(std::optional<std::uint32_t> colour, std::int64_t key);
  // Collective over this team. The members `ranks` of this team form a team in this order; all
  // members name the same ones. Null: this rank is not among them. Errors: RANK; ARGUMENT (a rank
  // twice, or no ranks).
  base::Result<Team*> subset(std::span<const std::uint32_t> ranks);
  // Local. Makes this rank's offer for a team of that size. *record tells the other members of the
  // offer, or of an error. STATE: there was no team of the job yet.
  static base::Status offer(worker::Context& context, std::uint32_t size, TeamRecord* record);
  // Local. Takes the offer back.
  static base::Status withdraw(worker::Context& context, const TeamRecord& record);
  // Local. The ranks of the job that have made these offers, in this order; this rank, whose offer
  // is used up, is among them. With an error no member may use the team.
  static base::Result<Team*> from_offers(worker::Context& context, std::span<const std::uint32_t> ranks,
                                         std::span<const TeamRecord> records);
  // Local. STATE: operations of the team are open.
  base::Status close();

  Team(Commons& commons, std::vector<std::uint32_t> ranks, std::uint32_t member, std::uint64_t piece,
       std::unique_ptr<Assembly> assembly);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] std::uint64_t handle() const { return commons_.teams().handle(this); }
  [[nodiscard]] worker::Context& context() const { return commons_.context(); }
  [[nodiscard]] Commons& commons() { return commons_; }
  [[nodiscard]] std::uint32_t rank() const { return member_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  // For reports: a number of 32 bits, by which texts name the team. It is the same at all members,
  // and another team hardly has the same one.
  [[nodiscard]] std::uint64_t identity() const { return identity_; }
  [[nodiscard]] std::string words() const;
  // The last of its calls that has ended here. Any thread.
  [[nodiscard]] std::uint64_t passed() const { return passed_.load(std::memory_order_relaxed); }
  // Runs that have ended here, as far as counted: two threads may count one.
  [[nodiscard]] std::uint64_t ended() const { return ended_.load(std::memory_order_relaxed); }
  void count_end() { ended_.store(ended() + 1, std::memory_order_relaxed); }
  void pass(std::uint64_t number) {
    if (number > passed()) passed_.store(number, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t rank_in_job(std::uint32_t member) const { return ranks_[member]; }
  [[nodiscard]] std::optional<std::uint32_t> member(std::uint32_t rank_in_job) const;
  // True: all members map each other's memory, though other ranks of the job may not. The same at
  // all members.
  [[nodiscard]] bool mapped() const { return mapped_; }

  // How threads wait in calls on this team. Set while none is under way.
  void set_waits(const Waits& waits) { waits_ = waits; }
  [[nodiscard]] const Waits& waits() const { return waits_; }

  // Collective. Creates a persistent operation, which is not started: memory, addresses and
  // schedule are ready on return.
  base::Result<Collective*> init(const Call& call);
  // Collective. Begins one run and returns at once. The operation is destroyed when test() or
  // wait() has reported its end.
  base::Result<Collective*> start(const Call& call);
  // Collective. Starts and waits.
  base::Status run(const Call& call);

  // ---- for the operations of the team -----------------------------------------------------------
  [[nodiscard]] Setups& setups() { return setups_; }
  // A failed member, as far as this rank knows: the one with the lowest rank; empty: all are alive.
  [[nodiscard]] std::optional<std::uint32_t> failed_member() const;
  [[nodiscard]] std::uint64_t failure_epoch() const;
  base::Status report_failed(std::uint32_t member) const;
  // The same for the member that has failed, or whose connection was lost.
  [[nodiscard]] base::Status report_dead() const;
  [[nodiscard]] TeamNetworks& networks() { return networks_; }
  // The number of the present call, for the thread that is in it.
  [[nodiscard]] std::uint64_t calls() const { return calls_; }
  // Creates an operation for the present call.
  base::Result<Collective*> open(const Call& call, Use use);
  void opened() { open_.fetch_add(1, std::memory_order_relaxed); }
  // The last call that an operation makes to its team.
  void closed() { open_.fetch_sub(1, std::memory_order_release); }

 private:
  // The members of a new team.
  struct Members {
    std::vector<std::uint32_t> ranks;   // in the job, by member
    std::uint32_t member = 0;           // this rank
    std::vector<std::uint64_t> pieces;  // of the members, each in its own arena
  };
  // Local. `piece`: of this member; the new team's, if there is one.
  static base::Result<Team*> create(Commons& commons, Members&& members, TeamPiece& piece);
  base::Result<Team*> make(SetupRecord record);
  static base::Result<Team*> confirmed(worker::Context& context, base::Result<Team*> made);
  base::Result<Team*> build(const SetupRecord& mine, std::span<const SetupRecord> records, TeamPiece& piece);
  void come_to_next();

  Commons& commons_;
  const std::vector<std::uint32_t> ranks_;  // ranks in the job, by member
  const std::uint32_t member_;
  const bool mapped_;
  const std::uint64_t piece_;        // offset in the arena, for assembly_
  const std::uint32_t among_alike_;  // teams with the same members that were made here before
  const std::uint64_t identity_;
  // collective calls, from 1; for the one thread that is in one
  std::uint64_t calls_ = 0;
  bool running_ = false;                  // a blocking one; likewise
  std::atomic<std::uint64_t> passed_{0};  // relaxed: for reports
  std::atomic<std::uint64_t> ended_{0};   // likewise
  std::unordered_map<std::uint32_t, std::uint32_t> members_;
  Setups setups_;
  Waits waits_;
  // Number of open persistent and nonblocking operations. Release by closed(), partner: the acquire
  // load in close().
  std::atomic<std::size_t> open_{0};
  TeamNetworks networks_;
  std::unique_ptr<BlockingCalls> blocking_;
};

}  // namespace heddle::collective
