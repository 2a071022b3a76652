// Runs barriers and small reductions of a team on barrier gates of the network's interface.
//
// A network of gates does one operation at a time. So a persistent operation has gates of its own.
// The blocking calls of a team are made one after the other, so they share gates. Thus an operation
// never meets another one in its network, and the members need not agree on an order. Nonblocking
// operations would need gates for each call: software runs them.
#pragma once

#include <array>
#include <memory>

#include "collective/gate_graph.hpp"
#include "collective/gate_reduction.hpp"
#include "collective/offload.hpp"
#include "collective/ways.hpp"
#include "transport/gates.hpp"

namespace heddle::collective {

// One member's record for another about its gates.
struct GateKeys {
  std::uint32_t gates = 0;
  std::uint32_t lane = 0;     // must be the same at all members, otherwise nobody uses the gates
  std::uint32_t network = 0;  // likewise
  transport::GateKey key{};
};

// One member's gates in one network. For one thread at a time.
class TeamGates {
 public:
  // Identifies one of a team's networks, with the lane that it asks for: the same at all members.
  struct Name {
    std::uint32_t network;
    std::uint32_t lane;
  };
  // Null: the interface has no gates (`gates` is null), or too few are free.
  static std::shared_ptr<TeamGates> open(transport::BarrierGates* gates, Rank rank, Rank ranks, const Name& name);

  void tell(Rank member, GateKeys* keys) const;
  [[nodiscard]] bool agreed(std::span<const Record> records) const;
  // Further calls do nothing.
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

// The networks of gates that a team has. For the one thread that is in a collective call; all
// members count and decide alike.
class TeamNetworks {
 public:
  // This member's gates for an operation. `common`: the gates that blocking calls share; otherwise
  // gates of its own. The first common operation that becomes ready decides whether the team has
  // common gates. Null: there are none. settled() must follow.
  std::shared_ptr<TeamGates> open(const Team& team, bool common);
  // Reports how the preparation of an operation has ended. `offloaded`: the interface was to run
  // it. True: the interface refused the gates' settings at some member; all members must prepare
  // the operation again, without gates.
  [[nodiscard]] bool settled(base::Status status, bool offloaded);
  // Called when a member has failed: others may have begun an operation that this one has not.
  void leave();

 private:
  // number of persistent operations, and of those for blocking calls, that have become ready
  std::uint32_t made_ = 0;
  bool refused_ = false;  // the interface refused the settings of gates at some member
  enum class Common : std::uint8_t { unknown, asked, decided } common_ = Common::unknown;
  std::shared_ptr<TeamGates> gates_;    // of blocking calls; null: unknown, or there are none
  std::shared_ptr<TeamGates> offered_;  // between open() and settled()
};

class GateOffload final : public Offload {
 public:
  static constexpr std::uint32_t kMostWords = 16;  // more than any interface has
  // Null: gates cannot do it, or too few are free.
  static std::unique_ptr<Runner> open(const Plan& plan, const Places& places);
  // `how` has at most kMostWords words.
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
