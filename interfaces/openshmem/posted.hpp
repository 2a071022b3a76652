// Operations that are not direct, by messages. Wrong arguments are reported here too: an operation
// whose quick check of PE and address fails comes here.
#pragma once

#include "openshmem/state.hpp"

namespace heddle::shmem {

enum class Until : bool { posted, complete };  // for nonblocking forms; for blocking forms

void post_put(Call call, Context& context, void* dest, const void* source, std::size_t bytes, int pe, Until until);
void post_get(Call call, Context& context, void* dest, const void* source, std::size_t bytes, int pe, Until until);

// `blocks` blocks, each `dest_stride` / `source_stride` bytes after the one before.
struct Strided {
  std::size_t block_bytes;
  std::size_t blocks;
  std::size_t dest_stride;
  std::size_t source_stride;
};
void post_put_strided(Call call, Context& context, void* dest, const void* source, const Strided& shape, int pe);
void post_get_strided(Call call, Context& context, void* dest, const void* source, const Strided& shape, int pe);

struct Signal {
  std::uint64_t* address;
  std::uint64_t value;
  int op;
};
void post_put_signal(Call call, Context& context, void* dest, const void* source, std::size_t bytes,
                     const Signal& signal, int pe, Until until);

[[gnu::cold]] void post_atomic(Call call, Context& context, heddle_atomic_op op, void* dest, std::uint64_t operand,
                               int pe);
// Returns the old value; a 32-bit value in the low half. `compare` is used only by compare-swap.
[[gnu::cold]] std::uint64_t post_fetch_atomic(Call call, Context& context, heddle_atomic_op op, const void* dest,
                                              std::uint64_t operand, std::uint64_t compare, int pe);
// The old value is in fetch.result when quiet returns.
[[gnu::cold]] void post_fetch_atomic_nbi(Call call, Context& context, heddle_atomic_op op, const void* dest,
                                         const heddle_fetch& fetch, int pe);

}  // namespace heddle::shmem
