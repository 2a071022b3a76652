// Threads map and unmap memory that others use, each with a cache of its own: no registration of
// memory that has gone is ever used.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/fence.hpp"
#include "memory/registration_cache.hpp"
#include "memory/test_pages.hpp"

namespace heddle::memory::registration_storm_test {
namespace {

using test::Pages;
using test::StampHardware;

constexpr int kThreads = 4;
constexpr int kSteps = base::kThreadSanitizer ? 400 : 3000;  // it tracks each page of each mapping
constexpr std::uint32_t kMostPages = 8;

// Memory that any thread may use or replace, one at a time. Its addresses are often those that
// another thread has unmapped.
struct Place {
  std::mutex mutex;
  Pages pages{};
};

class Storm {
 public:
  explicit Storm(std::shared_ptr<UnmapWatch> watch) : watch_(std::move(watch)) {
    for (Place& place : places_) place.pages = test::map_pages(1 + (next_++ % kMostPages));
  }
  ~Storm() {
    for (Place& place : places_) ::munmap(place.pages.at, place.pages.bytes);
  }
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

  // Run by one thread.
  void run(std::uint32_t seed) {
    std::mt19937 random(seed);
    StampHardware hardware;
    RegistrationCache::Options options;
    options.entries = static_cast<std::uint32_t>(1 + random() % 24);
    // other threads are given the same addresses while the first is inside munmap
    options.check_bytes = 0;
    RegistrationCache cache(hardware, watch_, options);
    for (int step = 0; step < kSteps && !failed_.load(std::memory_order_relaxed); ++step) {
      Place& place = places_[random() % places_.size()];
      const std::lock_guard lock(place.mutex);
      if (random() % 4 == 0) lose(&place.pages, random);
      use(cache, hardware, place.pages, random);
      if (random() % 16 == 0) disturb_malloc(cache, random);
    }
    hits_.fetch_add(cache.counters().hits, std::memory_order_relaxed);
    invalidations_.fetch_add(cache.counters().invalidations, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t invalidations() const { return invalidations_.load(std::memory_order_relaxed); }

 private:
  void use(RegistrationCache& cache, const StampHardware& hardware, const Pages& all, std::mt19937& random) {
    const std::uint64_t page = test::page_bytes();
    const std::uint64_t first = random() % (all.bytes / page);
    const Pages pages{all.at + first * page, (1 + random() % (all.bytes / page - first)) * page};
    RegistrationCache::Lease lease{};
    const base::Status status = cache.acquire(pages.at, pages.bytes, Access::write, &lease);
    if (status != HEDDLE_DONE || !hardware.fresh(lease, pages)) failed_.store(true, std::memory_order_relaxed);
    EXPECT_EQ(status, HEDDLE_DONE);
    EXPECT_TRUE(hardware.fresh(lease, pages)) << "a registration of memory that has gone";
    if (status == HEDDLE_DONE) cache.release(lease.entry);
  }

  static void lose(Pages* pages, std::mt19937& random) {
    switch (random() % 4) {
      case 0:
        ::madvise(pages->at, pages->bytes, MADV_DONTNEED);
        test::stamp(*pages);
        return;
      case 1:
        ::mmap(pages->at, pages->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        test::stamp(*pages);
        return;
      default:
        ::munmap(pages->at, pages->bytes);
        *pages = test::map_pages(1 + random() % kMostPages);
    }
  }

  // A thread that unmaps inside free() holds locks of malloc that others want in watch() and
  // unwatch().
  static void disturb_malloc(RegistrationCache& cache, std::mt19937& random) {
    const std::size_t bytes = 1 + random() % (1u << 20);
    const std::unique_ptr<std::byte[]> block(new std::byte[bytes]());
    RegistrationCache::Lease lease{};
    if (cache.acquire(block.get(), bytes, Access::read, &lease) == HEDDLE_DONE) cache.release(lease.entry);
  }

  std::shared_ptr<UnmapWatch> watch_;
  std::array<Place, 12> places_;
  std::uint64_t next_ = 0;
  std::atomic<bool> failed_{false};  // relaxed: only to end sooner
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> invalidations_{0};
};

class RegistrationStorm : public testing::TestWithParam<UnmapWatch::Way> {};

TEST_P(RegistrationStorm, NothingStaleIsUsed) {
  auto watch = UnmapWatch::open(GetParam());
  if (!watch) {
    if (GetParam() == UnmapWatch::Way::protection) std::printf("skipped: %s\n", base::last_message());
    GTEST_SKIP() << "skipped: " << base::last_message();
  }
  Storm storm(*watch);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) threads.emplace_back([&storm, i] { storm.run(i + 1); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(storm.hits(), 0u);
  EXPECT_GT(storm.invalidations(), 0u);
  EXPECT_EQ((*watch)->watched_pieces(), 0u);
  std::printf("%llu hits, %llu invalidations\n", static_cast<unsigned long long>(storm.hits()),
              static_cast<unsigned long long>(storm.invalidations()));
}

INSTANTIATE_TEST_SUITE_P(Ways, RegistrationStorm,
                         testing::Values(UnmapWatch::Way::protection, UnmapWatch::Way::missing), [](const auto& way) {
                           return way.param == UnmapWatch::Way::protection ? "protection" : "missing";
                         });

}  // namespace
}  // namespace heddle::memory::registration_storm_test
