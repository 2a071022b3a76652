// How layouts are made of other layouts. All constructors of datatypes use these functions. Bounds
// are those of the standard's type maps: a layout without data and without bounds given by the
// program is an empty map, and adds nothing to one that contains it.
#pragma once

#include "mpi/types/loops.hpp"
#include "mpi/types/signature.hpp"

namespace heddle::mpi {

// All return MPI_SUCCESS, or an error's code: a size, bound or offset does not fit in 64 bits.

// `count` of them, `stride` bytes apart.
int repeat(const Layout& of, MPI_Count count, MPI_Count stride, Layout* made);
// `count` blocks, `stride` bytes apart, of `blocklength` of them each.
int repeat_blocks(const Layout& of, MPI_Count count, MPI_Count blocklength, MPI_Count stride, Layout* made);
// Gives it bounds.
int resize(MPI_Count lb, MPI_Count extent, Layout* made);

// One after another, each at its displacement.
class Joined {
 public:
  void reserve(std::size_t count) { loops_.reserve(count); }
  int add(const Layout& of, MPI_Count blocklength, MPI_Count displacement);
  int take(Layout* made);

 private:
  struct Bounds {
    MPI_Count low = 0;
    MPI_Count high = 0;
    bool any = false;
    void include(MPI_Count from, MPI_Count to);
  };
  [[nodiscard]] bool is_last(const Layout& of, MPI_Count blocklength) const;

  LoopList loops_;
  SignatureList signature_;
  Bounds all_;     // of what is not marked
  Bounds marked_;  // of what is
  Bounds true_;    // of data
  MPI_Count size_ = 0;
  int alignment_ = 1;
  // The last block of several that are not contiguous: `last_length_` of `last_of_`.
  Layout last_of_;
  MPI_Count last_length_ = 0;
  Layout last_;
};

}  // namespace heddle::mpi
