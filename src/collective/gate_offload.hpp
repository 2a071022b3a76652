// Barriers and small reductions of a team by barrier gates of the network's interface.
//
// A network of gates does one operation at a time. So a persistent operation has gates of its own,
// and the blocking calls of a team, which are made one after the other, have some in common:
// whatever else is under way on the team, an operation meets no other in its network, and needs no
// agreement about who is first. Nonblocking operations would need gates for each call: software
// runs them.
#pragma once

#include <array>
#include <memory>

#include "collective/gate_graph.hpp"
#include "collective/gate_reduction.hpp"
#include "collective/offload.hpp"
#include "collective/ways.hpp"
#include "transport/gates.hpp"

namespace heddle::collective {

// What one member tells another of its gates.
struct GateKeys {
  std::uint32_t gates = 0;
  std::uint32_t lane = 0;     // the same for all, or nobody uses them
  std::uint32_t network = 0;  // likewise
  transport::GateKey key{};
};

// One member's gates in one network. For one thread at a time.
class TeamGates {
 public:
  // Which of a team's networks it is, and the lane that it asks for: the same at all members.
  struct Name {
    std::uint32_t network;
    std::uint32_t lane;
  };
  // Null: there is no such interface (`gates` is null), or not so many are left.
  static std::shared_ptr<TeamGates> open(transport::BarrierGates* gates, Rank rank, Rank ranks, const Name& name);

  void tell(Rank member, GateKeys* keys) const;
  [[nodiscard]] bool agreed(std::span<const Record> records) const;
  // Further calls change nothing.
  base::Status bind(std::span<const Record> records);
  [[nodiscard]] transport::GateChain& chain() { return *chain_; }

 private:
  TeamGates(std::vector<Gate> graph, std::unique_ptr<transport::GateChain> chain, std::uint32_t network)
      : graph_(std::move(graph)), chain_(std::move(chain)), network_(network) {}
  const std::vector<Gate> graph_;
  std::unique_ptr<transport::GateChain> chain_;
  const std::uint32_t network_;
  bool bound_ = false;
};

// Which networks of gates a team has. For the one thread that is in a collective call; all members
// count and decide alike.
class TeamNetworks {
 public:
  // This member's gates for an operation. `common`: for a blocking call, those that blocking calls
  // have in common; else of its own. The first common operation decides, by becoming ready, whether
  // the team has any. Null: there are none. settled() follows.
  std::shared_ptr<TeamGates> open(const Team& team, bool common);
  // How making an operation ready has ended. `offloaded`: the interface was to run it. True: all
  // members make it again, without gates: these are a help, not needed, and the interface did not
  // take their settings at some member.
  [[nodiscard]] bool settled(base::Status status, bool offloaded);
  // A member has failed: others may have begun what this one has not.
  void leave();

 private:
  // persistent operations, and those of blocking calls, that have become ready
  std::uint32_t made_ = 0;
  bool refused_ = false;  // the interface did not take the settings of gates at some member
  enum class Common : std::uint8_t { unknown, asked, decided } common_ = Common::unknown;
  std::shared_ptr<TeamGates> gates_;    // of blocking calls; null: unknown, or there are none
  std::shared_ptr<TeamGates> offered_;  // between open() and settled()
};

class GateOffload final : public Offload {
 public:
  static constexpr std::uint32_t kMostWords = 16;  // more than any interface has
  // Null: gates cannot do it, or there are not so many left.
  static std::unique_ptr<Runner> open(const Plan& plan, const Places& places);
  // `how` has as many words at most.
  GateOffload(std::shared_ptr<TeamGates> gates, const GateReduction& how, const char* name)
      : gates_(std::move(gates)), how_(how), name_(name) {}

  void tell(Rank member, Record* record) const override;
  [[nodiscard]] bool agreed(std::span<const Record> records) const override { return gates_->agreed(records); }
  base::Status bind(const Schedule&, std::span<const Record> records) override { return gates_->bind(records); }
  // `receive` null: this member gets nothing.
  void set_buffers(const Call& call) override;
  [[nodiscard]] const char* algorithm(const char*) const override { return name_; }
  [[nodiscard]] const char* reason(base::Status status) const override;

 private:
  void begin_run() override;
  base::Status look() override;
  void leave() override { gates_->chain().leave(); }

  const std::shared_ptr<TeamGates> gates_;
  const GateReduction how_;
  const char* const name_;
  const void* send_ = nullptr;
  void* receive_ = nullptr;
  std::array<std::uint64_t, kMostWords> words_{};
};

}  // namespace heddle::collective
