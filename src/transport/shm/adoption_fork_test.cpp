// Adopted memory in the child of a fork().
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "transport/shm/adoption.hpp"
#include "transport/test/shm_adoption.hpp"

namespace heddle::transport::shm::adoption_fork_test {
namespace {

TEST_F(AdoptionTest, TheChildOfAForkHasItsOwn) {
  const std::uint64_t page = page_bytes();
  const Pages memory(4 * page);
  const LocalMemory local = adopt(memory.at(), 4 * page);
  const auto remote = a.transport->import(1, local.key);
  ASSERT_TRUE(remote.ok());
  EXPECT_EQ(in_child([&] {
              if (!memory.intact()) return 1;
              std::memset(memory.at(), 0, 4 * page);
              return 0;
            }),
            0);
  EXPECT_TRUE(memory.intact()) << "what the child writes is its own";
  EXPECT_EQ(std::memcmp(remote->direct, memory.at(), 4 * page), 0);
  a.transport->release(*remote);
  // one that the program has unmapped meanwhile is not mapped in a child
  munmap(memory.at(page), page);
  ASSERT_EQ(mprotect(memory.at(2 * page), page, PROT_READ), 0);
  EXPECT_EQ(in_child([&] {
              if (msync(memory.at(page), page, MS_ASYNC) != -1) return 1;
              *memory.at() = *memory.at(3 * page) = std::byte{0};
              return 0;
            }),
            0);
  EXPECT_EQ(*memory.at(), Pages::expected(0)) << "nor is the rest shared with it";
  EXPECT_EQ(*memory.at(3 * page), Pages::expected(3 * page));
  EXPECT_NE(in_child([&] { return *memory.at(2 * page) = std::byte{0}, 0; }), 0) << "read-only as here";
  b.transport->deregister(local);
}

// Other memory that the program has now where it once adopted some.
class OtherMemory {
 public:
  explicit OtherMemory(std::byte* address, std::uint64_t bytes) : bytes_(bytes) {
    at_ = static_cast<std::byte*>(
        mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    EXPECT_EQ(at_, address);
    std::memset(at_, 9, bytes);
  }
  [[nodiscard]] bool intact() const {
    return std::all_of(at_, at_ + bytes_, [](std::byte byte) { return byte == std::byte{9}; });
  }

 private:
  std::byte* at_ = nullptr;
  std::uint64_t bytes_;
};

TEST_F(AdoptionTest, TheChildKeepsWhatIsMappedInsteadOfAllAdoptedMemory) {
  const std::uint64_t bytes = 4 * page_bytes();
  const Pages memory(bytes);
  const LocalMemory local = adopt(memory.at(), bytes);
  ASSERT_EQ(munmap(memory.at(), bytes), 0);
  const OtherMemory other(memory.at(), bytes);
  EXPECT_EQ(in_child([&] { return other.intact() ? 0 : 1; }), 0);
  b.transport->deregister(local);
  EXPECT_TRUE(other.intact());
}

// The process keeps the range for ever, since the moved pages are still mapped somewhere.
TEST_F(AdoptionTest, TheChildKeepsWhatIsMappedWhereMemoryWasMovedAwayAndReleased) {
  const std::uint64_t bytes = 4 * page_bytes();
  const Pages memory(bytes);
  const LocalMemory local = adopt(memory.at(), bytes);
  void* const moved = mremap(memory.at(), bytes - page_bytes(), bytes - page_bytes(), MREMAP_MAYMOVE | MREMAP_FIXED,
                             mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(moved, MAP_FAILED);
  ASSERT_EQ(munmap(memory.at(bytes - page_bytes()), page_bytes()), 0);
  b.transport->deregister(local);
  const OtherMemory other(memory.at(), bytes);
  EXPECT_EQ(in_child([&] { return other.intact() ? 0 : 1; }), 0);
  munmap(moved, bytes);
}

}  // namespace
}  // namespace heddle::transport::shm::adoption_fork_test
