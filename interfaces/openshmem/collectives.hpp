// Collectives that move data, on teams and on active sets.
//
// The standard promises that every member's dest is ready before any member calls broadcast or
// alltoall. There a member puts at once and waits for the others at the end. For collect there is
// no such promise: contributions of one small size go through the library's own memory; others are
// put after a sync or after the exchange of the lengths.
#pragma once

#include <cstddef>

#include "openshmem/groups.hpp"
#include "openshmem/rma.hpp"
#include "openshmem/teams.hpp"

namespace heddle::shmem {

// The arguments that name an active set.
struct ActiveSet {
  int start;
  int log_stride;
  int size;
  long* psync;
};
// The group of an active set. A set of all PEs is the world's team if no other thread can use that
// team at the same time; otherwise the group is made in `made`.
Group& active_group(Call call, const ActiveSet& set, Group& made);

// Ends the job unless all of [address, address + bytes) is symmetric.
void check_symmetric(Call call, const char* argument, const void* address, std::size_t bytes);

// Whether the root of a broadcast fills its own dest; in an active set it does not.
enum class RootCopies : bool { no, yes };
int broadcast_bytes(Call call, Group& group, void* dest, const void* source, std::size_t bytes, int root,
                    RootCopies root_copies);
int fcollect_bytes(Call call, Group& group, void* dest, const void* source, std::size_t bytes);
int collect_bytes(Call call, Group& group, void* dest, const void* source, std::size_t bytes);
int alltoall_bytes(Call call, Group& group, void* dest, const void* source, std::size_t bytes);
// Strides in elements.
struct ElementStrides {
  std::ptrdiff_t dest;
  std::ptrdiff_t source;
};
int alltoalls_bytes(Call call, Group& group, void* dest, const void* source, const ElementStrides& strides,
                    std::size_t element_bytes, std::size_t elements);

template <class T>
inline int broadcast(Call call, shmem_team_t team, T* dest, const T* source, std::size_t nelems, int PE_root) {
  return broadcast_bytes(call, checked_team(call, team), dest, source, bytes_of<T>(nelems), PE_root, RootCopies::yes);
}
template <class T>
inline int fcollect(Call call, shmem_team_t team, T* dest, const T* source, std::size_t nelems) {
  return fcollect_bytes(call, checked_team(call, team), dest, source, bytes_of<T>(nelems));
}
template <class T>
inline int collect(Call call, shmem_team_t team, T* dest, const T* source, std::size_t nelems) {
  return collect_bytes(call, checked_team(call, team), dest, source, bytes_of<T>(nelems));
}
template <class T>
inline int alltoall(Call call, shmem_team_t team, T* dest, const T* source, std::size_t nelems) {
  return alltoall_bytes(call, checked_team(call, team), dest, source, bytes_of<T>(nelems));
}
template <class T>
inline int alltoalls(Call call, shmem_team_t team, T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                     std::size_t nelems) {
  return alltoalls_bytes(call, checked_team(call, team), dest, source, {dst, sst}, sizeof(T), nelems);
}

// The deprecated forms.
void barrier(Call call, int PE_start, int logPE_stride, int PE_size, long* pSync);
void sync_active(Call call, int PE_start, int logPE_stride, int PE_size, long* pSync);

template <class T>
inline void broadcast_active(Call call, T* dest, const T* source, std::size_t nelems, int PE_root, int PE_start,
                             int logPE_stride, int PE_size, long* pSync) {
  Group made;
  Group& group = active_group(call, {PE_start, logPE_stride, PE_size, pSync}, made);
  broadcast_bytes(call, group, dest, source, bytes_of<T>(nelems), PE_root, RootCopies::no);
}
template <class T>
inline void fcollect_active(Call call, T* dest, const T* source, std::size_t nelems, int PE_start, int logPE_stride,
                            int PE_size, long* pSync) {
  Group made;
  Group& group = active_group(call, {PE_start, logPE_stride, PE_size, pSync}, made);
  fcollect_bytes(call, group, dest, source, bytes_of<T>(nelems));
}
template <class T>
inline void collect_active(Call call, T* dest, const T* source, std::size_t nelems, int PE_start, int logPE_stride,
                           int PE_size, long* pSync) {
  Group made;
  Group& group = active_group(call, {PE_start, logPE_stride, PE_size, pSync}, made);
  collect_bytes(call, group, dest, source, bytes_of<T>(nelems));
}
template <class T>
inline void alltoall_active(Call call, T* dest, const T* source, std::size_t nelems, int PE_start, int logPE_stride,
                            int PE_size, long* pSync) {
  Group made;
  Group& group = active_group(call, {PE_start, logPE_stride, PE_size, pSync}, made);
  alltoall_bytes(call, group, dest, source, bytes_of<T>(nelems));
}
template <class T>
inline void alltoalls_active(Call call, T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                             std::size_t nelems, int PE_start, int logPE_stride, int PE_size, long* pSync) {
  Group made;
  Group& group = active_group(call, {PE_start, logPE_stride, PE_size, pSync}, made);
  alltoalls_bytes(call, group, dest, source, {dst, sst}, sizeof(T), nelems);
}

}  // namespace heddle::shmem
