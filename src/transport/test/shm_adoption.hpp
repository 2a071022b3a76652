// For the tests of adoption: memory whose contents are known, and two ranks.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "base/mappings.hpp"
#include "transport/shm/layout.hpp"
#include "transport/test/shm_job.hpp"

namespace heddle::transport::shm {

inline constexpr std::uint64_t kHuge = std::uint64_t{2} << 20;

// Private pages, each byte of which is known, between two pages of a neighbour.
class Pages {
 public:
  explicit Pages(std::uint64_t bytes, std::uint64_t alignment = 4096) : bytes_(bytes), all_(bytes + 2 * alignment) {
    void* at = mmap(nullptr, all_ + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    base_ = static_cast<std::byte*>(at);
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    first_ = base_ + (alignment - address % alignment) % alignment + page_bytes();
    if (alignment > page_bytes()) first_ += alignment - page_bytes();
    for (std::uint64_t i = 0; i < bytes; ++i) first_[i] = expected(i);
    std::memset(first_ - page_bytes(), 0x77, page_bytes());
    std::memset(first_ + bytes, 0x77, page_bytes());
  }
  ~Pages() { munmap(base_, all_ + (all_ - bytes_) / 2); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  static std::byte expected(std::uint64_t i) { return std::byte(1 + (i * 7 + i / 4096) % 251); }
  [[nodiscard]] std::byte* at(std::uint64_t offset = 0) const { return first_ + offset; }
  [[nodiscard]] bool intact(std::uint64_t from = 0) const {
    for (std::uint64_t i = from; i < bytes_; ++i) {
      if (first_[i] != expected(i)) return false;
    }
    return true;
  }
  [[nodiscard]] bool neighbours_intact() const {
    const auto is = [](std::byte byte) { return byte == std::byte{0x77}; };
    return std::all_of(first_ - page_bytes(), first_, is) &&
           std::all_of(first_ + bytes_, first_ + bytes_ + page_bytes(), is);
  }
  // True: the page at that address is shared.
  static bool shared(const std::byte* address) {
    for (const base::MappedRange& range : base::read_mappings()) {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      if (at >= range.begin && at < range.end) return range.shared;
    }
    return false;
  }

 private:
  std::uint64_t bytes_;
  std::uint64_t all_;
  std::byte* base_ = nullptr;
  std::byte* first_ = nullptr;
};

// The result of body() in a child of fork(); 128 + the signal if one has ended the child.
inline int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class AdoptionTest : public testing::Test {
 protected:
  LocalMemory adopt(std::byte* address, std::uint64_t bytes) {
    auto memory = b.transport->adopt(address, bytes);
    EXPECT_TRUE(memory.ok()) << base::last_message();
    return memory ? *memory : LocalMemory{};
  }
  base::Status refused(void* address, std::uint64_t bytes) {
    const auto memory = b.transport->adopt(address, bytes);
    if (memory) b.transport->deregister(*memory);
    message = base::last_message();
    return memory.status();
  }
  static std::size_t maps() { return base::read_mappings().size(); }

  TestCards cards;
  TestRank a{cards, 0, 2};
  TestRank b{cards, 1, 2};
  std::string message;
};

}  // namespace heddle::transport::shm
