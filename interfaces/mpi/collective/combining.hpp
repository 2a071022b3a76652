// Reductions, added to a schedule. On intracommunicators the engine does them if the operator
// commutes; otherwise the contributions are combined in the order of ranks. On intercommunicators
// they go by messages. The caller has checked the arguments.
#pragma once

#include <memory>
#include <vector>

#include <heddle/heddle.h>
#include "mpi/collective/blocks.hpp"
#include "mpi/collective/moving.hpp"
#include "mpi/collective/op.hpp"

namespace heddle::mpi {

// The engine's reduction of a predefined operator on a predefined type; type 0: it has none, or the
// operator does not take the type.
heddle_reduction engine_reduction(const Op& op, const Type& type);
// The alignment that its elements of a predefined type need.
std::size_t alignment_of(const Type& type);

// Elements are combined as they lie in memory ("images"), if these are one block of memory;
// otherwise they are packed on their way, and laid out for each application of the operator.
class Reducer {
 public:
  Reducer(const Op& op, const Type& type);
  // Bytes of an element on its way; 0: elements without data.
  [[nodiscard]] std::size_t element_bytes() const { return element_bytes_; }
  [[nodiscard]] bool images() const { return images_; }
  [[nodiscard]] bool commutative() const { return op_.commutative; }
  // For the engine; as long as this lives.
  [[nodiscard]] const heddle_reduction& reduction() const { return reduction_; }
  // inout[i] = in[i] op inout[i], of elements on their way.
  void combine(const std::byte* in, std::byte* inout, std::size_t count) const;
  // Combines `parts` vectors that lie `stride` bytes apart, in their order. The result is where the
  // last one was.
  std::byte* fold(std::byte* first, std::size_t parts, std::size_t stride, std::size_t count) const;
  void load(const BufferBlock& block, std::byte* to) const;
  void store(const std::byte* from, const BufferBlock& block) const;
  // The memory of the program's elements can be used as it is.
  [[nodiscard]] bool fits(const BufferBlock& block) const;
  [[nodiscard]] std::byte* memory(const BufferBlock& block) const {
    return static_cast<std::byte*>(block.buffer) + type_.true_lb;
  }

 private:
  static void combine_for_engine(void* inout, const void* in, std::size_t bytes, const void* self);
  void make_scratch();
  void combine_packed(const std::byte* in, std::byte* inout, std::size_t count) const;
  const Op& op_;
  const Type& type_;
  const bool images_;
  const std::size_t element_bytes_;
  heddle_reduction reduction_{};
  // For elements that are packed on their way: memory in which some elements of both operands are
  // laid out. One combination at a time uses it.
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t most_ = 0;  // elements at a time
  std::byte* left_ = nullptr;
  std::byte* right_ = nullptr;
};

struct Reducing {
  Op* op = nullptr;
  Type* type = nullptr;
  bool in_place = false;
  BufferBlock send;     // in place: what `receive` holds
  BufferBlock receive;  // where the process gets a result
};

void add_reduce(StepSchedule& schedule, const Reducing& what, int root);
void add_allreduce(StepSchedule& schedule, const Reducing& what);
void add_scan(StepSchedule& schedule, const Reducing& what);
void add_exscan(StepSchedule& schedule, const Reducing& what);
// counts[i]: elements that member i of the (local) group gets. `send` has all of them.
void add_reduce_scatter(StepSchedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts);

void add_inter_reduce(StepSchedule& schedule, const Reducing& what, int root);
void add_inter_allreduce(StepSchedule& schedule, const Reducing& what);
void add_inter_reduce_scatter(StepSchedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts);

// ---- parts --------------------------------------------------------------------------------------

// A vector on its way: the program's memory, or other.
struct Operand {
  std::byte* at = nullptr;
  bool apart = false;
};
Operand operand_of(StepSchedule& schedule, const Reducer& reducer, const BufferBlock& block);
// The steps that bring the elements there, and back.
void add_load(StepSchedule& schedule, const Reducer& reducer, const BufferBlock& block, const Operand& operand);
void add_store(StepSchedule& schedule, const Reducer& reducer, const BufferBlock& block, const Operand& operand);
// Combines `parts` vectors and stores the result.
void add_fold(StepSchedule& schedule, const Reducer& reducer, std::byte* first, std::size_t parts,
              const BufferBlock& result);
Reducer& reducer_of(StepSchedule& schedule, const Reducing& what);
inline std::size_t bytes_of(const Reducer& reducer, MPI_Count count) {
  return static_cast<std::size_t>(count) * reducer.element_bytes();
}

}  // namespace heddle::mpi
