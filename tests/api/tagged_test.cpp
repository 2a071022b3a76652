// Tagged messages with the same meaning over every transport, plain and decorated with faults, and
// in every sharing mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <optional>

#include "api/test_job.hpp"
#include "base/random.hpp"
#include "base/test_support.hpp"

namespace heddle::test::tagged_test {
namespace {

constexpr heddle_peer kAnybody{HEDDLE_ANY, HEDDLE_ANY};
constexpr std::int64_t kLong = 120'000'000'000;  // longer than any answer takes on a loaded machine

class TaggedMessages : public testing::TestWithParam<Setting> {
 protected:
  void run(std::uint32_t size, const std::function<void(Context&, Worker&)>& body) {
    const Variables variables(GetParam().variables);
    Job(size, GetParam().transport).run(body);
  }
};

void accepted(Status status) {
  ASSERT_GE(status, 0) << heddle_status_name(status) << ": " << heddle_last_error();
}

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 29 + seed * 13 + (i >> 8));
  return data;
}

heddle_wanted exactly(std::uint32_t rank, std::uint64_t tag) {
  return {{rank, 0}, tag, UINT64_MAX};
}

// A receive with memory of its own.
struct Receipt {
  explicit Receipt(std::size_t bytes) : data(bytes, std::byte{0xEE}) {}
  std::vector<std::byte> data;
  heddle_receive receive{};
};

const std::vector<std::size_t> kSizes = {0,    1,    7,    8,      9,      64,     1000,    4096,
                                         8176, 8192, 8200, 20'000, 32'768, 33'640, 300'000, 1'000'000};

// One buffer for all messages: it is overwritten as soon as the library says that it may be.
// Whatever the length is from which a message is fetched by its receiver.
TEST_P(TaggedMessages, ASourceIsReusedAsSoonAsItsLocalCompletionIsTold) {
  for (const char* eager : {"16", "40", "4096"}) {
    const std::vector<std::pair<const char*, const char*>> setting = {{"HEDDLE_TAG_EAGER_BYTES", eager}};
    const Variables more(setting);
    run(2, [](Context& context, Worker& worker) {
      constexpr std::size_t kMost = 80;
      if (context.rank() == 0) {
        std::vector<std::byte> source(kMost);
        for (std::size_t bytes = 0; bytes <= kMost; ++bytes) {
          const std::vector<std::byte> data = pattern(bytes, static_cast<unsigned>(bytes));
          std::copy(data.begin(), data.end(), source.begin());
          std::atomic<int> told{0};
          const auto tell = [](void* arg, heddle_status status) {
            EXPECT_EQ(status, HEDDLE_DONE);
            static_cast<std::atomic<int>*>(arg)->fetch_add(1);
          };
          const heddle_completion completion{tell, &told, {}, HEDDLE_WHEN_LOCAL};
          const Status status = heddle_send(worker.handle(), {1, 0}, bytes, source.data(), bytes, &completion);
          accepted(status);
          while (status == HEDDLE_POSTED && told == 0) turn(worker);
          EXPECT_EQ(told, status == HEDDLE_POSTED ? 1 : 0) << "DONE is told by nothing else";
          std::fill(source.begin(), source.end(), std::byte{0xAB});
        }
        accepted(heddle_quiet(worker.handle()));
      } else {
        for (std::size_t bytes = 0; bytes <= kMost; ++bytes) {
          Receipt receipt(kMost);
          accepted(worker.recv(exactly(0, bytes), receipt.data, &receipt.receive));
          accepted(heddle_recv_wait(worker.handle(), &receipt.receive, kLong));
          receipt.data.resize(bytes);
          EXPECT_EQ(receipt.data, pattern(bytes, static_cast<unsigned>(bytes))) << bytes << " bytes";
        }
      }
    });
  }
}

TEST_P(TaggedMessages, AllSizesArriveWholeWhetherExpectedOrNot) {
  run(3, [](Context& context, Worker& worker) {
    const std::uint32_t next = (context.rank() + 1) % 3;
    const std::uint32_t before = (context.rank() + 2) % 3;
    for (const bool expected : {true, false}) {
      std::deque<Receipt> receipts;
      const auto post = [&] {
        for (std::size_t i = 0; i < kSizes.size(); ++i) {
          Receipt& receipt = receipts.emplace_back(kSizes[i]);
          accepted(worker.recv(exactly(before, i), receipt.data, &receipt.receive));
        }
      };
      if (expected) post();
      context.barrier(worker);
      std::vector<std::vector<std::byte>> sources;
      for (std::size_t i = 0; i < kSizes.size(); ++i) {
        sources.push_back(pattern(kSizes[i], static_cast<unsigned>(context.rank() + i)));
        accepted(worker.send({next, 0}, i, sources.back()));
      }
      if (!expected) {
        for (int i = 0; i < 100; ++i) turn(worker);
        post();
      }
      for (std::size_t i = 0; i < kSizes.size(); ++i) {
        ASSERT_EQ(worker.wait(receipts[i].receive, kLong), HEDDLE_DONE) << heddle_last_error();
        EXPECT_EQ(receipts[i].receive.source.rank, before);
        EXPECT_EQ(receipts[i].receive.source.worker, 0U);
        EXPECT_EQ(receipts[i].receive.tag, i);
        EXPECT_EQ(receipts[i].receive.bytes, kSizes[i]);
        EXPECT_EQ(receipts[i].data, pattern(kSizes[i], static_cast<unsigned>(before + i))) << kSizes[i] << " bytes";
      }
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
      context.barrier(worker);
    }
    const heddle_worker_stats stats = worker.stats();
    EXPECT_EQ(stats.sends, 2 * kSizes.size());
    EXPECT_EQ(stats.receives, 2 * kSizes.size());
    context.barrier(worker);
  });
}

TEST_P(TaggedMessages, ToOneself) {
  run(1, [](Context&, Worker& worker) {
    for (const std::size_t bytes : kSizes) {
      Receipt receipt(bytes);
      const auto source = pattern(bytes, 3);
      accepted(worker.send({0, 0}, 5, source));
      accepted(worker.recv({kAnybody, 0, 0}, receipt.data, &receipt.receive));
      ASSERT_EQ(worker.wait(receipt.receive, kLong), HEDDLE_DONE);
      EXPECT_EQ(receipt.data, source);
      EXPECT_EQ(receipt.receive.tag, 5U);
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    }
  });
}

// Every message carries its number; short ones must not overtake long ones.
TEST_P(TaggedMessages, OneSourcesMessagesComeInTheOrderOfSendingWhateverTheirLength) {
  run(3, [](Context& context, Worker& worker) {
    constexpr std::uint64_t kMessages = 150;
    const std::uint32_t me = context.rank();
    if (me == 0) {
      std::array<std::uint64_t, 3> next{};
      for (std::uint64_t i = 0; i < 2 * kMessages; ++i) {
        Receipt receipt(40'000);
        // Now with the tag, now with a mask that lets both senders' tags through.
        const heddle_wanted wanted{kAnybody, 8, i % 3 == 0 ? 0xFFFFFFFFFFFFFFF8U : 8U};
        accepted(worker.recv(wanted, receipt.data, &receipt.receive));
        ASSERT_EQ(worker.wait(receipt.receive, kLong), HEDDLE_DONE) << heddle_last_error();
        std::uint64_t number = 0;
        std::memcpy(&number, receipt.data.data(), sizeof number);
        ASSERT_EQ(number, next.at(receipt.receive.source.rank)++) << "from rank " << receipt.receive.source.rank;
        ASSERT_EQ(receipt.receive.tag, 8 + receipt.receive.source.rank);
      }
    } else {
      base::Random random(me);
      std::deque<std::vector<std::byte>> sources;
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        const std::size_t bytes = random.below(4) == 0 ? 8'000 + random.below(32'000) : 8 + random.below(100);
        auto& source = sources.emplace_back(bytes);
        std::memcpy(source.data(), &i, sizeof i);
        accepted(worker.send({0, 0}, 8 + me, source));
      }
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
    }
    context.barrier(worker);
  });
}

// For a message that is known to come, or to be here: AGAIN may also mean that another thread is
// inside the worker.
template <class Look>
void find(Worker& worker, Look&& look) {
  Status status = look();
  while (status == HEDDLE_AGAIN) {
    turn(worker);
    status = look();
  }
  ASSERT_EQ(status, HEDDLE_DONE) << heddle_last_error();
}

TEST_P(TaggedMessages, WhatDoesNotFitIsCutAndTold) {
  run(2, [](Context& context, Worker& worker) {
    const std::uint32_t peer = 1 - context.rank();
    for (const std::size_t bytes : {9UL, 1000UL, 50'000UL}) {
      for (const std::size_t room : {0UL, 1UL, 8UL, bytes - 1}) {
        const auto source = pattern(bytes, 1);
        Receipt posted(room);
        accepted(worker.recv(exactly(peer, 1), posted.data, &posted.receive));
        context.barrier(worker);
        accepted(worker.send({peer, 0}, 1, source));
        accepted(worker.send({peer, 0}, 2, source));
        EXPECT_EQ(worker.wait(posted.receive, kLong), HEDDLE_ERR_TRUNCATED);
        EXPECT_NE(std::string(heddle_last_error()).find("is longer than the buffer"), std::string::npos);
        EXPECT_EQ(posted.receive.bytes, bytes);
        Receipt late(room);
        heddle_receive found;
        find(worker, [&] { return worker.try_probe(exactly(peer, 2), &found); });
        EXPECT_EQ(found.bytes, bytes);
        const Status status = worker.recv(exactly(peer, 2), late.data, &late.receive);
        EXPECT_TRUE(status == HEDDLE_ERR_TRUNCATED || status == HEDDLE_POSTED) << heddle_status_name(status);
        EXPECT_EQ(worker.wait(late.receive, kLong), HEDDLE_ERR_TRUNCATED);
        EXPECT_EQ(late.receive.bytes, bytes);
        EXPECT_TRUE(std::equal(posted.data.begin(), posted.data.end(), source.begin()));
        EXPECT_TRUE(std::equal(late.data.begin(), late.data.end(), source.begin()));
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
        context.barrier(worker);
      }
    }
  });
}

struct Ends {
  std::atomic<int> done{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> other{0};
  static void tell(void* arg, Status status) {
    auto* self = static_cast<Ends*>(arg);
    ++(status == HEDDLE_DONE ? self->done : status == HEDDLE_ERR_CANCELLED ? self->cancelled : self->other);
  }
  heddle_completion completion() { return {&tell, this, {}, HEDDLE_WHEN_REMOTE}; }
};

TEST_P(TaggedMessages, CompletionsComeOnceByCallbackAndByCounter) {
  run(2, [](Context& context, Worker& worker) {
    const std::uint32_t peer = 1 - context.rank();
    Ends ends;
    const Counter counter = context.counter();
    const heddle_completion by_call = ends.completion();
    const heddle_completion by_counter = counter.completion();
    std::deque<Receipt> receipts;
    std::uint64_t raised = 0;
    int called = 0;
    constexpr int kMessages = 100;
    std::vector<std::byte> large(20'000);
    const auto post = [&](int i) {
      Receipt& receipt = receipts.emplace_back(i % 10 == 0 ? 20'000 : 8);
      const bool count = i % 2 == 0;
      const Status status = worker.recv(exactly(peer, static_cast<std::uint64_t>(i)), receipt.data, &receipt.receive,
                                        count ? &by_counter : &by_call);
      accepted(status);
      if (status != HEDDLE_POSTED) return;
      if (count) {
        ++raised;
      } else {
        ++called;
      }
    };
    for (int i = 0; i < kMessages / 2; ++i) post(i);
    for (int i = 0; i < kMessages; ++i) {
      accepted(worker.send({peer, 0}, static_cast<std::uint64_t>(i),
                           i % 10 == 0 ? std::span<const std::byte>(large) : std::span(large).first(8)));
    }
    for (int i = kMessages / 2; i < kMessages; ++i) post(i);
    ASSERT_EQ(worker.wait(counter, raised), HEDDLE_DONE);
    while (ends.done < called) turn(worker);
    for (Receipt& receipt : receipts) ASSERT_EQ(worker.wait(receipt.receive, kLong), HEDDLE_DONE);
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    context.barrier(worker);
    EXPECT_EQ(counter.value(), raised);
    EXPECT_EQ(ends.done, called);
    EXPECT_EQ(ends.cancelled + ends.other, 0);
  });
}

TEST_P(TaggedMessages, ACancelledReceiveEndsOnceAndTakesNothing) {
  run(2, [](Context& context, Worker& worker) {
    const std::uint32_t peer = 1 - context.rank();
    Ends ends;
    const heddle_completion completion = ends.completion();
    Receipt first(8);
    Receipt second(8);
    accepted(worker.recv(exactly(peer, 4), first.data, &first.receive, &completion));
    accepted(worker.recv(exactly(peer, 4), second.data, &second.receive));
    accepted(worker.cancel(&first.receive));
    EXPECT_EQ(worker.wait(first.receive, kLong), HEDDLE_ERR_CANCELLED);
    while (ends.cancelled == 0) turn(worker);
    context.barrier(worker);
    const std::uint64_t value = 77;
    accepted(worker.send({peer, 0}, 4, bytes_of(value)));
    ASSERT_EQ(worker.wait(second.receive, kLong), HEDDLE_DONE);
    EXPECT_EQ(std::memcmp(second.data.data(), &value, 8), 0);
    EXPECT_EQ(first.data, std::vector<std::byte>(8, std::byte{0xEE}));
    accepted(worker.cancel(&second.receive));  // too late: nothing happens
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    context.barrier(worker);
    EXPECT_EQ(second.receive.status, HEDDLE_DONE);
    EXPECT_EQ(ends.cancelled, 1);
    EXPECT_EQ(ends.done + ends.other, 0);
  });
}

TEST_P(TaggedMessages, ProbeLeavesAMessageAndClaimTakesIt) {
  run(2, [](Context& context, Worker& worker) {
    const std::uint32_t peer = 1 - context.rank();
    heddle_receive found{};
    EXPECT_EQ(worker.try_probe(exactly(peer, 1), &found), HEDDLE_AGAIN);
    context.barrier(worker);
    for (const std::size_t bytes : {100UL, 60'000UL}) {
      const auto source = pattern(bytes, 9);
      for (std::uint64_t tag = 1; tag <= 3; ++tag) accepted(worker.send({peer, 0}, tag, source));
      find(worker, [&] { return worker.try_probe({kAnybody, 3, UINT64_MAX}, &found); });
      EXPECT_EQ(found.source.rank, peer);
      EXPECT_EQ(found.bytes, bytes);
      find(worker, [&] { return worker.try_probe({kAnybody, 0, 0}, &found); });
      EXPECT_EQ(found.tag, 1U);
      heddle_receive dropped;
      heddle_receive claimed;
      find(worker, [&] { return worker.try_claim({kAnybody, 0, 0}, &dropped); });
      find(worker, [&] { return worker.try_claim({kAnybody, 0, 0}, &claimed); });
      EXPECT_EQ(dropped.tag, 1U);
      EXPECT_EQ(claimed.tag, 2U);
      Receipt third(bytes);
      accepted(worker.recv({kAnybody, 0, 0}, third.data, &third.receive));
      ASSERT_EQ(worker.wait(third.receive, kLong), HEDDLE_DONE);
      EXPECT_EQ(third.receive.tag, 3U);
      std::vector<std::byte> room(bytes);
      accepted(worker.recv_claimed(room, &claimed));
      ASSERT_EQ(worker.wait(claimed, kLong), HEDDLE_DONE);
      EXPECT_EQ(room, source);
      accepted(worker.recv_claimed({}, &dropped));
      ASSERT_EQ(worker.wait(dropped, kLong), HEDDLE_DONE);
      // a dropped message ends as a received one
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
      EXPECT_EQ(worker.try_probe({kAnybody, 0, 0}, &found), HEDDLE_AGAIN);
      context.barrier(worker);
    }
  });
}

// A sender without credit is answered with AGAIN; everything else goes on meanwhile, and nothing is
// lost.
TEST_P(TaggedMessages, MessagesThatNobodyReceivesAreBoundedAndStopNothingElse) {
  const Variables small(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_TAG_CREDIT_BYTES", "64K"}});
  run(2, [](Context& context, Worker& worker) {
    static std::atomic<int> arrived;
    arrived = 0;
    context.register_am(9, [](const heddle_am_arrival*, void*) { ++arrived; }, nullptr);
    context.barrier(worker);
    constexpr std::uint64_t kMessages = 3000;
    if (context.rank() == 0) {
      std::uint64_t sent = 0;
      const auto send = [&] {
        const Status status = worker.try_send({1, 0}, 1, bytes_of(sent));
        accepted(status);
        if (status == HEDDLE_AGAIN) return false;
        EXPECT_EQ(worker.quiet(), HEDDLE_DONE);  // the source is about to change
        ++sent;
        return true;
      };
      // 64 KiB are 256 messages; AGAIN may also mean that the transport is busy.
      const auto filled = [&] { return sent == 256; };
      while (!filled()) {
        if (!send()) turn(worker);
      }
      for (int i = 0; i < 1000; ++i) {
        ASSERT_FALSE(send());
        turn(worker);
      }
      const std::uint64_t value = 1;
      accepted(worker.am({1, 0}, {9, 0, nullptr, &value, 8}));  // now the other begins to receive
      while (sent < kMessages) {
        if (!send()) turn(worker);
      }
    } else {
      while (arrived == 0) turn(worker);
      EXPECT_LE(worker.stats().kept, 256U);
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        Receipt receipt(8);
        accepted(worker.recv(exactly(0, 1), receipt.data, &receipt.receive));
        ASSERT_EQ(worker.wait(receipt.receive, kLong), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(std::memcmp(receipt.data.data(), &i, 8), 0) << "message " << i;
      }
    }
    context.barrier(worker);
  });
}

// The model, two lists: a message takes the earliest receive that fits, a receive the earliest
// message. With one source the outcome does not depend on when they meet.
struct Plan {
  struct Message {
    std::uint64_t tag;
    std::size_t bytes;
  };
  struct Want {
    std::uint64_t tag;
    std::uint64_t mask;
    bool any_worker;
    std::size_t room;
    std::optional<std::size_t> message;  // which it gets
  };
  std::vector<Message> messages;
  std::vector<Want> wants;

  explicit Plan(std::uint64_t seed) {
    base::Random random(seed);
    const auto size = [&random]() -> std::size_t {
      const std::uint64_t kind = random.below(10);
      return kind == 0 ? 8'000 + random.below(60'000) : kind < 4 ? random.below(2000) : random.below(20);
    };
    const std::size_t count = 20 + random.below(80);
    for (std::size_t i = 0; i < count; ++i) messages.push_back({random.below(4), size()});
    for (std::size_t i = 0; i < count; ++i) {
      constexpr std::array<std::uint64_t, 5> kMasks = {UINT64_MAX, UINT64_MAX, 1, 2, 0};
      wants.push_back({random.below(4),
                       kMasks.at(random.below(5)),
                       random.below(2) == 0,
                       random.below(3) == 0 ? size() : 70'000,
                       {}});
    }
    for (std::size_t i = 0; i < count; ++i) {
      for (Want& want : wants) {
        if (want.message || ((want.tag ^ messages[i].tag) & want.mask) != 0) continue;
        want.message = i;
        break;
      }
    }
  }
};

void check_receipt(const Plan::Want& want, const Plan& plan, Receipt& receipt, std::uint32_t source) {
  const Plan::Message& message = plan.messages[*want.message];
  EXPECT_EQ(receipt.receive.status, message.bytes > want.room ? HEDDLE_ERR_TRUNCATED : HEDDLE_DONE);
  EXPECT_EQ(receipt.receive.tag, message.tag);
  EXPECT_EQ(receipt.receive.bytes, message.bytes);
  EXPECT_EQ(receipt.receive.source.rank, source);
  const auto expected = pattern(message.bytes, static_cast<unsigned>(*want.message));
  const std::size_t bytes = std::min(message.bytes, want.room);
  EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(bytes), receipt.data.begin()))
      << "message " << *want.message << " of " << message.bytes << " bytes";
}

TEST_P(TaggedMessages, RandomSendsAndReceivesPairAsTwoListsSay) {
  const Variables wide(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_TAG_CREDIT_BYTES", "4M"}});
  for (std::uint64_t seed = 1; seed <= base::few_if_sanitized<std::uint64_t>(1, 4); ++seed) {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(seed % 3);
    run(ranks, [seed, ranks](Context& context, Worker& worker) {
      const std::uint32_t me = context.rank();
      base::Random random(seed * 100 + me);
      std::vector<Plan> out;  // what I send to each rank
      std::vector<Plan> in;   // what each rank sends to me
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        out.emplace_back(seed * 10'000 + me * 100 + rank);
        in.emplace_back(seed * 10'000 + rank * 100 + me);
      }
      std::vector<std::deque<Receipt>> receipts(ranks);
      std::deque<std::vector<std::byte>> sources;
      std::vector<std::size_t> sent(ranks);
      std::size_t left = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) left += out[rank].messages.size() + in[rank].wants.size();
      while (left > 0) {
        const auto rank = static_cast<std::uint32_t>(random.below(ranks));
        switch (random.below(3)) {
          case 0:
            if (sent[rank] < out[rank].messages.size()) {
              const auto [tag, bytes] = out[rank].messages[sent[rank]];
              const auto& source = sources.emplace_back(pattern(bytes, static_cast<unsigned>(sent[rank])));
              const Status status = worker.try_send({rank, 0}, tag, source);
              ASSERT_GE(status, 0) << heddle_last_error();
              if (status == HEDDLE_AGAIN) break;
              ++sent[rank];
              --left;
            }
            break;
          case 1:
            if (receipts[rank].size() < in[rank].wants.size()) {
              const Plan::Want& want = in[rank].wants[receipts[rank].size()];
              Receipt& receipt = receipts[rank].emplace_back(want.room);
              const heddle_wanted wanted{{rank, want.any_worker ? HEDDLE_ANY : 0}, want.tag, want.mask};
              const Status status = worker.recv(wanted, receipt.data, &receipt.receive);
              ASSERT_TRUE(status >= 0 || status == HEDDLE_ERR_TRUNCATED) << heddle_last_error();
              --left;
            }
            break;
          default:
            turn(worker);
        }
      }
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t i = 0; i < in[rank].wants.size(); ++i) {
          Receipt& receipt = receipts[rank][i];
          if (!in[rank].wants[i].message) continue;
          const Status status = worker.wait(receipt.receive, kLong);
          ASSERT_TRUE(status == HEDDLE_DONE || status == HEDDLE_ERR_TRUNCATED) << heddle_last_error();
          check_receipt(in[rank].wants[i], in[rank], receipt, rank);
        }
      }
      context.barrier(worker);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t i = 0; i < in[rank].wants.size(); ++i) {
          if (in[rank].wants[i].message) continue;
          accepted(worker.cancel(&receipts[rank][i].receive));
          EXPECT_EQ(worker.wait(receipts[rank][i].receive, kLong), HEDDLE_ERR_CANCELLED);
        }
      }
      // Long messages that nobody wants would wait for ever: they are claimed and dropped.
      heddle_receive rest;
      std::size_t unwanted = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        std::size_t wanted = 0;
        for (const Plan::Want& want : in[rank].wants) wanted += want.message ? 1 : 0;
        unwanted += in[rank].messages.size() - wanted;
      }
      while (unwanted > 0) {
        find(worker, [&] { return worker.try_claim({kAnybody, 0, 0}, &rest); });
        accepted(worker.recv_claimed({}, &rest));
        ASSERT_EQ(worker.wait(rest, kLong), HEDDLE_DONE);
        --unwanted;
      }
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
      context.barrier(worker);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, TaggedMessages, testing::ValuesIn(all_settings()), name_of);

}  // namespace
}  // namespace heddle::test::tagged_test
