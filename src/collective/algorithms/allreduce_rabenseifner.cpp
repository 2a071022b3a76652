// Allreduce of many bytes in few steps: reduce-scatter by recursive halving, then allgather by
// recursive doubling [Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005]. It moves as many bytes
// per rank as a ring, in 2 log2 n steps.
//
// Each rank beyond the largest power of two gives its vector to the rank that is this power below
// it, and gets the result from that rank. The vector has as many parts as the power. Step j of the
// halving is between ranks whose numbers differ in the j-th highest bit. Both have partial sums of
// the same parts; each gives away half of these parts and keeps the sum of the other half. So every
// part ends at one rank, and all ranks get the same bits. The doubling does the same steps in
// reverse order, from the caller's memory to the caller's memory. No message is needed that the
// partner has begun: it took part in the halving, before everything that is waited for here.
//   slot 0          a whole vector, from the rank beyond the power
//   slot 1 + j      half of the parts of step j; the sum that this rank keeps is computed there
//   counter 2s      slot s is full
//   counter 2s + 1  the slot s that this rank fills is free
//   counter whole   parts that have arrived in the doubling; one counter per step, since each step
//                   has another giver
#include <bit>

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

// The parts [first, end) of the vector that `all` describes, at a rank in one step.
struct Parts {
  Rank first;
  Rank end;
  [[nodiscard]] Parts lower() const { return {first, first + (end - first) / 2}; }
  [[nodiscard]] Parts upper() const { return {first + (end - first) / 2, end}; }
};

class Halving {
 public:
  explicit Halving(const AlgorithmRequest& request)
      : request_(request),
        power_(std::bit_floor(request.ranks)),
        extra_(request.ranks - power_),
        steps_(static_cast<std::uint32_t>(std::countr_zero(power_))),
        builder_(request) {}

  Schedule schedule() {
    make_slots();
    if (request_.rank >= power_) {
      give_whole();
      return builder_.take();
    }
    const Rank beyond = request_.rank + power_;
    const Block given{Place::send, 0, request_.bytes};
    Block sum = given;
    if (request_.rank < extra_) {
      sum = {Place::scratch, slots_[0], request_.bytes};
      builder_.counter(full_counter(0), 1);
      wait(builder_.reduce(0, given, sum), full_counter(0), 1);
    }
    halve(sum);
    double_up();
    if (request_.rank < extra_) give(builder_.put(0, result(0, power_), beyond, result(0, power_)), whole(0));
    return builder_.take();
  }

 private:
  [[nodiscard]] std::uint32_t whole(std::uint32_t step) const { return 2 * (1 + steps_) + step; }
  [[nodiscard]] Rank partner(std::uint32_t step) const { return request_.rank ^ (power_ >> (step + 1)); }
  [[nodiscard]] Block result(Rank first, Rank end) const {
    const Block one = part(Place::receive, request_.bytes, request_.element_bytes, power_, first);
    const Block last = part(Place::receive, request_.bytes, request_.element_bytes, power_, end - 1);
    return {Place::receive, one.offset, last.offset + last.bytes - one.offset};
  }
  // The same parts where `sum` has those of `of`.
  [[nodiscard]] Block within(const Block& sum, const Parts& of, const Parts& wanted) const {
    const Block begin = result(of.first, of.end);
    const Block block = result(wanted.first, wanted.end);
    return {sum.place, sum.offset + block.offset - begin.offset, block.bytes};
  }
  // What this rank has before `step` of the halving.
  [[nodiscard]] Parts had(std::uint32_t step) const {
    Parts parts{0, power_};
    for (std::uint32_t s = 0; s < step; ++s) parts = kept(parts, s);
    return parts;
  }
  [[nodiscard]] bool upper_at(std::uint32_t step) const { return (request_.rank & (power_ >> (step + 1))) != 0; }
  [[nodiscard]] Parts kept(const Parts& parts, std::uint32_t step) const {
    return upper_at(step) ? parts.upper() : parts.lower();
  }
  [[nodiscard]] Parts given_away(const Parts& parts, std::uint32_t step) const {
    return upper_at(step) ? parts.lower() : parts.upper();
  }

  // A slot lies at the same place at every rank, so it has room for the larger half that a rank may
  // keep.
  void make_slots() {
    const std::uint64_t elements = request_.bytes / request_.element_bytes;
    slots_.push_back(builder_.scratch(extra_ > 0 ? request_.bytes : 0));
    for (std::uint32_t step = 0; step < steps_; ++step) {
      const std::uint64_t share = std::uint64_t{2} << step;
      slots_.push_back(builder_.scratch(((elements + share - 1) / share + 1) * request_.element_bytes));
    }
  }

  void give_whole() {
    const Rank below = request_.rank - power_;
    builder_.counter(free_counter(0), 1, 1).counter(whole(0), 1);
    const Block given{Place::send, 0, request_.bytes};
    wait(give(builder_.put(0, given, below, {Place::scratch, slots_[0], request_.bytes}), full_counter(0)),
         free_counter(0), 1);
    wait(builder_.nop(0), whole(0), 1);
  }

  void halve(Block sum) {
    Parts parts{0, power_};
    const auto done_with = [&](std::uint32_t slot, Rank giver) { builder_.signal(0, giver, free_counter(slot)); };
    for (std::uint32_t step = 0; step < steps_; ++step) {
      const std::uint32_t slot = 1 + step;
      const Parts keeps = kept(parts, step);
      builder_.counter(full_counter(slot), 1).counter(free_counter(slot), 1, 1);
      const Block away = within(sum, parts, given_away(parts, step));
      wait(give(builder_.put(0, away, partner(step), {Place::scratch, slots_[slot], away.bytes}), full_counter(slot)),
           free_counter(slot), 1);
      const Block mine = within(sum, parts, keeps);
      const Block arrived{Place::scratch, slots_[slot], mine.bytes};
      wait(builder_.reduce(0, mine, arrived), full_counter(slot), 1);
      if (step > 0)
        done_with(step, partner(step - 1));
      else if (request_.rank < extra_)
        done_with(0, request_.rank + power_);
      sum = arrived;
      parts = keeps;
    }
    builder_.copy(0, sum, result(parts.first, parts.end));
    if (steps_ > 0) done_with(steps_, partner(steps_ - 1));
  }

  void double_up() {
    for (std::uint32_t step = steps_; step-- > 0;) {
      const Parts before = had(step);
      const Parts keeps = kept(before, step);
      const Block mine = result(keeps.first, keeps.end);
      builder_.counter(whole(step), 1);
      ScheduleCommand& put = give(builder_.put(0, mine, partner(step), mine), whole(step));
      if (step + 1 < steps_) wait(put, whole(step + 1), 1);
    }
    if (steps_ > 0) wait(builder_.nop(0), whole(0), 1);
  }

  const AlgorithmRequest& request_;
  Rank power_;
  Rank extra_;
  std::uint32_t steps_;
  Builder builder_;
  std::vector<std::uint64_t> slots_;
};

}  // namespace

Schedule allreduce_rabenseifner(const AlgorithmRequest& request) {
  return Halving(request).schedule();
}

}  // namespace heddle::collective
