// The way of adopted memory back, and its way in, where the system has little memory to give.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/test_sanitizer.hpp"
#include "transport/shm/adoption.hpp"
#include "transport/shm/test_adoption.hpp"

namespace heddle::transport::shm {
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

}  // namespace
}  // namespace heddle::transport::shm
