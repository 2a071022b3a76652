// Reduce, allreduce, reduce-scatter and scan; and allgather around a ring, which is half of an
// allreduce.
#include <bit>

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

// Slot `i` for a whole vector: of few bytes beside the counter that tells that it is full, else in
// scratch, where these slots come first.
constexpr Block slot_of(std::uint32_t counter, std::uint64_t i, std::uint64_t bytes) {
  return bytes <= kBesideBytes ? beside(counter, bytes) : Block{Place::scratch, i * bytes, bytes};
}

}  // namespace

// ---- up a tree ----------------------------------------------------------------------------------

// Reduction up a binomial tree. Each rank has a slot for every child, initially free; the child
// fills it when it is free. Children are combined in a fixed order, so that the bits of the result
// do not depend on which child was early.
//   counter 0      my slot at my parent is free
//   counter 1 + i  the slot of child i is full

Schedule reduce_binomial(const AlgorithmRequest& request) {
  constexpr std::uint32_t kFree = 0;  // my slot at my parent
  constexpr std::uint32_t kFull = 1;  // + i: slot of my child i
  const TreeNode node = binomial_tree(request);
  const std::uint64_t bytes = request.bytes;
  Builder builder(request);
  builder.counter(kFree, node.root ? 0 : 1, node.root ? 0 : 1);
  // Slots come first in scratch, in the order of children, so that a child knows where its slot is.
  const auto children = static_cast<std::uint32_t>(node.children.size());
  if (bytes > kBesideBytes) builder.scratch(children * bytes);
  const auto slot = [&](std::uint32_t child) { return slot_of(kFull + child, child, bytes); };
  const Block slot_at_parent = slot(node.place);
  const Block given{Place::send, 0, bytes};
  Block sum = node.root ? Block{Place::receive, 0, bytes} : given;
  if (!node.root && children > 0) sum = {Place::scratch, builder.scratch(bytes), bytes};
  if (node.root || children > 0) builder.copy(0, given, sum);
  // The last child has the smallest subtree, so it arrives first.
  for (std::uint32_t i = children; i-- > 0;) {
    builder.counter(kFull + i, 1);
    wait(builder.reduce(0, slot(i), sum), kFull + i, 1);
    builder.signal(0, node.children[i], kFree);
  }
  if (!node.root) wait(give(builder.put(0, sum, node.parent, slot_at_parent), kFull + node.place), kFree, 1);
  return builder.take();
}

// ---- at one rank --------------------------------------------------------------------------------

// Everything at rank 0, rank by rank, as barrier_flat (barrier.cpp). No rank has to ask whether a
// slot is free: a rank contributes to a run when it has the result of the run before, and the root
// gives a result when it has all contributions. It combines in the order of ranks, so that the bits
// of the result are the same in every run.
//   counter 0      the result is here
//   counter r      at rank 0: rank r has contributed
Schedule allreduce_flat(const AlgorithmRequest& request) {
  Builder builder(request);
  const std::uint64_t bytes = request.bytes;
  const Block given{Place::send, 0, bytes};
  const Block sum{Place::receive, 0, bytes};
  const auto slot = [&](Rank rank) { return slot_of(rank, rank - 1, bytes); };
  const Block result = slot_of(0, 0, bytes);
  if (bytes > kBesideBytes) builder.scratch(request.rank == 0 ? (request.ranks - 1) * bytes : bytes);
  if (request.rank != 0) {
    builder.counter(0, 1);
    give(builder.put(0, given, 0, slot(request.rank)), request.rank);
    wait(builder.copy(0, result, sum), 0, 1);
    return builder.take();
  }
  builder.copy(0, given, sum);
  for (Rank other = 1; other < request.ranks; ++other) {
    builder.counter(other, 1);
    wait(builder.reduce(0, slot(other), sum), other, 1);
  }
  for (Rank other = 1; other < request.ranks; ++other) give(builder.put(0, sum, other, result), 0);
  return builder.take();
}

// ---- recursive doubling -------------------------------------------------------------------------

// Allreduce of few bytes by recursive doubling: in step j, ranks whose numbers differ in bit j
// exchange their partial sums. Both compute the same sum of the same two, so all ranks get the same
// bits.
//
// Each rank beyond the largest power of two gives its vector to the rank that is this power below
// it, and gets the result from that rank. Slots, each filled by one rank and initially free:
//   slot 0          from the rank beyond the power; at such a rank: the result
//   slot 1 + j      step j
//   counter 2s      slot s is full
//   counter 2s + 1  the slot s that this rank fills is free

Schedule allreduce_doubling(const AlgorithmRequest& request) {
  const std::uint64_t bytes = request.bytes;
  const Rank power = std::bit_floor(request.ranks);
  const Rank extra = request.ranks - power;
  const Rank rank = request.rank;
  const auto steps = static_cast<std::uint32_t>(std::countr_zero(power));
  const auto slot = [&](std::uint32_t s) { return slot_of(full_counter(s), s, bytes); };
  const Block given{Place::send, 0, bytes};
  const Block sum{Place::receive, 0, bytes};
  Builder builder(request);
  if (bytes > kBesideBytes) builder.scratch((1 + steps) * bytes);
  const auto exchange_with = [&](std::uint32_t s) {
    builder.counter(full_counter(s), 1).counter(free_counter(s), 1, 1);
  };
  const auto fill = [&](std::uint32_t s, const Block& from, Rank target) {
    wait(give(builder.put(0, from, target, slot(s)), full_counter(s)), free_counter(s), 1);
  };
  if (rank >= power) {
    exchange_with(0);
    fill(0, given, rank - power);
    wait(builder.copy(0, slot(0), sum), full_counter(0), 1);
    builder.signal(0, rank - power, free_counter(0));
    return builder.take();
  }
  builder.copy(0, given, sum);
  const auto add = [&](std::uint32_t s, Rank from) {
    wait(builder.reduce(0, slot(s), sum), full_counter(s), 1);
    builder.signal(0, from, free_counter(s));
  };
  if (rank < extra) {
    exchange_with(0);
    add(0, rank + power);
  }
  for (std::uint32_t step = 0; step < steps; ++step) {
    const Rank partner = rank ^ (Rank{1} << step);
    exchange_with(1 + step);
    fill(1 + step, sum, partner);
    add(1 + step, partner);
  }
  if (rank < extra) fill(0, sum, rank + power);
  return builder.take();
}

// ---- halving, then doubling ---------------------------------------------------------------------

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

// ---- around a ring ------------------------------------------------------------------------------

// Around a ring: every rank sends to its right neighbour and receives from its left one only.
//
// Reduce-scatter: part i begins at rank i + 1 and is combined at each rank that it reaches; after n
// - 1 steps the complete sum is at rank i. Arriving parts wait in slots, one per step, initially
// free; so a rank may be a run ahead of its right neighbour.
// Allgather: a part moves on unchanged, from the caller's memory to the caller's memory; so the
// right neighbour must have begun. Allreduce is both [Patarasuk, Yuan 2009]: 2 (n - 1) / n of the
// bytes per link, whatever n is.
//   counter 0  parts to combine that have arrived     counter 1  slots at the right that are free
//   counter 2  complete parts that have arrived       counter 3  the right neighbour has begun
//   queue 1    the signal that this rank has begun
//   queue 0    everything else

namespace {

constexpr std::uint32_t kParts = 0;
constexpr std::uint32_t kSlots = 1;
constexpr std::uint32_t kWhole = 2;
constexpr std::uint32_t kBegun = 3;
constexpr std::uint32_t kWholeSlots = 3;

struct Ring {
  Rank n;
  Rank rank;
  [[nodiscard]] Rank right() const { return (rank + 1) % n; }
  [[nodiscard]] Rank left() const { return (rank + n - 1) % n; }
  // The part that this rank sends in `step` of the allgather; in the reduce-scatter, one step
  // earlier.
  [[nodiscard]] Rank part(Rank step) const { return (rank + n - step % n) % n; }
};

// Leaves the sum of this rank's part in `own`. The caller's vector is in send; `at(i)` is the place
// of part i.
void add_reduce_scatter(Builder& builder, const Ring& ring, auto&& at, Block own, std::uint64_t slot_bytes) {
  const std::uint64_t slots = builder.scratch((ring.n - 1) * slot_bytes);
  builder.counter(kParts, ring.n - 1).counter(kSlots, ring.n - 1, ring.n - 1);
  const auto slot = [&](Rank step, std::uint64_t bytes) {
    return Block{Place::scratch, slots + (step - 1) * slot_bytes, bytes};
  };
  const auto send = [&](Rank step, const Block& from) {
    wait(give(builder.put(0, from, ring.right(), slot(step, from.bytes)), kParts), kSlots, step);
  };
  send(1, at(ring.part(1)));
  for (Rank step = 1; step < ring.n; ++step) {
    const Block mine = at(ring.part(step + 1));
    const Block arrived = slot(step, mine.bytes);
    if (step + 1 < ring.n) {
      wait(builder.reduce(0, mine, arrived), kParts, step);
      send(step + 1, arrived);
    } else {  // copied while the part is on its way
      builder.copy(0, mine, own);
      wait(builder.reduce(0, arrived, own), kParts, step);
    }
    builder.signal(0, ring.left(), kSlots);
  }
}

// When queue 0 gets here, this rank's own part is already in place.
void add_allgather(Builder& builder, const Ring& ring, auto&& at) {
  builder.counter(kWhole, ring.n - 1).counter(kBegun, 1);
  builder.signal(1, ring.left(), kBegun);
  for (Rank step = 0; step + 1 < ring.n; ++step) {
    const Block now = at(ring.part(step));
    ScheduleCommand& put = give(builder.put(0, now, ring.right(), now), kWhole);
    if (step == 0)
      wait(put, kBegun, 1);
    else
      wait(put, kWhole, step);
  }
  wait(builder.nop(0), kWhole, ring.n - 1);
}

// The same through slots, one per step, initially free: nobody waits until a peer begins, and what
// arrives is copied to the caller's memory. A part is forwarded from its slot.
//   counter 3  slots at the right that are free
void add_allgather_kept(Builder& builder, const Ring& ring, auto&& at, std::uint64_t slot_bytes) {
  const std::uint64_t slots = builder.scratch((ring.n - 1) * slot_bytes);
  builder.counter(kWhole, ring.n - 1).counter(kWholeSlots, ring.n - 1, ring.n - 1);
  const auto slot = [&](Rank step, std::uint64_t bytes) {
    return Block{Place::scratch, slots + step * slot_bytes, bytes};
  };
  for (Rank step = 0; step + 1 < ring.n; ++step) {
    const Block out = at(ring.part(step));
    const Block from = step == 0 ? out : slot(step - 1, out.bytes);
    wait(give(builder.put(0, from, ring.right(), slot(step, out.bytes)), kWhole), kWholeSlots, step + 1);
    if (step > 0) builder.signal(0, ring.left(), kWholeSlots);
    const Block in = at(ring.part(step + 1));
    wait(builder.copy(0, slot(step, in.bytes), in), kWhole, step + 1);
  }
  builder.signal(0, ring.left(), kWholeSlots);
}

Schedule allreduce_around(const AlgorithmRequest& request, bool kept) {
  Builder builder(request);
  const Ring ring{request.ranks, request.rank};
  const auto given = [&](Rank i) { return part(Place::send, request.bytes, request.element_bytes, ring.n, i); };
  const auto result = [&](Rank i) { return part(Place::receive, request.bytes, request.element_bytes, ring.n, i); };
  if (ring.n == 1) {
    builder.copy(0, given(0), result(0));
    return builder.take();
  }
  const std::uint64_t elements = request.bytes / request.element_bytes;
  const std::uint64_t slot_bytes = (elements + ring.n - 1) / ring.n * request.element_bytes;
  add_reduce_scatter(builder, ring, given, result(ring.rank), slot_bytes);
  if (kept)
    add_allgather_kept(builder, ring, result, slot_bytes);
  else
    add_allgather(builder, ring, result);
  return builder.take();
}

}  // namespace

Schedule allreduce_ring(const AlgorithmRequest& request) {
  return allreduce_around(request, false);
}

Schedule allreduce_ring_kept(const AlgorithmRequest& request) {
  return allreduce_around(request, true);
}

Schedule reduce_scatter_ring(const AlgorithmRequest& request) {
  Builder builder(request);
  const Ring ring{request.ranks, request.rank};
  const auto given = [&](Rank i) { return Block{Place::send, i * request.bytes, request.bytes}; };
  const Block own{Place::receive, 0, request.bytes};
  if (ring.n == 1)
    builder.copy(0, given(0), own);
  else
    add_reduce_scatter(builder, ring, given, own, request.bytes);
  return builder.take();
}

Schedule allgather_ring(const AlgorithmRequest& request) {
  Builder builder(request);
  const Ring ring{request.ranks, request.rank};
  const auto result = [&](Rank i) { return Block{Place::receive, i * request.bytes, request.bytes}; };
  builder.copy(0, {Place::send, 0, request.bytes}, result(ring.rank));
  if (ring.n > 1) add_allgather(builder, ring, result);
  return builder.take();
}

// ---- to everybody -------------------------------------------------------------------------------

// Every rank adds up one part of the vector for all: it gets this part from each other rank, into
// a slot of each, initially free. So a result takes two meetings, however many ranks there are; a
// ring takes 2 (n - 1), and each is a change of threads where ranks share cores.
//   counter r          the contribution of rank r is here
//   counter n + r      this rank's slot at rank r is free
// For allreduce the sums lie in scratch, where the others get them:
//   counter 2n + r     the sum of rank r may be read
//   counter 3n         ranks that have read this rank's sum

namespace {

// Leaves the sum of this rank's part in `own`; `part_of(r)` is the part of rank r. `begin_sum` puts
// this rank's own contribution there.
void add_contributions(Builder& builder, const AlgorithmRequest& request, auto&& part_of, std::uint64_t slot_bytes,
                       auto&& begin_sum, Block own) {
  const Rank n = request.ranks;
  const Rank rank = request.rank;
  const std::uint64_t slots = builder.scratch((n - 1) * slot_bytes);
  // at rank `at`
  const auto slot = [&](Rank at, Rank from, std::uint64_t bytes) {
    return Block{Place::scratch, slots + (from < at ? from : from - 1) * slot_bytes, bytes};
  };
  for (Rank step = 1; step < n; ++step) {
    const Rank other = (rank + step) % n;
    const Block theirs = part_of(other);
    builder.counter(n + other, 1, 1);
    wait(give(builder.put(0, theirs, other, slot(other, rank, theirs.bytes)), rank), n + other, 1);
  }
  begin_sum();
  for (Rank step = 1; step < n; ++step) {
    const Rank other = (rank + n - step) % n;  // in the order in which they put
    builder.counter(other, 1);
    wait(builder.reduce(0, slot(rank, other, own.bytes), own), other, 1);
    builder.signal(0, other, n + rank);
  }
}

}  // namespace

Schedule allreduce_kept(const AlgorithmRequest& request) {
  Builder builder(request);
  const Rank n = request.ranks;
  const Rank rank = request.rank;
  const auto given = [&](Rank i) { return part(Place::send, request.bytes, request.element_bytes, n, i); };
  const auto result = [&](Rank i) { return part(Place::receive, request.bytes, request.element_bytes, n, i); };
  if (n == 1) {
    builder.copy(0, given(0), result(0));
    return builder.take();
  }
  const std::uint64_t elements = request.bytes / request.element_bytes;
  const std::uint64_t slot_bytes = (elements + n - 1) / n * request.element_bytes;
  const std::uint64_t sums = builder.scratch(slot_bytes);
  const auto sum = [&](Rank of) { return Block{Place::scratch, sums, given(of).bytes}; };
  builder.counter(3 * n, n - 1, n - 1);
  const auto begin_sum = [&] { wait(builder.copy(0, given(rank), sum(rank)), 3 * n, n - 1); };
  add_contributions(builder, request, given, slot_bytes, begin_sum, sum(rank));
  for (Rank step = 1; step < n; ++step) builder.signal(0, (rank + step) % n, 2 * n + rank);
  builder.copy(0, sum(rank), result(rank));
  for (Rank step = 1; step < n; ++step) {
    const Rank other = (rank + n - step) % n;
    builder.counter(2 * n + other, 1);
    wait(builder.get(0, other, sum(other), result(other)), 2 * n + other, 1);
    builder.signal_shared(0, other, 3 * n);
  }
  return builder.take();
}

Schedule reduce_scatter_kept(const AlgorithmRequest& request) {
  Builder builder(request);
  const auto given = [&](Rank i) { return Block{Place::send, i * request.bytes, request.bytes}; };
  const Block own{Place::receive, 0, request.bytes};
  const auto begin_sum = [&] { builder.copy(0, given(request.rank), own); };
  add_contributions(builder, request, given, request.bytes, begin_sum, own);
  return builder.take();
}

// ---- scan ---------------------------------------------------------------------------------------

// Inclusive scan by recursive doubling [Hillis, Steele 1986]: in step j a rank gives the sum of its
// last 2^j values to the rank 2^j after it, which adds that sum on the left. One slot per step,
// filled by one rank, initially free.
//   counter 2j      slot of step j is full
//   counter 2j + 1  the slot of step j that this rank fills is free

Schedule scan_doubling(const AlgorithmRequest& request) {
  Builder builder(request);
  const std::uint64_t bytes = request.bytes;
  const Block sum{Place::receive, 0, bytes};
  builder.copy(0, {Place::send, 0, bytes}, sum);
  std::uint32_t step = 0;
  for (std::uint64_t distance = 1; distance < request.ranks; distance *= 2, ++step) {
    const std::uint32_t full = 2 * step;
    const Block slot =
        bytes <= kBesideBytes ? beside(full, bytes) : Block{Place::scratch, builder.scratch(bytes), bytes};
    const std::uint32_t free = 2 * step + 1;
    if (request.rank + distance < request.ranks) {
      builder.counter(free, 1, 1);
      const auto next = static_cast<Rank>(request.rank + distance);
      wait(give(builder.put(0, sum, next, slot), full), free, 1);
    }
    if (request.rank < distance) continue;
    builder.counter(full, 1);
    wait(builder.reduce(0, slot, sum), full, 1);
    builder.signal(0, static_cast<Rank>(request.rank - distance), free);
  }
  return builder.take();
}

}  // namespace heddle::collective
