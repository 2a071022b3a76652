#include "openshmem/collectives.hpp"

#include <algorithm>
#include <cstring>

#include "openshmem/checks.hpp"
#include "openshmem/contexts.hpp"

namespace heddle::shmem {
namespace {

// Above this size the receivers of a broadcast fetch the data, all at the same time, and the root
// does not put it.
constexpr std::size_t kGiveBytes = 16384;

// the name for the check, where the caller has converted elements to bytes
constexpr const char* kBytes = "nelems in bytes";

// bytes * n, or SIZE_MAX on overflow: more than any memory
std::size_t times(std::size_t bytes, int n) {
  std::size_t product = 0;
  return __builtin_mul_overflow(bytes, static_cast<std::size_t>(n), &product) ? SIZE_MAX : product;
}

std::byte* at(void* base, std::size_t bytes, int index) {
  return static_cast<std::byte*>(base) + bytes * static_cast<std::size_t>(index);
}
const std::byte* at(const void* base, std::size_t bytes, int index) {
  return static_cast<const std::byte*>(base) + bytes * static_cast<std::size_t>(index);
}

void copy(void* dest, const void* source, std::size_t bytes) {
  if (dest != source) std::memmove(dest, source, bytes);
}

// Puts `source` to the same symmetric address `dest` on every member, and waits until all have done
// so.
void put_to_all(Call call, Group& group, void* dest, const void* source, std::size_t bytes) {
  for (int k = 0; k < group.members.size; ++k) {
    to_peer(call, group, dest, source, bytes, (group.me + k) % group.members.size);
  }
  complete(call);
  sync(call, group);
}

// Where this member's part of the concatenation begins, and the length of the whole.
struct Extent {
  std::size_t begin;
  std::size_t bytes;
};

Extent extent_in_team(Call call, Group& group, std::size_t bytes) {
  Extent extent{0, 0};
  contributions(call, group, &bytes, sizeof bytes, [&](int member, const std::byte* told) {
    std::size_t theirs = 0;
    std::memcpy(&theirs, told, sizeof theirs);
    if (member < group.me) extent.begin += theirs;
    if (__builtin_add_overflow(extent.bytes, theirs, &extent.bytes)) extent.bytes = SIZE_MAX;
  });
  return extent;
}

// `bytes` of the result ends at this member's part.
Extent extent_in_chain(Call call, Group& group, std::size_t bytes) {
  sync(call, group);  // every member's dest is ready
  const std::size_t begin = prefix_in_chain(call, group, bytes);
  std::size_t end = 0;
  return {begin, __builtin_add_overflow(begin, bytes, &end) ? SIZE_MAX : end};
}

// Whether an element of dest overlaps an element of source. Elements of one may lie between those
// of the other. Both ranges go from the first element to the end of the last.
bool elements_meet(const AddressRange& dest, const AddressRange& source, const Strided& shape) {
  auto to = reinterpret_cast<std::uintptr_t>(dest.address);
  auto from = reinterpret_cast<std::uintptr_t>(source.address);
  const std::uintptr_t to_end = to + dest.bytes;
  const std::uintptr_t from_end = from + source.bytes;
  if (to >= from_end || from >= to_end) return false;
  while (to < to_end && from < from_end) {
    if (to + shape.block_bytes <= from) {
      to += shape.dest_stride;
    } else if (from + shape.block_bytes <= to) {
      from += shape.source_stride;
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace

void check_symmetric(Call call, const char* argument, const void* address, std::size_t bytes) {
  if (bytes == 0) return;
  if (direct(address, bytes, g_state.my_pe) == nullptr) locate(call, argument, address, bytes);
  if (checks_collectives()) check_live(call, argument, address, bytes);
}

void check_buffers(Call call, const AddressRange& dest, const AddressRange& source) {
  check_symmetric(call, "dest", dest.address, dest.bytes);
  check_symmetric(call, "source", source.address, source.bytes);
  if (checks_collectives()) check_apart(call, dest, source);
}

Group& active_group(Call call, const ActiveSet& set, Group& made) {
  check_initialized(call);
  const int n = g_state.n_pes;
  const bool in_range = set.start >= 0 && set.start < n && set.size >= 1 && set.size <= n && set.log_stride >= 0;
  const long stride = 1L << std::clamp(set.log_stride, 0, 31);
  if (!in_range || (set.size > 1 && set.start + stride * (set.size - 1L) >= n)) {
    fail(call, "PE_start %d, logPE_stride %d, PE_size %d: not an active set of the PEs 0-%d", set.start, set.log_stride,
         set.size, n - 1);
  }
  const Members members{set.start, set.size > 1 ? static_cast<int>(stride) : 1, set.size};
  const int me = member_of(members, g_state.my_pe);
  if (me < 0) {
    fail(call, "PE_start %d, logPE_stride %d, PE_size %d: PE %d, the caller, is not in this active set", set.start,
         set.log_stride, set.size, g_state.my_pe);
  }
  check_symmetric(call, "pSync", set.psync, SHMEM_SYNC_SIZE * sizeof(long));
  // Threads may use several active sets at the same time, but not one team.
  if (members.size == n && g_state.thread_level != SHMEM_THREAD_MULTIPLE) return world_team();
  made = Group{.members = members, .me = me, .psync = set.psync};
  return made;
}

int broadcast_bytes(Call call, Group& group, void* dest, const void* source, std::size_t bytes, int root,
                    RootCopies root_copies) {
  if (root < 0 || root >= group.members.size) {
    fail(call, "PE_root %d: the PEs of the team or active set are 0-%d", root, group.members.size - 1);
  }
  if (dest == source) {
    // The standard forbids the overlap, but programs do it and it does no harm.
    check_symmetric(call, "dest", dest, bytes);
  } else {
    check_buffers(call, {dest, bytes}, {source, bytes});
  }
  check_alike(call, group, call, {{"PE_root", root}, given(kBytes, bytes)});
  if (bytes == 0) return 0;
  const bool is_root = group.me == root;
  if (is_root && root_copies == RootCopies::yes) copy(dest, source, bytes);
  if (bytes <= kGiveBytes && (group.one_round() || group.slot == nullptr)) {
    give(call, group, dest, source, bytes, root);
  } else if (group.one_round()) {
    show(call, group, dest, source, bytes, root);
  } else if (bytes <= TeamSlot::kBoardBytes) {
    const std::byte* board = publish(call, group, source, is_root ? bytes : 0);
    if (!is_root) get_bytes(default_context(), dest, board, bytes, group.world(root), call);
  } else {
    sync(call, group);
    if (!is_root) get_bytes(default_context(), dest, source, bytes, group.world(root), call);
    sync(call, group);
  }
  return 0;
}

int fcollect_bytes(Call call, Group& group, void* dest, const void* source, std::size_t bytes) {
  const int n = group.members.size;
  check_buffers(call, {dest, times(bytes, n)}, {source, bytes});
  check_alike(call, group, call, {given(kBytes, bytes)});
  if (bytes == 0) return 0;
  if (group.slot != nullptr && bytes <= TeamSlot::kBoardBytes) {
    contributions(call, group, source, bytes,
                  [&](int member, const std::byte* told) { std::memcpy(at(dest, bytes, member), told, bytes); });
    return 0;
  }
  sync(call, group);
  put_to_all(call, group, at(dest, bytes, group.me), source, bytes);
  return 0;
}

int collect_bytes(Call call, Group& group, void* dest, const void* source, std::size_t bytes) {
  check_symmetric(call, "source", source, bytes);
  check_alike(call, group, call, {});
  const Extent extent =
      group.slot != nullptr ? extent_in_team(call, group, bytes) : extent_in_chain(call, group, bytes);
  // In a chain only the last member knows the end of the whole.
  check_symmetric(call, "dest", dest, extent.bytes);
  if (checks_collectives()) check_apart(call, {dest, extent.bytes}, {source, bytes});
  if (bytes == 0) {
    sync(call, group);
  } else {
    put_to_all(call, group, static_cast<std::byte*>(dest) + extent.begin, source, bytes);
  }
  return 0;
}

int alltoall_bytes(Call call, Group& group, void* dest, const void* source, std::size_t bytes) {
  const int n = group.members.size;
  check_buffers(call, {dest, times(bytes, n)}, {source, times(bytes, n)});
  check_alike(call, group, call, {given(kBytes, bytes)});
  if (bytes == 0) return 0;
  for (int k = 0; k < n; ++k) {
    const int member = (group.me + k) % n;
    to_peer(call, group, at(dest, bytes, group.me), at(source, bytes, member), bytes, member);
  }
  complete(call);
  sync(call, group);
  return 0;
}

int alltoalls_bytes(Call call, Group& group, void* dest, const void* source, const ElementStrides& strides,
                    std::size_t element_bytes, std::size_t elements) {
  const Strided shape = checked_shape(call, element_bytes, strides.dest, strides.source, 1, elements);
  const auto alike = [&] {
    check_alike(call, group, call, {{"dst", strides.dest}, {"sst", strides.source}, given("nelems", elements)});
  };
  if (elements == 0) {
    alike();
    return 0;
  }
  const int n = group.members.size;
  // From the first element of the first block to the end of the last element of the last block.
  const std::size_t count = times(elements, n) - 1;
  const auto whole = [&](std::size_t stride) {
    std::size_t bytes = 0;
    const bool large =
        __builtin_mul_overflow(count, stride, &bytes) || __builtin_add_overflow(bytes, element_bytes, &bytes);
    return large ? SIZE_MAX : bytes;
  };
  const AddressRange to{dest, whole(shape.dest_stride)};
  const AddressRange from{source, whole(shape.source_stride)};
  check_symmetric(call, "dest", dest, to.bytes);
  check_symmetric(call, "source", source, from.bytes);
  if (checks_collectives() && elements_meet(to, from, shape)) check_apart(call, to, from);
  alike();
  for (int k = 0; k < n; ++k) {
    const int member = (group.me + k) % n;
    put_blocks(default_context(), at(dest, elements * shape.dest_stride, group.me),
               at(source, elements * shape.source_stride, member), shape, group.world(member), call);
  }
  complete(call);
  sync(call, group);
  return 0;
}

void barrier(Call call, int PE_start, int logPE_stride, int PE_size, long* pSync) {
  Group made;
  Group& group = active_group(call, {PE_start, logPE_stride, PE_size, pSync}, made);
  check_alike(call, group, kBarrierAll, {});
  quiet(call, World{});
  sync(call, group);
}

void sync_active(Call call, int PE_start, int logPE_stride, int PE_size, long* pSync) {
  Group made;
  Group& group = active_group(call, {PE_start, logPE_stride, PE_size, pSync}, made);
  check_alike(call, group, kSyncAll, {});
  sync(call, group);
}

}  // namespace heddle::shmem
