// How layouts are made of other layouts. All constructors of datatypes use these functions. Bounds
// are those of the standard's type maps: a layout without data and without bounds given by the
// program is an empty map, and adds nothing to one that contains it.
#pragma once

#include <memory>
#include <vector>

#include "mpi/types/loops.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

struct Signature {
  struct Run {
    MPI_Count times;
    const Type* basic;  // null: `inner`
    std::shared_ptr<const Signature> inner;
    MPI_Count bytes;     // of one
    MPI_Count elements;  // in one; a pair is two
  };
  std::vector<Run> runs;
  MPI_Count bytes = 0;
  MPI_Count elements = 0;
};

// The two basic types of a pair.
struct PairParts {
  const Type* value;
  const Type* index;
};
PairParts parts_of_pair(const Type& pair);
inline MPI_Count elements_of_basic(const Type& basic) {
  return basic.basic == Basic::pair ? 2 : 1;
}

// Elements in one of it; a pair is two.
MPI_Count basic_elements(const TypeLayout& layout);
// The bytes of the first `elements` basic elements of a sequence of such elements. Error: too many
// for 64 bits.
int bytes_of_elements(const TypeLayout& layout, MPI_Count elements, MPI_Count* bytes);

// Joins the basic types of a sequence of layouts.
class SignatureList {
 public:
  // False: more than 2^63 elements.
  bool add(const TypeLayout& layout, MPI_Count times);
  void take(TypeLayout* layout);

 private:
  Signature all_;
};

// Calls visit(basic, times) for the basic types of one of it in order; false from it ends it.
template <class Visit>
bool each_run(const Signature& signature, Visit&& visit) {
  for (const Signature::Run& run : signature.runs) {
    if (run.basic != nullptr) {
      if (!visit(*run.basic, run.times)) return false;
      continue;
    }
    for (MPI_Count i = 0; i < run.times; ++i)
      if (!each_run(*run.inner, visit)) return false;
  }
  return true;
}
template <class Visit>
bool each_run(MPI_Count count, const TypeLayout& layout, Visit&& visit) {
  if (layout.size == 0) return true;
  if (layout.signature == nullptr) return visit(*layout.element, count * layout.elements);
  for (MPI_Count i = 0; i < count; ++i)
    if (!each_run(*layout.signature, visit)) return false;
  return true;
}

// All return MPI_SUCCESS, or an error's code: a size, bound or offset does not fit in 64 bits.

// `count` of them, `stride` bytes apart.
int repeat(const TypeLayout& of, MPI_Count count, MPI_Count stride, TypeLayout* made);
// `count` blocks, `stride` bytes apart, of `blocklength` of them each.
int repeat_blocks(const TypeLayout& of, MPI_Count count, MPI_Count blocklength, MPI_Count stride, TypeLayout* made);
// Gives it bounds.
int resize(MPI_Count lb, MPI_Count extent, TypeLayout* made);

// One after another, each at its displacement.
class Joined {
 public:
  void reserve(std::size_t count) { loops_.reserve(count); }
  int add(const TypeLayout& of, MPI_Count blocklength, MPI_Count displacement);
  int take(TypeLayout* made);

 private:
  struct Bounds {
    MPI_Count low = 0;
    MPI_Count high = 0;
    bool any = false;
    void include(MPI_Count from, MPI_Count to);
  };
  [[nodiscard]] bool is_last(const TypeLayout& of, MPI_Count blocklength) const;

  LoopList loops_;
  SignatureList signature_;
  Bounds all_;     // of what is not marked
  Bounds marked_;  // of what is
  Bounds true_;    // of data
  MPI_Count size_ = 0;
  int alignment_ = 1;
  // The last block of several that are not contiguous: `last_length_` of `last_of_`.
  TypeLayout last_of_;
  MPI_Count last_length_ = 0;
  TypeLayout last_;
};

}  // namespace heddle::mpi
