// One atomic operation on memory of this process. The same instructions serve direct memory,
// owner-executed requests and the loopback transport, so that all of them are atomic with respect
// to each other.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/tsan_order.hpp"
#include "heddle/heddle.h"

namespace heddle::memory {

// Each is sequentially consistent. The word is naturally aligned; the caller has checked it.
template <class Word>
inline Word execute(std::uint32_t op, void* target, Word operand, Word compare) {
  static_assert(std::atomic_ref<Word>::is_always_lock_free);
  const std::atomic_ref<Word> word(*static_cast<Word*>(target));
  base::show_release(target);
  switch (op & 7U) {
    case HEDDLE_ADD32:
      return word.fetch_add(operand);
    case HEDDLE_AND32:
      return word.fetch_and(operand);
    case HEDDLE_OR32:
      return word.fetch_or(operand);
    case HEDDLE_XOR32:
      return word.fetch_xor(operand);
    case HEDDLE_SWAP32:
      return word.exchange(operand);
    default:
      word.compare_exchange_strong(compare, operand);
      return compare;
  }
}

inline std::uint64_t execute_atomic(std::uint32_t op, void* target, std::uint64_t operand, std::uint64_t compare) {
  if (op >= HEDDLE_ADD64) return execute<std::uint64_t>(op, target, operand, compare);
  return execute<std::uint32_t>(op, target, static_cast<std::uint32_t>(operand), static_cast<std::uint32_t>(compare));
}

// Without a result: the compiler may then use an instruction that does not return the old value.
inline void apply_atomic(std::uint32_t op, void* target, std::uint64_t operand) {
  const auto word = [target] { return std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(target)); };
  base::show_release(target);
  switch (op) {
    case HEDDLE_ADD64:
      word().fetch_add(operand);
      return;
    case HEDDLE_AND64:
      word().fetch_and(operand);
      return;
    case HEDDLE_OR64:
      word().fetch_or(operand);
      return;
    case HEDDLE_XOR64:
      word().fetch_xor(operand);
      return;
    default:
      execute_atomic(op, target, operand, 0);
      return;
  }
}

}  // namespace heddle::memory
