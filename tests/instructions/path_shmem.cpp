// Executes one OpenSHMEM operation many times in a job of one, for counting instructions under
// callgrind: path_shmem OP N CONTEXT.
//
// CONTEXT is single (the default context of a program with one thread), default or private (of a
// program with SHMEM_THREAD_MULTIPLE). As in path.cpp, only what runs inside the count_ functions
// is counted: the program's own loop, the way through the linkage table and the operation.
#include <shmem.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::uint64_t kBatch = 16;

struct Self {
  shmem_ctx_t ctx;
  std::uint64_t* target;
  std::uint64_t value;
};

}  // namespace

// Named without mangling, so that callgrind can be told what to count.
extern "C" {

[[gnu::noinline]] void count_put(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) shmem_uint64_put(self->target, &self->value, 1, 0);
}
[[gnu::noinline]] void count_ctx_put(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) shmem_ctx_uint64_put(self->ctx, self->target, &self->value, 1, 0);
}
// With a quiet after each batch, as in programs that post in batches.
[[gnu::noinline]] void count_put_nbi(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    shmem_uint64_put_nbi(self->target, &self->value, 1, 0);
    if (i % kBatch == kBatch - 1) shmem_quiet();
  }
}
[[gnu::noinline]] void count_p(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) shmem_uint64_p(self->target, self->value + i, 0);
}
[[gnu::noinline]] void count_ctx_p(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) shmem_ctx_uint64_p(self->ctx, self->target, self->value + i, 0);
}
[[gnu::noinline]] void count_quiet(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) shmem_ctx_quiet(self->ctx);
}
[[gnu::noinline]] void count_g(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) self->value += shmem_uint64_g(self->target, 0);
}
[[gnu::noinline]] void count_ctx_g(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) self->value += shmem_ctx_uint64_g(self->ctx, self->target, 0);
}
[[gnu::noinline]] void count_fetch_add(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) self->value = shmem_uint64_atomic_fetch_add(self->target, 1, 0);
}
[[gnu::noinline]] void count_ctx_fetch_add(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) self->value = shmem_ctx_uint64_atomic_fetch_add(self->ctx, self->target, 1, 0);
}
[[gnu::noinline]] void count_put_signal(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    shmem_uint64_put_signal(self->target, &self->value, 1, self->target + 1, i, SHMEM_SIGNAL_SET, 0);
  }
}
// The code that a waiting program executes when the value is there.
[[gnu::noinline]] void count_wait(Self* self, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) shmem_uint64_wait_until(self->target, SHMEM_CMP_NE, ~self->value);
}

}  // extern "C"

namespace {

struct Operation {
  const char* name;
  void (*run)(Self* self, std::uint64_t n);
  void (*run_with_context)(Self* self, std::uint64_t n);
};
constexpr Operation kOperations[] = {
    {"put", count_put, count_ctx_put}, {"put_nbi", count_put_nbi, count_put_nbi},
    {"p", count_p, count_ctx_p},       {"quiet", count_quiet, count_quiet},
    {"g", count_g, count_ctx_g},       {"fetch_add", count_fetch_add, count_ctx_fetch_add},
    {"wait", count_wait, count_wait},  {"put_signal", count_put_signal, count_put_signal},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: path_shmem OP N single|default|private\n");
    return 2;
  }
  const std::uint64_t n = std::strtoull(argv[2], nullptr, 10);
  const bool single = std::strcmp(argv[3], "single") == 0;
  const bool own_context = std::strcmp(argv[3], "private") == 0;
  int provided = 0;
  shmem_init_thread(single ? SHMEM_THREAD_SINGLE : SHMEM_THREAD_MULTIPLE, &provided);
  Self self{SHMEM_CTX_DEFAULT, static_cast<std::uint64_t*>(shmem_calloc(2, sizeof(std::uint64_t))), 7};
  if (self.target == nullptr || (own_context && shmem_ctx_create(SHMEM_CTX_PRIVATE, &self.ctx) != 0)) return 1;
  for (const Operation& operation : kOperations) {
    if (std::strcmp(argv[1], operation.name) != 0) continue;
    (own_context ? operation.run_with_context : operation.run)(&self, n);
    if (std::strcmp(argv[1], "fetch_add") == 0 && *self.target != n) return 1;
    shmem_finalize();
    return 0;
  }
  std::fprintf(stderr, "path_shmem: there is no operation \"%s\"\n", argv[1]);
  return 2;
}
