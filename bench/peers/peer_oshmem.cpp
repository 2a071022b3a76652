// The same work on OpenSHMEM (1.4, threads by SHMEM_THREAD_MULTIPLE): all threads on the default
// context; on Heddle also with a context each. Built twice: over Open MPI's library, and over
// Heddle's.
#include <shmem.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "main.hpp"
#include "suite.hpp"

namespace heddle::bench::peers {
namespace {

#if defined(SHMEM_VENDOR_HEDDLE)
constexpr const char* kLibrary = "shmem";
constexpr bool kOwnContexts = true;
#else
constexpr const char* kLibrary = "oshmem";
// Open MPI 4.1.4 makes them, and never comes back from operations on them
constexpr bool kOwnContexts = false;
#endif

// The symmetric memory, and a context for each thread. Contexts are used by one thread at a time,
// but not by the one that made them, since each repeat has threads of its own: serialized, not
// private.
class Memory {
 public:
  Memory(std::uint64_t bytes, std::uint32_t threads) : own_(static_cast<std::byte*>(shmem_malloc(bytes))) {
    for (std::uint32_t i = 0; kOwnContexts && i < threads; ++i) {
      shmem_ctx_t context = SHMEM_CTX_DEFAULT;
      if (shmem_ctx_create(SHMEM_CTX_SERIALIZED, &context) != 0) shmem_global_exit(1);
      contexts_.push_back(context);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    for (const shmem_ctx_t context : contexts_) shmem_ctx_destroy(context);
    shmem_free(own_);
  }
  [[nodiscard]] std::byte* own() const { return own_; }
  [[nodiscard]] shmem_ctx_t context(std::uint32_t thread) const { return contexts_[thread]; }

 private:
  std::byte* own_;
  std::vector<shmem_ctx_t> contexts_;
};

enum class Contexts : bool { one, each };

template <Contexts kContexts>
class Shmem {
 public:
  explicit Shmem(const Memory& memory) : memory_(memory), own_(memory.own()) {}

  [[nodiscard]] static const char* transport() { return kLibrary; }
  [[nodiscard]] static const char* sharing() { return kContexts == Contexts::one ? "multiple" : "contexts"; }
  [[nodiscard]] static std::uint32_t workers(std::uint32_t threads) { return kContexts == Contexts::one ? 1 : threads; }
  [[nodiscard]] std::byte* own() const { return own_; }

  void put(std::uint32_t thread, std::uint32_t owner, std::uint64_t offset, const void* source, std::uint64_t size) {
    if (size != 8) return put_nbi(thread, owner, offset, source, size);
    const std::uint64_t value = *static_cast<const std::uint64_t*>(source);
    if constexpr (kContexts == Contexts::one) {
      shmem_uint64_p(word(offset), value, static_cast<int>(owner));
    } else {
      shmem_ctx_uint64_p(memory_.context(thread), word(offset), value, static_cast<int>(owner));
    }
  }
  void put_nbi(std::uint32_t thread, std::uint32_t owner, std::uint64_t offset, const void* source,
               std::uint64_t size) {
    if constexpr (kContexts == Contexts::one) {
      shmem_putmem_nbi(own_ + offset, source, size, static_cast<int>(owner));
    } else {
      shmem_ctx_putmem_nbi(memory_.context(thread), own_ + offset, source, size, static_cast<int>(owner));
    }
  }
  void get(std::uint32_t thread, std::uint32_t owner, std::uint64_t offset, void* target, std::uint64_t size) {
    const auto pe = static_cast<int>(owner);
    if constexpr (kContexts == Contexts::one) {
      if (size != 8) return shmem_getmem_nbi(target, own_ + offset, size, pe);
      *static_cast<std::uint64_t*>(target) = shmem_uint64_g(word(offset), pe);
    } else {
      const shmem_ctx_t context = memory_.context(thread);
      if (size != 8) return shmem_ctx_getmem_nbi(context, target, own_ + offset, size, pe);
      *static_cast<std::uint64_t*>(target) = shmem_ctx_uint64_g(context, word(offset), pe);
    }
  }
  template <Atomic kOp>
  void atomic(std::uint32_t thread, std::uint32_t owner, std::uint64_t offset, std::uint64_t operand,
              [[maybe_unused]] std::uint64_t* result) {
    const shmem_ctx_t context = kContexts == Contexts::one ? SHMEM_CTX_DEFAULT : memory_.context(thread);
    const auto pe = static_cast<int>(owner);
    auto* const at = reinterpret_cast<unsigned long*>(word(offset));
    if constexpr (kOp == Atomic::fetch_add) *result = shmem_ctx_ulong_atomic_fetch_add(context, at, operand, pe);
    if constexpr (kOp == Atomic::swap) *result = shmem_ctx_ulong_atomic_swap(context, at, operand, pe);
    if constexpr (kOp == Atomic::compare_swap)
      *result = shmem_ctx_ulong_atomic_compare_swap(context, at, 0, operand, pe);
    if constexpr (kOp == Atomic::add) shmem_ctx_ulong_atomic_add(context, at, operand, pe);
    if constexpr (kOp == Atomic::bit_xor) shmem_ctx_ulong_atomic_xor(context, at, operand, pe);
  }
  // gets and fetching atomics of 8 bytes are blocking; flush is for everything else, and there is
  // but one for all PEs.
  void flush(std::uint32_t thread, std::uint32_t) { quiet(thread); }
  void quiet(std::uint32_t thread) {
    if constexpr (kContexts == Contexts::one) {
      shmem_quiet();
    } else {
      shmem_ctx_quiet(memory_.context(thread));
    }
  }
  void fence(std::uint32_t thread) {
    if constexpr (kContexts == Contexts::one) {
      shmem_fence();
    } else {
      shmem_ctx_fence(memory_.context(thread));
    }
  }
  void push(std::uint32_t) {}
  void progress(std::uint32_t) {}

 private:
  std::uint64_t* word(std::uint64_t offset) const { return reinterpret_cast<std::uint64_t*>(own_ + offset); }
  const Memory& memory_;
  std::byte* own_;
};

// What only OpenSHMEM tells apart: a put without waiting, and one that is waited for each time.
template <class Library>
void put_rates(Session& session, Library& library, std::uint32_t threads) {
  if (session.wants("rate", "put_nbi")) {
    at_origin(session, figure(library, "rate", "put_nbi", "rate", 8, threads, threads), library,
              [&](std::uint32_t thread, std::uint64_t n) {
                const std::uint64_t value = thread;
                for (std::uint64_t i = 0; i < n; ++i) {
                  library.put_nbi(thread, 1, slot_offset(thread), &value, 8);
                  if (i % 64 == 63) library.quiet(thread);
                }
                library.quiet(thread);
              });
  }
  if (session.wants("rate", "p_quiet")) {
    at_origin(session, figure(library, "rate", "p_quiet", "rate", 8, threads, threads), library,
              [&](std::uint32_t thread, std::uint64_t n) {
                const std::uint64_t value = thread;
                for (std::uint64_t i = 0; i < n; ++i) {
                  library.put(thread, 1, slot_offset(thread), &value, 8);
                  library.quiet(thread);
                }
              });
  }
}

template <class Library>
void threaded(Session& session, Library library, std::uint64_t words) {
  const auto threads = harness::threads_of(session.options());
  for (const std::uint32_t count : threads) {
    one_sided_rate(session, library, count);
    put_rates(session, library, count);
  }
  if (!session.wants("gups")) return;
  for (const std::uint32_t count : threads) gups(session, library, count, words);
}

void run(Session& session) {
  const auto threads = harness::threads_of(session.options());
  const auto most = *std::max_element(threads.begin(), threads.end());
  const std::uint64_t words = harness::gups_words_per_rank(session.options().total_words, session.options().quick);
  const Memory memory(region_bytes(session.options()), most);
  if (memory.own() == nullptr) {
    std::fprintf(stderr, "peer_%s: no symmetric memory; raise SHMEM_SYMMETRIC_SIZE\n", kLibrary);
    shmem_global_exit(1);
  }
  Shmem<Contexts::one> shmem(memory);
  one_sided_latency(session, shmem);
  bandwidth(session, shmem);
  overhead(session, shmem);
  harness::Crowd pair(session.channel(), session.rank(), 2);
  duplex(&session, session.options(), pair, shmem);
  one_atomic<Atomic::fetch_add>(session, shmem, "fadd");
  one_atomic<Atomic::swap>(session, shmem, "swap");
  one_atomic<Atomic::compare_swap>(session, shmem, "cswap");
  one_atomic<Atomic::add>(session, shmem, "add");
  one_atomic<Atomic::bit_xor>(session, shmem, "xor");
  threaded(session, shmem, words);
  if (kOwnContexts) threaded(session, Shmem<Contexts::each>(memory), words);
}

}  // namespace
}  // namespace heddle::bench::peers

int main(int argc, char** argv) {
  using namespace heddle::bench;
  int provided = 0;
  shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
  if (provided < SHMEM_THREAD_MULTIPLE || shmem_n_pes() != 2) {
    std::fprintf(stderr, "peer_%s: needs SHMEM_THREAD_MULTIPLE and 2 processes\n", peers::kLibrary);
    shmem_global_exit(1);
  }
  const harness::Options options = peers::options_or_exit(argc, argv);
  harness::Channel channel = peers::channel_or_exit(options);
  channel.set_rank(static_cast<std::uint32_t>(shmem_my_pe()));
  harness::Session session(channel, options, harness::print_sample);
  peers::run(session);
  shmem_finalize();
  return 0;
}
