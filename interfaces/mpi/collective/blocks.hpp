// The program's memory in a collective, as blocks of one or several types, and as the engine sees
// it.
#pragma once

#include <functional>
#include <vector>

#include "mpi/collective/schedule.hpp"

namespace heddle::mpi {

struct BufferBlock {
  void* buffer = nullptr;
  MPI_Count count = 0;
  Type* type = nullptr;
  [[nodiscard]] std::size_t bytes() const {
    return type == nullptr ? 0 : static_cast<std::size_t>(count) * static_cast<std::size_t>(type->size);
  }
};

// Blocks of equal length one after the other, the same block for everybody, or a list.
class Blocks {
 public:
  Blocks() = default;
  static Blocks even(const BufferBlock& first, int size);
  static Blocks same(const BufferBlock& block, int size);
  void add(const BufferBlock& block);
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] BufferBlock operator[](int i) const;
  [[nodiscard]] bool is_even() const { return kind_ == Kind::even; }
  [[nodiscard]] bool is_same() const { return kind_ == Kind::same; }
  // All of its types are contiguous.
  [[nodiscard]] bool contiguous() const;

 private:
  enum class Kind : std::uint8_t { list, even, same };
  Kind kind_ = Kind::list;
  int size_ = 0;
  BufferBlock first_;
  std::vector<BufferBlock> list_;
};

// The bytes of the blocks in order: the program's memory, or packed in memory of the schedule.
struct Wire {
  std::byte* base = nullptr;
  std::size_t stride = 0;  // of even blocks
  BlockPlaces places;      // of a list: all of its blocks
  bool packed = false;
  [[nodiscard]] std::byte* at(int i) const;
};
// Finds the memory of the bytes. If the blocks are not contiguous, or with `apart`, allocates it.
Wire wire_of(StepSchedule& schedule, const Blocks& blocks, bool apart = false);
// The same for received blocks. `send`: the blocks that this process gives; null: none. The
// standard forbids blocks that overlap, but other libraries let them pass. Here they are received
// into separate memory and then copied to their places one after the other. HEDDLE_CHECK=full
// reports them.
Wire wire_of_received(StepSchedule& schedule, const Blocks& receive, const Blocks* send);
// Steps that pack and unpack, if the wire is packed; of all blocks, or of one.
void add_pack(StepSchedule& schedule, const Blocks& blocks, const Wire& wire);
void add_unpack(StepSchedule& schedule, const Blocks& blocks, const Wire& wire);
void add_pack(StepSchedule& schedule, const BufferBlock& block, std::byte* to);
void add_unpack(StepSchedule& schedule, const BufferBlock& block, const std::byte* from);
// A step that copies a block to another.
void add_copy(StepSchedule& schedule, const BufferBlock& from, const BufferBlock& to);

// ---- checks of arguments; MPI_SUCCESS or an error's code ----------------------------------------

// How the program names a side of a collective, for messages.
struct SideNames {
  const char* buffer;
  const char* count;
  const char* type;
};
inline constexpr SideNames kSend{"sendbuf", "sendcount", "sendtype"};
inline constexpr SideNames kReceive{"recvbuf", "recvcount", "recvtype"};
inline constexpr SideNames kBuffer{"buffer", "count", "datatype"};

// A block as the program passes it.
struct BlockArguments {
  const void* buffer;
  MPI_Count count;
  MPI_Datatype type;
};
// The type is held by the schedule.
int read_block(StepSchedule& schedule, const SideNames& names, const BlockArguments& given, BufferBlock* block);
// `size` blocks, as the v forms list them.
struct Listed {
  const void* buffer;
  CountList counts;
  CountList displacements;
  MPI_Datatype datatype;
};
int read_blocks(StepSchedule& schedule, const SideNames& names, const Listed& listed, int size, Blocks* blocks);
// As the w forms list them, with displacements in bytes.
struct ListedTypes {
  const void* buffer;
  CountList counts;
  CountList displacements;
  const MPI_Datatype* datatypes;
};
int read_blocks(StepSchedule& schedule, const SideNames& names, const ListedTypes& listed, int size, Blocks* blocks);

// Checks a root of the schedule's communicator. For an intercommunicator, MPI_ROOT and
// MPI_PROC_NULL are valid too.
int check_root(StepSchedule& schedule, int root);
int check_not_in_place(const SideNames& names, const void* buffer);
// The two do not begin at the same place.
int check_apart(const BufferBlock& from, const BufferBlock& to);

}  // namespace heddle::mpi
