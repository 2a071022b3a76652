#include "mpi/collective/combining.hpp"

#include <algorithm>

namespace heddle::mpi {
namespace {

constexpr int kNoRoot = -1;

// By the engine's reduction. `result`: this process gets one.
void add_engine(Schedule& schedule, EngineCollective operation, const Reducing& what, bool result, int root) {
  const Reducer& reducer = reducer_of(schedule, what);
  const Operand from = operand_of(schedule, reducer, what.send);
  Operand to;
  if (result) to = what.in_place ? from : operand_of(schedule, reducer, what.receive);
  add_load(schedule, reducer, what.send, from);
  EngineCall call;
  call.what = operation;
  call.send = from.at;
  call.receive = to.at;
  call.amount = static_cast<std::size_t>(what.send.count);
  call.root = root == kNoRoot ? 0 : static_cast<std::uint32_t>(root);
  call.reduction = reducer.reduction();
  schedule.engine(std::move(call));
  if (result) add_store(schedule, reducer, what.receive, to);
}

// All contributions, to the root or to everybody; the first `parts` of them, combined in their
// order, are the result. 0: no result here.
void add_ordered(Schedule& schedule, const Reducing& what, std::size_t parts, int root) {
  const Reducer& reducer = reducer_of(schedule, what);
  const auto size = static_cast<std::size_t>(schedule.communicator().size());
  const std::size_t bytes = bytes_of(reducer, what.send.count);
  const Operand from = operand_of(schedule, reducer, what.send);
  add_load(schedule, reducer, what.send, from);
  EngineCall call;
  call.what = root == kNoRoot ? EngineCollective::allgather : EngineCollective::gather;
  call.send = from.at;
  call.amount = bytes;
  call.root = root == kNoRoot ? 0 : static_cast<std::uint32_t>(root);
  std::byte* const all =
      root == kNoRoot || schedule.communicator().rank == root ? schedule.room(size * bytes) : nullptr;
  call.receive = all;
  schedule.engine(std::move(call));
  if (parts > 0) add_fold(schedule, reducer, all, parts, what.receive);
}

// There is nothing to combine.
bool is_trivial(Schedule& schedule, const Reducing& what) {
  if (what.send.bytes() == 0) return true;
  if (!is_alone(schedule.communicator())) return false;
  if (!what.in_place) add_copy(schedule, what.send, what.receive);
  return true;
}

// Vectors in which the blocks of members lie one after the other.
Places places_of(const Reducer& reducer, const std::vector<MPI_Count>& counts) {
  Places places;
  std::size_t offset = 0;
  for (const MPI_Count count : counts) {
    places.lengths.push_back(bytes_of(reducer, count));
    places.offsets.push_back(offset);
    offset += places.lengths.back();
  }
  return places;
}

// Everybody's contributions to this member's block, combined here.
void add_exchanged(Schedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts, bool even) {
  const Reducer& reducer = reducer_of(schedule, what);
  const MPI_Count mine = what.receive.count;
  const std::size_t size = counts.size();
  const Operand from = operand_of(schedule, reducer, what.send);
  add_load(schedule, reducer, what.send, from);
  std::byte* const all = schedule.room(size * bytes_of(reducer, mine));
  EngineCall call;
  call.what = even ? EngineCollective::alltoall : EngineCollective::alltoallv;
  call.send = from.at;
  call.receive = all;
  call.amount = bytes_of(reducer, mine);
  if (!even) {
    call.send_places = places_of(reducer, counts);
    call.receive_places = places_of(reducer, std::vector<MPI_Count>(size, mine));
  }
  schedule.engine(std::move(call));
  if (mine > 0) add_fold(schedule, reducer, all, size, what.receive);
}

}  // namespace

// ---- parts --------------------------------------------------------------------------------------

Reducer& reducer_of(Schedule& schedule, const Reducing& what) {
  return schedule.keep(std::make_shared<Reducer>(*what.op, *what.type));
}

Operand operand_of(Schedule& schedule, const Reducer& reducer, const Block& block) {
  if (reducer.fits(block)) return {reducer.memory(block), false};
  return {schedule.room(bytes_of(reducer, block.count)), true};
}

void add_load(Schedule& schedule, const Reducer& reducer, const Block& block, const Operand& operand) {
  if (!operand.apart || block.bytes() == 0) return;
  schedule.local([&reducer, block, to = operand.at] { reducer.load(block, to); });
}

void add_store(Schedule& schedule, const Reducer& reducer, const Block& block, const Operand& operand) {
  if (!operand.apart || block.bytes() == 0) return;
  schedule.local([&reducer, block, from = operand.at] { reducer.store(from, block); });
}

void add_fold(Schedule& schedule, const Reducer& reducer, std::byte* first, std::size_t parts, const Block& result) {
  const auto count = static_cast<std::size_t>(result.count);
  const std::size_t stride = bytes_of(reducer, result.count);
  schedule.local([&reducer, first, parts, stride, count, result] {
    reducer.store(reducer.fold(first, parts, stride, count), result);
  });
}

// ---- operations ---------------------------------------------------------------------------------

void add_reduce(Schedule& schedule, const Reducing& what, int root) {
  if (is_trivial(schedule, what)) return;
  const bool at_root = schedule.communicator().rank == root;
  if (what.op->commutative) return add_engine(schedule, EngineCollective::reduce, what, at_root, root);
  add_ordered(schedule, what, at_root ? static_cast<std::size_t>(schedule.communicator().size()) : 0, root);
}

void add_allreduce(Schedule& schedule, const Reducing& what) {
  if (is_trivial(schedule, what)) return;
  if (what.op->commutative) return add_engine(schedule, EngineCollective::allreduce, what, true, kNoRoot);
  add_ordered(schedule, what, static_cast<std::size_t>(schedule.communicator().size()), kNoRoot);
}

void add_scan(Schedule& schedule, const Reducing& what) {
  if (is_trivial(schedule, what)) return;
  if (what.op->commutative) return add_engine(schedule, EngineCollective::scan, what, true, kNoRoot);
  add_ordered(schedule, what, static_cast<std::size_t>(schedule.communicator().rank) + 1, kNoRoot);
}

void add_exscan(Schedule& schedule, const Reducing& what) {
  if (what.send.bytes() == 0 || is_alone(schedule.communicator())) return;
  constexpr std::size_t kGathered = std::size_t{1} << 18;
  Comm& comm = schedule.communicator();
  const int rank = comm.rank;
  const std::size_t all = what.send.bytes() * static_cast<std::size_t>(comm.size());
  if (!what.op->commutative || all <= kGathered)
    return add_ordered(schedule, what, static_cast<std::size_t>(rank), kNoRoot);
  // The scan of the member before.
  schedule.use_messages();
  const Reducer& reducer = reducer_of(schedule, what);
  const std::size_t bytes = bytes_of(reducer, what.send.count);
  const Operand from = operand_of(schedule, reducer, what.send);
  std::byte* const scanned = schedule.room(bytes);
  add_load(schedule, reducer, what.send, from);
  EngineCall call;
  call.what = EngineCollective::scan;
  call.send = from.at;
  call.receive = scanned;
  call.amount = static_cast<std::size_t>(what.send.count);
  call.reduction = reducer.reduction();
  schedule.engine(std::move(call));
  const Operand to = rank == 0 ? Operand{} : operand_of(schedule, reducer, what.receive);
  schedule.messages();
  if (rank > 0) schedule.receive(comm, rank - 1, to.at, bytes);
  if (rank + 1 < comm.size()) schedule.send(comm, rank + 1, scanned, bytes);
  if (rank > 0) add_store(schedule, reducer, what.receive, to);
}

void add_reduce_scatter(Schedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts) {
  if (is_trivial(schedule, what)) return;
  const bool even = std::ranges::all_of(counts, [&](MPI_Count count) { return count == counts.front(); });
  if (!even || !what.op->commutative) return add_exchanged(schedule, what, counts, even);
  const Reducer& reducer = reducer_of(schedule, what);
  const Operand from = operand_of(schedule, reducer, what.send);
  const Operand to = what.in_place ? Operand{schedule.room(bytes_of(reducer, what.receive.count)), true}
                                   : operand_of(schedule, reducer, what.receive);
  add_load(schedule, reducer, what.send, from);
  EngineCall call;
  call.what = EngineCollective::reduce_scatter;
  call.send = from.at;
  call.receive = to.at;
  call.amount = static_cast<std::size_t>(what.receive.count);
  call.reduction = reducer.reduction();
  schedule.engine(std::move(call));
  add_store(schedule, reducer, what.receive, to);
}

}  // namespace heddle::mpi
