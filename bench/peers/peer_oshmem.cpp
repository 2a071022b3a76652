// The same work on OpenSHMEM (1.4: one context, threads by SHMEM_THREAD_MULTIPLE).
#include <shmem.h>

#include <cstdio>

#include "main.hpp"
#include "suite.hpp"

namespace heddle::bench::peers {
namespace {

class Shmem {
 public:
  explicit Shmem(std::uint64_t bytes) : own_(static_cast<std::byte*>(shmem_malloc(bytes))) {}
  Shmem(const Shmem&) = delete;
  Shmem& operator=(const Shmem&) = delete;
  ~Shmem() { shmem_free(own_); }

  [[nodiscard]] static const char* transport() { return "oshmem"; }
  [[nodiscard]] static const char* sharing() { return "multiple"; }
  [[nodiscard]] static std::uint32_t workers(std::uint32_t) { return 1; }
  [[nodiscard]] std::byte* own() const { return own_; }

  void put(std::uint32_t, std::uint32_t owner, std::uint64_t offset, const void* source, std::uint64_t size) {
    if (size == 8) {
      shmem_uint64_p(word(offset), *static_cast<const std::uint64_t*>(source), static_cast<int>(owner));
    } else {
      shmem_putmem_nbi(own_ + offset, source, size, static_cast<int>(owner));
    }
  }
  void get(std::uint32_t, std::uint32_t owner, std::uint64_t offset, void* target, std::uint64_t size) {
    if (size == 8) {
      *static_cast<std::uint64_t*>(target) = shmem_uint64_g(word(offset), static_cast<int>(owner));
    } else {
      shmem_getmem_nbi(target, own_ + offset, size, static_cast<int>(owner));
    }
  }
  template <Atomic kOp>
  void atomic(std::uint32_t, std::uint32_t owner, std::uint64_t offset, std::uint64_t operand,
              [[maybe_unused]] std::uint64_t* result) {
    const auto pe = static_cast<int>(owner);
    auto* const at = reinterpret_cast<unsigned long*>(word(offset));
    if constexpr (kOp == Atomic::fetch_add) *result = shmem_ulong_atomic_fetch_add(at, operand, pe);
    if constexpr (kOp == Atomic::swap) *result = shmem_ulong_atomic_swap(at, operand, pe);
    if constexpr (kOp == Atomic::compare_swap) *result = shmem_ulong_atomic_compare_swap(at, 0, operand, pe);
    if constexpr (kOp == Atomic::add) shmem_ulong_atomic_add(at, operand, pe);
    if constexpr (kOp == Atomic::bit_xor) shmem_ulong_atomic_xor(at, operand, pe);
  }
  // gets and fetching atomics of 8 bytes are blocking; flush is for everything else, and there is but one for all.
  void flush(std::uint32_t, std::uint32_t) { shmem_quiet(); }
  void quiet(std::uint32_t) { shmem_quiet(); }
  void fence(std::uint32_t) { shmem_fence(); }
  void push(std::uint32_t) {}
  void progress(std::uint32_t) {}

 private:
  std::uint64_t* word(std::uint64_t offset) const { return reinterpret_cast<std::uint64_t*>(own_ + offset); }
  std::byte* own_;
};

void run(Session& session) {
  const auto threads = harness::threads_of(session.options());
  const std::uint64_t words = harness::gups_words_per_rank(session.options().total_words, session.options().quick);
  Shmem shmem(region_bytes(session.options()));
  if (shmem.own() == nullptr) {
    std::fprintf(stderr, "peer_oshmem: no symmetric memory; raise SHMEM_SYMMETRIC_SIZE\n");
    shmem_global_exit(1);
  }
  one_sided_latency(session, shmem);
  for (const std::uint32_t count : threads) one_sided_rate(session, shmem, count);
  bandwidth(session, shmem);
  overhead(session, shmem);
  harness::Crowd pair(session.channel(), session.rank(), 2);
  duplex(&session, session.options(), pair, shmem);
  one_atomic<Atomic::fetch_add>(session, shmem, "fadd");
  one_atomic<Atomic::swap>(session, shmem, "swap");
  one_atomic<Atomic::compare_swap>(session, shmem, "cswap");
  one_atomic<Atomic::add>(session, shmem, "add");
  one_atomic<Atomic::bit_xor>(session, shmem, "xor");
  if (!session.wants("gups")) return;
  for (const std::uint32_t count : threads) gups(session, shmem, count, words);
}

}  // namespace
}  // namespace heddle::bench::peers

int main(int argc, char** argv) {
  using namespace heddle::bench;
  int provided = 0;
  shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
  if (provided < SHMEM_THREAD_MULTIPLE || shmem_n_pes() != 2) {
    std::fprintf(stderr, "peer_oshmem: needs SHMEM_THREAD_MULTIPLE and 2 processes\n");
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
