// The way of adopted memory back, and its way in, where the system has little memory to give.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/test_support.hpp"
#include "transport/shm/adoption.hpp"
#include "transport/test/shm_adoption.hpp"

namespace {

// The requests that the system refuses, in place of memory that is really used up.
struct Refusals {
  bool reserved = false;      // private memory at a given address, if it is to be reserved
  bool all = false;           // and also if not
  bool unmaps_first = false;  // as before Linux 6.12, the old mapping goes nevertheless
  int steps = -1;             // it gives the segment memory so many times; -1: always
};
Refusals g_refusals;

class Refuse {
 public:
  explicit Refuse(const Refusals& what) { g_refusals = what; }
  ~Refuse() { g_refusals = {}; }
  Refuse(const Refuse&) = delete;
  Refuse& operator=(const Refuse&) = delete;
};

}  // namespace

// The library's calls come here, since it is linked statically.
extern "C" void* mmap(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  const bool given = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0 && (flags & MAP_ANONYMOUS) != 0;
  if (given && (g_refusals.all || (g_refusals.reserved && (flags & MAP_NORESERVE) == 0))) {
    if (g_refusals.unmaps_first && (flags & MAP_FIXED) != 0) munmap(address, bytes);
    errno = ENOMEM;
    return MAP_FAILED;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}
extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (g_refusals.steps == 0) {
    errno = ENOSPC;
    return -1;
  }
  if (g_refusals.steps > 0) --g_refusals.steps;
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, bytes));
}

namespace heddle::transport::shm::adoption_back_test {
namespace {

TEST_F(AdoptionTest, MemoryComesBackWithoutSpareDescriptors) {
  const Pages memory(4 * page_bytes());
  const LocalMemory local = adopt(memory.at(), 4 * page_bytes());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool full = ::open("/proc/self/maps", O_RDONLY) < 0;
  b.transport->deregister(local);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(full);
  EXPECT_FALSE(Pages::shared(memory.at()));
  EXPECT_TRUE(memory.intact());
}

#if !defined(__SANITIZE_THREAD__)
// No memory to put it back: it stays where it is, with its contents, and nobody gets its space.
TEST_F(AdoptionTest, MemoryThatCannotBePutBackStays) {
  if (base::kAddressSanitizer) GTEST_SKIP() << "the sanitizer itself maps memory, which the limit forbids";
  const std::uint64_t bytes = 16 * kHuge;
  const Pages memory(bytes, kHuge);
  const LocalMemory local = adopt(memory.at(), bytes);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  const rlimit small{page_bytes(), before.rlim_max};  // less private memory than there is
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &small), 0);
  b.transport->deregister(local);
  setrlimit(RLIMIT_DATA, &before);
  EXPECT_TRUE(Pages::shared(memory.at()));
  EXPECT_TRUE(memory.intact());
  const auto fresh = b.transport->allocate(bytes);
  ASSERT_TRUE(fresh.ok());
  std::memset(fresh->address, 0x11, bytes);
  EXPECT_TRUE(memory.intact());
  b.transport->free(*fresh);
  EXPECT_EQ(in_child([&] {
              std::memset(memory.at(), 0, bytes);
              return 0;
            }),
            0);
  EXPECT_TRUE(memory.intact()) << "what the child writes is its own";
}
#endif

// The program may have reserved it when the system promised more than it has.
TEST_F(AdoptionTest, MemoryThatCannotBeReservedComesBackUnreserved) {
  for (const bool unmaps_first : {false, true}) {
    const std::uint64_t bytes = 4 * page_bytes();
    const Pages memory(bytes);
    const LocalMemory local = adopt(memory.at(), bytes);
    {
      const Refuse refuse({.reserved = true, .unmaps_first = unmaps_first});
      b.transport->deregister(local);
    }
    EXPECT_FALSE(Pages::shared(memory.at()));
    EXPECT_TRUE(memory.intact());
    EXPECT_TRUE(memory.neighbours_intact());
  }
}

TEST_F(AdoptionTest, MemoryThatWasUnmappedInVainIsMappedAgain) {
  const std::uint64_t bytes = 4 * page_bytes();
  const Pages memory(bytes);
  const LocalMemory local = adopt(memory.at(), bytes);
  {
    const Refuse refuse({.all = true, .unmaps_first = true});
    b.transport->deregister(local);
  }
  ASSERT_TRUE(Pages::shared(memory.at())) << "it stays where it is";
  EXPECT_TRUE(memory.intact());
  *memory.at() = std::byte{0};
  *memory.at() = Pages::expected(0);
}

// A part of the memory stays in the segment, so the test sees how much the way back has left there.
TEST(AdoptionBack, WhatIsPutBackIsNoLongerInTheSegment) {
  const auto segment = Segment::create(page_bytes());
  ASSERT_TRUE(segment.ok());
  const std::uint64_t before = (*segment)->bytes_in_use();
  const std::uint64_t bytes = 4 * kHuge;
  const Pages memory(bytes, kHuge);
  const WholePages pages = WholePages::of(reinterpret_cast<std::uintptr_t>(memory.at()), bytes);
  const auto offset = move_in(**segment, pages);
  ASSERT_TRUE(offset.ok()) << base::last_message();
  EXPECT_GE((*segment)->bytes_in_use(), before + bytes);
  void* const moved = mremap(memory.at(bytes - page_bytes()), page_bytes(), page_bytes(), MREMAP_MAYMOVE | MREMAP_FIXED,
                             mmap(nullptr, page_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(moved, MAP_FAILED);
  EXPECT_FALSE(move_out(**segment, *offset, pages));
  for (std::uint64_t i = 0; i < bytes - page_bytes(); i += 512) ASSERT_EQ(*memory.at(i), Pages::expected(i));
  EXPECT_EQ(*static_cast<std::byte*>(moved), Pages::expected(bytes - page_bytes()));
  EXPECT_LE((*segment)->bytes_in_use(), before + kHuge);
  munmap(moved, page_bytes());
}

// On a strict system there may be no memory for a page that is touched. So the segment gets its
// memory before.
TEST(AdoptionBack, AStrictSystemIsAskedForMemoryBeforeItIsTouched) {
  const auto segment = Segment::create(page_bytes(), true);
  ASSERT_TRUE(segment.ok());
  const std::uint64_t before = (*segment)->bytes_in_use();
  const std::uint64_t bytes = 2 * kHuge + page_bytes();
  const Pages memory(bytes, kHuge);
  const WholePages pages = WholePages::of(reinterpret_cast<std::uintptr_t>(memory.at()), bytes);
  {
    const Refuse refuse({.steps = 1});
    const auto offset = move_in(**segment, pages);
    EXPECT_EQ(offset.status(), HEDDLE_ERR_NO_MEMORY) << base::last_message();
  }
  EXPECT_FALSE(Pages::shared(memory.at())) << "the first step has gone back";
  EXPECT_TRUE(memory.intact());
  EXPECT_EQ((*segment)->bytes_in_use(), before);
  std::memset(memory.at(), 0, bytes);  // which would need none else
  const auto offset = move_in(**segment, pages);
  ASSERT_TRUE(offset.ok()) << base::last_message();
  EXPECT_GE((*segment)->bytes_in_use(), before + bytes);
  EXPECT_TRUE(move_out(**segment, *offset, pages));
  EXPECT_EQ((*segment)->bytes_in_use(), before);
}

}  // namespace
}  // namespace heddle::transport::shm::adoption_back_test
