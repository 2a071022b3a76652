#include "mpi/types/layout.hpp"

#include <algorithm>
#include <utility>

#include "mpi/core/arguments.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

namespace {

// In `bytes` bytes of a basic type.
MPI_Count elements_in_basic(const Type& basic, MPI_Count bytes) {
  MPI_Count elements = bytes / basic.size * elements_of_basic(basic);
  const MPI_Count rest = bytes % basic.size;
  if (rest == 0) return elements;
  if (basic.basic != Basic::pair || rest != parts_of_pair(basic).value->size) return MPI_UNDEFINED;
  return elements + 1;
}

MPI_Count elements_in_one(const Signature& signature, MPI_Count bytes) {
  MPI_Count elements = 0;
  for (const Signature::Run& run : signature.runs) {
    const MPI_Count whole = std::min(run.times, bytes / run.bytes);
    elements += whole * run.elements;
    bytes -= whole * run.bytes;
    if (whole == run.times) continue;
    if (bytes == 0) return elements;
    const MPI_Count more =
        run.basic != nullptr ? elements_in_basic(*run.basic, bytes) : elements_in_one(*run.inner, bytes);
    if (more == MPI_UNDEFINED) return MPI_UNDEFINED;
    return elements + more;
  }
  return elements;
}

MPI_Count bytes_in_basic(const Type& basic, MPI_Count elements) {
  if (basic.basic != Basic::pair) return elements * basic.size;
  return elements / 2 * basic.size + (elements % 2 != 0 ? parts_of_pair(basic).value->size : 0);
}

MPI_Count bytes_in_one(const Signature& signature, MPI_Count elements) {
  MPI_Count bytes = 0;
  for (const Signature::Run& run : signature.runs) {
    const MPI_Count whole = std::min(run.times, elements / run.elements);
    elements -= whole * run.elements;
    bytes += whole * run.bytes;
    if (whole == run.times) continue;
    return bytes + (run.basic != nullptr ? bytes_in_basic(*run.basic, elements) : bytes_in_one(*run.inner, elements));
  }
  return bytes;
}

}  // namespace

MPI_Count basic_elements(const TypeLayout& layout) {
  if (layout.size == 0) return 0;
  if (layout.signature != nullptr) return layout.signature->elements;
  return layout.elements * elements_of_basic(*layout.element);
}

MPI_Count elements_in(const Type& type, MPI_Count bytes) {
  if (bytes == 0) return 0;
  if (type.size == 0) return MPI_UNDEFINED;
  if (type.signature == nullptr) return elements_in_basic(*type.element, bytes);
  const MPI_Count rest = elements_in_one(*type.signature, bytes % type.size);
  if (rest == MPI_UNDEFINED) return MPI_UNDEFINED;
  return bytes / type.size * type.signature->elements + rest;
}

int bytes_of_elements(const TypeLayout& layout, MPI_Count elements, MPI_Count* bytes) {
  *bytes = 0;
  if (elements == 0) return MPI_SUCCESS;
  if (layout.size == 0)
    return error(MPI_ERR_COUNT, "%lld elements of a datatype that has none", static_cast<long long>(elements));
  const MPI_Count each = basic_elements(layout);
  MPI_Count whole = 0;
  if (__builtin_mul_overflow(elements / each, layout.size, &whole) || whole > INT64_MAX - layout.size)
    return error(MPI_ERR_COUNT, "%lld elements are more bytes than 64 bits count", static_cast<long long>(elements));
  const MPI_Count rest = elements % each;
  *bytes = whole + (layout.signature != nullptr ? bytes_in_one(*layout.signature, rest)
                                                : bytes_in_basic(*layout.element, rest));
  return MPI_SUCCESS;
}

bool SignatureList::add(const TypeLayout& layout, MPI_Count times) {
  if (layout.size == 0 || times == 0) return true;
  Signature::Run run{times, nullptr, nullptr, 0, 0};
  if (layout.signature == nullptr) {
    run.basic = layout.element;
    if (__builtin_mul_overflow(times, layout.elements, &run.times)) return false;
    run.bytes = layout.element->size;
    run.elements = elements_of_basic(*layout.element);
  } else {
    run.inner = layout.signature;
    run.bytes = layout.signature->bytes;
    run.elements = layout.signature->elements;
  }
  MPI_Count bytes = 0;
  MPI_Count elements = 0;
  if (__builtin_mul_overflow(run.times, run.bytes, &bytes) || __builtin_add_overflow(all_.bytes, bytes, &all_.bytes))
    return false;
  if (__builtin_mul_overflow(run.times, run.elements, &elements) ||
      __builtin_add_overflow(all_.elements, elements, &all_.elements))
    return false;
  if (!all_.runs.empty()) {
    Signature::Run& last = all_.runs.back();
    if (last.basic == run.basic && last.inner == run.inner) {
      last.times += run.times;
      return true;
    }
  }
  all_.runs.push_back(std::move(run));
  return true;
}

void SignatureList::take(TypeLayout* layout) {
  layout->element = nullptr;
  layout->elements = 0;
  layout->signature = nullptr;
  if (all_.runs.size() == 1 && all_.runs.front().basic != nullptr) {
    layout->element = all_.runs.front().basic;
    layout->elements = all_.runs.front().times;
  } else if (all_.runs.size() == 1 && all_.runs.front().times == 1) {
    layout->signature = all_.runs.front().inner;
  } else if (!all_.runs.empty()) {
    layout->signature = std::make_shared<const Signature>(std::move(all_));
  }
  all_ = {};
}

namespace {

[[gnu::cold]] int too_large(const char* what) {
  return error(MPI_ERR_ARG,
               "the %s of the new datatype does not fit in 64 bits: give smaller counts, strides or displacements",
               what);
}

bool fits_count(Int128 value) {
  return value >= INT64_MIN && value <= INT64_MAX;
}

bool is_empty(const TypeLayout& layout) {
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
PlacedLoop loop_of(const TypeLayout& layout) {
  if (layout.loop != nullptr) return {layout.loop, 0, layout.size};
  return {nullptr, layout.true_lb, layout.size};
}

void set_loop(const PlacedLoop& loop, TypeLayout* layout) {
  if (loop.loop != nullptr && loop.offset != 0) {
    Loop moved = *loop.loop;
    moved.offset += loop.offset;
    layout->loop = std::make_shared<const Loop>(std::move(moved));
  } else {
    layout->loop = loop.loop;
  }
}

void set_contiguous(TypeLayout* layout) {
  layout->contiguous = layout->size == 0 || (layout->loop == nullptr && layout->extent == layout->size);
}

int repeat_signature(const TypeLayout& of, MPI_Count count, TypeLayout* made) {
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

int repeat(const TypeLayout& of, MPI_Count count, MPI_Count stride, TypeLayout* made) {
  if (count == 0 || is_empty(of)) {
    *made = TypeLayout{};
    return MPI_SUCCESS;
  }
  if (count == 1) {
    if (made != &of) *made = of;
    return MPI_SUCCESS;
  }
  TypeLayout result;
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

int repeat_blocks(const TypeLayout& of, MPI_Count count, MPI_Count blocklength, MPI_Count stride, TypeLayout* made) {
  TypeLayout block;
  if (const int code = repeat(of, blocklength, of.extent, &block)) return code;
  return repeat(block, count, stride, made);
}

int resize(MPI_Count lb, MPI_Count extent, TypeLayout* made) {
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

bool Joined::is_last(const TypeLayout& of, MPI_Count blocklength) const {
  return last_length_ == blocklength && last_of_.loop == of.loop && last_of_.lb == of.lb &&
         last_of_.extent == of.extent && last_of_.marked == of.marked;
}

int Joined::add(const TypeLayout& of, MPI_Count blocklength, MPI_Count displacement) {
  if (blocklength == 0 || is_empty(of)) return MPI_SUCCESS;
  TypeLayout block;
  const TypeLayout* one = &of;
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

int Joined::take(TypeLayout* made) {
  TypeLayout result;
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
