#include "mpi/collective/combining.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace heddle::mpi {

namespace {

// Empty: the engine has no reduction for it.
std::optional<heddle_type> engine_type(const Type& type) {
  switch (type.basic) {
    case Basic::int8:
      return HEDDLE_INT8;
    case Basic::int16:
      return HEDDLE_INT16;
    case Basic::int32:
      return HEDDLE_INT32;
    case Basic::int64:
      return HEDDLE_INT64;
    case Basic::uint8:
      return HEDDLE_UINT8;
    case Basic::uint16:
      return HEDDLE_UINT16;
    case Basic::uint32:
      return HEDDLE_UINT32;
    case Basic::uint64:
      return HEDDLE_UINT64;
    case Basic::float32:
      return HEDDLE_FLOAT;
    case Basic::float64:
      return HEDDLE_DOUBLE;
    case Basic::complex_float:
      return HEDDLE_COMPLEX_FLOAT;
    case Basic::complex_double:
      return HEDDLE_COMPLEX_DOUBLE;
    default:
      return std::nullopt;
  }
}

std::optional<heddle_operator> engine_operator(OpKind kind) {
  switch (kind) {
    case OpKind::sum:
      return HEDDLE_SUM;
    case OpKind::prod:
      return HEDDLE_PRODUCT;
    case OpKind::min:
      return HEDDLE_MIN;
    case OpKind::max:
      return HEDDLE_MAX;
    case OpKind::band:
      return HEDDLE_BAND;
    case OpKind::bor:
      return HEDDLE_BOR;
    case OpKind::bxor:
      return HEDDLE_BXOR;
    case OpKind::land:
      return HEDDLE_LAND;
    case OpKind::lor:
      return HEDDLE_LOR;
    case OpKind::lxor:
      return HEDDLE_LXOR;
    default:
      return std::nullopt;
  }
}

// The program's memory of any number of elements is one block, that may be copied as a whole.
bool has_images(const Type& type) {
  return type.contiguous || (type.predefined && type.true_lb == 0 && type.extent >= type.true_extent);
}

}  // namespace

heddle_reduction engine_reduction(const Op& op, const Type& type) {
  heddle_reduction reduction{};
  if (!type.predefined) return reduction;
  const std::optional<heddle_type> engine = engine_type(type);
  const std::optional<heddle_operator> by = engine_operator(op.kind);
  if (!engine || !by) return reduction;
  if (*engine >= HEDDLE_FLOAT && *by > (*engine >= HEDDLE_COMPLEX_FLOAT ? HEDDLE_PRODUCT : HEDDLE_MAX))
    return reduction;
  reduction.type = *engine;
  reduction.op = *by;
  return reduction;
}

std::size_t alignment_of(const Type& type) {
  switch (type.basic) {
    case Basic::complex_float:
      return alignof(float);
    case Basic::complex_double:
      return alignof(double);
    case Basic::int8:
    case Basic::int16:
    case Basic::int32:
    case Basic::int64:
    case Basic::uint8:
    case Basic::uint16:
    case Basic::uint32:
    case Basic::uint64:
    case Basic::float32:
    case Basic::float64:
      return static_cast<std::size_t>(type.size);
    default:
      return 1;  // by apply(), which needs none
  }
}

Reducer::Reducer(const Op& op, const Type& type)
    : op_(op),
      type_(type),
      images_(has_images(type)),
      element_bytes_(static_cast<std::size_t>(images_ ? type.extent : type.size)) {
  if (!images_) make_scratch();
  reduction_ = engine_reduction(op, type);
  if (reduction_.type != 0) return;
  reduction_.fn = combine_for_engine;
  reduction_.arg = this;
  reduction_.element_bytes = element_bytes_;
}

void Reducer::combine_for_engine(void* inout, const void* in, std::size_t bytes, const void* self) {
  const auto& reducer = *static_cast<const Reducer*>(self);
  reducer.combine(static_cast<const std::byte*>(in), static_cast<std::byte*>(inout), bytes / reducer.element_bytes_);
}

void Reducer::combine(const std::byte* in, std::byte* inout, std::size_t count) const {
  if (!images_) return combine_packed(in, inout, count);
  apply(op_, in - type_.true_lb, inout - type_.true_lb, static_cast<MPI_Count>(count), type_);
}

// Memory of some elements from the lowest byte of one to the highest, twice.
void Reducer::make_scratch() {
  constexpr MPI_Count kBytes = MPI_Count{1} << 15;
  constexpr MPI_Count kAlignment = 16;
  const MPI_Count span = std::max({type_.extent, -type_.extent, type_.true_extent, MPI_Count{1}});
  const MPI_Count most = std::max<MPI_Count>(kBytes / span, 1);
  const MPI_Count last = (most - 1) * type_.extent;
  const MPI_Count low = type_.true_lb + std::min<MPI_Count>(last, 0);
  const MPI_Count high = type_.true_lb + type_.true_extent + std::max<MPI_Count>(last, 0);
  const MPI_Count from = (low >= 0 ? low : low - kAlignment + 1) / kAlignment * kAlignment;
  const MPI_Count bytes = (high - from + kAlignment - 1) / kAlignment * kAlignment;
  scratch_ = std::make_unique<std::byte[]>(static_cast<std::size_t>(2 * bytes));
  most_ = static_cast<std::size_t>(most);
  left_ = scratch_.get() - from;
  right_ = left_ + bytes;
}

void Reducer::combine_packed(const std::byte* in, std::byte* inout, std::size_t count) const {
  for (std::size_t at = 0; at < count; at += most_) {
    const auto now = static_cast<MPI_Count>(std::min(most_, count - at));
    const MPI_Count length = now * type_.size;
    unpack(in + at * element_bytes_, length, left_, now, type_);
    unpack(inout + at * element_bytes_, length, right_, now, type_);
    apply(op_, left_, right_, now, type_);
    pack(right_, now, type_, inout + at * element_bytes_);
  }
}

std::byte* Reducer::fold(std::byte* first, std::size_t parts, std::size_t stride, std::size_t count) const {
  std::byte* const result = first + (parts - 1) * stride;
  for (std::size_t i = parts - 1; i > 0; --i) combine(first + (i - 1) * stride, result, count);
  return result;
}

void Reducer::load(const BufferBlock& block, std::byte* to) const {
  if (images_)
    std::memcpy(to, memory(block), static_cast<std::size_t>(block.count) * element_bytes_);
  else
    pack(block.buffer, block.count, *block.type, to);
}

void Reducer::store(const std::byte* from, const BufferBlock& block) const {
  if (images_)
    std::memcpy(memory(block), from, static_cast<std::size_t>(block.count) * element_bytes_);
  else
    unpack(from, static_cast<MPI_Count>(block.bytes()), block.buffer, block.count, *block.type);
}

bool Reducer::fits(const BufferBlock& block) const {
  return images_ && reinterpret_cast<std::uintptr_t>(memory(block)) % alignment_of(type_) == 0;
}

namespace {

constexpr int kNoRoot = -1;

// By the engine's reduction. `result`: this process gets one.
void add_engine(StepSchedule& schedule, EngineCollective operation, const Reducing& what, bool result, int root) {
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
void add_ordered(StepSchedule& schedule, const Reducing& what, std::size_t parts, int root) {
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
bool is_trivial(StepSchedule& schedule, const Reducing& what) {
  if (what.send.bytes() == 0) return true;
  if (!is_alone(schedule.communicator())) return false;
  if (!what.in_place) add_copy(schedule, what.send, what.receive);
  return true;
}

// Vectors in which the blocks of members lie one after the other.
BlockPlaces places_of(const Reducer& reducer, const std::vector<MPI_Count>& counts) {
  BlockPlaces places;
  std::size_t offset = 0;
  for (const MPI_Count count : counts) {
    places.lengths.push_back(bytes_of(reducer, count));
    places.offsets.push_back(offset);
    offset += places.lengths.back();
  }
  return places;
}

// Everybody's contributions to this member's block, combined here.
void add_exchanged(StepSchedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts, bool even) {
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

Reducer& reducer_of(StepSchedule& schedule, const Reducing& what) {
  return schedule.keep(std::make_shared<Reducer>(*what.op, *what.type));
}

Operand operand_of(StepSchedule& schedule, const Reducer& reducer, const BufferBlock& block) {
  if (reducer.fits(block)) return {reducer.memory(block), false};
  return {schedule.room(bytes_of(reducer, block.count)), true};
}

void add_load(StepSchedule& schedule, const Reducer& reducer, const BufferBlock& block, const Operand& operand) {
  if (!operand.apart || block.bytes() == 0) return;
  schedule.local([&reducer, block, to = operand.at] { reducer.load(block, to); });
}

void add_store(StepSchedule& schedule, const Reducer& reducer, const BufferBlock& block, const Operand& operand) {
  if (!operand.apart || block.bytes() == 0) return;
  schedule.local([&reducer, block, from = operand.at] { reducer.store(from, block); });
}

void add_fold(StepSchedule& schedule, const Reducer& reducer, std::byte* first, std::size_t parts,
              const BufferBlock& result) {
  const auto count = static_cast<std::size_t>(result.count);
  const std::size_t stride = bytes_of(reducer, result.count);
  schedule.local([&reducer, first, parts, stride, count, result] {
    reducer.store(reducer.fold(first, parts, stride, count), result);
  });
}

// ---- operations ---------------------------------------------------------------------------------

void add_reduce(StepSchedule& schedule, const Reducing& what, int root) {
  if (is_trivial(schedule, what)) return;
  const bool at_root = schedule.communicator().rank == root;
  if (what.op->commutative) return add_engine(schedule, EngineCollective::reduce, what, at_root, root);
  add_ordered(schedule, what, at_root ? static_cast<std::size_t>(schedule.communicator().size()) : 0, root);
}

void add_allreduce(StepSchedule& schedule, const Reducing& what) {
  if (is_trivial(schedule, what)) return;
  if (what.op->commutative) return add_engine(schedule, EngineCollective::allreduce, what, true, kNoRoot);
  add_ordered(schedule, what, static_cast<std::size_t>(schedule.communicator().size()), kNoRoot);
}

void add_scan(StepSchedule& schedule, const Reducing& what) {
  if (is_trivial(schedule, what)) return;
  if (what.op->commutative) return add_engine(schedule, EngineCollective::scan, what, true, kNoRoot);
  add_ordered(schedule, what, static_cast<std::size_t>(schedule.communicator().rank) + 1, kNoRoot);
}

void add_exscan(StepSchedule& schedule, const Reducing& what) {
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

void add_reduce_scatter(StepSchedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts) {
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

// Reductions over the other group of an intercommunicator. Contributions are combined in the order
// of ranks.

namespace {

// Adds the sends of this process's vector to a set of messages.
void add_sends(StepSchedule& schedule, const Operand& from, std::size_t bytes, int first, int end) {
  for (int rank = first; rank < end; ++rank) schedule.send(schedule.communicator(), rank, from.at, bytes);
}
// Adds the receives of all remote vectors, into one piece of memory.
std::byte* add_receives(StepSchedule& schedule, std::size_t bytes) {
  const int remote = schedule.communicator().remote_size();
  std::byte* const all = schedule.room(static_cast<std::size_t>(remote) * bytes);
  for (int rank = 0; rank < remote; ++rank)
    schedule.receive(schedule.communicator(), rank, all + static_cast<std::size_t>(rank) * bytes, bytes);
  return all;
}

}  // namespace

void add_inter_reduce(StepSchedule& schedule, const Reducing& what, int root) {
  schedule.use_messages();
  if (root == MPI_PROC_NULL) return;
  const Reducer& reducer = reducer_of(schedule, what);
  if (root == MPI_ROOT) {
    if (what.receive.bytes() == 0) return;
    schedule.messages();
    std::byte* const all = add_receives(schedule, bytes_of(reducer, what.receive.count));
    return add_fold(schedule, reducer, all, static_cast<std::size_t>(schedule.communicator().remote_size()),
                    what.receive);
  }
  if (what.send.bytes() == 0) return;
  const Operand from = operand_of(schedule, reducer, what.send);
  add_load(schedule, reducer, what.send, from);
  schedule.messages();
  add_sends(schedule, from, bytes_of(reducer, what.send.count), root, root + 1);
}

void add_inter_allreduce(StepSchedule& schedule, const Reducing& what) {
  schedule.use_messages();
  if (what.send.bytes() == 0) return;
  const Reducer& reducer = reducer_of(schedule, what);
  const int remote = schedule.communicator().remote_size();
  const Operand from = operand_of(schedule, reducer, what.send);
  add_load(schedule, reducer, what.send, from);
  schedule.messages();
  std::byte* const all = add_receives(schedule, bytes_of(reducer, what.receive.count));
  add_sends(schedule, from, bytes_of(reducer, what.send.count), 0, remote);
  add_fold(schedule, reducer, all, static_cast<std::size_t>(remote), what.receive);
}

// The first member of each group combines the other group's vectors, and gives the members of its
// own their blocks.
void add_inter_reduce_scatter(StepSchedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts) {
  schedule.use_messages();
  if (what.send.bytes() == 0) return;
  Comm& comm = schedule.communicator();
  const Reducer& reducer = reducer_of(schedule, what);
  const auto count = static_cast<std::size_t>(what.send.count);
  const std::size_t bytes = bytes_of(reducer, what.send.count);
  const Operand from = operand_of(schedule, reducer, what.send);
  const Operand mine{schedule.room(bytes_of(reducer, what.receive.count)), true};
  add_load(schedule, reducer, what.send, from);
  schedule.messages();
  add_sends(schedule, from, bytes, 0, 1);
  if (comm.rank != 0) {
    schedule.messages();
    if (what.receive.count > 0) schedule.receive(*comm.local, 0, mine.at, bytes_of(reducer, what.receive.count));
    return add_store(schedule, reducer, what.receive, mine);
  }
  const auto remote = static_cast<std::size_t>(comm.remote_size());
  std::byte* const all = add_receives(schedule, bytes);
  std::byte* const result = all + (remote - 1) * bytes;
  const auto combine = [&reducer, all, remote, bytes, count] { reducer.fold(all, remote, bytes, count); };
  schedule.local(combine);
  schedule.messages();
  std::size_t offset = bytes_of(reducer, counts[0]);
  for (int rank = 1; rank < comm.size(); ++rank) {
    const std::size_t length = bytes_of(reducer, counts[static_cast<std::size_t>(rank)]);
    if (length > 0) schedule.send(*comm.local, rank, result + offset, length);
    offset += length;
  }
  add_store(schedule, reducer, what.receive, {result, true});
}

}  // namespace heddle::mpi
