#include "base/copy.hpp"

#if defined(__x86_64__)

#include <cpuid.h>

#include <cstdint>

#include "base/fence.hpp"

namespace heddle::base {
namespace {

constexpr std::size_t kLine = 64;

template <std::size_t kBytes>
struct VectorOf {
  using Type [[gnu::vector_size(kBytes)]] = long long;
};

// At least a line and kBlock. Stores are aligned, except those of the first line and of the last
// kBlock: these come last and have bytes in common with the others.
template <std::size_t kVector>
[[gnu::always_inline]] inline void copy_by(std::byte* to, const std::byte* from, std::size_t bytes) {
  using Vector = typename VectorOf<kVector>::Type;
  constexpr std::size_t kBlock = 4 * kVector;
  struct Block {
    Vector a, b, c, d;
  };
  Block first;  // a line of it is used
  Block last;
  std::memcpy(&first, from, kLine);
  std::memcpy(&last, from + bytes - kBlock, kBlock);
  const std::size_t begin = kLine - reinterpret_cast<std::uintptr_t>(to) % kLine;
  for (std::size_t at = begin; at + kBlock < bytes; at += kBlock) {
    Block block;
    std::memcpy(&block.a, from + at, kVector);
    std::memcpy(&block.b, from + at + kVector, kVector);
    std::memcpy(&block.c, from + at + 2 * kVector, kVector);
    std::memcpy(&block.d, from + at + 3 * kVector, kVector);
    std::byte* const out = static_cast<std::byte*>(__builtin_assume_aligned(to + at, kLine));
    std::memcpy(out, &block.a, kVector);
    std::memcpy(out + kVector, &block.b, kVector);
    std::memcpy(out + 2 * kVector, &block.c, kVector);
    std::memcpy(out + 3 * kVector, &block.d, kVector);
    asm volatile("" ::: "memory");  // or the compiler makes a call of memcpy of it
  }
  std::memcpy(to, &first, kLine);
  std::memcpy(to + bytes - kBlock, &last, kBlock);
}

void copy_by_memmove(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memmove(to, from, bytes);
}

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
// Where a sanitizer replaces memmove in the program, memmove tells it what is read and written.
Copy best_loop() {
  if (runs_with_sanitizer()) return copy_by_memmove;
  return __builtin_cpu_supports("avx2") ? copy_by_32 : copy_by_16;
}

// Enhanced `rep movsb`: the processor's own copy of whole lines.
bool has_fast_string() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kExtended = 7;
  constexpr unsigned kErms = 1U << 9;
  return !runs_with_sanitizer() && __get_cpuid_count(kExtended, 0, &a, &b, &c, &d) != 0 && (b & kErms) != 0;
}

// From so many bytes on copy_by_string is faster.
constexpr std::size_t kLeastString = 2048;

}  // namespace

__attribute__((target("avx2"))) void copy_by_32(std::byte* to, const std::byte* from, std::size_t bytes) {
  copy_by<32>(to, from, bytes);
}
void copy_by_16(std::byte* to, const std::byte* from, std::size_t bytes) {
  copy_by<16>(to, from, bytes);
}

void copy_by_string(std::byte* to, const std::byte* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

void copy_long(void* to, const void* from, std::size_t bytes) {
  const std::uintptr_t after = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
  if (after < bytes || -after < bytes) [[unlikely]] {
    std::memmove(to, from, bytes);
    return;
  }
  static const Copy loop = best_loop();
  static const std::size_t least_string = has_fast_string() ? kLeastString : ~std::size_t{0};
  constexpr std::uintptr_t kAlias = 4096;
  const bool slow = after % kAlias - 1 < kLine - 1;  // copy_data() says why
  const Copy copy = bytes >= least_string && !slow ? copy_by_string : loop;
  copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
}

}  // namespace heddle::base

#endif
