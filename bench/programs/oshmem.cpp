// OpenSHMEM as a library of the programs: puts, gets, signals, and shmem_wait_until, by all threads
// on the default context. Compiled over Open MPI's library (1.4: a signal is a put behind a fence)
// and over Heddle's (1.5: shmem_putmem_signal).
#include <shmem.h>

#include <cstdio>
#include <cstring>
#include <optional>

#include "peers/main.hpp"
#include "programs/all.hpp"

namespace heddle::bench::programs {
namespace {

#if defined(SHMEM_VENDOR_HEDDLE)
constexpr const char* kName = "shmem";
constexpr bool kPutSignal = true;
#else
constexpr const char* kName = "oshmem";
constexpr bool kPutSignal = false;
#endif

class Shmem {
 public:
  static constexpr bool kMessages = false;
  static constexpr bool kSignals = true;
  static constexpr bool kActive = false;
  static constexpr bool kCounts = true;

  Shmem() : own_(static_cast<std::byte*>(shmem_malloc(kRegionBytes))) {
    if (own_ == nullptr) {
      std::fprintf(stderr, "program_%s: no symmetric memory; raise SHMEM_SYMMETRIC_SIZE\n", kName);
      shmem_global_exit(1);
    }
    std::memset(own_, 0, kRegionBytes);
    meet();
  }
  Shmem(const Shmem&) = delete;
  Shmem& operator=(const Shmem&) = delete;
  ~Shmem() { shmem_free(own_); }

  [[nodiscard]] static const char* transport() { return kName; }
  [[nodiscard]] static const char* sharing() { return "one"; }
  [[nodiscard]] static bool is_variant() { return false; }
  [[nodiscard]] static std::uint32_t workers(std::uint32_t) { return 1; }
  [[nodiscard]] std::byte* own() const { return own_; }

  void put(std::uint32_t, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    shmem_putmem_nbi(own_ + offset, data, bytes, static_cast<int>(to));
  }
  void get(std::uint32_t, std::uint32_t from, std::uint64_t offset, void* data, std::uint64_t bytes) {
    shmem_getmem_nbi(data, own_ + offset, bytes, static_cast<int>(from));
  }
  void flush(std::uint32_t, std::uint32_t) { shmem_quiet(); }
  void put_signal(std::uint32_t, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes,
                  std::uint64_t word, std::uint64_t value) {
    const auto pe = static_cast<int>(to);
    if constexpr (kPutSignal) {
#if defined(SHMEM_VENDOR_HEDDLE)
      shmem_putmem_signal(own_ + offset, data, bytes, word_of(word), value, SHMEM_SIGNAL_SET, pe);
#endif
    } else {
      shmem_putmem(own_ + offset, data, bytes, pe);
      shmem_fence();
      shmem_uint64_p(word_of(word), value, pe);
    }
  }
  void wait_signal(std::uint32_t, std::uint64_t word, std::uint64_t value) {
    shmem_uint64_wait_until(word_of(word), SHMEM_CMP_GE, value);
  }
  void meet() { shmem_barrier_all(); }

  void put_now(std::uint32_t, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    shmem_putmem(own_ + offset, data, bytes, static_cast<int>(to));
  }
  void fence(std::uint32_t) { shmem_fence(); }
  void set_word(std::uint32_t, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    shmem_uint64_p(word_of(word), value, static_cast<int>(to));
  }
  void add_word(std::uint32_t, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    // OpenSHMEM 1.4 adds no uint64_t
    shmem_ulong_atomic_add(reinterpret_cast<unsigned long*>(word_of(word)), value, static_cast<int>(to));
  }
  void meet_complete() { shmem_barrier_all(); }

 private:
  [[nodiscard]] std::uint64_t* word_of(std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t*>(own_ + offset);
  }
  std::byte* own_;
};

}  // namespace
}  // namespace heddle::bench::programs

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const harness::Options options = peers::options_or_exit(argc, argv);
  const int wanted = programs::has_threads(options) ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SINGLE;
  int provided = 0;
  shmem_init_thread(wanted, &provided);
  const auto rank = static_cast<std::uint32_t>(shmem_my_pe());
  const auto size = static_cast<std::uint32_t>(shmem_n_pes());
  if (provided < wanted || (size != 2 && size != programs::kManyProcesses)) {
    std::fprintf(stderr, "program_%s: needs 2 or %u processes, and SHMEM_THREAD_MULTIPLE for programs with threads\n",
                 programs::kName, programs::kManyProcesses);
    shmem_global_exit(1);
  }
  harness::Channel channel = peers::channel_or_exit(options);
  if (rank < 2) channel.set_rank(rank);
  harness::Crowd crowd(channel, rank, size);
  {
    std::optional<harness::Session> session;
    if (crowd.leads()) session.emplace(channel, options, harness::print_sample);
    programs::Bench bench(session ? &*session : nullptr, crowd, options);
    programs::Shmem library;
    programs::run_own(bench, library);
  }
  shmem_finalize();
  return 0;
}
