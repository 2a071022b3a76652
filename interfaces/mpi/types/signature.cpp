#include "mpi/types/signature.hpp"

#include <algorithm>
#include <utility>

#include "mpi/types/basic.hpp"

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

MPI_Count basic_elements(const Layout& layout) {
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

int bytes_of_elements(const Layout& layout, MPI_Count elements, MPI_Count* bytes) {
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

bool SignatureList::add(const Layout& layout, MPI_Count times) {
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

void SignatureList::take(Layout* layout) {
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

}  // namespace heddle::mpi
