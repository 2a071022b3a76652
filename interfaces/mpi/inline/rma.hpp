// Puts and gets of one block in memory that is mapped here: the short paths, which the C functions
// contain. Calls that they do not take go on in rma/.
#pragma once

#include <cstring>

#include <units/rma.hpp>
#include "mpi/rma/win.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

int put_any(Call call, const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
            MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win);
int get_any(Call call, void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
            MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win);

// The target as the call names it: elements of a predefined type.
struct ShortReach {
  MPI_Win win;
  int rank;
  MPI_Aint disp;
  MPI_Count count;
  MPI_Datatype datatype;
};

// The mapped memory, and its length in bytes; null: the short path does not take it. The origin has
// the same number of elements of the same type.
[[gnu::always_inline]] inline std::byte* reach_shortly(const ShortReach& what, std::size_t* bytes) {
  const std::uintptr_t number = value_of(what.datatype) - kFirstType;
  if (number >= kMostBasicTypes) [[unlikely]]
    return nullptr;
  const Type& type = g_basic_types[number];
  const Win* const win = win_of(what.win);
  if (win == nullptr || !type.predefined || !type.contiguous) [[unlikely]]
    return nullptr;
  if (static_cast<unsigned>(what.rank) >= static_cast<unsigned>(win->ranks)) [[unlikely]]
    return nullptr;
  const Target& target = win->targets[static_cast<std::size_t>(static_cast<unsigned>(what.rank))];
  if ((win->open_all.load(std::memory_order_relaxed) | target.open.load(std::memory_order_relaxed)) == 0) [[unlikely]]
    return nullptr;
  MPI_Count length = 0;
  MPI_Count offset = 0;
  if (__builtin_mul_overflow(what.count, type.size, &length) || __builtin_mul_overflow(what.disp, target.unit, &offset))
      [[unlikely]]
    return nullptr;
  // Unsigned: negative ones are too large.
  const auto all = target.bytes;
  if (static_cast<std::uint64_t>(offset) > all ||
      static_cast<std::uint64_t>(length) > all - static_cast<std::uint64_t>(offset)) [[unlikely]]
    return nullptr;
  if (target.direct == nullptr) [[unlikely]]
    return nullptr;
  *bytes = static_cast<std::size_t>(length);
  return target.direct + offset;
}

// Aligned words are read and written by single instructions.
[[gnu::always_inline]] inline void copy_shortly(void* to, const void* from, std::size_t bytes) {
  switch (bytes) {
    case 8:
      std::memcpy(to, from, 8);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    default:
      std::memcpy(to, from, bytes);
  }
}

[[gnu::always_inline]] inline int put(Call call, const void* origin_addr, MPI_Count origin_count,
                                      MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                                      MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win) {
  std::size_t bytes = 0;
  if (origin_datatype == target_datatype && origin_count == target_count && origin_addr != nullptr) [[likely]] {
    std::byte* const target = reach_shortly({win, target_rank, target_disp, target_count, target_datatype}, &bytes);
    if (target != nullptr) [[likely]] {
      copy_shortly(target, origin_addr, bytes);
      return MPI_SUCCESS;
    }
  }
  return put_any(call, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                 target_datatype, win);
}

[[gnu::always_inline]] inline int get(Call call, void* origin_addr, MPI_Count origin_count,
                                      MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
                                      MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win) {
  std::size_t bytes = 0;
  if (origin_datatype == target_datatype && origin_count == target_count && origin_addr != nullptr) [[likely]] {
    const std::byte* const target =
        reach_shortly({win, target_rank, target_disp, target_count, target_datatype}, &bytes);
    if (target != nullptr) [[likely]] {
      copy_shortly(origin_addr, target, bytes);
      return MPI_SUCCESS;
    }
  }
  return get_any(call, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
                 target_datatype, win);
}

}  // namespace heddle::mpi
