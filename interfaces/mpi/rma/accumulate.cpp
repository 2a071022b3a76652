#include "mpi/rma/accumulate.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "mpi/rma/atomic.hpp"

namespace heddle::mpi {
namespace {

constexpr std::uint32_t kMostAsked = 64;     // pieces that one target has not answered yet
constexpr std::uint64_t kPieceBytes = 4096;  // of one message, without the runs' descriptions
constexpr std::size_t kPieceRuns = 128;

int check_same(const Side& side, const Reach& reach, const Type& element, const char* name) {
  const Type* const other = element_of(*side.type);
  const bool alike = other != nullptr && other->basic == element.basic && other->size == element.size;
  if (!alike && side.bytes() != 0)
    return error(MPI_ERR_TYPE, "the %s's datatype is not made of the basic type of the target's: use the same one",
                 name);
  if (side.bytes() == reach.bytes()) return MPI_SUCCESS;
  return error(MPI_ERR_COUNT, "%s: count and datatype describe %lld bytes, but those of the target %lld", name,
               static_cast<long long>(side.bytes()), static_cast<long long>(reach.bytes()));
}

// ---- mapped memory ------------------------------------------------------------------------------

int accumulate_runs(const Accumulation& what, const Type& element, const std::byte* operands, std::byte* old) {
  const Reach& reach = what.reach;
  const Guarded where{*reach.win, reach.rank, *reach.far().control};
  if (reach.type == &element)
    return accumulate_here(where, *what.op, element, operands, reach.memory, old, reach.count);
  for (const Run& run : runs_of(reach.count, *reach.type, element, 0)) {
    const auto count = static_cast<MPI_Count>(run.count);
    if (const int code = accumulate_here(where, *what.op, element, operands,
                                         reach.memory + static_cast<std::ptrdiff_t>(run.offset), old, count);
        code != MPI_SUCCESS)
      return code;
    if (operands != nullptr) operands += count * element.size;
    if (old != nullptr) old += count * element.size;
  }
  return MPI_SUCCESS;
}

int accumulate_mapped(const Accumulation& what, const Type& element) {
  std::unique_ptr<std::byte[]> packed;
  std::unique_ptr<std::byte[]> packed_old;
  const std::byte* operands = nullptr;
  std::byte* old = nullptr;
  const auto bytes = static_cast<std::size_t>(what.reach.bytes());
  if (what.op->kind != OpKind::no_op) {
    operands = static_cast<const std::byte*>(begin_of(what.origin.buffer, *what.origin.type));
    if (!what.origin.type->contiguous) {
      packed = std::make_unique<std::byte[]>(bytes);
      pack(what.origin.buffer, what.origin.count, *what.origin.type, packed.get());
      operands = packed.get();
    }
  }
  if (what.old != nullptr) {
    old = static_cast<std::byte*>(begin_of(what.old->buffer, *what.old->type));
    if (!what.old->type->contiguous) {
      packed_old = std::make_unique<std::byte[]>(bytes);
      old = packed_old.get();
    }
  }
  const int code = accumulate_runs(what, element, operands, old);
  if (code == MPI_SUCCESS && packed_old != nullptr)
    unpack(packed_old.get(), static_cast<MPI_Count>(bytes), what.old->buffer, what.old->count, *what.old->type);
  return code;
}

// ---- messages -----------------------------------------------------------------------------------

// Cuts the runs into pieces.
class Pieces {
 public:
  Pieces(const Accumulation& what, const Type& element, Tracker* tracker)
      : what_(what), element_(element), tracker_(tracker), size_(static_cast<std::uint64_t>(element.size)) {}

  int send(const std::vector<Run>& runs) {
    const std::uint64_t most = std::max<std::uint64_t>(1, kPieceBytes / size_);
    for (Run run : runs) {
      while (run.count > 0) {
        const std::uint64_t count = std::min(run.count, most - elements_);
        piece_.push_back({run.offset, count});
        elements_ += count;
        run.count -= count;
        run.offset += count * static_cast<std::uint64_t>(element_.extent);
        if (elements_ < most && piece_.size() < kPieceRuns) continue;
        if (const int code = send_piece(); code != MPI_SUCCESS) return code;
      }
    }
    return piece_.empty() ? MPI_SUCCESS : send_piece();
  }

 private:
  std::unique_ptr<Asked> make() const {
    auto asked = std::make_unique<Asked>();
    AskHeader& header = asked->header;
    header.question = Question::accumulate;
    header.detail = static_cast<std::uint8_t>(what_.op->kind);
    header.fetch = what_.old != nullptr ? 1 : 0;
    header.type = element_number(element_);
    header.runs = static_cast<std::uint32_t>(piece_.size());
    header.offset = piece_[0].offset;
    header.count = piece_[0].count;
    asked->win = what_.reach.win;
    asked->rank = what_.reach.rank;
    if (what_.old == nullptr) return asked;
    asked->result = what_.old->buffer;
    asked->result_count = what_.old->count;
    asked->result_from = static_cast<MPI_Count>(from_);
    asked->result_type = retain(what_.old->type);
    return asked;
  }

  int send_piece() {
    const std::uint64_t bytes = elements_ * size_;
    if (const int code = wait_asked(*what_.reach.win, what_.reach.rank, kMostAsked); code != MPI_SUCCESS) return code;
    std::unique_ptr<Asked> asked = make();
    const std::size_t told = piece_.size() == 1 ? 0 : piece_.size() * sizeof(Run);
    const std::size_t carried = what_.op->kind == OpKind::no_op ? 0 : bytes;
    asked->payload_bytes = told + carried;
    if (asked->payload_bytes != 0) asked->payload = std::make_unique<std::byte[]>(asked->payload_bytes);
    if (told != 0) std::memcpy(asked->payload.get(), piece_.data(), told);
    if (carried != 0)
      pack_part(what_.origin.buffer, what_.origin.count, *what_.origin.type, static_cast<MPI_Count>(from_),
                static_cast<MPI_Count>(bytes), asked->payload.get() + told);
    if (tracker_ != nullptr) tracker_->add();
    asked->tracker = tracker_;
    const int code = post_ask(std::move(asked));
    if (code != MPI_SUCCESS && tracker_ != nullptr) tracker_->end(code);
    from_ += bytes;
    elements_ = 0;
    piece_.clear();
    return code;
  }

  const Accumulation& what_;
  const Type& element_;
  Tracker* const tracker_;
  const std::uint64_t size_;
  std::uint64_t from_ = 0;      // bytes sent
  std::uint64_t elements_ = 0;  // of the piece
  std::vector<Run> piece_;
};

}  // namespace

std::uint32_t element_number(const Type& element) {
  return static_cast<std::uint32_t>(&element - g_basic_types);
}

int keep_order(const Reach& reach) {
  if (reach.win->unordered || reach.far().asked.load(std::memory_order_relaxed) == 0) return MPI_SUCCESS;
  // The engine's fence makes progress on this lane only, and peers may wait for another.
  if (g_job.lanes.size() > 1) return wait_asked(*reach.win, reach.rank, 1);
  return code_of(heddle_fence(reach.win->comm->lane->worker));
}

int check_accumulation(const Accumulation& what) {
  if (what.op->kind == OpKind::user)
    return error(MPI_ERR_OP, "an operator made by MPI_Op_create: accumulates take only predefined ones");
  // There is nothing to combine: no elements, or elements of an empty type, which has no basic
  // type.
  if (what.reach.bytes() == 0) return MPI_SUCCESS;
  const Type* const element = element_of(*what.reach.type);
  if (element == nullptr)
    return error(MPI_ERR_TYPE, "target_datatype: accumulates need elements of one predefined type");
  if (const int code = check_op(*what.op, *element); code != MPI_SUCCESS) return code;
  if (what.op->kind != OpKind::no_op)
    if (const int code = check_same(what.origin, what.reach, *element, "origin"); code != MPI_SUCCESS) return code;
  return what.old == nullptr ? MPI_SUCCESS : check_same(*what.old, what.reach, *element, "result");
}

int accumulate(const Accumulation& what, Tracker* tracker) {
  if (what.reach.bytes() == 0) return MPI_SUCCESS;
  const Type& element = *element_of(*what.reach.type);
  if (what.op->kind == OpKind::no_op && what.old == nullptr) return MPI_SUCCESS;
  if (what.reach.memory != nullptr) return accumulate_mapped(what, element);
  if (const int code = keep_order(what.reach); code != MPI_SUCCESS) return code;
  return Pieces(what, element, tracker).send(runs_of(what.reach.count, *what.reach.type, element, what.reach.offset));
}

}  // namespace heddle::mpi
