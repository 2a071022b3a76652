// Forged offers of large active messages, and answers without an operation: rank 1 is a bare
// transport that posts any bytes. Each is counted, answered if there is a sender to answer, and
// dropped; the worker goes on.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "api/test_job.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/test/bare_rank.hpp"
#include "wire/packet.hpp"
#include "worker/worker.hpp"

namespace heddle::test::am_forged_test {
namespace {

constexpr std::uint32_t kHandler = 3;
constexpr std::uint64_t kLimit = std::uint64_t{1} << 20;  // HEDDLE_AM_MAX_BYTES
constexpr std::size_t kBytes = 100'000;

// Rank 1.
class Forger : public transport::BareRank {
 public:
  Forger(bootstrap::inproc::ThreadJob* job, const char* transport) : BareRank(job, 1, transport) {}

  // The answer of the worker under test to `token`; empty: none yet.
  [[nodiscard]] std::optional<Status> answer(std::uint64_t token) {
    std::array<transport::Completion, 16> completions;
    const std::size_t count = worker().poll(completions);
    for (std::size_t i = 0; i < count; ++i) {
      const transport::Completion& one = completions.at(i);
      if (one.event != transport::Event::message) continue;
      const auto reply = wire::decode_reply({one.data, one.bytes});
      if (reply && reply->head.token == token) return static_cast<Status>(reply->head.status);
      last_offer_ = wire::decode_am_offer({one.data, one.bytes});
    }
    return std::nullopt;
  }
  // The token of an offer that has come.
  [[nodiscard]] std::optional<std::uint64_t> offered() {
    static_cast<void>(answer(0));
    if (!last_offer_) return std::nullopt;
    return last_offer_->head.token;
  }

 private:
  std::optional<wire::AmOffer> last_offer_;
};

class AmForged : public testing::TestWithParam<const char*> {
 protected:
  AmForged() {
    context_ = std::move(*worker::Context::join({{"inproc", &job_, 0}, GetParam(), "none"}));
    worker_ = *context_->open_worker({});
    worker_->begin();
    forger_.emplace(&job_, GetParam());
    context_->register_handler(kHandler, {[](const heddle_am_arrival* arrival, void* arg) {
                                            auto& self = *static_cast<AmForged*>(arg);
                                            ++self.handled_;
                                            self.bytes_ = arrival->payload_bytes;
                                          },
                                          this});
    memory_.resize(kBytes);
    local_ = forger_->register_memory(&memory_);
    good_ = {1, kBytes, 1, kHandler, 0, {}};
    std::memcpy(good_.key, local_.key.bytes.data(), sizeof good_.key);
  }
  ~AmForged() override {
    static_cast<void>(context_->close_worker(worker_));
    forger_->transport().deregister(local_);
    std::thread other([this] { forger_.reset(); });
    EXPECT_EQ(context_->leave(), HEDDLE_DONE);
    other.join();
  }

  [[nodiscard]] std::uint64_t dropped() { return worker_->read_stats().dropped; }
  Status answer_to(const wire::AmOfferHeader& head) {
    EXPECT_TRUE(forger_->post(wire::kAmOffer, &head, sizeof head));
    std::optional<Status> answer;
    EXPECT_TRUE(within_time([&] { return (answer = forger_->answer(head.token)).has_value(); },
                            [&] { EXPECT_GE(worker_->progress(), 0); }))
        << "no answer";
    return answer.value_or(HEDDLE_AGAIN);
  }
  // The message is refused with `status` and counted once, and the next correct one still arrives.
  void expect_refused(const wire::AmOfferHeader& head, Status status, const char* what) {
    const std::uint64_t before = dropped();
    const int handled = handled_;
    EXPECT_EQ(answer_to(head), status) << what;
    EXPECT_EQ(dropped(), before + 1) << what;
    EXPECT_EQ(handled_, handled) << what;
    EXPECT_EQ(answer_to(good_), HEDDLE_DONE) << "after " << what;
    EXPECT_EQ(handled_, handled + 1) << "after " << what;
    EXPECT_EQ(bytes_, kBytes) << "after " << what;
  }
  void settle() {
    for (int i = 0; i < 50; ++i) EXPECT_GE(worker_->progress(), 0);
  }

  const Variables variables_{{{"HEDDLE_AM_MAX_BYTES", "1M"}}};
  bootstrap::inproc::ThreadJob job_{2};
  std::unique_ptr<worker::Context> context_;
  worker::Worker* worker_ = nullptr;
  std::optional<Forger> forger_;
  std::vector<std::byte> memory_;
  transport::LocalMemory local_;
  wire::AmOfferHeader good_{};
  int handled_ = 0;
  std::uint64_t bytes_ = 0;
};

TEST_P(AmForged, OffersAreChecked) {
  EXPECT_EQ(answer_to(good_), HEDDLE_DONE);
  EXPECT_EQ(handled_, 1);
  wire::AmOfferHeader head = good_;
  head.bytes = kBytes + 1;
  expect_refused(head, HEDDLE_ERR_PROTOCOL, "longer than the memory");
  head.bytes = kLimit + 1;
  expect_refused(head, HEDDLE_ERR_NO_MEMORY, "longer than allowed");
  head.bytes = ~std::uint64_t{0};
  expect_refused(head, HEDDLE_ERR_NO_MEMORY, "2^64 - 1");
  head = good_;
  std::memset(head.key, 0x5A, sizeof head.key);
  expect_refused(head, HEDDLE_ERR_PROTOCOL, "no key");
  head = good_;
  head.handler = kHandler + 1;
  expect_refused(head, HEDDLE_DONE, "no handler");
}

TEST_P(AmForged, MemoryThatWasTakenBackIsNotRead) {
  std::vector<std::byte> gone(kBytes);
  const transport::LocalMemory local = forger_->register_memory(&gone);
  wire::AmOfferHeader head = good_;
  std::memcpy(head.key, local.key.bytes.data(), sizeof head.key);
  forger_->transport().deregister(local);
  if (std::string_view(GetParam()) == "shm") {
    // The kernel's copy does not ask the owner's table: the bytes are read or not, the worker goes
    // on.
    const Status status = answer_to(head);
    EXPECT_TRUE(status == HEDDLE_DONE || status == HEDDLE_ERR_CANCELLED) << heddle_status_name(status);
    EXPECT_EQ(answer_to(good_), HEDDLE_DONE);
  } else {
    expect_refused(head, HEDDLE_ERR_PROTOCOL, "taken back");  // its key is no living region's
  }
}

TEST_P(AmForged, WhatIsNotWellFormedIsDropped) {
  const std::uint64_t before = dropped();
  wire::AmOfferHeader head = good_;
  head.header_bytes = 8;  // which do not follow
  ASSERT_TRUE(forger_->post(wire::kAmOffer, &head, sizeof head));
  head = good_;
  head.bytes = 0;
  ASSERT_TRUE(forger_->post(wire::kAmOffer, &head, sizeof head));
  ASSERT_TRUE(forger_->post(wire::kAmOffer, &head, 17));
  EXPECT_TRUE(within_time([&] { return dropped() >= before + 3; }, [&] { EXPECT_GE(worker_->progress(), 0); }));
  settle();
  EXPECT_EQ(dropped(), before + 3);
  EXPECT_EQ(handled_, 0);
  EXPECT_EQ(answer_to(good_), HEDDLE_DONE);
}

// Answers end the operation that they name, once; others are dropped.
TEST_P(AmForged, AnswersAreChecked) {
  std::vector<std::byte> payload(kBytes);
  int ended = 0;
  Status how = HEDDLE_AGAIN;
  struct End {
    int* ended;
    Status* how;
  } end{&ended, &how};
  const engine::CallersCompletion completion{[](void* arg, heddle_status status) {
                                               auto* self = static_cast<End*>(arg);
                                               ++*self->ended;
                                               *self->how = status;
                                             },
                                             &end, nullptr, HEDDLE_WHEN_LOCAL};
  const engine::LongMessage message{kHandler, 0, {}, payload.data(), payload.size()};
  ASSERT_EQ(worker_->messages().try_long({1, 0}, message, completion), HEDDLE_POSTED);
  std::optional<std::uint64_t> token;
  ASSERT_TRUE(within_time([&] { return (token = forger_->offered()).has_value(); },
                          [&] { EXPECT_GE(worker_->progress(), 0); }));
  const std::uint64_t before = dropped();
  const auto reply = [&](std::uint64_t to) {
    const wire::ReplyHeader head{to, 0, 0, HEDDLE_DONE, 1};
    EXPECT_TRUE(forger_->post(wire::immediate_of(wire::Kind::reply), &head, sizeof head));
  };
  reply(*token + 1);                       // another operation
  reply(*token ^ std::uint64_t{1} << 33);  // another time
  reply(*token ^ std::uint64_t{1} << 60);  // another role
  EXPECT_TRUE(within_time([&] { return dropped() == before + 3; }, [&] { EXPECT_GE(worker_->progress(), 0); }));
  EXPECT_EQ(ended, 0);
  reply(*token);
  reply(*token);
  EXPECT_TRUE(
      within_time([&] { return ended > 0 && dropped() == before + 4; }, [&] { EXPECT_GE(worker_->progress(), 0); }));
  settle();
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(how, HEDDLE_DONE);
  EXPECT_EQ(dropped(), before + 4);
}

INSTANTIATE_TEST_SUITE_P(Transports, AmForged, testing::Values("shm", "loopback"));

}  // namespace
}  // namespace heddle::test::am_forged_test
