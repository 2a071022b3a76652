// The table of heddle info --job.
#include "tools/info_job.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

namespace heddle::tools::info_job_test {
namespace {

TEST(InfoJob, RanksInARowAreWrittenAsARange) {
  EXPECT_EQ(ranks_text({}), "");
  EXPECT_EQ(ranks_text({4}), "4");
  EXPECT_EQ(ranks_text({0, 1}), "0-1");
  EXPECT_EQ(ranks_text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

// The ranks of a job, assigned to the nodes in turn.
std::vector<JobRow> job(std::uint32_t ranks, std::uint32_t nodes) {
  std::vector<JobRow> rows(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    rows[rank].node = rank % nodes;
    rows[rank].host = "host" + std::to_string(rank % nodes);
    for (std::uint32_t to = 0; to < ranks; ++to)
      rows[rank].ways.emplace_back(to % nodes == rank % nodes ? "shm" : "ucx");
  }
  return rows;
}

TEST(InfoJob, RanksThatSayTheSameShareALine) {
  EXPECT_EQ(job_text(job(4, 2)),
            "ranks  node  host   reach ranks by transport\n"
            "0,2    0     host0  0,2 by shm; 1,3 by ucx\n"
            "1,3    1     host1  0,2 by ucx; 1,3 by shm\n");
  EXPECT_EQ(job_text(job(64, 1)),
            "ranks  node  host   reach ranks by transport\n"
            "0-63   0     host0  0-63 by shm\n");
  const std::string large = job_text(job(64, 4));
  EXPECT_EQ(std::count(large.begin(), large.end(), '\n'), 5);
}

TEST(InfoJob, WhatIsWrongIsSaid) {
  std::vector<JobRow> rows = job(2, 1);
  rows[1].problem = "there is no libucp.so.0";
  rows[1].ways.clear();
  EXPECT_EQ(job_text(rows),
            "ranks  node  host   reach ranks by transport\n"
            "0      0     host0  0-1 by shm\n"
            "1      0     host0  not at all: there is no libucp.so.0\n");
}

TEST(InfoJob, WhoDoesNotTalkToWhomIsSaidOnce) {
  std::vector<JobRow> rows = job(4, 1);
  rows[3].ways = {"", "", "", "shm"};
  rows[3].rejection = "rank 0 uses shm, this rank ofi";
  EXPECT_EQ(job_text(rows),
            "ranks  node  host   reach ranks by transport\n"
            "0-2    0     host0  0-3 by shm\n"
            "3      0     host0  3 by shm; 0-2 not at all: rank 0 uses shm, this rank ofi\n");
}

TEST(InfoJob, WhetherTheKernelCopiesIsSaidByRanks) {
  std::vector<JobRow> rows = job(3, 1);
  EXPECT_EQ(copies_text(rows), "");
  for (JobRow& row : rows) row.copies = kWork;
  rows[1].probe = "another";
  EXPECT_EQ(copies_text(rows), "kernel's copies between ranks of a node (process_vm_readv, process_vm_writev): work\n");
  rows[1].copies = "process_vm_readv: Operation not permitted";
  const std::string text = copies_text(rows);
  EXPECT_NE(text.find(": work from rank 0,2\n"), std::string::npos) << text;
  EXPECT_NE(text.find(": not from rank 1: process_vm_readv: Operation not permitted\n"), std::string::npos) << text;
  EXPECT_EQ(job_text(rows), job_text(job(3, 1))) << "one line, whatever was tried";
}

TEST(InfoJob, ARowArrivesAsItWasSent) {
  const auto sent = [](const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return decode({bytes.begin(), bytes.end()});
  };
  const JobRow row{0, "host", "two\nlines", "shm,ofi", "rank 1 differs", "12 4096", kWork, {"shm", "", "ofi"}};
  JobRow arrived = row;
  arrived.problem = "two lines";
  EXPECT_EQ(sent(encode(row)), arrived);
  EXPECT_FALSE(sent(""));
  EXPECT_FALSE(sent("host\n\n\n\n\n\n\n")) << "of another program";
}

}  // namespace
}  // namespace heddle::tools::info_job_test
