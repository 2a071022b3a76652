#include "openshmem/rma.hpp"

#include <algorithm>

namespace heddle::shmem {
namespace {

// glibc copies some KiB by one instruction. Current AMD processors execute it 25 times as slowly if
// the target begins 1 to 63 bytes after the source, modulo 4096. This happens with memory from
// malloc and a symmetric page (decision 0049). glibc copies pieces of less than 2 KiB in another
// way. Source and target may overlap.
void copy_long(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kLine = 64;
  constexpr std::size_t kPiece = 31 * kLine;
  const std::uintptr_t after = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
  const bool apart = after >= bytes && -after >= bytes;
  if (apart && after % kPage - 1 < kLine - 1) {
    std::size_t piece = kPiece;
    asm("" : "+r"(piece));  // a length that the compiler knows becomes just such an instruction
    for (; bytes > piece; to += piece, from += piece, bytes -= piece) std::memcpy(to, from, piece);
  }
  std::memmove(to, from, bytes);
}

// Naturally aligned 1-, 2-, 4- and 8-byte copies are single accesses. Source and target may be the
// same memory.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  switch (bytes) {
    case 8:
      std::memcpy(to, from, 8);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 1:
      std::memcpy(to, from, 1);
      return;
    default:
      copy_long(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
      return;
  }
}

void copy_blocks(std::byte* to, const std::byte* from, const Strided& shape) {
  for (std::size_t i = 0; i < shape.blocks; ++i) {
    copy_bytes(to + i * shape.dest_stride, from + i * shape.source_stride, shape.block_bytes);
  }
}

// The extent on one side. If it overflows, the result fits no segment, and the message path reports
// the error.
std::size_t extent(const Strided& shape, std::size_t stride) {
  if (shape.blocks == 0) return 0;
  std::size_t bytes = 0;
  const bool large = __builtin_mul_overflow(shape.blocks - 1, stride, &bytes) ||
                     __builtin_add_overflow(bytes, shape.block_bytes, &bytes);
  return large ? SIZE_MAX : bytes;
}

}  // namespace

void put_bytes(Context& context, void* dest, const void* source, std::size_t bytes, int pe, Call call) {
  if (std::byte* to = direct(context, dest, bytes, pe); to != nullptr && source != nullptr) [[likely]] {
    copy_bytes(to, source, bytes);
    return;
  }
  post_put(call, context, dest, source, bytes, pe, Until::complete);
}

void get_bytes(Context& context, void* dest, const void* source, std::size_t bytes, int pe, Call call) {
  if (const std::byte* from = direct(context, source, bytes, pe); from != nullptr && dest != nullptr) [[likely]] {
    copy_bytes(dest, from, bytes);
    return;
  }
  post_get(call, context, dest, source, bytes, pe, Until::complete);
}

void put_bytes_nbi(Context& context, void* dest, const void* source, std::size_t bytes, int pe, Call call) {
  if (std::byte* to = direct(context, dest, bytes, pe); to != nullptr && source != nullptr) [[likely]] {
    copy_bytes(to, source, bytes);
    return;
  }
  post_put(call, context, dest, source, bytes, pe, Until::posted);
}

void get_bytes_nbi(Context& context, void* dest, const void* source, std::size_t bytes, int pe, Call call) {
  if (const std::byte* from = direct(context, source, bytes, pe); from != nullptr && dest != nullptr) [[likely]] {
    copy_bytes(dest, from, bytes);
    return;
  }
  post_get(call, context, dest, source, bytes, pe, Until::posted);
}

Strided checked_shape(Call call, std::size_t element_bytes, std::ptrdiff_t dst, std::ptrdiff_t sst,
                      std::size_t block_elements, std::size_t blocks) {
  const bool bad_block = block_elements > PTRDIFF_MAX / element_bytes;
  const auto least = static_cast<std::ptrdiff_t>(std::max<std::size_t>(bad_block ? 1 : block_elements, 1));
  if (bad_block || dst < least || sst < least) {
    fail(call, "dst %td, sst %td: strides are at least the %zu elements of a block", dst, sst, block_elements);
  }
  std::size_t dest_stride = 0;
  std::size_t source_stride = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(dst), element_bytes, &dest_stride) ||
      __builtin_mul_overflow(static_cast<std::size_t>(sst), element_bytes, &source_stride)) {
    fail(call, "dst %td, sst %td: the stride does not fit the address space", dst, sst);
  }
  return {block_elements * element_bytes, blocks, dest_stride, source_stride};
}

void put_blocks(Context& context, void* dest, const void* source, const Strided& shape, int pe, Call call) {
  if (std::byte* to = direct(context, dest, extent(shape, shape.dest_stride), pe); to != nullptr && source != nullptr) {
    copy_blocks(to, static_cast<const std::byte*>(source), shape);
    return;
  }
  post_put_strided(call, context, dest, source, shape, pe);
}

void get_blocks(Context& context, void* dest, const void* source, const Strided& shape, int pe, Call call) {
  if (const std::byte* from = direct(context, source, extent(shape, shape.source_stride), pe);
      from != nullptr && dest != nullptr) {
    copy_blocks(static_cast<std::byte*>(dest), from, shape);
    return;
  }
  post_get_strided(call, context, dest, source, shape, pe);
}

void put_bytes_signal(Context& context, void* dest, const void* source, std::size_t bytes, const Signal& signal, int pe,
                      Until until, Call call) {
  std::byte* word = direct(context, signal.address, sizeof(std::uint64_t), pe);
  if (word != nullptr && is_signal(signal.address, signal.op)) {
    if (bytes == 0) return change_word(word, signal.value, signal.op);
    if (std::byte* to = direct(context, dest, bytes, pe); to != nullptr && source != nullptr) {
      copy_bytes(to, source, bytes);
      change_word(word, signal.value, signal.op);
      return;
    }
  }
  post_put_signal(call, context, dest, source, bytes, signal, pe, until);
}

void change_signal(Context& context, std::uint64_t* sig_addr, std::uint64_t signal, int op, int pe, Call call) {
  std::byte* word = direct(context, sig_addr, sizeof(std::uint64_t), pe);
  if (word != nullptr && is_aligned(sig_addr, sizeof(std::uint64_t))) {
    change_word(word, signal, op);
    return;
  }
  post_put_signal(call, context, nullptr, nullptr, 0, {sig_addr, signal, op}, pe, Until::posted);
}

}  // namespace heddle::shmem
