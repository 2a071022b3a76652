#include "openshmem/reductions.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "openshmem/checks.hpp"

namespace heddle::shmem {
namespace {

// Bytes computed at a time; a multiple of every element size.
constexpr std::size_t kBlockBytes = 8192;
// The most bytes that a member reads from all boards. Above it, dividing the work is worth a second
// sync.
constexpr std::size_t kReadBytes = 65536;
constexpr std::size_t kLineBytes = 64;

struct alignas(kLineBytes) Block {
  std::byte bytes[kBlockBytes];
};

// Returns the bytes of a vector. Ends the job if the arguments are invalid.
std::size_t check_vectors(Call call, const void* dest, const void* source, std::size_t elements,
                          const ElementReduction& reduction) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(elements, reduction.element_bytes, &bytes)) bytes = SIZE_MAX;
  check_symmetric(call, "dest", dest, bytes);
  check_symmetric(call, "source", source, bytes);
  const auto to = reinterpret_cast<std::uintptr_t>(dest);
  const auto from = reinterpret_cast<std::uintptr_t>(source);
  if (checks_collectives() && to != from && to < from + bytes && from < to + bytes) {
    fail(call, "dest %p and source %p overlap with %zu bytes each: they must be the same or apart", dest, source,
         bytes);
  }
  return bytes;
}

bool is_small(const Group& group, std::size_t bytes) {
  return group.slot != nullptr && bytes <= TeamSlot::kBoardBytes &&
         bytes * static_cast<std::size_t>(group.members.size) <= kReadBytes;
}

// Calls work(offset, bytes) for the blocks of this member's part. Parts begin at multiples of a
// cache line.
template <class Work>
void for_my_blocks(const Group& group, std::size_t bytes, const Work& work) {
  const auto n = static_cast<std::size_t>(group.members.size);
  const std::size_t part = ((bytes + n - 1) / n + kLineBytes - 1) / kLineBytes * kLineBytes;
  const std::size_t begin = std::min(bytes, static_cast<std::size_t>(group.me) * part);
  const std::size_t end = std::min(bytes, begin + part);
  for (std::size_t offset = begin; offset < end; offset += kBlockBytes) {
    work(offset, std::min(kBlockBytes, end - offset));
  }
}

void reduce_large(Call call, Group& group, void* dest, const void* source, std::size_t bytes,
                  const ElementReduction& reduction) {
  const int n = group.members.size;
  Block result;
  Block scratch;
  sync(call, group);  // afterwards every member's source and dest are ready
  for_my_blocks(group, bytes, [&](std::size_t offset, std::size_t length) {
    const std::byte* from = static_cast<const std::byte*>(source) + offset;
    for (int i = 0; i < n; ++i) {
      const std::byte* theirs = peer_bytes(call, group, from, length, i, scratch.bytes);
      if (i == 0) {
        std::memcpy(result.bytes, theirs, length);
      } else {
        reduction.combine(result.bytes, theirs, length / reduction.element_bytes);
      }
    }
    for (int k = 0; k < n; ++k) {
      to_peer(call, group, static_cast<std::byte*>(dest) + offset, result.bytes, length, (group.me + k) % n);
    }
  });
  complete(call);
  sync(call, group);
}

void scan_large(Call call, Group& group, void* dest, const void* source, std::size_t bytes,
                const ElementReduction& reduction, Scan scan) {
  Block blocks[2];
  Block scratch;
  sync(call, group);
  for_my_blocks(group, bytes, [&](std::size_t offset, std::size_t length) {
    std::byte* before = blocks[0].bytes;  // the sum of the members before i
    // with member i: computed before the put, which may overwrite i's source
    std::byte* until = blocks[1].bytes;
    std::memset(before, 0, length);
    for (int i = 0; i < group.members.size; ++i) {
      std::memcpy(until, before, length);
      reduction.combine(
          until, peer_bytes(call, group, static_cast<const std::byte*>(source) + offset, length, i, scratch.bytes),
          length / reduction.element_bytes);
      to_peer(call, group, static_cast<std::byte*>(dest) + offset, scan == Scan::inclusive ? until : before, length, i);
      std::swap(before, until);
    }
  });
  complete(call);
  sync(call, group);
}

}  // namespace

int reduce_elements(Call call, Group& group, void* dest, const void* source, std::size_t elements,
                    const ElementReduction& reduction) {
  const std::size_t bytes = check_vectors(call, dest, source, elements, reduction);
  check_alike(call, group, call, {given("nreduce", elements)});
  if (bytes == 0) return 0;
  if (!is_small(group, bytes)) {
    reduce_large(call, group, dest, source, bytes, reduction);
    return 0;
  }
  contributions(call, group, source, bytes, [&](int member, const std::byte* told) {
    if (member == 0) {
      std::memcpy(dest, told, bytes);
    } else {
      reduction.combine(dest, told, elements);
    }
  });
  return 0;
}

int scan_elements(Call call, Group& group, void* dest, const void* source, std::size_t elements,
                  const ElementReduction& reduction, Scan scan) {
  const std::size_t bytes = check_vectors(call, dest, source, elements, reduction);
  check_alike(call, group, call, {given("nelems", elements)});
  if (bytes == 0) return 0;
  if (!is_small(group, bytes)) {
    scan_large(call, group, dest, source, bytes, reduction, scan);
    return 0;
  }
  const int last = scan == Scan::inclusive ? group.me : group.me - 1;
  contributions(call, group, source, bytes, [&](int member, const std::byte* told) {
    // this PE's source, which may be dest, has been copied already
    if (member == 0) std::memset(dest, 0, bytes);
    if (member <= last) reduction.combine(dest, told, elements);
  });
  return 0;
}

void reduce_active(Call call, void* dest, const void* source, int nreduce, const ActiveSet& set,
                   const ElementReduction& reduction) {
  Group made;
  Group& group = active_group(call, set, made);
  if (nreduce < 0) fail(call, "nreduce %d is negative", nreduce);
  reduce_elements(call, group, dest, source, static_cast<std::size_t>(nreduce), reduction);
}

}  // namespace heddle::shmem
