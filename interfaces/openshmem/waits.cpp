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

void tell_word(heddle_wait_facts& facts, const void* address, std::uint64_t holds) {
  facts.cause = HEDDLE_WAIT_WORD;
  awaits(facts, "the word at %p holds %llu", address, static_cast<unsigned long long>(holds));
}

void tell_words(heddle_wait_facts& facts, const void* address, std::size_t count) {
  facts.cause = HEDDLE_WAIT_WORD;
  awaits(facts, "the %zu words at %p are not as asked for", count, address);
}

std::size_t first_of(std::size_t n) {
  // initial-exec: accessed without a function call. Libraries that are linked may use it.
  static thread_local std::size_t t_turn [[gnu::tls_model("initial-exec")]] = 0;
  return t_turn++ % n;
}

}  // namespace heddle::shmem
