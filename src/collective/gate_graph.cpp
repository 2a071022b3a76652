#include "collective/gate_graph.hpp"

#include <bit>

namespace heddle::collective {
namespace {

// The numbers of the gates of a rank below m, by their function.
class Doubling {
 public:
  Doubling(Rank rank, Rank ranks)
      : stages_(static_cast<std::uint32_t>(std::bit_width(ranks)) - 1),
        above_(rank + (Rank{1} << stages_)),
        folded_(above_ < ranks) {}

  [[nodiscard]] std::uint32_t stages() const { return stages_; }
  [[nodiscard]] bool folded() const { return folded_; }  // a rank from m on gives to this one
  [[nodiscard]] Rank above() const { return above_; }
  // The number of the gate that combines stage j; for stage 0, of the gate where stage 1 begins. If
  // the rank is folded, the latter is gate 1, which combines with the rank from m on.
  [[nodiscard]] std::uint32_t of_stage(std::uint32_t stage) const {
    if (stage == stages_ && ends_at_start()) return 0;
    return (folded_ ? 1U : 0U) + stage;
  }
  [[nodiscard]] bool ends_at_start() const { return !folded_ && stages_ > 1; }
  [[nodiscard]] std::uint32_t count() const { return of_stage(stages_ - 1) + (ends_at_start() ? 1 : 2); }

 private:
  std::uint32_t stages_;
  Rank above_;
  bool folded_;
};

// The gates of a rank from m on: it gives, and gets.
std::vector<Gate> gates_above(Rank rank, Rank ranks) {
  const Rank below = rank - std::bit_floor(ranks);
  const Doubling its(below, ranks);
  Gate start;
  start.to_rank = start.from_rank = below;
  start.to_gate = 1;
  start.from_gate = its.of_stage(its.stages());
  return {start};
}

}  // namespace

std::vector<Gate> gates_of(Rank rank, Rank ranks) {
  if (rank >= std::bit_floor(ranks)) return gates_above(rank, ranks);
  const Doubling mine(rank, ranks);
  std::vector<Gate> gates(mine.count());
  for (std::uint32_t stage = 1; stage <= mine.stages(); ++stage) {
    const Rank partner = rank ^ (Rank{1} << (stage - 1));
    const Doubling its(partner, ranks);
    const std::uint32_t before = mine.of_stage(stage - 1);
    const std::uint32_t here = mine.of_stage(stage);
    gates[before].to_local = here;
    gates[before].to_rank = gates[here].from_rank = partner;
    gates[before].to_gate = its.of_stage(stage);
    gates[here].from_local = before;
    gates[here].from_gate = its.of_stage(stage - 1);
  }
  if (!mine.ends_at_start()) {
    const std::uint32_t last = mine.of_stage(mine.stages());
    gates[last].to_local = 0;
    gates[0].from_local = last;
    if (mine.folded()) {
      gates[last].to_rank = mine.above();
      gates[last].to_gate = 0;
    }
  }
  if (mine.folded()) {
    gates[0].to_local = 1;
    gates[1].from_local = 0;
    gates[1].from_rank = mine.above();
    gates[1].from_gate = 0;
  }
  return gates;
}

}  // namespace heddle::collective
