// Checks each rule of matching by itself, and the cost of searches at 100 000 nodes, counted in
// nodes looked at.
#include "protocol/matching.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "base/random.hpp"

namespace heddle::protocol::matching_test {
namespace {

constexpr Source any_worker_of(std::uint32_t rank) {
  return source_of({rank, kAnyNumber});
}

constexpr Source kOne = source_of({1, 0});
constexpr Source kTwo = source_of({2, 0});

// Creates nodes that stay where they are.
class Nodes {
 public:
  PostedReceive* receive(std::uint64_t tag, Source source = kOne, std::uint64_t mask = kWholeTag) {
    PostedReceive& node = receives_.emplace_back();
    node.wanted = {tag, mask, source};
    return &node;
  }
  KeptMessage* message(std::uint64_t tag, Source source = kOne, std::uint64_t bytes = 8) {
    KeptMessage& node = messages_.emplace_back();
    node.tag = tag;
    node.source = source;
    node.bytes = bytes;
    return &node;
  }
  // Posts a receive that must not find a message.
  PostedReceive* post(Matching& matching, std::uint64_t tag, Source source = kOne, std::uint64_t mask = kWholeTag) {
    PostedReceive* const node = receive(tag, source, mask);
    EXPECT_EQ(matching.post(node), nullptr);
    return node;
  }
  // A message arrives for which no receive may be posted.
  KeptMessage* keep(Matching& matching, std::uint64_t tag, Source source = kOne, std::uint64_t bytes = 8) {
    EXPECT_EQ(matching.arrive(tag, source), nullptr);
    KeptMessage* const node = message(tag, source, bytes);
    matching.keep(node);
    return node;
  }

 private:
  std::deque<PostedReceive> receives_;
  std::deque<KeptMessage> messages_;
};

std::set<const PostedReceive*> receives_of(const Matching& matching) {
  std::set<const PostedReceive*> all;
  matching.each_receive([&](const PostedReceive& receive) { EXPECT_TRUE(all.insert(&receive).second); });
  return all;
}

std::vector<const KeptMessage*> messages_of(const Matching& matching) {
  std::vector<const KeptMessage*> all;
  matching.each_message([&](const KeptMessage& message) { all.push_back(&message); });
  return all;
}

TEST(Matching, MessagesTakeReceivesInTheOrderOfPosting) {
  Matching matching({1});
  Nodes nodes;
  PostedReceive* const first = nodes.post(matching, 7);
  PostedReceive* const second = nodes.post(matching, 7);
  EXPECT_EQ(matching.receives(), 2U);
  EXPECT_TRUE(first->stored());
  EXPECT_EQ(matching.arrive(7, kOne), first);
  EXPECT_FALSE(first->stored());
  EXPECT_EQ(matching.arrive(7, kOne), second);
  EXPECT_EQ(matching.arrive(7, kOne), nullptr);
  EXPECT_EQ(matching.receives(), 0U);
}

TEST(Matching, ReceivesTakeMessagesInTheOrderOfArrival) {
  Matching matching({1});
  Nodes nodes;
  KeptMessage* const first = nodes.keep(matching, 7, kOne, 10);
  KeptMessage* const second = nodes.keep(matching, 7, kOne, 20);
  EXPECT_EQ(matching.messages(), 2U);
  EXPECT_EQ(matching.bytes(), 30U);
  EXPECT_EQ(matching.post(nodes.receive(7)), first);
  EXPECT_EQ(matching.bytes(), 20U);
  EXPECT_EQ(matching.post(nodes.receive(7)), second);
  EXPECT_EQ(matching.messages(), 0U);
  EXPECT_EQ(matching.bytes(), 0U);
  nodes.post(matching, 7);
}

TEST(Matching, TagAndSourceMustFit) {
  Matching matching({1});
  Nodes nodes;
  PostedReceive* const receive = nodes.post(matching, 7, kOne);
  EXPECT_EQ(matching.arrive(8, kOne), nullptr);
  EXPECT_EQ(matching.arrive(7, kTwo), nullptr);
  EXPECT_EQ(matching.arrive(7, source_of({1, 1})), nullptr);
  EXPECT_EQ(matching.arrive(7 | 1ULL << 63, kOne), nullptr);
  EXPECT_EQ(matching.arrive(7, kOne), receive);
}

TEST(Matching, AnyWorkerOfARankTakesFromThatRankOnly) {
  Matching matching({1});
  Nodes nodes;
  PostedReceive* const receive = nodes.post(matching, 7, any_worker_of(1));
  EXPECT_EQ(matching.arrive(7, kTwo), nullptr);
  EXPECT_EQ(matching.arrive(7, source_of({1, 5})), receive);
  KeptMessage* const other = nodes.keep(matching, 7, source_of({2, 1}));
  KeptMessage* const message = nodes.keep(matching, 7, source_of({1, 3}));
  EXPECT_EQ(matching.post(nodes.receive(7, any_worker_of(1))), message);
  EXPECT_EQ(messages_of(matching), std::vector<const KeptMessage*>{other});
}

TEST(Matching, TheEarliestOfAllKindsOfReceivesWins) {
  Matching matching({1});
  Nodes nodes;
  PostedReceive* const masked = nodes.post(matching, 0x107, kOne, 0xFF);
  PostedReceive* const exact = nodes.post(matching, 7, kOne);
  PostedReceive* const any = nodes.post(matching, 7, kAnySource);
  PostedReceive* const everything = nodes.post(matching, 99, kAnySource, 0);
  PostedReceive* const rank = nodes.post(matching, 7, any_worker_of(1));
  EXPECT_EQ(matching.arrive(7, kTwo), any);
  EXPECT_EQ(matching.arrive(7, kOne), masked);
  EXPECT_EQ(matching.arrive(7, kOne), exact);
  EXPECT_EQ(matching.arrive(7, kOne), everything);
  EXPECT_EQ(matching.arrive(7, kOne), rank);
}

TEST(Matching, MaskedReceivesFromAnySourceTakeTheEarliestMessage) {
  Matching matching({1});
  Nodes nodes;
  KeptMessage* const odd = nodes.keep(matching, 0x11, kTwo);
  KeptMessage* const even = nodes.keep(matching, 0x12, kOne);
  KeptMessage* const later = nodes.keep(matching, 0x22, kTwo);
  EXPECT_EQ(matching.post(nodes.receive(0xF2, kAnySource, 0xF)), even);
  EXPECT_EQ(matching.post(nodes.receive(0, kTwo, 0)), odd);
  EXPECT_EQ(matching.post(nodes.receive(0x22, kAnySource)), later);
}

TEST(Matching, MoreShapesThanThereArePlacesKeepTheOrder) {
  Matching matching({1});
  Nodes nodes;
  // twice as many shapes as Matching has room for; all fit tag 0
  std::vector<PostedReceive*> posted;
  for (std::uint32_t i = 0; i < 2 * Matching::kShapes; ++i) {
    posted.push_back(nodes.post(matching, 0, kAnySource, 1ULL << i));
  }
  for (std::uint32_t i = 0; i < 2 * Matching::kShapes; i += 2) EXPECT_TRUE(matching.cancel(posted[i]));
  // This shape was in the list and now gets an entry. Its receive in the list is still the earlier
  // one.
  PostedReceive* const again = nodes.post(matching, 0, kAnySource, 1ULL << (2 * Matching::kShapes - 1));
  EXPECT_EQ(receives_of(matching).size(), Matching::kShapes + 1U);
  for (std::uint32_t i = 1; i < 2 * Matching::kShapes; i += 2) EXPECT_EQ(matching.arrive(0, kOne), posted[i]) << i;
  EXPECT_EQ(matching.arrive(0, kOne), again);
  EXPECT_EQ(matching.receives(), 0U);
}

TEST(Matching, CancelledReceivesMatchNothing) {
  Matching matching({1});
  Nodes nodes;
  std::vector<PostedReceive*> same;
  for (int i = 0; i < 4; ++i) same.push_back(nodes.post(matching, 7));
  EXPECT_TRUE(matching.cancel(same[0]));   // the first
  EXPECT_TRUE(matching.cancel(same[2]));   // in the middle
  EXPECT_FALSE(matching.cancel(same[2]));  // only once
  EXPECT_EQ(matching.arrive(7, kOne), same[1]);
  EXPECT_FALSE(matching.cancel(same[1]));  // a message has taken it
  EXPECT_TRUE(matching.cancel(same[3]));
  EXPECT_EQ(matching.arrive(7, kOne), nullptr);
  EXPECT_EQ(matching.receives(), 0U);
  EXPECT_EQ(matching.post(same[0]), nullptr);  // the node may be used again
  EXPECT_EQ(matching.arrive(7, kOne), same[0]);
}

TEST(Matching, ProbeShowsWhatAReceiveWouldTake) {
  Matching matching({1});
  Nodes nodes;
  EXPECT_EQ(matching.probe({7, kWholeTag, kOne}), nullptr);
  KeptMessage* const first = nodes.keep(matching, 7);
  KeptMessage* const second = nodes.keep(matching, 7);
  EXPECT_EQ(matching.probe({7, kWholeTag, kOne}), first);
  EXPECT_EQ(matching.probe({0xF7, 0xF, kAnySource}), first);  // bits that do not count may be set
  EXPECT_EQ(matching.probe({7, kWholeTag, kTwo}), nullptr);
  EXPECT_EQ(matching.messages(), 2U);
  matching.take(first);
  EXPECT_FALSE(first->stored());
  EXPECT_EQ(matching.post(nodes.receive(7)), second);
}

TEST(Matching, AnyKeptMessageCanBeTaken) {
  Matching matching({1});
  Nodes nodes;
  std::vector<KeptMessage*> same;
  for (int i = 0; i < 4; ++i) same.push_back(nodes.keep(matching, 7));
  // from now on there is also a table by tag
  EXPECT_EQ(matching.probe({7, kWholeTag, kAnySource}), same[0]);
  matching.take(same[1]);
  matching.take(same[3]);
  EXPECT_EQ(matching.post(nodes.receive(7, kAnySource)), same[0]);
  EXPECT_EQ(matching.post(nodes.receive(7, kOne)), same[2]);
  EXPECT_EQ(matching.messages(), 0U);
  matching.keep(same[3]);  // the node may be used again
  EXPECT_EQ(matching.post(nodes.receive(7, kAnySource)), same[3]);
}

TEST(Matching, TheDeadAreForgottenByRank) {
  Matching matching({1});
  Nodes nodes;
  PostedReceive* const named = nodes.post(matching, 1, kOne);
  PostedReceive* const masked = nodes.post(matching, 2, source_of({1, 4}), 0xF);
  PostedReceive* const rank = nodes.post(matching, 3, any_worker_of(1));
  PostedReceive* const any = nodes.post(matching, 4, kAnySource);
  PostedReceive* const living = nodes.post(matching, 1, kTwo);
  nodes.keep(matching, 100, kTwo, 1);
  KeptMessage* const first = nodes.keep(matching, 101, source_of({1, 4}), 2);
  KeptMessage* const second = nodes.keep(matching, 100, kOne, 4);
  nodes.keep(matching, 102, kTwo, 8);
  const Matching::Removed removed = matching.forget([](std::uint32_t of) { return of != 2; });
  std::set<const PostedReceive*> gone;
  for (const PostedReceive* node = removed.receives; node != nullptr; node = Matching::after(node)) {
    EXPECT_FALSE(node->stored());
    gone.insert(node);
  }
  EXPECT_EQ(gone, (std::set<const PostedReceive*>{named, masked, rank}));
  ASSERT_EQ(removed.messages, first);
  ASSERT_EQ(Matching::after(first), second);
  EXPECT_EQ(Matching::after(second), nullptr);
  EXPECT_EQ(receives_of(matching), (std::set<const PostedReceive*>{any, living}));
  EXPECT_EQ(matching.receives(), 2U);
  EXPECT_EQ(matching.messages(), 2U);
  EXPECT_EQ(matching.bytes(), 9U);
  EXPECT_EQ(matching.arrive(1, kOne), nullptr);
  EXPECT_EQ(matching.arrive(1, kTwo), living);
  EXPECT_EQ(matching.arrive(4, kOne), any);
}

TEST(Matching, ForgetAllEmptiesIt) {
  Matching matching({1});
  Nodes nodes;
  for (std::uint64_t i = 0; i < 100; ++i) {
    nodes.post(matching, i % 50, i % 3 == 0 ? kAnySource : kOne, i % 5 == 0 ? 0xFFF : kWholeTag);
    nodes.keep(matching, 1000 + i);
  }
  const Matching::Removed removed = matching.forget_all();
  int receives = 0;
  int messages = 0;
  for (auto* node = removed.receives; node != nullptr; node = Matching::after(node)) ++receives;
  for (auto* node = removed.messages; node != nullptr; node = Matching::after(node)) ++messages;
  EXPECT_EQ(receives, 100);
  EXPECT_EQ(messages, 100);
  EXPECT_EQ(matching.receives() + matching.messages() + matching.bytes(), 0U);
  EXPECT_EQ(matching.arrive(7, kOne), nullptr);
}

// ---- cost at 100 000, in nodes looked at: a few per search, whatever else is stored -------------

constexpr std::uint64_t kMany = 100'000;
constexpr std::uint64_t kFew =
    4;  // on average: itself, others of its bucket (two at most, expected), the search in post

TEST(MatchingCost, ManyPostedReceivesOfDifferentTags) {
  Matching matching({42});
  Nodes nodes;
  for (std::uint64_t i = 0; i < kMany; ++i) nodes.post(matching, i << 20, i % 2 == 0 ? kOne : kAnySource);
  EXPECT_LE(matching.visits(), kFew * kMany);
  const std::uint64_t before = matching.visits();
  for (std::uint64_t i = kMany; i-- > 0;) ASSERT_NE(matching.arrive(i << 20, kOne), nullptr);
  EXPECT_LE(matching.visits() - before, kFew * kMany);
  // finds are counted, so the limits mean something
  EXPECT_GE(matching.visits() - before, kMany);
}

TEST(MatchingCost, ManyReceivesOfOneShapeWithAMask) {
  Matching matching({42});
  Nodes nodes;
  for (std::uint64_t i = 0; i < kMany; ++i) nodes.post(matching, i, kAnySource, 0xFFFFFF);
  for (std::uint64_t i = kMany; i-- > 0;) ASSERT_NE(matching.arrive(i | 1ULL << 40, kOne), nullptr);
  EXPECT_LE(matching.visits(), 2 * kFew * kMany);
}

TEST(MatchingCost, ManyOfOneTagAreOneNodeToTheOthers) {
  Matching matching({42, 2});  // two buckets: every search passes the many others
  Nodes nodes;
  for (std::uint64_t i = 0; i < kMany; ++i) nodes.post(matching, 1, kOne);
  for (std::uint64_t i = 0; i < kMany; ++i) nodes.keep(matching, 2, kOne);
  PostedReceive* const receive = nodes.post(matching, 3, kOne);
  const std::uint64_t before = matching.visits();
  EXPECT_EQ(matching.arrive(3, kOne), receive);
  KeptMessage* const message = nodes.keep(matching, 4, kOne);
  EXPECT_EQ(matching.post(nodes.receive(4, kOne)), message);
  EXPECT_LE(matching.visits() - before, 8U);
}

TEST(MatchingCost, ManyKeptMessagesTakenByEveryKindOfReceive) {
  struct Kind {
    Source source;
    std::uint64_t mask;
  };
  for (const Kind kind : {Kind{kOne, kWholeTag}, Kind{kAnySource, kWholeTag}, Kind{any_worker_of(1), kWholeTag},
                          Kind{kOne, 0xFFFFFFFF}, Kind{kAnySource, 0xFFFFFFFF}}) {
    Matching matching({42});
    Nodes nodes;
    for (std::uint64_t i = 0; i < kMany; ++i) nodes.keep(matching, i << 8);
    const std::uint64_t before = matching.visits();
    for (std::uint64_t i = kMany; i-- > 0;) {
      KeptMessage* const message = matching.post(nodes.receive(i << 8, kind.source, kind.mask));
      ASSERT_NE(message, nullptr);
      ASSERT_EQ(message->tag, i << 8);
    }
    EXPECT_LE(matching.visits() - before, 3 * kFew * kMany) << std::hex << kind.source << " " << kind.mask;
    EXPECT_GE(matching.visits() - before, kMany);
  }
}

TEST(MatchingCost, TheTableOfTheOtherShapeFollowsTheShapeInUse) {
  Matching matching({42});
  Nodes nodes;
  for (std::uint64_t i = 0; i < kMany; ++i) nodes.keep(matching, i);
  for (std::uint64_t mask : {0xFFFFFFULL, 0xFFFFF0ULL, 0x0FFFFFULL}) {
    const std::uint64_t before = matching.visits();
    for (std::uint64_t i = 0; i < kMany; ++i) {
      ASSERT_NE(matching.probe({kMany - 1 - i, mask, kAnySource}), nullptr);
    }
    EXPECT_LE(matching.visits() - before, 3 * kFew * kMany) << std::hex << mask;
  }
}

// Tags that a hostile peer may choose: multiples of large powers of two, low bits only, arithmetic
// sequences.
TEST(MatchingCost, TagsChosenWithoutTheSeedDoNotCollide) {
  base::Random random(7);
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t seed = random.next();
    for (const std::uint64_t step :
         std::vector<std::uint64_t>{1, 1ULL << 40, 0x9E3779B97F4A7C15ULL, 0x100000001ULL, random.next()}) {
      Matching matching({seed});
      Nodes nodes;
      for (std::uint64_t i = 0; i < kMany / 4; ++i) nodes.keep(matching, i * step);
      EXPECT_LE(matching.visits(), kFew * kMany / 4) << std::hex << step << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace heddle::protocol::matching_test
