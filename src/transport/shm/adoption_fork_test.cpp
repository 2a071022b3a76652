// Adopted memory in the child of a fork().
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "transport/shm/adoption.hpp"
#include "transport/shm/test_adoption.hpp"

namespace heddle::transport::shm {
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

}  // namespace
}  // namespace heddle::transport::shm
