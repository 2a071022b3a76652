#include "openshmem/waits.hpp"

#include <cstdio>

namespace heddle::shmem {

void bad_compare(Call call, int cmp) {
  fail(call, "cmp %d is none of SHMEM_CMP_EQ, NE, GT, GE, LT, LE", cmp);
}

void explain_waited(Call call, const char* argument, const void* address, std::size_t elements, std::size_t bytes,
                    int cmp) {
  check_initialized(call);
  if (static_cast<unsigned>(cmp) > SHMEM_CMP_LE) bad_compare(call, cmp);
  if (elements == 0) return;
  std::size_t length = 0;
  if (__builtin_mul_overflow(elements, bytes, &length)) length = SIZE_MAX;
  locate(call, argument, address, length);
  if (!is_aligned(address, bytes)) fail(call, "%s %p is not a multiple of its %zu bytes", argument, address, bytes);
}

namespace {

// The number by which all PEs know the place, and the place's name.
void tell_place(heddle_wait_facts& facts, const void* address, char* name, std::size_t bytes) {
  facts.cause = HEDDLE_WAIT_WORD;
  for (const SymmetricSegment* segment : {&g_state.heap, &g_state.statics}) {
    if (!segment->present() || !segment->holds(address, 1)) continue;
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - segment->base;
    facts.number = 2 * offset + (segment == &g_state.heap ? 2 : 1);
    std::snprintf(name, bytes, "at byte %zu of the %s", offset, segment->name);
    return;
  }
  std::snprintf(name, bytes, "at %p", address);
}

}  // namespace

void tell_word(heddle_wait_facts& facts, const void* address, std::uint64_t holds, WantedWord wanted) {
  static const char* const words[] = {"", "not ", "more than ", "at least ", "less than ", "at most "};
  static_assert(SHMEM_CMP_EQ == 0 && SHMEM_CMP_NE == 1 && SHMEM_CMP_GT == 2 && SHMEM_CMP_GE == 3 && SHMEM_CMP_LT == 4 &&
                SHMEM_CMP_LE == 5);
  char place[64];
  tell_place(facts, address, place, sizeof place);
  awaits(facts, "the word %s to be %s%llu (it is %llu)", place,
         wanted.cmp >= 0 && wanted.cmp <= 5 ? words[wanted.cmp] : "", static_cast<unsigned long long>(wanted.value),
         static_cast<unsigned long long>(holds));
}

void tell_words(heddle_wait_facts& facts, const void* address, std::size_t count) {
  char place[64];
  tell_place(facts, address, place, sizeof place);
  awaits(facts, "the %zu words %s to be as asked for", count, place);
}

std::size_t first_of(std::size_t n) {
  // initial-exec: accessed without a function call. Libraries that are linked may use it.
  static thread_local std::size_t t_turn [[gnu::tls_model("initial-exec")]] = 0;
  return t_turn++ % n;
}

}  // namespace heddle::shmem
