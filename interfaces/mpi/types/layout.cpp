#include "mpi/types/layout.hpp"

#include <algorithm>
#include <utility>

#include "mpi/core/int128.hpp"

namespace heddle::mpi {
namespace {

[[gnu::cold]] int too_large(const char* what) {
  return error(MPI_ERR_ARG,
               "the %s of the new datatype does not fit in 64 bits: give smaller counts, strides or displacements",
               what);
}

bool fits_count(Int128 value) {
  return value >= INT64_MIN && value <= INT64_MAX;
}

bool is_empty(const Layout& layout) {
  return layout.size == 0 && !layout.marked;
}

struct Range {
  Int128 low;
  Int128 high;
};
Range spread(MPI_Count lb, MPI_Count extent, MPI_Count count, MPI_Count stride) {
  const Int128 last = Int128{count - 1} * stride;
  return {lb + std::min(last, Int128{0}), Int128{lb} + extent + std::max(last, Int128{0})};
}
bool store_range(const Range& range, MPI_Count* lb, MPI_Count* extent) {
  const Int128 length = range.high - range.low;
  if (!fits_count(range.low) || !fits_count(range.high) || !fits_count(length)) return false;
  *lb = static_cast<MPI_Count>(range.low);
  *extent = static_cast<MPI_Count>(length);
  return true;
}
PlacedLoop loop_of(const Layout& layout) {
  if (layout.loop != nullptr) return {layout.loop, 0, layout.size};
  return {nullptr, layout.true_lb, layout.size};
}

void set_loop(const PlacedLoop& loop, Layout* layout) {
  if (loop.loop != nullptr && loop.offset != 0) {
    Loop moved = *loop.loop;
    moved.offset += loop.offset;
    layout->loop = std::make_shared<const Loop>(std::move(moved));
  } else {
    layout->loop = loop.loop;
  }
}

void set_contiguous(Layout* layout) {
  layout->contiguous = layout->size == 0 || (layout->loop == nullptr && layout->extent == layout->size);
}

int repeat_signature(const Layout& of, MPI_Count count, Layout* made) {
  if (of.signature == nullptr) {
    made->element = of.element;
    return __builtin_mul_overflow(of.elements, count, &made->elements) ? too_large("number of elements") : MPI_SUCCESS;
  }
  SignatureList signature;
  if (!signature.add(of, count)) return too_large("number of elements");
  signature.take(made);
  return MPI_SUCCESS;
}

}  // namespace

int repeat(const Layout& of, MPI_Count count, MPI_Count stride, Layout* made) {
  if (count == 0 || is_empty(of)) {
    *made = Layout{};
    return MPI_SUCCESS;
  }
  if (count == 1) {
    if (made != &of) *made = of;
    return MPI_SUCCESS;
  }
  Layout result;
  result.marked = of.marked;
  result.alignment = of.alignment;
  if (__builtin_mul_overflow(of.size, count, &result.size)) return too_large("size");
  if (!store_range(spread(of.lb, of.extent, count, stride), &result.lb, &result.extent)) return too_large("extent");
  if (of.size != 0) {
    if (!store_range(spread(of.true_lb, of.true_extent, count, stride), &result.true_lb, &result.true_extent))
      return too_large("true extent");
    if (const int code = repeat_signature(of, count, &result)) return code;
    set_loop(repeated(loop_of(of), count, stride), &result);
  }
  set_contiguous(&result);
  *made = std::move(result);
  return MPI_SUCCESS;
}

int repeat_blocks(const Layout& of, MPI_Count count, MPI_Count blocklength, MPI_Count stride, Layout* made) {
  Layout block;
  if (const int code = repeat(of, blocklength, of.extent, &block)) return code;
  return repeat(block, count, stride, made);
}

int resize(MPI_Count lb, MPI_Count extent, Layout* made) {
  if (!fits_count(Int128{lb} + extent)) return too_large("upper bound");
  made->lb = lb;
  made->extent = extent;
  made->marked = true;
  set_contiguous(made);
  return MPI_SUCCESS;
}

void Joined::Bounds::include(MPI_Count from, MPI_Count to) {
  low = any ? std::min(low, from) : from;
  high = any ? std::max(high, to) : to;
  any = true;
}

bool Joined::is_last(const Layout& of, MPI_Count blocklength) const {
  return last_length_ == blocklength && last_of_.loop == of.loop && last_of_.lb == of.lb &&
         last_of_.extent == of.extent && last_of_.marked == of.marked;
}

int Joined::add(const Layout& of, MPI_Count blocklength, MPI_Count displacement) {
  if (blocklength == 0 || is_empty(of)) return MPI_SUCCESS;
  Layout block;
  const Layout* one = &of;
  if (blocklength != 1) {
    if (of.loop == nullptr) {
      if (const int code = repeat(of, blocklength, of.extent, &block)) return code;
      one = &block;
    } else {
      if (!is_last(of, blocklength)) {
        last_length_ = 0;
        if (const int code = repeat(of, blocklength, of.extent, &last_)) return code;
        last_of_ = of;
        last_length_ = blocklength;
      }
      one = &last_;
    }
  }
  const Int128 low = Int128{one->lb} + displacement;
  const Int128 high = low + one->extent;
  if (!fits_count(low) || !fits_count(high)) return too_large("extent");
  (one->marked ? marked_ : all_).include(static_cast<MPI_Count>(low), static_cast<MPI_Count>(high));
  alignment_ = std::max(alignment_, one->alignment);
  if (one->size == 0) return MPI_SUCCESS;
  const Int128 first = Int128{one->true_lb} + displacement;
  const Int128 last = first + one->true_extent;
  if (!fits_count(first) || !fits_count(last)) return too_large("true extent");
  true_.include(static_cast<MPI_Count>(first), static_cast<MPI_Count>(last));
  if (__builtin_add_overflow(size_, one->size, &size_)) return too_large("size");
  if (!signature_.add(of, blocklength)) return too_large("number of elements");
  PlacedLoop loop = loop_of(*one);
  loop.offset += displacement;
  loops_.add(std::move(loop));
  return MPI_SUCCESS;
}

int Joined::take(Layout* made) {
  Layout result;
  const Bounds& bounds = marked_.any ? marked_ : all_;
  result.size = size_;
  result.marked = marked_.any;
  result.alignment = alignment_;
  if (!store_range({bounds.low, bounds.high}, &result.lb, &result.extent)) return too_large("extent");
  if (!store_range({true_.low, true_.high}, &result.true_lb, &result.true_extent)) return too_large("true extent");
  if (size_ != 0) {
    signature_.take(&result);
    set_loop(loops_.take(), &result);
  }
  set_contiguous(&result);
  *made = std::move(result);
  return MPI_SUCCESS;
}

}  // namespace heddle::mpi
