// OpenSHMEM as a library that is measured: puts, gets, signals, atomics and shmem_wait_until, by
// all threads on the default context, and on Heddle also with a context each. Compiled over Open
// MPI's library (1.4: a signal is a put behind a fence) and over Heddle's (1.5:
// shmem_putmem_signal).
#include <shmem.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "libraries/main.hpp"
#include "libraries/oshmem_collectives.hpp"
#include "measure/all.hpp"

namespace heddle::bench::libraries {
namespace {

#if defined(SHMEM_VENDOR_HEDDLE)
constexpr const char* kName = "shmem";
constexpr bool kOwnContexts = true;
#else
constexpr const char* kName = "oshmem";
constexpr bool kOwnContexts = false;  // Open MPI 4.1.4 makes them, and never comes back from them
#endif

using measure::Atomic;

class Shmem {
 public:
  // Collective. `name`: of the sharing, in records. Contexts are used by one thread at a time, but
  // not by the one that made them, since each repeat has threads of its own: serialized, not
  // private.
  Shmem(std::byte* own, std::uint32_t lanes, bool contexts, const char* name)
      : own_(own), own_contexts_(contexts), name_(name), contexts_(lanes, SHMEM_CTX_DEFAULT) {
    for (shmem_ctx_t& context : contexts_) {
      if (contexts && shmem_ctx_create(SHMEM_CTX_SERIALIZED, &context) != 0) shmem_global_exit(1);
    }
    meet();
  }
  Shmem(const Shmem&) = delete;
  Shmem& operator=(const Shmem&) = delete;
  ~Shmem() {
    for (const shmem_ctx_t context : contexts_) {
      if (own_contexts_) shmem_ctx_destroy(context);
    }
  }

  [[nodiscard]] measure::Identity identity() const { return {kName, name_, "allocated", own_contexts_, false, false}; }
  [[nodiscard]] std::byte* own(std::uint64_t offset) const { return own_ + offset; }

  // At most 8 bytes go as programs put and get a word, blocking. A get of them is complete at once.
  bool put(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    if (bytes == 8) {
      std::uint64_t value = 0;
      std::memcpy(&value, data, sizeof value);
      shmem_ctx_uint64_p(contexts_[lane], word_of(offset), value, static_cast<int>(to));
    } else {
      put_nbi(lane, to, offset, data, bytes);
    }
    return true;
  }
  void put_nbi(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    shmem_ctx_putmem_nbi(contexts_[lane], own_ + offset, data, bytes, static_cast<int>(to));
  }
  bool get(std::uint32_t lane, std::uint32_t from, std::uint64_t offset, void* data, std::uint64_t bytes) {
    if (bytes != 8) {
      shmem_ctx_getmem_nbi(contexts_[lane], data, own_ + offset, bytes, static_cast<int>(from));
      return true;
    }
    const std::uint64_t value = shmem_ctx_uint64_g(contexts_[lane], word_of(offset), static_cast<int>(from));
    std::memcpy(data, &value, sizeof value);
    return false;
  }
  template <Atomic kOp>
    requires(kOp != Atomic::bit_and && kOp != Atomic::bit_or)
  bool atomic(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, std::uint64_t operand,
              [[maybe_unused]] std::uint64_t* result) {
    const shmem_ctx_t context = contexts_[lane];
    const auto pe = static_cast<int>(to);
    // OpenSHMEM 1.4 adds no uint64_t
    auto* const at = reinterpret_cast<unsigned long*>(word_of(offset));
    if constexpr (kOp == Atomic::fetch_add) *result = shmem_ctx_ulong_atomic_fetch_add(context, at, operand, pe);
    if constexpr (kOp == Atomic::swap) *result = shmem_ctx_ulong_atomic_swap(context, at, operand, pe);
    if constexpr (kOp == Atomic::compare_swap)
      *result = shmem_ctx_ulong_atomic_compare_swap(context, at, 0, operand, pe);
    if constexpr (kOp == Atomic::add) shmem_ctx_ulong_atomic_add(context, at, operand, pe);
    if constexpr (kOp == Atomic::bit_xor) shmem_ctx_ulong_atomic_xor(context, at, operand, pe);
    return kOp == Atomic::add || kOp == Atomic::bit_xor;
  }
  void flush(std::uint32_t lane, std::uint32_t) { quiet(lane); }
  void quiet(std::uint32_t lane) { shmem_ctx_quiet(contexts_[lane]); }
  void fence(std::uint32_t lane) { shmem_ctx_fence(contexts_[lane]); }
  static bool progress(std::uint32_t) { return false; }

  bool put_signal([[maybe_unused]] std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data,
                  std::uint64_t bytes, std::uint64_t word, std::uint64_t value) {
#if defined(SHMEM_VENDOR_HEDDLE)
    shmem_ctx_putmem_signal(contexts_[lane], own_ + offset, data, bytes, word_of(word), value, SHMEM_SIGNAL_SET,
                            static_cast<int>(to));
#else
    shmem_putmem(own_ + offset, data, bytes, static_cast<int>(to));
    shmem_fence();
    set_word(lane, to, word, value);
#endif
    return false;
  }
  void wait_signal(std::uint32_t, std::uint64_t word, std::uint64_t value) {
    shmem_uint64_wait_until(word_of(word), SHMEM_CMP_GE, value);
  }
  void meet() { shmem_barrier_all(); }

  void put_now(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    shmem_ctx_putmem(contexts_[lane], own_ + offset, data, bytes, static_cast<int>(to));
  }
  void set_word(std::uint32_t lane, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    shmem_ctx_uint64_p(contexts_[lane], word_of(word), value, static_cast<int>(to));
  }
  void add_word(std::uint32_t lane, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    atomic<Atomic::add>(lane, to, word, value, nullptr);
  }
  void meet_complete() { shmem_barrier_all(); }

 private:
  [[nodiscard]] std::uint64_t* word_of(std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t*>(own_ + offset);
  }
  std::byte* own_;
  bool own_contexts_;
  const char* name_;
  std::vector<shmem_ctx_t> contexts_;  // by lane
};

// The measurements that only OpenSHMEM distinguishes: a put without waiting, and one that is waited
// for each time.
void put_rates(measure::Bench& bench, Shmem& library) {
  for (const std::uint32_t threads : harness::threads_of(bench.options())) {
    std::vector<std::uint64_t> values(threads);
    const auto task = [&](const char* op, double each) {
      return measure::Task{"rate", op, "rate", 8, each * threads, threads};
    };
    if (bench.wants("rate", "put_nbi")) {
      stream(bench, library, task("put_nbi", 64), 64,
             [&](std::uint32_t lane) { library.put_nbi(lane, 1, measure::word_at(lane), &values[lane], 8); });
    }
    if (bench.wants("rate", "p_quiet")) {
      stream(bench, library, task("p_quiet", 1), 1,
             [&](std::uint32_t lane) { library.put(lane, 1, measure::word_at(lane), &values[lane], 8); });
    }
  }
}

void run(harness::BenchSession& session) {
  measure::Bench bench(session);
  const measure::Needs needs = measure::needs_of(session);
  auto* own = allocate<std::byte>(needs.region_bytes);
  std::memset(own, 0, needs.region_bytes);
  const bool programs = measure::only_programs(session.options());
  {
    Shmem one(own, needs.lanes, false, programs ? "one" : "multiple");
    bench.use(one);
    programs ? run_programs(bench, one) : run_all(bench, one);
    if (!programs) put_rates(bench, one);
  }
  if (!programs && kOwnContexts) {
    Shmem each(own, needs.lanes, true, "contexts");
    bench.use(each);
    run_rates(bench, each);
    put_rates(bench, each);
    if (bench.wants("gups")) gups(bench, each);
  }
  shmem_free(own);
}

}  // namespace
}  // namespace heddle::bench::libraries

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const harness::BenchOptions options = libraries::options_or_exit(argc, argv);
  const bool collectives = harness::are_collectives(options);
  const bool threads = !collectives && (!measure::only_programs(options) || measure::has_threads(options));
  const int wanted = threads ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SINGLE;
  int provided = 0;
  shmem_init_thread(wanted, &provided);
  if (provided < wanted || (!collectives && shmem_n_pes() % 2 != 0)) {
    std::fprintf(stderr, "%s: needs pairs of processes, and SHMEM_THREAD_MULTIPLE for threads\n", argv[0]);
    shmem_global_exit(1);
  }
  {
    harness::Channel channel = libraries::channel_or_exit(options);
    channel.set_rank(static_cast<std::uint32_t>(shmem_my_pe()), static_cast<std::uint32_t>(shmem_n_pes()));
    harness::BenchSession session(channel, options, harness::print_sample);
    if (collectives) {
      libraries::ShmemCollectives library(libraries::kName, *std::ranges::max_element(options.sizes));
      measure::CollectiveTimes(session, library).run();
    } else {
      libraries::run(session);
    }
  }
  shmem_finalize();
  return 0;
}
