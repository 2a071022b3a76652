// Messages that come in parts from a sender that ends in the middle, or that says what no sender
// says. Rank 1 is a bare transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "protocol/tagged.hpp"
#include "transport/test/bare_rank.hpp"
#include "wire/messages.hpp"
#include "worker/context.hpp"
#include "worker/worker.hpp"

namespace heddle::worker::tagged_pipe_test {
namespace {

constexpr std::uint64_t kTag = 5;
constexpr std::size_t kBytes = 100'000;

class Sender : public transport::BareRank {
 public:
  explicit Sender(bootstrap::inproc::ThreadJob* job) : BareRank(job, 1, "shm"), local_(register_memory(&memory_)) {
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  }
  ~Sender() { transport().deregister(local_); }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  [[nodiscard]] const std::vector<std::byte>& memory() const { return memory_; }
  // `head`, then `bytes` of the memory from `at`.
  [[nodiscard]] bool say(std::uint32_t immediate, const void* head, std::uint32_t head_bytes, std::size_t at,
                         std::size_t bytes) {
    transport::Command command;
    command.immediate = immediate;
    command.header = head;
    command.header_bytes = head_bytes;
    command.local = memory_.data() + at;
    command.bytes = bytes;
    return worker().post({&command, 1}) == 1;
  }
  [[nodiscard]] bool begin(std::uint64_t length, std::size_t bytes) {
    const wire::PipedHeader head{kTag, length};
    return say(wire::encode_word(wire::Word::piped), &head, sizeof head, 0, bytes);
  }
  [[nodiscard]] bool part(std::size_t at, std::size_t bytes) {
    return say(wire::encode_word(wire::Word::part), nullptr, 0, at, bytes);
  }
  [[nodiscard]] bool offer() {
    wire::Offer head{kTag, kBytes, 1, 1, {}};
    std::memcpy(head.key, local_.key.bytes.data(), sizeof head.key);
    return post(wire::encode_tagged(0, true), &head, sizeof head);
  }
  // What it was asked for. Empty: nothing.
  [[nodiscard]] std::optional<wire::Pull> asked() {
    std::array<transport::Completion, 16> completions;
    const std::size_t count = worker().poll(completions);
    std::optional<wire::Pull> pull;
    for (const transport::Completion& one : std::span(completions).first(count)) {
      if (one.event != transport::Event::message || one.immediate != wire::encode_word(wire::Word::pull)) continue;
      pull = wire::decode_word<wire::Pull>({one.data, one.bytes});
    }
    return pull;
  }

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
  transport::LocalMemory local_;
};

class TaggedPipe : public testing::Test {
 protected:
  void SetUp() override {
    auto joined = Context::join({{"inproc", &job_, 0}, "shm", "none"});
    ASSERT_TRUE(joined.ok()) << base::last_message();
    context_ = std::move(*joined);
    worker_ = *context_->open_worker({});
    sender_.emplace(&job_);
  }
  void TearDown() override {
    std::thread other([&] { sender_.reset(); });
    EXPECT_EQ(context_->leave(), HEDDLE_DONE);
    other.join();
  }
  base::Status post() {
    receive_ = {};
    receive_.status = HEDDLE_POSTED;
    return worker_->tagged().receive({kTag, protocol::kWholeTag, protocol::source_of({1, 0})},
                                     {room_.data(), room_.size(), &receive_, {}});
  }
  void progress(int times) {
    for (int i = 0; i < times; ++i) EXPECT_GE(worker_->progress(), 0);
  }
  // A message that nobody has harmed.
  void expect_to_go_on() {
    ASSERT_EQ(post(), HEDDLE_POSTED);
    ASSERT_TRUE(sender_->begin(9000, 5000));
    ASSERT_TRUE(sender_->part(5000, 4000));
    ASSERT_TRUE(test::within_time([&] { return receive_.status != HEDDLE_POSTED; }, [&] { progress(1); }));
    EXPECT_EQ(receive_.status, HEDDLE_DONE);
    EXPECT_TRUE(std::equal(room_.begin(), room_.begin() + 9000, sender_->memory().begin()));
  }

  bootstrap::inproc::ThreadJob job_{2};
  std::unique_ptr<Context> context_;
  Worker* worker_ = nullptr;
  std::optional<Sender> sender_;
  std::vector<std::byte> room_ = std::vector<std::byte>(kBytes);
  heddle_receive receive_{};
};

TEST_F(TaggedPipe, AReceiveEndsWhenItsMessageIsNeverWhole) {
  ASSERT_EQ(post(), HEDDLE_POSTED);
  ASSERT_TRUE(sender_->begin(kBytes, 5000));
  ASSERT_TRUE(sender_->part(5000, 10'000));
  progress(100);
  EXPECT_EQ(receive_.status, HEDDLE_POSTED);
  sender_->close_worker();
  ASSERT_TRUE(test::within_time([&] { return receive_.status != HEDDLE_POSTED; }, [&] { progress(1); }));
  EXPECT_EQ(receive_.status, HEDDLE_ERR_CANCELLED);
}

TEST_F(TaggedPipe, AReceiveThatComesLaterIsToldSo) {
  ASSERT_TRUE(sender_->begin(kBytes, 5000));
  progress(100);
  sender_->close_worker();
  progress(100);
  EXPECT_EQ(post(), HEDDLE_ERR_CANCELLED);
  EXPECT_NE(std::string(base::last_message()).find("only 5000"), std::string::npos) << base::last_message();
  EXPECT_EQ(receive_.status, HEDDLE_ERR_CANCELLED);
  EXPECT_EQ(receive_.bytes, kBytes);
}

TEST_F(TaggedPipe, ASenderThatIsAskedMaySendOrNot) {
  for (const bool sends : {true, false}) {
    ASSERT_EQ(post(), HEDDLE_POSTED);
    ASSERT_TRUE(sender_->offer());
    std::optional<wire::Pull> pull;
    if (sends) {
      // The receiver waits a while before it copies by itself; either way the data is right.
      ASSERT_TRUE(test::within_time([&] { return (pull = sender_->asked()).has_value(); }, [&] { progress(1); }));
      EXPECT_EQ(pull->bytes, kBytes);
      const wire::Pulled head{pull->id};
      ASSERT_TRUE(sender_->say(wire::encode_word(wire::Word::pulled), &head, sizeof head, 0, 9'000));
      ASSERT_TRUE(sender_->part(9'000, 9'000));
    }
    ASSERT_TRUE(test::within_time([&] { return receive_.status != HEDDLE_POSTED; }, [&] { progress(1); }));
    EXPECT_EQ(receive_.status, HEDDLE_DONE);
    EXPECT_EQ(room_, sender_->memory());
    // What comes late is dropped.
    if (sends) {
      ASSERT_TRUE(sender_->part(18'000, 9'000));
    }
    expect_to_go_on();
  }
}

TEST_F(TaggedPipe, WhatNoSenderSaysHarmsNobody) {
  base::Random random(17);
  const auto say = [&](wire::Word word, const void* head, std::uint32_t bytes, std::size_t data) {
    static_cast<void>(sender_->say(wire::encode_word(word), head, bytes, 0, data));
    progress(2);
  };
  testing::internal::CaptureStderr();
  say(wire::Word::part, nullptr, 0, 5000);
  ASSERT_TRUE(sender_->begin(~std::uint64_t{0}, 5000));
  ASSERT_TRUE(sender_->begin(~std::uint64_t{0} - 100, 5000));
  ASSERT_TRUE(sender_->begin(4000, 5000));
  ASSERT_TRUE(sender_->begin(5000, 5000));
  progress(5);
  expect_to_go_on();
  // longer than it said
  ASSERT_EQ(post(), HEDDLE_POSTED);
  ASSERT_TRUE(sender_->begin(6000, 5000));
  ASSERT_TRUE(sender_->part(5000, 1001));
  progress(5);
  EXPECT_EQ(receive_.status, HEDDLE_ERR_PROTOCOL);
  expect_to_go_on();
  // another one begins
  ASSERT_EQ(post(), HEDDLE_POSTED);
  ASSERT_TRUE(sender_->begin(6000, 5000));
  progress(5);
  EXPECT_EQ(receive_.status, HEDDLE_POSTED);
  const wire::Pulled unknown{77};
  say(wire::Word::pulled, &unknown, sizeof unknown, 100);
  EXPECT_EQ(receive_.status, HEDDLE_ERR_PROTOCOL);
  expect_to_go_on();
  for (int i = 0; i < 3000; ++i) {
    std::array<std::uint64_t, 4> head{};
    for (std::uint64_t& word : head) word = random.below(3) == 0 ? random.next() : random.below(9000);
    if (random.below(3) == 0) head[0] = kTag;
    const std::array words = {wire::Word::pull, wire::Word::piped, wire::Word::pulled, wire::Word::part};
    say(words.at(random.below(words.size())), head.data(), static_cast<std::uint32_t>(random.below(4)) * 8,
        random.below(2) == 0 ? 0 : random.below(9000));
    if (random.below(20) == 0 && receive_.status != HEDDLE_POSTED) static_cast<void>(post());
  }
  if (receive_.status == HEDDLE_POSTED) {
    static_cast<void>(worker_->tagged().cancel(&receive_));
    ASSERT_TRUE(test::within_time([&] { return receive_.status != HEDDLE_POSTED; },
                                  [&] {
                                    static_cast<void>(sender_->part(0, 8000));
                                    progress(1);
                                  }));
  }
  // what was kept
  heddle_receive found{};
  while (worker_->tagged().probe({0, 0, protocol::kAnySource}, &found) == HEDDLE_DONE) {
    receive_.status = HEDDLE_POSTED;
    static_cast<void>(
        worker_->tagged().receive({0, 0, protocol::kAnySource}, {room_.data(), room_.size(), &receive_, {}}));
    if (receive_.status != HEDDLE_POSTED) continue;
    ASSERT_TRUE(test::within_time([&] { return receive_.status != HEDDLE_POSTED; },
                                  [&] {
                                    static_cast<void>(sender_->part(0, 8000));
                                    progress(1);
                                  }));
  }
  expect_to_go_on();
  EXPECT_FALSE(testing::internal::GetCapturedStderr().empty()) << "it is reported";
}

}  // namespace
}  // namespace heddle::worker::tagged_pipe_test
