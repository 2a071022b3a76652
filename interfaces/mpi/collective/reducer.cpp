#include "mpi/collective/reducer.hpp"

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

void Reducer::load(const Block& block, std::byte* to) const {
  if (images_)
    std::memcpy(to, memory(block), static_cast<std::size_t>(block.count) * element_bytes_);
  else
    pack(block.buffer, block.count, *block.type, to);
}

void Reducer::store(const std::byte* from, const Block& block) const {
  if (images_)
    std::memcpy(memory(block), from, static_cast<std::size_t>(block.count) * element_bytes_);
  else
    unpack(from, static_cast<MPI_Count>(block.bytes()), block.buffer, block.count, *block.type);
}

bool Reducer::fits(const Block& block) const {
  return images_ && reinterpret_cast<std::uintptr_t>(memory(block)) % alignment_of(type_) == 0;
}

}  // namespace heddle::mpi
