// The watch on the real kernel, with the caches that rely on it: after pages are taken away in any
// manner, no registration of them is used again.
#include "memory/unmap_watch.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <malloc.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fence.hpp"
#include "base/test_support.hpp"
#include "memory/registration_cache.hpp"
#include "memory/test_pages.hpp"

namespace heddle::memory::unmap_watch_test {
namespace {

using test::Pages;
using test::StampHardware;

class UnmapWatchTest : public testing::TestWithParam<UnmapWatch::Way> {
 protected:
  void SetUp() override {
    auto opened = UnmapWatch::open(GetParam());
    if (!opened) {
      // Way::missing may be unavailable; without Way::protection nothing of this program was
      // tested.
      if (GetParam() == UnmapWatch::Way::protection) std::printf("skipped: %s\n", base::last_message());
      GTEST_SKIP() << "skipped: " << base::last_message();
    }
    watch = *opened;
    cache = std::make_unique<RegistrationCache>(hardware, watch, RegistrationCache::Options{});
  }
  // A registration of these pages is kept, and used again.
  void keep(const Pages& pages) {
    const std::uint64_t misses = cache->counters().misses;
    EXPECT_FALSE(use(pages));
    EXPECT_TRUE(use(pages));
    EXPECT_EQ(cache->counters().misses, misses + 1);
  }
  // True: a kept registration was used, and it was of these very pages.
  bool use(const Pages& pages) {
    const std::uint64_t hits = cache->counters().hits;
    RegistrationCache::Lease lease{};
    EXPECT_EQ(cache->acquire(pages.at, pages.bytes, Access::write, &lease), HEDDLE_DONE) << base::last_message();
    EXPECT_TRUE(hardware.fresh(lease, pages));
    cache->release(lease.entry);
    return cache->counters().hits != hits;
  }

  StampHardware hardware;
  std::shared_ptr<UnmapWatch> watch;
  std::unique_ptr<RegistrationCache> cache;
};

struct Loss {
  const char* name;
  std::function<void(const Pages&)> take;  // of 4 pages it takes page 1, at least
  bool all;                                // it takes all four; none is left to unmap
};

std::vector<Loss> losses() {
  const auto page = test::page_bytes();
  std::vector<Loss> all;
  all.push_back({"munmap", [](const Pages& p) { ASSERT_EQ(::munmap(p.at, p.bytes), 0); }, true});
  all.push_back({"munmap of a part", [page](const Pages& p) { ASSERT_EQ(::munmap(p.at + page, page), 0); }, false});
  all.push_back(
      {"mmap over it",
       [page](const Pages& p) {
         ASSERT_NE(::mmap(p.at + page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                   MAP_FAILED);
       },
       false});
  all.push_back({"madvise DONTNEED",
                 [page](const Pages& p) { ASSERT_EQ(::madvise(p.at + page, page, MADV_DONTNEED), 0); }, false});
  all.push_back(
      {"madvise FREE", [page](const Pages& p) { ASSERT_EQ(::madvise(p.at + page, page, MADV_FREE), 0); }, false});
  all.push_back({"mremap that moves",
                 [](const Pages& p) {
                   void* to = ::mmap(nullptr, p.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                   ASSERT_EQ(::mremap(p.at, p.bytes, p.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
                   ASSERT_EQ(::munmap(to, p.bytes), 0);
                 },
                 true});
  all.push_back(
      {"mremap that shrinks", [page](const Pages& p) { ASSERT_EQ(::mremap(p.at, p.bytes, page, 0), p.at); }, false});
  all.push_back(
      {"a bare system call", [](const Pages& p) { ASSERT_EQ(::syscall(SYS_munmap, p.at, p.bytes), 0); }, true});
  return all;
}

TEST_P(UnmapWatchTest, TellsBeforeTheCallReturns) {
  for (const Loss& loss : losses()) {
    SCOPED_TRACE(loss.name);
    const Pages pages = test::map_pages(4);
    keep(pages);
    const std::uint64_t before = watch->log().generation();
    const std::uint64_t gone = cache->counters().invalidations;
    loss.take(pages);
    EXPECT_NE(watch->log().generation(), before);
    if (!loss.all) {
      ASSERT_EQ(::munmap(pages.at, pages.bytes), 0);
    }
    // Other memory gets the same addresses.
    const Pages again = test::map_pages(4, pages.at);
    EXPECT_FALSE(use(again));
    EXPECT_EQ(cache->counters().invalidations, gone + 1);
    EXPECT_TRUE(use(again));
    ASSERT_EQ(::munmap(again.at, again.bytes), 0);
  }
}

TEST_P(UnmapWatchTest, TellsOfFreeAndRealloc) {
  constexpr std::size_t kLarge = std::size_t{4} << 20;
  const auto inner = [](void* block) {
    const std::uint64_t page = test::page_bytes();
    const auto begin = (reinterpret_cast<std::uint64_t>(block) + page - 1) & ~(page - 1);
    return test::stamp({reinterpret_cast<std::byte*>(begin), 4 * page});  // NOLINT(performance-no-int-to-ptr)
  };
  // A fixed threshold, so that libc unmaps what is freed; a sanitizer's malloc need not.
  if (base::kThreadSanitizer || ::mallopt(M_MMAP_THRESHOLD, 1 << 20) != 1) GTEST_SKIP() << "skipped: not libc's malloc";
  for (int turn = 0; turn < 3; ++turn) {
    void* block = std::malloc(kLarge);
    keep(inner(block));
    const std::uint64_t gone = cache->counters().invalidations;
    if (turn == 1) {
      block = std::realloc(block, 16 * kLarge);
      if (block != nullptr) use(inner(block));
    }
    std::free(block);
    block = std::malloc(kLarge);
    const Pages pages = inner(block);
    use(pages);
    EXPECT_GT(cache->counters().invalidations, gone);
    std::free(block);
  }
}

TEST_P(UnmapWatchTest, TellsOfAHeapThatShrinks) {
  const std::uint64_t page = test::page_bytes();
  const auto more = static_cast<std::intptr_t>(8 * page);
  const std::uint64_t before = watch->log().generation();
  void* const heap = ::sbrk(more);
  if (heap == reinterpret_cast<void*>(-1)) GTEST_SKIP() << "skipped: no heap here";
  const auto begin = (reinterpret_cast<std::uint64_t>(heap) + page - 1) & ~(page - 1);
  const bool watched = watch->watch(begin, begin + 4 * page);
  const void* const back = ::sbrk(-more);
  const std::uint64_t after = watch->log().generation();
  watch->unwatch(begin, begin + 4 * page);
  EXPECT_TRUE(watched);
  EXPECT_NE(back, reinterpret_cast<void*>(-1));
  EXPECT_NE(after, before);
}

TEST_P(UnmapWatchTest, WhatNobodyKeepsIsNotWatched) {
  const Pages pages = test::map_pages(4);
  keep(pages);
  EXPECT_EQ(watch->watched_pieces(), 1u);
  cache->drop_idle();
  EXPECT_EQ(watch->watched_pieces(), 0u);
  const std::uint64_t before = watch->log().generation();
  ASSERT_EQ(::munmap(pages.at, pages.bytes), 0);
  EXPECT_EQ(watch->log().generation(), before);
}

TEST_P(UnmapWatchTest, WhatMovedIsNotWatchedAtItsNewPlace) {
  const Pages pages = test::map_pages(4);
  keep(pages);
  void* to = ::mmap(nullptr, pages.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(::mremap(pages.at, pages.bytes, pages.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
  const Pages moved{static_cast<std::byte*>(to), pages.bytes};
  keep(moved);
  cache->drop_idle();
  const std::uint64_t before = watch->log().generation();
  ASSERT_EQ(::munmap(to, pages.bytes), 0);
  EXPECT_EQ(watch->log().generation(), before);
}

TEST_P(UnmapWatchTest, MemoryThatCannotBeWatchedIsRegisteredEachTime) {
  const std::uint64_t page = test::page_bytes();
  const int segment = ::shmget(IPC_PRIVATE, 4 * page, IPC_CREAT | 0600);
  if (segment < 0) GTEST_SKIP() << "skipped: no System V shared memory here";
  void* attached = ::shmat(segment, nullptr, 0);
  ::shmctl(segment, IPC_RMID, nullptr);
  ASSERT_NE(attached, reinterpret_cast<void*>(-1));
  const Pages pages = test::stamp({static_cast<std::byte*>(attached), 4 * page});
  const bool watchable =
      watch->watch(reinterpret_cast<std::uint64_t>(attached), reinterpret_cast<std::uint64_t>(attached) + page);
  EXPECT_FALSE(watchable) << "then shmdt() must be told, and 0026 be corrected";
  EXPECT_FALSE(use(pages));
  EXPECT_FALSE(use(pages));
  EXPECT_EQ(cache->counters().passing, 2u);
  EXPECT_EQ(hardware.known(), 0u);
  ASSERT_EQ(::shmdt(attached), 0);
}

TEST_P(UnmapWatchTest, ForgetTellsWhatTheKernelDoesNot) {
  const std::uint64_t page = test::page_bytes();
  const int file = ::memfd_create("heddle-test", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, static_cast<off_t>(4 * page)), 0);
  void* mapped = ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const Pages pages = test::stamp({static_cast<std::byte*>(mapped), 4 * page});
  use(pages);
  ASSERT_EQ(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(4 * page)), 0);
  const auto begin = reinterpret_cast<std::uint64_t>(mapped);
  watch->forget(begin, begin + 4 * page);
  EXPECT_FALSE(use(test::stamp(pages)));
  ::munmap(mapped, 4 * page);
  ::close(file);
}

TEST_P(UnmapWatchTest, GivesWayToAUserfaultfdOfTheProgram) {
  const int theirs = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1));
  if (theirs < 0) GTEST_SKIP() << "skipped: no userfaultfd beside ours";
  uffdio_api api{};
  api.api = UFFD_API;
  ASSERT_EQ(::ioctl(theirs, UFFDIO_API, &api), 0);
  const Pages pages = test::map_pages(4);
  uffdio_register wanted{};
  wanted.range = {reinterpret_cast<std::uint64_t>(pages.at), pages.bytes};
  wanted.mode = UFFDIO_REGISTER_MODE_MISSING;
  ASSERT_EQ(::ioctl(theirs, UFFDIO_REGISTER, &wanted), 0);
  EXPECT_FALSE(use(pages));
  EXPECT_FALSE(use(pages));
  EXPECT_EQ(cache->counters().passing, 2u);
  ASSERT_EQ(::ioctl(theirs, UFFDIO_UNREGISTER, &wanted.range), 0);
  keep(pages);
  EXPECT_EQ(::ioctl(theirs, UFFDIO_REGISTER, &wanted), -1);
  EXPECT_EQ(errno, EBUSY);
  cache->drop_idle();
  EXPECT_EQ(::ioctl(theirs, UFFDIO_REGISTER, &wanted), 0);
  ::close(theirs);
  ::munmap(pages.at, pages.bytes);
}

// A child reports by its exit status: the number of the line that failed.
#define CHILD_EXPECT(condition) \
  if (!(condition)) ::_exit(__LINE__ % 250 + 1)

TEST_P(UnmapWatchTest, AChildKeepsNothingAndTakesNothingFromItsParent) {
  const Pages pages = test::map_pages(4);
  keep(pages);
  const std::uint64_t before = watch->log().generation();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::size_t known = hardware.known();
    CHILD_EXPECT(watch->inherited());
    CHILD_EXPECT(!use(pages));
    CHILD_EXPECT(!cache->keeps());
    CHILD_EXPECT(cache->counters().passing == 1);
    CHILD_EXPECT(hardware.known() == known);  // no registration of the parent was deregistered
    watch->forget(0, ~std::uint64_t{0});
    CHILD_EXPECT(::munmap(pages.at, pages.bytes) == 0);
    cache.reset();
    CHILD_EXPECT(hardware.known() == known);
    watch.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "line " << WEXITSTATUS(status) - 1 << " modulo 250";
  EXPECT_EQ(watch->log().generation(), before);
  EXPECT_TRUE(use(pages));
  ASSERT_EQ(::munmap(pages.at, pages.bytes), 0);
  EXPECT_NE(watch->log().generation(), before);
}

TEST_P(UnmapWatchTest, WhoUnmapsIsNotHeldWhenTheWatchHasEnded) {
  const Pages pages = test::map_pages(4);
  ASSERT_TRUE(
      watch->watch(reinterpret_cast<std::uint64_t>(pages.at), reinterpret_cast<std::uint64_t>(pages.at) + pages.bytes));
  cache.reset();
  watch.reset();
  EXPECT_EQ(::munmap(pages.at, pages.bytes), 0);  // if the thread waited, this would never end
}

INSTANTIATE_TEST_SUITE_P(Ways, UnmapWatchTest, testing::Values(UnmapWatch::Way::protection, UnmapWatch::Way::missing),
                         [](const auto& way) {
                           return way.param == UnmapWatch::Way::protection ? "protection" : "missing";
                         });

// ---- where it is forbidden ----------------------------------------------------------------------

TEST(UnmapWatchForbidden, TheCacheIsOffAndSaysSoOnce) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    // as in many containers
    if (!heddle::test::forbid_call(SYS_userfaultfd, EPERM)) ::_exit(77);
    StampHardware hardware;
    const RegistrationCache::Options options;
    const auto watch = RegistrationCache::watch_for(options, base::Log(base::Level::info, 0));
    CHILD_EXPECT(watch == nullptr);
    // another queue
    CHILD_EXPECT(RegistrationCache::watch_for(options, base::Log(base::Level::info, 0)) == nullptr);
    RegistrationCache cache(hardware, watch, options);
    const Pages pages = test::map_pages(1);
    for (int i = 0; i < 2; ++i) {
      RegistrationCache::Lease lease{};
      CHILD_EXPECT(cache.acquire(pages.at, 1, Access::write, &lease) == HEDDLE_DONE);
      CHILD_EXPECT(hardware.known() == 1);
      cache.release(lease.entry);
      CHILD_EXPECT(hardware.known() == 0);
    }
    CHILD_EXPECT(cache.counters().passing == 2);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char letter = 0;
  while (::read(ends[0], &letter, 1) == 1) said += letter;
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << heddle::test::kNoFilters;
  EXPECT_EQ(WEXITSTATUS(status), 0) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("HEDDLE_REG_CACHE"), std::string::npos) << said;
  EXPECT_NE(said.find("userfaultfd"), std::string::npos) << said;
}

TEST(UnmapWatchOfProcess, IsSharedAndEndsWithItsLastUser) {
  auto first = UnmapWatch::of_process();
  if (!first) GTEST_SKIP() << "skipped: " << base::last_message();
  auto second = UnmapWatch::of_process();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_FALSE((*first)->inherited());
  const std::weak_ptr<UnmapWatch> end = *first;
  first->reset();
  second->reset();
  EXPECT_TRUE(end.expired());
}

}  // namespace
}  // namespace heddle::memory::unmap_watch_test
