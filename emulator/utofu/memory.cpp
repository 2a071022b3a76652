#include "utofu/memory.hpp"

#include <sys/uio.h>
#include <unistd.h>
#include <utofu.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tofu_emulator {
namespace {

// The kernel copies, and says so where it cannot. Where it may not (EPERM, ENOSYS: a sandbox), memcpy has to do.
enum class Copied : std::uint8_t { all, fault, unable };

Copied by_kernel(void* here, const void* there, std::size_t bytes, bool write) {
  const iovec local{here, bytes};
  const iovec remote{const_cast<void*>(there), bytes};
  const ssize_t done = write ? ::process_vm_writev(::getpid(), &local, 1, &remote, 1, 0)
                             : ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
  if (done == static_cast<ssize_t>(bytes)) return Copied::all;
  return done < 0 && errno != EFAULT ? Copied::unable : Copied::fault;
}

template <class Word>
void store_word(std::byte* to, const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELEASE);
}

// Ascending, in the largest aligned words, each visible after those before it.
void store_words(std::byte* to, const std::byte* from, std::size_t bytes) {
  while (bytes != 0) {
    const auto place = reinterpret_cast<std::uintptr_t>(to);
    std::size_t step = 1;
    if (place % 8 == 0 && bytes >= 8) {
      step = 8;
      store_word<std::uint64_t>(to, from);
    } else if (place % 4 == 0 && bytes >= 4) {
      step = 4;
      store_word<std::uint32_t>(to, from);
    } else if (place % 2 == 0 && bytes >= 2) {
      step = 2;
      store_word<std::uint16_t>(to, from);
    } else {
      store_word<std::uint8_t>(to, from);
    }
    to += step;
    from += step;
    bytes -= step;
  }
}

constexpr std::size_t kInWords = 32;  // the end of a copy, or all of a short one

template <class Word>
std::uint64_t exchange_word(std::byte* place, std::uint8_t op, std::uint64_t operand, std::uint64_t compare) {
  auto* word = reinterpret_cast<Word*>(place);
  const auto value = static_cast<Word>(operand);
  switch (op) {
    case UTOFU_ARMW_OP_SWAP:
      return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_ADD:
      return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_XOR:
      return __atomic_fetch_xor(word, value, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_AND:
      return __atomic_fetch_and(word, value, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_OR:
      return __atomic_fetch_or(word, value, __ATOMIC_SEQ_CST);
    default: {
      auto before = static_cast<Word>(compare);
      __atomic_compare_exchange_n(word, &before, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      return before;
    }
  }
}

}  // namespace

bool Memory::read(std::byte* to, const std::byte* application, std::size_t bytes) const {
  if (careful_) {
    const Copied copied = by_kernel(to, application, bytes, false);
    if (copied != Copied::unable) return copied == Copied::all;
  }
  std::memcpy(to, application, bytes);
  return true;
}

bool Memory::write(std::byte* application, const std::byte* from, std::size_t bytes) const {
  const std::size_t first = bytes - std::min(bytes, kInWords);
  if (careful_) {
    // The end by itself afterwards, in order; that it is there is known from looking at it.
    std::byte end[kInWords];
    if (by_kernel(end, application + first, bytes - first, false) == Copied::fault) return false;
    const Copied copied = first == 0 ? Copied::all : by_kernel(const_cast<std::byte*>(from), application, first, true);
    if (copied == Copied::fault) return false;
    if (copied == Copied::unable) std::memcpy(application, from, first);
  } else if (first != 0) {
    std::memcpy(application, from, first);
  }
  store_words(application + first, from + first, bytes - first);
  return true;
}

bool Memory::exchange(std::byte* application, std::size_t bytes, std::uint8_t op, std::uint64_t operand,
                      std::uint64_t compare, std::uint64_t* before) const {
  std::byte look[8];
  if (careful_ && by_kernel(look, application, bytes, false) == Copied::fault) return false;
  *before = bytes == 8 ? exchange_word<std::uint64_t>(application, op, operand, compare)
                       : exchange_word<std::uint32_t>(application, op, operand, compare);
  return true;
}

}  // namespace tofu_emulator
