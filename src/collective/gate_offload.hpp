// Operations on barrier gates: how the gates of a team are connected, which reductions they do
// (GateReduction), and the way itself (GateOffload).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collective/runner.hpp"
#include "collective/schedule.hpp"
#include "transport/gates.hpp"

namespace heddle::collective {

// How the barrier gates of a team's members are connected (transport/gates.hpp), as a pure
// function: recursive doubling.
//
// m is the largest power of two that is not above the number of ranks. Each rank from m on gives
// its value to the rank m below, and gets the result from that rank. The others use recursive
// doubling: in stage j = 1 … log2(m) rank r combines its value with that of rank r ^ 2^(j-1). So
// two ranks have at most one connection in each direction.
//
// Gate 0 of a rank is its start gate. It begins stage 1, and does the last combination itself, as
// in Tofu's libraries. It does not do the last combination if the result also goes to a rank from m
// on, or with two ranks, where it would have to send to itself.
struct GateLinks {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t from_local = kNone;  // gates of the same rank
  std::uint32_t to_local = kNone;
  Rank from_rank = kNone;  // from_gate of that rank sends to it
  std::uint32_t from_gate = kNone;
  Rank to_rank = kNone;  // this gate sends to to_gate of that rank
  std::uint32_t to_gate = kNone;
};

// The gates of a rank among `ranks` (at least 2), by number.
std::vector<GateLinks> gates_of(Rank rank, Rank ranks);

// Decides which reductions barrier gates do exactly as software does, and converts elements to
// words of 64 bits and back.
//
// Gates do sum, maximum and the bitwise operators, on unsigned words. A sum of integers is a sum of
// words, cut to the element. A minimum is the maximum of complements. Signed and floating-point
// numbers have the order of words after a change of bits; a NaN is the greatest of all. Logical
// operators are bitwise operators on 0 and 1. Elements for bitwise operators are packed tightly
// into words.
// Not done by gates: products; functions of the program; sums of floating point, since gates round
// differently from software and reject an infinity or a NaN at the member that gives it.
class GateReduction {
 public:
  // For a barrier, an allreduce or a reduce. Empty: gates with that many words cannot do it.
  static std::optional<GateReduction> of(const Call& call, std::uint32_t most_words);

  [[nodiscard]] transport::GateOperator op() const { return op_; }
  [[nodiscard]] std::uint32_t words() const { return words_; }  // 0: a barrier
  void give(const void* send, std::span<std::uint64_t> words) const;
  void take(std::span<const std::uint64_t> words, void* receive) const;

 private:
  enum class Form : std::uint8_t { none, bits, sum, truth, unsigned_order, signed_order, float_order };
  [[nodiscard]] std::uint64_t encoded(std::uint64_t element) const;
  [[nodiscard]] std::uint64_t decoded(std::uint64_t word) const;
  [[nodiscard]] std::uint64_t ones() const;  // all bits of an element

  transport::GateOperator op_ = transport::GateOperator::barrier;
  Form form_ = Form::none;
  bool least_ = false;
  std::uint32_t words_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t element_bytes_ = 8;
};

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
  [[nodiscard]] bool agreed(std::span<const SetupRecord> records) const;
  // Further calls do nothing.
  base::Status bind(std::span<const SetupRecord> records);
  [[nodiscard]] transport::GateChain& chain() { return *chain_; }

 private:
  TeamGates(std::vector<GateLinks> graph, std::unique_ptr<transport::GateChain> chain, std::uint32_t network)
      : graph_(std::move(graph)), chain_(std::move(chain)), network_(network) {}
  const std::vector<GateLinks> graph_;
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
  // common gates. Null: there are none. decided() must follow.
  std::shared_ptr<TeamGates> open(const Team& team, bool common);
  // Reports how the preparation of an operation has ended. `offloaded`: the interface was to run
  // it. True: the interface rejected the gates' settings at some member; all members must prepare
  // the operation again, without gates.
  [[nodiscard]] bool decided(base::Status status, bool offloaded);
  // Called when a member has failed: others may have begun an operation that this one has not.
  void leave();

 private:
  // number of persistent operations, and of those for blocking calls, that have become ready
  std::uint32_t made_ = 0;
  bool rejected_ = false;  // the interface rejected the settings of gates at some member
  enum class Common : std::uint8_t { unknown, asked, decided } common_ = Common::unknown;
  std::shared_ptr<TeamGates> gates_;    // of blocking calls; null: unknown, or there are none
  std::shared_ptr<TeamGates> offered_;  // between open() and decided()
};

// Runs barriers and small reductions of a team on barrier gates of the network's interface.
//
// A network of gates does one operation at a time. So a persistent operation has gates of its own.
// The blocking calls of a team are made one after the other, so they share gates. Thus an operation
// never meets another one in its network, and the members need not agree on an order. Nonblocking
// operations would need gates for each call: software runs them.
class GateOffload final : public Offload {
 public:
  static constexpr std::uint32_t kMostWords = 16;  // more than any interface has
  // Null: gates cannot do it, or too few are free.
  static std::unique_ptr<Runner> open(const Plan& plan, const Places& places);
  // `how` has at most kMostWords words.
  GateOffload(std::shared_ptr<TeamGates> gates, const GateReduction& how, const char* name)
      : gates_(std::move(gates)), how_(how), name_(name) {}

  void tell(Rank member, SetupRecord* record) const override;
  [[nodiscard]] bool agreed(std::span<const SetupRecord> records) const override { return gates_->agreed(records); }
  base::Status bind(const Schedule&, std::span<const SetupRecord> records) override { return gates_->bind(records); }
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
