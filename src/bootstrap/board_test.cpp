#include "bootstrap/board.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/mappings.hpp"
#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap::board_test {
namespace {

bool is_zero(const NodeBoard& board) {
  return std::all_of(board.bytes().begin(), board.bytes().end(), [](std::byte byte) { return byte == std::byte{}; });
}

void expect_whole(const NodeBoard& board) {
  ASSERT_EQ(board.bytes().size(), kBoardBytes);
  EXPECT_EQ(
      reinterpret_cast<std::uintptr_t>(board.bytes().data()) % static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)),
      0U);
  EXPECT_TRUE(is_zero(board));
}

std::int64_t memory_of(const base::Fd& file) {
  struct stat about{};
  EXPECT_EQ(::fstat(file.get(), &about), 0);
  return std::int64_t{about.st_blocks} * 512;
}

TEST(board, all_who_map_the_file_share_it_without_its_descriptor) {
  base::Fd file = make_board_file();
  ASSERT_TRUE(file.valid());
  EXPECT_NE(::fcntl(file.get(), F_GETFD) & FD_CLOEXEC, 0);
  const NodeBoard one = NodeBoard::map(file);
  const NodeBoard other = NodeBoard::map(file);
  file.reset();
  expect_whole(one);
  expect_whole(other);
  ASSERT_NE(one.bytes().data(), other.bytes().data());
  one.bytes().back() = std::byte{7};
  EXPECT_EQ(other.bytes().back(), std::byte{7});
}

TEST(board, its_length_is_fixed_and_it_has_no_name_in_a_file_system) {
  const base::Fd file = make_board_file();
  ASSERT_TRUE(file.valid());
  EXPECT_NE(::ftruncate(file.get(), 0), 0);
  EXPECT_NE(::ftruncate(file.get(), 2 * kBoardBytes), 0);
  EXPECT_NE(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE), 0) << "nobody may take the writing away";
  struct stat about{};
  ASSERT_EQ(::fstat(file.get(), &about), 0);
  EXPECT_EQ(about.st_nlink, 0U);
  EXPECT_EQ(about.st_mode & (S_IRWXG | S_IRWXO), 0U);
}

TEST(board, pages_get_their_memory_when_they_are_touched_or_all_at_once) {
  const base::Fd file = make_board_file(false);
  const NodeBoard board = NodeBoard::map(file);
  ASSERT_EQ(board.bytes().size(), kBoardBytes);
  EXPECT_EQ(memory_of(file), 0);
  board.bytes()[0] = std::byte{1};
  EXPECT_GT(memory_of(file), 0);
  EXPECT_LT(memory_of(file), static_cast<std::int64_t>(kBoardBytes));
  EXPECT_EQ(memory_of(make_board_file(true)), static_cast<std::int64_t>(kBoardBytes));
}

TEST(board, the_mapping_ends_with_its_object) {
  const auto mapped = [](const std::byte* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto all = base::read_mappings();
    return std::any_of(all.begin(), all.end(), [&](const base::MappedRange& one) {
      return one.begin <= at && at < one.end && one.name.find("heddle-board") != std::string::npos;
    });
  };
  NodeBoard board = NodeBoard::map(make_board_file());
  const std::byte* const first = board.bytes().data();
  EXPECT_TRUE(mapped(first));
  NodeBoard moved = std::move(board);
  EXPECT_EQ(moved.bytes().data(), first);
  EXPECT_TRUE(mapped(first));
  moved = NodeBoard();
  EXPECT_FALSE(mapped(first));
}

TEST(board, other_files_are_none) {
  EXPECT_TRUE(NodeBoard::map(base::Fd()).bytes().empty());
  EXPECT_TRUE(NodeBoard::map(base::Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC))).bytes().empty());
  constexpr int kLength = F_SEAL_SHRINK | F_SEAL_GROW;
  struct Case {
    std::size_t bytes;
    int seals;
    bool good;
  };
  for (const Case& one :
       {Case{kBoardBytes, kLength, true}, Case{kBoardBytes, F_SEAL_GROW, false}, Case{kBoardBytes, 0, false},
        Case{kBoardBytes - 1, kLength, false}, Case{2 * kBoardBytes, kLength, false}}) {
    const base::Fd file(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(one.bytes)), 0);
    ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, one.seals), 0);
    EXPECT_EQ(!NodeBoard::map(file).bytes().empty(), one.good) << one.bytes << ' ' << one.seals;
  }
  const base::Fd closed(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(closed.get(), kBoardBytes), 0);
  ASSERT_EQ(::fcntl(closed.get(), F_ADD_SEALS, kLength | F_SEAL_WRITE), 0);
  EXPECT_TRUE(NodeBoard::map(closed).bytes().empty()) << "nobody may write there";
}

TEST(board, of_a_process_is_as_large_and_zero) {
  const NodeBoard board = NodeBoard::of_process();
  expect_whole(board);
  const NodeBoard other = NodeBoard::of_process();
  board.bytes()[0] = std::byte{1};
  EXPECT_TRUE(is_zero(other));
}

}  // namespace
}  // namespace heddle::bootstrap::board_test
