#include "sharing/watch.hpp"

#include <cstddef>

#include "base/cache_line.hpp"

namespace heddle::sharing {
namespace {

thread_local Record* watching = nullptr;

inline void note(const volatile void* address, std::size_t bytes, const void* place) {
  if (watching == nullptr || bytes == 0) return;
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  for (std::uintptr_t line = first / base::kCacheLine; line <= (first + bytes - 1) / base::kCacheLine; ++line) {
    watching->note(line, place);
  }
}

}  // namespace

Record::Record() : lines_(new Line[kLines]) {}
Record::~Record() {
  delete[] lines_;
}

void Record::clear() {
  for (std::uint32_t i = 0; i < kLines; ++i) lines_[i] = Line{};
  used_ = 0;
}

void Record::note(std::uintptr_t line, const void* place) {
  auto at = static_cast<std::uint32_t>((line * 0x9E3779B97F4A7C15U) >> 40) % kLines;
  while (lines_[at].number != line) {
    if (lines_[at].number == 0) {
      if (++used_ >= kLines) {
        --used_;
        return;
      }
      lines_[at].number = line;
      break;
    }
    at = (at + 1) % kLines;
  }
  Line& entry = lines_[at];
  ++entry.writes;
  if (entry.places[0] == nullptr) {
    entry.places[0] = place;
  } else if (entry.places[0] != place && entry.places[1] == nullptr) {
    entry.places[1] = place;
  }
}

const Line* Record::begin() const {
  return lines_;
}
const Line* Record::end() const {
  return lines_ + kLines;
}
bool Record::overflowed() const {
  return used_ + 1 >= kLines;
}

void watch(Record* record) {
  watching = record;
}

}  // namespace heddle::sharing

// ---- what the compiler calls --------------------------------------------------------------------
// Names and arguments as in sanitizer/tsan_interface.h and tsan_interface_atomic.h of LLVM.

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses)
using heddle::sharing::note;

#define HEDDLE_PLACE __builtin_return_address(0)
#define HEDDLE_CALLED extern "C" __attribute__((visibility("default")))

HEDDLE_CALLED void __tsan_init() {}
HEDDLE_CALLED void __tsan_func_entry(void*) {}
HEDDLE_CALLED void __tsan_func_exit() {}
HEDDLE_CALLED void __tsan_read_range(void*, std::size_t) {}
HEDDLE_CALLED void __tsan_write_range(void* address, std::size_t bytes) {
  note(address, bytes, HEDDLE_PLACE);
}
HEDDLE_CALLED void __tsan_vptr_read(void**) {}
HEDDLE_CALLED void __tsan_vptr_update(void** address, void* value) {
  if (*address != value) note(address, sizeof *address, HEDDLE_PLACE);
}

#define HEDDLE_PLAIN(BYTES)                               \
  HEDDLE_CALLED void __tsan_read##BYTES(void*) {}         \
  HEDDLE_CALLED void __tsan_write##BYTES(void* address) { \
    note(address, BYTES, HEDDLE_PLACE);                   \
  }
HEDDLE_PLAIN(1)
HEDDLE_PLAIN(2)
HEDDLE_PLAIN(4)
HEDDLE_PLAIN(8)
HEDDLE_PLAIN(16)

#define HEDDLE_UNALIGNED(BYTES)                                     \
  HEDDLE_CALLED void __tsan_unaligned_read##BYTES(void*) {}         \
  HEDDLE_CALLED void __tsan_unaligned_write##BYTES(void* address) { \
    note(address, BYTES, HEDDLE_PLACE);                             \
  }
HEDDLE_UNALIGNED(2)
HEDDLE_UNALIGNED(4)
HEDDLE_UNALIGNED(8)
HEDDLE_UNALIGNED(16)

// The order is the strongest, whatever was asked for. Each of these takes the line from the core
// that has it, also a comparison that fails.
#define HEDDLE_FETCH(BITS, TYPE, NAME)                                                        \
  HEDDLE_CALLED TYPE __tsan_atomic##BITS##_fetch_##NAME(volatile TYPE* at, TYPE value, int) { \
    note(at, sizeof *at, HEDDLE_PLACE);                                                       \
    return __atomic_fetch_##NAME(at, value, __ATOMIC_SEQ_CST);                                \
  }
#define HEDDLE_COMPARE(BITS, TYPE, NAME)                                                                              \
  HEDDLE_CALLED int __tsan_atomic##BITS##_compare_exchange_##NAME(volatile TYPE* at, TYPE* expected, TYPE value, int, \
                                                                  int) {                                              \
    note(at, sizeof *at, HEDDLE_PLACE);                                                                               \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);               \
  }
#define HEDDLE_ATOMIC(BITS, TYPE)                                                         \
  HEDDLE_CALLED TYPE __tsan_atomic##BITS##_load(const volatile TYPE* at, int) {           \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                         \
  }                                                                                       \
  HEDDLE_CALLED void __tsan_atomic##BITS##_store(volatile TYPE* at, TYPE value, int) {    \
    note(at, sizeof *at, HEDDLE_PLACE);                                                   \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                       \
  HEDDLE_CALLED TYPE __tsan_atomic##BITS##_exchange(volatile TYPE* at, TYPE value, int) { \
    note(at, sizeof *at, HEDDLE_PLACE);                                                   \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                              \
  }                                                                                       \
  HEDDLE_FETCH(BITS, TYPE, add)                                                           \
  HEDDLE_FETCH(BITS, TYPE, sub)                                                           \
  HEDDLE_FETCH(BITS, TYPE, and)                                                           \
  HEDDLE_FETCH(BITS, TYPE, or)                                                            \
  HEDDLE_FETCH(BITS, TYPE, xor)                                                           \
  HEDDLE_COMPARE(BITS, TYPE, strong)                                                      \
  HEDDLE_COMPARE(BITS, TYPE, weak)
HEDDLE_ATOMIC(8, std::uint8_t)
HEDDLE_ATOMIC(16, std::uint16_t)
HEDDLE_ATOMIC(32, std::uint32_t)
HEDDLE_ATOMIC(64, std::uint64_t)

HEDDLE_CALLED void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
HEDDLE_CALLED void __tsan_atomic_signal_fence(int) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

// Copies that the compiler leaves to the C library: the linker puts these in between (--wrap).
extern "C" {
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  note(to, bytes, HEDDLE_PLACE);
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  note(to, bytes, HEDDLE_PLACE);
  return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
  note(to, bytes, HEDDLE_PLACE);
  return __real_memset(to, value, bytes);
}
}
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses)
