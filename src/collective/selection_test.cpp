// Which algorithm an operation gets: from the call, from variables, from a table, or by default;
// and faulty tables.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "collective/select.hpp"

namespace heddle::collective::selection_test {
namespace {

Selection selection(const std::string& names, const std::string& rows) {
  auto table = SelectionTable::parse(rows, "table");
  EXPECT_TRUE(table) << base::last_message();
  auto made = Selection::read(names, 65'536, table ? *table : SelectionTable());
  EXPECT_TRUE(made) << base::last_message();
  return *made;
}

Call call_of(Operation operation, std::uint64_t bytes) {
  Call call;
  call.operation = operation;
  call.bytes = bytes;
  return call;
}

std::string chosen(const Selection& from, Operation operation, Rank ranks, std::uint64_t bytes, bool reachable = true,
                   bool mapped = true) {
  const AlgorithmRequest request{operation, 0, ranks, 0, bytes, 1, 0, {0, 0, 0}};
  const auto choice = from.choose(call_of(operation, bytes), request, reachable, mapped);
  return choice ? choice->algorithm->name : base::last_message();
}

constexpr const char* kRows =
    "# measured somewhere\n"
    "broadcast callers 4 8K broadcast.flat -   # few\n"
    "\n"
    "broadcast callers 4 * broadcast.pull -\n"
    "broadcast callers * * broadcast.chain 1K\n"
    "broadcast kept * * broadcast.binomial -\n"
    "allreduce kept 8 * allreduce.rabenseifner -\n";

TEST(Selection, TakesTheFirstRowThatFits) {
  const Selection from = selection("", kRows);
  EXPECT_EQ(chosen(from, Operation::broadcast, 4, 8192), "broadcast.flat");
  EXPECT_EQ(chosen(from, Operation::broadcast, 4, 8193), "broadcast.pull");
  EXPECT_EQ(chosen(from, Operation::broadcast, 5, 1), "broadcast.chain");
  EXPECT_EQ(chosen(from, Operation::broadcast, 5, 1, false), "broadcast.binomial");
  EXPECT_EQ(chosen(from, Operation::allreduce, 8, 64, false), "allreduce.rabenseifner");
}

TEST(Selection, PassesRowsThatCannotDoIt) {
  const Selection from = selection("", std::string("broadcast callers * * broadcast.trinaryx3 -\n") + kRows);
  EXPECT_EQ(chosen(from, Operation::broadcast, 4, 8192), "broadcast.flat") << "no torus";
  EXPECT_EQ(chosen(from, Operation::broadcast, 4, 9000, true, false), "broadcast.chain") << "memory is not mapped";
}

TEST(Selection, IsBuiltInWhereNoRowFits) {
  const Selection from = selection("", kRows);
  const Selection plain = selection("", "");
  for (const Rank ranks : {2U, 9U, 40U})
    for (const std::uint64_t bytes : {8U, 100'000U})
      EXPECT_EQ(chosen(from, Operation::allreduce, ranks, bytes), chosen(plain, Operation::allreduce, ranks, bytes));
}

TEST(Selection, TheCallIsBeforeVariablesAndTheseBeforeTheTable) {
  const Selection from = selection("broadcast.trinary", kRows);
  EXPECT_EQ(chosen(from, Operation::broadcast, 4, 8), "broadcast.trinary");
  Call call = call_of(Operation::broadcast, 8);
  call.algorithm = "broadcast.kept";
  const AlgorithmRequest request{Operation::broadcast, 0, 4, 0, 8, 1, 0, {0, 0, 0}};
  EXPECT_STREQ(from.choose(call, request, true, true)->algorithm->name, "broadcast.kept");
}

TEST(Selection, FewBytesOfManyRanksGoByWayOfOthers) {
  const Selection plain = selection("", "");
  for (const bool mapped : {false, true}) {
    EXPECT_EQ(chosen(plain, Operation::alltoall, 32, 8, true, mapped), "alltoall.kept");
    EXPECT_EQ(chosen(plain, Operation::alltoall, 33, 512, true, mapped), "alltoall.grid");
    EXPECT_EQ(chosen(plain, Operation::alltoall, 33, 513, true, mapped), "alltoall.kept");
    EXPECT_EQ(chosen(plain, Operation::allgather, 32, 8, true, mapped), "allgather.kept");
    EXPECT_EQ(chosen(plain, Operation::allgather, 33, 4096, true, mapped), "allgather.bruck");
  }
}

// Cache lines are cheaper than steps, messages are not.
TEST(Selection, ABarrierIsWideWhereRanksMapEachOthersMemory) {
  const Selection plain = selection("", "");
  const Call call = call_of(Operation::barrier, 0);
  const auto of = [&](Rank ranks, bool mapped) {
    return plain.choose(call, {Operation::barrier, 0, ranks, 0, 0, 1, 0, {0, 0, 0}}, false, mapped)->algorithm->name;
  };
  for (const Rank ranks : {3U, 8U, 40U}) EXPECT_STREQ(of(ranks, true), "barrier.wide");
  EXPECT_STREQ(of(2, true), "barrier.dissemination");
  EXPECT_STREQ(of(8, false), "barrier.flat");
  EXPECT_STREQ(of(9, false), "barrier.dissemination");
}

TEST(Selection, SegmentsAreTheCallsThenTheRowsThenTheVariables) {
  const Selection from = selection("", kRows);
  Call call = call_of(Operation::broadcast, 100'000);
  AlgorithmRequest request{Operation::broadcast, 0, 5, 0, 100'000, 1, 0, {0, 0, 0}};
  EXPECT_EQ(from.choose(call, request, true, true)->segment_bytes, 1024U);
  call.segment_bytes = 2048;
  EXPECT_EQ(from.choose(call, request, true, true)->segment_bytes, 2048U);
  request.ranks = 4;
  call.segment_bytes = 0;
  EXPECT_EQ(from.choose(call, request, true, true)->segment_bytes, 65'536U);
}

TEST(Table, OfWhatIsWrittenIsWhatWasRead) {
  const SelectionTable::Row row{Operation::reduce, true, 7, 4096, find_algorithm("reduce.binomial"), 0};
  EXPECT_EQ(SelectionTable::line(row), "reduce kept 7 4096 reduce.binomial -");
  const SelectionTable::Row any{Operation::alltoall,
                                false,
                                SelectionTable::kAnyRanks,
                                SelectionTable::kAnyBytes,
                                find_algorithm("alltoall.bruck"),
                                128};
  EXPECT_EQ(SelectionTable::line(any), "alltoall callers * * alltoall.bruck 128");
  const auto table = SelectionTable::parse(SelectionTable::line(row) + "\n" + SelectionTable::line(any), "table");
  ASSERT_TRUE(table);
  for (const SelectionTable::Row& written : {row, any}) {
    const AlgorithmRequest request{written.operation, 0, 7, 0, 4096, 1, 0, {0, 0, 0}};
    const SelectionTable::Row* read = table->find(request, request.bytes, written.kept, true);
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(SelectionTable::line(*read), SelectionTable::line(written));
  }
}

class WrongTable : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(WrongTable, IsToldWithItsLine) {
  const auto& [line, what] = GetParam();
  ASSERT_FALSE(SelectionTable::parse(std::string("# one\n") + line, "/some/table")) << line;
  const std::string error = base::last_message();
  EXPECT_NE(error.find("/some/table:2: "), std::string::npos) << error;
  EXPECT_NE(error.find(what), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(
    Lines, WrongTable,
    testing::Values(std::pair{"broadcast kept 2", "3 words"},
                    std::pair{"bcast kept * * broadcast.kept -", "\"bcast\" is no operation"},
                    std::pair{"broadcast mine * * broadcast.kept -", "neither kept nor callers"},
                    std::pair{"broadcast kept 0 * broadcast.kept -", "ranks \"0\""},
                    std::pair{"broadcast kept 4x * broadcast.kept -", "ranks \"4x\""},
                    std::pair{"broadcast kept 99999999999 * broadcast.kept -", "ranks \"99999999999\""},
                    std::pair{"broadcast kept * much broadcast.kept -", "bytes \"much\""},
                    std::pair{"broadcast kept * * allreduce.ring -", "no algorithm for broadcast"},
                    std::pair{"broadcast kept * * broadcast.quick -", "no algorithm for broadcast"},
                    std::pair{"broadcast kept * * broadcast.kept 63", "segment \"63\""}));

TEST(Table, MayBeEmpty) {
  const std::string path = testing::TempDir() + "heddle_empty_table";
  std::ofstream(path).close();
  EXPECT_TRUE(SelectionTable::read(path)) << base::last_message();
  std::remove(path.c_str());
}

TEST(Selection, AsksTheTableForTheWholeOfACallInPieces) {
  const Selection from =
      selection("", "broadcast kept * 64K broadcast.binomial -\nbroadcast kept * * broadcast.chain -\n");
  Call piece = call_of(Operation::broadcast, 1024);
  piece.whole = 1 << 20;
  const AlgorithmRequest request{Operation::broadcast, 0, 4, 0, 1024, 1, 0, {0, 0, 0}};
  EXPECT_STREQ(from.choose(piece, request, false, true)->algorithm->name, "broadcast.chain");
}

// The blocks of a piece lie apart, so the piece needs an algorithm that takes each block by itself.
TEST(Selection, APieceOfBlocksGoesThroughKeptMemory) {
  const auto of = [](const Selection& from, Operation operation) {
    Call piece = call_of(operation, 65'536);
    piece.whole = 1 << 20;
    piece.apart = true;
    const AlgorithmRequest request{operation, 0, 16, 0, 65'536, 1, 0, {0, 0, 0}};
    return from.choose(piece, request, false, true)->algorithm->name;
  };
  const Selection plain = selection("", "");
  EXPECT_STREQ(of(plain, Operation::alltoall), "alltoall.kept");
  EXPECT_STREQ(of(plain, Operation::allgather), "allgather.kept");
  const Selection tuned = selection("", "alltoall kept * * alltoall.grid -\nallgather kept * * allgather.bruck -\n");
  EXPECT_EQ(chosen(tuned, Operation::alltoall, 16, 64, false), "alltoall.grid");
  EXPECT_STREQ(of(tuned, Operation::alltoall), "alltoall.kept");
  EXPECT_STREQ(of(tuned, Operation::allgather), "allgather.kept");

  const auto may_cut = [](const Selection& from, Operation operation) {
    return from.may_cut({operation, 0, 16, 0, 1 << 20, 1, 0, {0, 0, 0}});
  };
  EXPECT_TRUE(may_cut(plain, Operation::alltoall));
  EXPECT_TRUE(may_cut(selection("alltoall.kept", ""), Operation::alltoall));
  const Selection named = selection("alltoall.pairwise", "");
  EXPECT_FALSE(may_cut(named, Operation::alltoall));
  EXPECT_TRUE(may_cut(named, Operation::allgather));
  EXPECT_FALSE(may_cut(tuned, Operation::alltoall));
  EXPECT_TRUE(may_cut(selection("", "alltoall kept * 64K alltoall.grid -\n"), Operation::alltoall));
}

TEST(Table, ThatIsNotThereIsTold) {
  ASSERT_FALSE(SelectionTable::read("/no/such/table"));
  EXPECT_NE(std::string(base::last_message()).find("/no/such/table cannot be read"), std::string::npos);
  EXPECT_FALSE(SelectionTable::read("/")) << "a directory";
}

}  // namespace
}  // namespace heddle::collective::selection_test
