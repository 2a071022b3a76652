#include "mpi/rma/reach.hpp"

#include "mpi/core/int128.hpp"
#include "mpi/rma/dynamic.hpp"
#include "mpi/types/loops.hpp"

namespace heddle::mpi {
namespace {

// The memory that elements occupy, from the first one's address on.
struct Bounds {
  Int128 from = 0;
  Int128 to = 0;
};

Bounds bounds_of(MPI_Count count, const Type& type) {
  if (count == 0 || type.size == 0) return {};
  const Int128 last = Int128{count - 1} * type.extent;
  return {Int128{type.true_lb} + (last < 0 ? last : 0),
          Int128{type.true_lb} + type.true_extent + (last > 0 ? last : 0)};
}

// A dynamic window's addresses are checked where they are resolved.
int read_dynamic(Win& win, MPI_Aint disp, Reach* reach) {
  reach->offset = static_cast<std::uint64_t>(disp);
  if (reach->rank != win.comm->rank) return MPI_SUCCESS;
  bool attached = true;
  if (reach->count > 0)
    for (const MemoryBlock& block : blocks_of(reach->count, *reach->type, reach->offset))
      attached = attached && is_attached(win, block.offset, block.bytes);
  if (!attached)
    return error(MPI_ERR_RMA_RANGE, "address %#llx: this rank has not attached all of what is accessed there",
                 static_cast<unsigned long long>(disp));
  reach->memory = static_cast<std::byte*>(pointer_from(reach->offset));
  return MPI_SUCCESS;
}

int read_place(Win& win, MPI_Aint disp, Reach* reach) {
  if (win.dynamic()) return read_dynamic(win, disp, reach);
  if (disp < 0) return error(MPI_ERR_DISP, "target_disp %lld: it must not be negative", static_cast<long long>(disp));
  const Target& target = win.targets[static_cast<std::size_t>(reach->rank)];
  const Int128 offset = Int128{disp} * target.unit;
  const Bounds bounds = bounds_of(reach->count, *reach->type);
  if (bounds.from != bounds.to &&
      (offset + bounds.from < 0 || offset + bounds.to > Int128{static_cast<MPI_Aint>(target.bytes)}))
    return error(MPI_ERR_RMA_RANGE,
                 "target_disp %lld (of %lld bytes each): the access leaves the %llu bytes of rank %d's window",
                 static_cast<long long>(disp), static_cast<long long>(target.unit),
                 static_cast<unsigned long long>(target.bytes), reach->rank);
  reach->offset = static_cast<std::uint64_t>(offset);
  if (target.direct != nullptr) reach->memory = target.direct + reach->offset;
  return MPI_SUCCESS;
}

}  // namespace

int read_side(const void* buffer, MPI_Count count, MPI_Datatype datatype, const char* name, Side* side) {
  if (count < 0)
    return error(MPI_ERR_COUNT, "%s count %lld: it must not be negative", name, static_cast<long long>(count));
  if (const int code = committed_type(datatype, name, &side->type); code != MPI_SUCCESS) return code;
  if (buffer == nullptr && count > 0 && side->type->size > 0 && side->type->predefined)
    return error(MPI_ERR_BUFFER, "%s buffer is null, with %lld elements", name, static_cast<long long>(count));
  MPI_Count bytes = 0;
  if (__builtin_mul_overflow(count, side->type->size, &bytes))
    return error(MPI_ERR_COUNT, "%s count %lld: more bytes than 63 bits hold", name, static_cast<long long>(count));
  side->buffer = const_cast<void*>(buffer);
  side->count = count;
  return MPI_SUCCESS;
}

int check_epoch(Win& win, int rank) {
  if (win.open_all.load(std::memory_order_relaxed) != 0) return MPI_SUCCESS;
  if (win.targets[static_cast<std::size_t>(rank)].open.load(std::memory_order_relaxed) != 0) return MPI_SUCCESS;
  const std::scoped_lock lock(win.mutex);
  if (win.access == Access::fence) return MPI_SUCCESS;
  if (win.access == Access::none && win.fence_idle) {
    win.access = Access::fence;
    win.fence_idle = false;
    win.open_all.store(1, std::memory_order_relaxed);
    return MPI_SUCCESS;
  }
  return error(MPI_ERR_RMA_SYNC, "no access epoch to rank %d: call MPI_Win_fence, MPI_Win_start or MPI_Win_lock first",
               rank);
}

int read_reach(Win& win, int rank, MPI_Aint disp, MPI_Count count, MPI_Datatype datatype, Reach* reach) {
  if (rank != MPI_PROC_NULL && (rank < 0 || rank >= win.size()))
    return error(MPI_ERR_RANK, "target_rank %d: the window has ranks 0-%d", rank, win.size() - 1);
  Side side;
  if (const int code = read_side(&side, count, datatype, "target_datatype", &side); code != MPI_SUCCESS) return code;
  *reach = {&win, rank, count, side.type, 0, nullptr};
  if (rank == MPI_PROC_NULL) return MPI_SUCCESS;
  if (const int code = check_epoch(win, rank); code != MPI_SUCCESS) return code;
  return read_place(win, disp, reach);
}

std::vector<MemoryBlock> blocks_of(MPI_Count count, const Type& type, std::uint64_t offset) {
  std::vector<MemoryBlock> blocks;
  if (count == 0 || type.size == 0) return blocks;
  if (type.contiguous) {
    blocks.push_back(
        {offset + static_cast<std::uint64_t>(type.true_lb), static_cast<std::uint64_t>(count * type.size)});
    return blocks;
  }
  each_block(count, type, [&](MPI_Count at, MPI_Count bytes) {
    blocks.push_back({offset + static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(bytes)});
  });
  return blocks;
}

std::vector<Run> runs_of(MPI_Count count, const Type& type, const Type& element, std::uint64_t offset) {
  std::vector<Run> runs;
  if (count == 0 || type.size == 0) return runs;
  const auto size = static_cast<std::uint64_t>(element.size);
  const auto extent = static_cast<std::uint64_t>(element.extent);
  if (&type == &element) {
    runs.push_back({offset, static_cast<std::uint64_t>(count)});
    return runs;
  }
  std::uint64_t position = 0;  // of the block, in packed form
  std::uint64_t next = 0;      // of the next element
  for (const MemoryBlock& block : blocks_of(count, type, offset)) {
    // Elements that begin within the block. Elements with gaps are taken one at a time.
    for (; next < position + block.bytes;) {
      const std::uint64_t at = block.offset + (next - position);
      std::uint64_t number = 1;
      if (size == extent) number = (position + block.bytes - next) / size;
      if (number == 0) number = 1;
      if (!runs.empty() && runs.back().offset + runs.back().count * extent == at)
        runs.back().count += number;
      else
        runs.push_back({at, number});
      next += number * size;
    }
    position += block.bytes;
  }
  return runs;
}

}  // namespace heddle::mpi
