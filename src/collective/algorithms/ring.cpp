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
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

constexpr std::uint32_t kParts = 0;
constexpr std::uint32_t kSlots = 1;
constexpr std::uint32_t kWhole = 2;
constexpr std::uint32_t kBegun = 3;

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
    wait(builder.reduce(0, mine, arrived), kParts, step);
    if (step + 1 < ring.n)
      send(step + 1, arrived);
    else
      builder.copy(0, arrived, own);
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

}  // namespace

Schedule allreduce_ring(const AlgorithmRequest& request) {
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
  add_allgather(builder, ring, result);
  return builder.take();
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

}  // namespace heddle::collective
