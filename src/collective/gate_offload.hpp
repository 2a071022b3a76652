// Barriers and small reductions of a team by barrier gates of the network's interface.
//
// A network of gates does one operation at a time. So a persistent operation has gates of its own, and the blocking calls of a team, which are
// made one after the other, have some in common: whatever else is under way on the team, an operation meets no other in its
// network, and needs no agreement about who is first. Nonblocking operations would need gates for each call: software runs them.
#pragma once

#include <array>
#include <memory>

#include "collective/gate_graph.hpp"
#include "collective/gate_reduction.hpp"
#include "collective/offload.hpp"
#include "transport/gates.hpp"

namespace heddle::collective {

// What one member tells another of its gates.
struct GateKeys {
  std::uint32_t gates = 0;    // 0: this member has none, so nobody uses them
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

class GateOffload final : public Offload {
 public:
  static constexpr std::uint32_t kMostWords = 16;  // more than any interface has
  // `how` has as many words at most.
  GateOffload(std::shared_ptr<TeamGates> gates, const GateReduction& how) : gates_(std::move(gates)), how_(how) {}

  // Of the runs to come. `receive` null: this member gets nothing.
  void set_buffers(const void* send, void* receive) {
    send_ = send;
    receive_ = receive;
  }
  [[nodiscard]] const std::shared_ptr<TeamGates>& gates() const { return gates_; }

  void tell(Rank member, Record* record) const override;
  [[nodiscard]] bool agreed(std::span<const Record> records) const override { return gates_->agreed(records); }
  base::Status bind(const Schedule&, std::span<const Record> records) override { return gates_->bind(records); }
  void leave() override { gates_->chain().leave(); }

 private:
  void begin() override;
  base::Status look() override;

  const std::shared_ptr<TeamGates> gates_;
  const GateReduction how_;
  const void* send_ = nullptr;
  void* receive_ = nullptr;
  std::array<std::uint64_t, kMostWords> words_{};
};

}  // namespace heddle::collective
