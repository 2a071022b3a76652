// Adopted memory: what the owner's pages are before, meanwhile and after; what peers map; what
// programs do to it that they should not.
#include "transport/shm/adoption.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/mappings.hpp"
#include "memory/unmap_watch.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/region_key.hpp"
#include "transport/test/shm_adoption.hpp"

namespace heddle::transport::shm::adoption_test {
namespace {

TEST_F(AdoptionTest, PeersMapWholePagesAndTheOwnerKeepsItsMemory) {
  for (const std::uint64_t pages : {1, 2, 3, 64}) {
    const std::uint64_t bytes = pages * page_bytes();
    const Pages memory(bytes);
    const LocalMemory local = adopt(memory.at(), bytes);
    EXPECT_EQ(local.address, memory.at());
    EXPECT_TRUE(memory.intact());
    EXPECT_TRUE(Pages::shared(memory.at()));
    EXPECT_TRUE(Pages::shared(memory.at(bytes - 1)));
    const auto remote = a.transport->import(1, local.key);
    ASSERT_TRUE(remote.ok()) << base::last_message();
    ASSERT_TRUE(remote->all_direct());
    EXPECT_EQ(remote->opcodes, 0U);
    EXPECT_NE(remote->direct, memory.at()) << "a mapping of its own";
    EXPECT_EQ(std::memcmp(remote->direct, memory.at(), bytes), 0);
    remote->direct[bytes - 1] = std::byte{0};
    EXPECT_EQ(*memory.at(bytes - 1), std::byte{0});
    *memory.at(bytes - 1) = Pages::expected(bytes - 1);
    EXPECT_EQ(remote->direct[bytes - 1], Pages::expected(bytes - 1));
    a.transport->release(*remote);
    b.transport->deregister(local);
    EXPECT_TRUE(memory.intact());
    EXPECT_TRUE(memory.neighbours_intact());
    EXPECT_FALSE(Pages::shared(memory.at()));
    EXPECT_FALSE(Pages::shared(memory.at(bytes - 1)));
  }
}

TEST_F(AdoptionTest, EdgesStayWhereTheyAreAndAreReachedByCommands) {
  const std::uint64_t page = page_bytes();
  const std::uint64_t bytes = 4 * page;
  const Pages memory(bytes);
  const LocalMemory local = adopt(memory.at(100), bytes - 300);
  EXPECT_FALSE(Pages::shared(memory.at()));
  EXPECT_TRUE(Pages::shared(memory.at(page)));
  EXPECT_TRUE(Pages::shared(memory.at(3 * page - 1)));
  EXPECT_FALSE(Pages::shared(memory.at(3 * page)));
  const auto remote = a.transport->import(1, local.key);
  ASSERT_TRUE(remote.ok()) << base::last_message();
  EXPECT_FALSE(remote->all_direct());
  EXPECT_EQ(remote->edge_before, page - 100);
  EXPECT_EQ(remote->edge_after, page - 200);
  ASSERT_NE(remote->direct, nullptr);
  EXPECT_EQ(std::memcmp(remote->direct + remote->edge_before, memory.at(page), 2 * page), 0);
  EXPECT_EQ(remote->opcodes, bit(Opcode::put) | bit(Opcode::get));
  b.transport->deregister(local);
  EXPECT_TRUE(memory.intact());
  a.transport->release(*remote);
}

TEST_F(AdoptionTest, MemoryWithoutAWholePageIsRegisteredOnly) {
  const Pages memory(2 * page_bytes());
  const LocalMemory local = adopt(memory.at(1), 2 * page_bytes() - 2);
  EXPECT_FALSE(Pages::shared(memory.at()));
  const auto remote = a.transport->import(1, local.key);
  ASSERT_TRUE(remote.ok());
  EXPECT_EQ(remote->direct, nullptr);
  b.transport->deregister(local);
}

// Memory with advice for huge pages, at addresses that fit them and at others. Untouched pages need
// no memory.
TEST_F(AdoptionTest, LongAndHugeMemory) {
  for (const std::uint64_t shift : {std::uint64_t{0}, page_bytes()}) {
    const std::uint64_t bytes = 3 * kHuge + 5 * page_bytes();
    const Pages memory(bytes, kHuge);
    madvise(memory.at(), bytes, MADV_HUGEPAGE);
    const LocalMemory local = adopt(memory.at(shift), bytes - shift);
    EXPECT_TRUE(memory.intact());
    const auto remote = a.transport->import(1, local.key);
    ASSERT_TRUE(remote.ok()) << base::last_message();
    EXPECT_EQ(std::memcmp(remote->direct, memory.at(shift), bytes - shift), 0);
    a.transport->release(*remote);
    b.transport->deregister(local);
    EXPECT_TRUE(memory.intact());
    EXPECT_TRUE(memory.neighbours_intact());
  }
}

TEST_F(AdoptionTest, UntouchedMemoryNeedsNoSpace) {
  if (strict_overcommit()) GTEST_SKIP() << "skipped: vm.overcommit_memory is 2";
  const auto in_use = [&] {
    struct stat file{};
    EXPECT_EQ(fstat(cards.cards[1].fd, &file), 0);
    return static_cast<std::uint64_t>(file.st_blocks) * 512;
  };
  const std::uint64_t bytes = 8 * kHuge;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::uint64_t before = in_use();
  const LocalMemory local = adopt(static_cast<std::byte*>(memory), bytes);
  EXPECT_EQ(in_use(), before);
  static_cast<std::byte*>(memory)[5] = std::byte{1};
  EXPECT_GT(in_use(), before);
  b.transport->deregister(local);
  EXPECT_EQ(in_use(), before) << "its space is empty again";
  EXPECT_EQ(static_cast<std::byte*>(memory)[5], std::byte{1});
  munmap(memory, bytes);
}

TEST_F(AdoptionTest, ManyTimesLeaveNothingBehind) {
  const Pages memory(16 * page_bytes());
  b.transport->deregister(adopt(memory.at(), 16 * page_bytes()));
  const std::size_t before = maps();
  MemoryKey first{};
  for (int i = 0; i < 200; ++i) {
    const LocalMemory local = adopt(memory.at(), 16 * page_bytes());
    const auto key = decode(local.key.front());
    ASSERT_TRUE(key.ok());
    if (i == 0) first = local.key.front();
    EXPECT_EQ(key->offset, decode(first)->offset) << "the same space again";
    b.transport->deregister(local);
  }
  EXPECT_LE(maps(), before);
  EXPECT_TRUE(memory.intact());
  const auto fresh = b.transport->allocate(16 * page_bytes());
  ASSERT_TRUE(fresh.ok());
  EXPECT_EQ(decode(fresh->key.front())->offset, decode(first)->offset);
  const auto* bytes = static_cast<const std::byte*>(fresh->address);
  EXPECT_TRUE(std::all_of(bytes, bytes + fresh->bytes, [](std::byte byte) { return byte == std::byte{0}; }));
  b.transport->free(*fresh);
}

TEST_F(AdoptionTest, OtherKindsOfMemoryAreRefused) {
  const std::uint64_t page = page_bytes();
  const auto map = [&](int protection, int flags) {
    return static_cast<std::byte*>(mmap(nullptr, 4 * page, protection, flags | MAP_ANONYMOUS, -1, 0));
  };
  std::byte* const shared = map(PROT_READ | PROT_WRITE, MAP_SHARED);
  EXPECT_EQ(refused(shared, 4 * page), HEDDLE_ERR_UNSUPPORTED);
  EXPECT_NE(message.find("is shared"), std::string::npos) << message;
  std::byte* const constant = map(PROT_READ, MAP_PRIVATE);
  EXPECT_EQ(refused(constant, 4 * page), HEDDLE_ERR_UNSUPPORTED);
  std::byte* const holes = map(PROT_READ | PROT_WRITE, MAP_PRIVATE);
  std::memset(holes, 5, 4 * page);
  munmap(holes + page, page);
  EXPECT_EQ(refused(holes, 4 * page), HEDDLE_ERR_UNSUPPORTED);
  EXPECT_NE(message.find("is not mapped"), std::string::npos) << message;
  EXPECT_EQ(holes[0], std::byte{5});
  std::byte* const fixed = map(PROT_READ | PROT_WRITE, MAP_PRIVATE);
  if (syscall(SYS_mlock, fixed, page) == 0) {  // the sanitizers ignore mlock()
    EXPECT_EQ(refused(fixed, 4 * page), HEDDLE_ERR_UNSUPPORTED);
    EXPECT_NE(message.find("mlock"), std::string::npos) << message;
  }
  std::array<std::byte, 65536> here;
  std::memset(here.data(), 1, here.size());
  EXPECT_EQ(refused(here.data(), here.size()), HEDDLE_ERR_UNSUPPORTED);
  const auto allocated = b.transport->allocate(4 * page);
  EXPECT_EQ(refused(allocated->address, 4 * page), HEDDLE_ERR_UNSUPPORTED);
  const Pages memory(4 * page);
  const LocalMemory local = adopt(memory.at(), 2 * page);
  EXPECT_EQ(refused(memory.at(), 4 * page), HEDDLE_ERR_UNSUPPORTED) << "adopted already";
  b.transport->deregister(local);
  EXPECT_TRUE(memory.intact());
  for (std::byte* at : {shared, constant, holes, fixed}) munmap(at, 4 * page);
}

// The program breaks its promise: it unmaps a part. Memory that it maps there later stays.
TEST_F(AdoptionTest, MemoryThatWasUnmappedIsNotPutBack) {
  const std::uint64_t page = page_bytes();
  const Pages memory(8 * page);
  const LocalMemory local = adopt(memory.at(), 8 * page);
  ASSERT_EQ(munmap(memory.at(2 * page), 2 * page), 0);
  void* other = mmap(memory.at(2 * page), page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ASSERT_EQ(other, memory.at(2 * page));
  std::memset(other, 9, page);
  b.transport->deregister(local);
  const auto* kept = static_cast<const std::byte*>(other);
  EXPECT_TRUE(std::all_of(kept, kept + page, [](std::byte byte) { return byte == std::byte{9}; }));
  EXPECT_EQ(*memory.at(page), Pages::expected(page));
  EXPECT_FALSE(Pages::shared(memory.at()));
  EXPECT_FALSE(Pages::shared(memory.at(7 * page)));
  EXPECT_EQ(*memory.at(7 * page), Pages::expected(7 * page));
  EXPECT_EQ(msync(memory.at(3 * page), page, MS_ASYNC), -1) << "the hole stays a hole";
}

// It may not grow over what else lies in the segment; if it is moved, its data moves with it, and
// no region gets that space.
TEST_F(AdoptionTest, MemoryThatIsMovedKeepsItsSpace) {
  const std::uint64_t page = page_bytes();
  const Pages memory(4 * page);
  const LocalMemory local = adopt(memory.at(), 4 * page);
  EXPECT_EQ(mremap(memory.at(), 4 * page, 64 * page, MREMAP_MAYMOVE), MAP_FAILED) << "the kernel refuses to grow it";
  void* room = mmap(nullptr, 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  auto* moved = static_cast<std::byte*>(mremap(memory.at(), 2 * page, 2 * page, MREMAP_MAYMOVE | MREMAP_FIXED, room));
  ASSERT_EQ(moved, room);
  b.transport->deregister(local);
  EXPECT_EQ(moved[page], Pages::expected(page));
  EXPECT_EQ(*memory.at(3 * page), Pages::expected(3 * page));
  const auto fresh = b.transport->allocate(4 * page);
  ASSERT_TRUE(fresh.ok());
  std::memset(fresh->address, 0x33, 4 * page);
  EXPECT_EQ(moved[page], Pages::expected(page)) << "nobody else has got that space";
  b.transport->free(*fresh);
  munmap(moved, 2 * page);
}

// Malloc's buffers come and go at other addresses: a mapping for each would use up those that a
// process may have.
TEST_F(AdoptionTest, NoMappingsAreLeftBehind) {
  const std::uint64_t page = page_bytes();
  const Pages memory(256 * page);
  b.transport->deregister(adopt(memory.at(), 2 * page));
  const std::size_t before = maps();
  for (std::uint64_t i = 0; i < 250; ++i) b.transport->deregister(adopt(memory.at((i * 37 % 250) * page), 5 * page));
  EXPECT_LE(maps(), before + 8);
  EXPECT_TRUE(memory.intact());
  EXPECT_TRUE(memory.neighbours_intact());
  void* const grown = mremap(memory.at(), 256 * page, 256 * page, MREMAP_MAYMOVE);
  EXPECT_NE(grown, MAP_FAILED) << "it is one mapping again";
}

// A peer writes by the key of a released region: memory that is adopted there later is as it was.
TEST_F(AdoptionTest, BytesOfEarlierRegionsDoNotComeIn) {
  const std::uint64_t bytes = 4 * page_bytes();
  const Pages memory(bytes);
  const LocalMemory local = adopt(memory.at(), bytes);
  const auto remote = a.transport->import(1, local.key);
  ASSERT_TRUE(remote.ok()) << base::last_message();
  b.transport->deregister(local);
  std::memset(remote->direct, 0x55, bytes);
  auto* const fresh =
      static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const LocalMemory again = adopt(fresh, bytes);
  ASSERT_EQ(decode(again.key.front())->offset, decode(local.key.front())->offset) << "the same space";
  EXPECT_TRUE(std::all_of(fresh, fresh + bytes, [](std::byte byte) { return byte == std::byte{0}; }));
  b.transport->deregister(again);
  a.transport->release(*remote);
  munmap(fresh, bytes);
}

TEST_F(AdoptionTest, ArraysOnAThreadsStackAreRefused) {
  base::Status status = HEDDLE_DONE;
  std::thread([&] {
    std::array<std::byte, 65536> here;
    std::memset(here.data(), 1, here.size());
    status = refused(here.data(), here.size());
  }).join();
  EXPECT_EQ(status, HEDDLE_ERR_UNSUPPORTED);
  EXPECT_NE(message.find("stack"), std::string::npos) << message;
}

TEST(Adoption, TheLastPageOfAllAddressesIsNoWholePage) {
  EXPECT_EQ(WholePages::of(~std::uint64_t{0} - 2047, 100).bytes, 0U);
}

TEST_F(AdoptionTest, WithoutRoomNothingHasChanged) {
  const Pages memory(64 * page_bytes());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const base::Status status = refused(memory.at(), 64 * page_bytes());
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status, HEDDLE_ERR_NO_MEMORY) << message;
  EXPECT_FALSE(Pages::shared(memory.at()));
  EXPECT_TRUE(memory.intact());
  b.transport->deregister(adopt(memory.at(), 64 * page_bytes()));
}

// Registrations of it that a cache holds are forgotten in both calls, since its pages are others.
TEST_F(AdoptionTest, RegistrationCachesAreTold) {
  const auto watch = memory::UnmapWatch::open(memory::UnmapWatch::Way::protection);
  if (!watch) GTEST_SKIP() << base::last_message();
  const Pages memory(4 * page_bytes());
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.at());
  const std::uint64_t end = begin + 4 * page_bytes();
  ASSERT_TRUE((*watch)->watch(begin, end));
  std::uint64_t generation = (*watch)->log().generation();
  const LocalMemory local = adopt(memory.at(), 4 * page_bytes());
  EXPECT_GT((*watch)->log().generation(), generation);
  (*watch)->unwatch(begin, end);
  if ((*watch)->watch(begin, end)) {
    generation = (*watch)->log().generation();
    b.transport->deregister(local);
    EXPECT_GT((*watch)->log().generation(), generation);
    (*watch)->unwatch(begin, end);
  } else {
    b.transport->deregister(local);
  }
  EXPECT_TRUE(memory.intact());
}

#ifndef __SANITIZE_THREAD__  // these threads do what they should not
// A thread that breaks the promise: it is noticed, or loses what it wrote; all else is as it was.
TEST_F(AdoptionTest, AThreadThatGoesOnWritingHarmsItselfOnly) {
  const std::uint64_t bytes = kHuge;
  const Pages memory(bytes);
  std::atomic<bool> over{false};
  std::thread stray([&] {
    const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(memory.at()));
    while (!over.load(std::memory_order_relaxed)) word.fetch_add(1, std::memory_order_relaxed);
  });
  int noticed = 0;
  for (int i = 0; i < 20; ++i) {
    const auto local = b.transport->adopt(memory.at(), bytes);
    if (!local) {
      ASSERT_EQ(local.status(), HEDDLE_ERR_STATE) << base::last_message();
      EXPECT_FALSE(Pages::shared(memory.at())) << "nothing has changed";
      ++noticed;
    } else {
      b.transport->deregister(*local);
    }
    EXPECT_TRUE(memory.intact(8));
    EXPECT_TRUE(memory.neighbours_intact());
  }
  over = true;
  stray.join();
  RecordProperty("noticed", noticed);
  EXPECT_GT(noticed, 0);
}

TEST_F(AdoptionTest, ThreadsThatOnlyReadFindTheContentsOnTheWayIn) {
  const Pages memory(64 * page_bytes());
  std::atomic<std::uint64_t> wrong{0};
  for (int i = 0; i < 50; ++i) {
    std::atomic<bool> over{false};
    std::thread reader([&] {
      while (!over.load(std::memory_order_relaxed)) {
        for (std::uint64_t at = 0; at < 64; ++at) {
          const volatile std::byte* byte = memory.at(at * page_bytes() + 17);
          if (*byte != Pages::expected(at * page_bytes() + 17)) wrong.fetch_add(1);
        }
      }
    });
    const LocalMemory local = adopt(memory.at(), 64 * page_bytes());
    over = true;
    reader.join();
    b.transport->deregister(local);
  }
  EXPECT_EQ(wrong.load(), 0U);
}
#endif

TEST_F(AdoptionTest, ForgedKeysAreRefused) {
  const Pages memory(4 * page_bytes());
  const LocalMemory local = adopt(memory.at(), 4 * page_bytes());
  RegionKey key = *decode(local.key.front());
  key.bytes = 100;  // no whole page
  key.address += 8;
  EXPECT_EQ(a.transport->import(1, encode(key)).status(), HEDDLE_ERR_PROTOCOL);
  key = *decode(local.key.front());
  key.bytes = std::uint64_t{1} << 40;
  EXPECT_EQ(a.transport->import(1, encode(key)).status(), HEDDLE_ERR_PROTOCOL);
  key = *decode(local.key.front());
  key.offset = 0;
  EXPECT_EQ(a.transport->import(1, encode(key)).status(), HEDDLE_ERR_PROTOCOL);
  b.transport->deregister(local);
}

TEST(Adoption, WithoutMappedMemoryItIsRegisteredOnly) {
  TestCards cards;
  const TestRank b(cards, 0, 1, {{"HEDDLE_SHM_DIRECT", "0"}});
  const Pages memory(4 * page_bytes());
  const auto local = b.transport->adopt(memory.at(), 4 * page_bytes());
  ASSERT_TRUE(local.ok());
  EXPECT_FALSE(Pages::shared(memory.at()));
}

TEST(Adoption, TheEndOfTheTransportPutsMemoryBack) {
  TestCards cards;
  const Pages memory(4 * page_bytes());
  {
    const TestRank b(cards, 0, 1);
    ASSERT_TRUE(b.transport->adopt(memory.at(), 4 * page_bytes()).ok());
    EXPECT_TRUE(Pages::shared(memory.at()));
  }
  EXPECT_FALSE(Pages::shared(memory.at()));
  EXPECT_TRUE(memory.intact());
}

}  // namespace
}  // namespace heddle::transport::shm::adoption_test
