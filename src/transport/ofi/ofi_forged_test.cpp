// Tests messages that a peer may write over libfabric and no rank of ours would: see
// transport/test/forged.hpp. Also tests words that only this transport has, and a rank
// whose messages, or the answers to them, are lost.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "transport/ofi/endpoint.hpp"
#include "transport/ofi/fabric.hpp"
#include "transport/ofi/memory.hpp"
#include "transport/test/forged.hpp"
#include "transport/test/ofi_available.hpp"

namespace heddle::transport::ofi {
namespace {

using network::bytes_of;
using network::CardHead;
using network::Head;
using network::Kind;
using network::kRaw;
using network::Note;

// An endpoint that sends what the test tells it to.
class RawRank final : public network::RawEnd {
 public:
  using Connection = fi_addr_t;
  static constexpr bool kHasHandshake = false;
  static std::string why_not() { return why_no_ofi(); }
  static const char* transport() { return "ofi"; }
  static base::Config::Overrides settings() {
    return {{"HEDDLE_NET_DEVICES", "lo"}, {"HEDDLE_NETWORK_TIMEOUT", "30s"}};
  }
  static constexpr std::uint32_t window() { return 42U << 10; }
  static std::vector<Kind> kinds() { return {Kind::message, Kind::credit, Kind::bundle, Kind::question, Kind::ended}; }
  static std::vector<std::uint32_t> note_kinds() { return {0, 3, 4, 99}; }
  // the second: than a note has; the third: than any receive buffer
  static std::vector<std::size_t> note_tails() { return {40, 4000, 20'000}; }

  RawRank(const base::Config& config, const bootstrap::JobSecret& secret)
      : secret_(secret), library_(**Library::open(config.text(base::Var::library_ofi))) {
    auto info = choose_provider(library_, config, Atomics::by_messages);
    EXPECT_TRUE(info.ok()) << base::last_message();
    const auto plan = plan_domains((*info)->domain_attr->mr_mode, config.text(base::Var::ofi_domains));
    EXPECT_TRUE(plan.ok()) << base::last_message();
    fabric_.emplace(library_, std::move(*info), *plan);
    EXPECT_EQ(fabric_->open(), HEDDLE_DONE) << base::last_message();
    EXPECT_EQ(endpoint_.open(*fabric_), HEDDLE_DONE) << base::last_message();
  }
  ~RawRank() { endpoint_.close(); }
  RawRank(const RawRank&) = delete;
  RawRank& operator=(const RawRank&) = delete;

  [[nodiscard]] const network::Bytes& address() const { return endpoint_.address(); }
  [[nodiscard]] std::string version() const { return library_.version(); }
  [[nodiscard]] std::string provider() const { return fabric_->info()->fabric_attr->prov_name; }
  [[nodiscard]] fi_addr_t connect(std::span<const std::byte> address) {
    fi_addr_t number = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(endpoint_.insert(address, &number), 0);
    return number;
  }
  void send_note(fi_addr_t to, const std::vector<std::byte>& bytes) { send(to, bytes); }
  // The head says the kind.
  void send(fi_addr_t to, Kind, const std::vector<std::byte>& bytes) { send(to, bytes); }
  void progress() { endpoint_.progress(*this); }

  // ---- see Endpoint::progress()
  void on_receive(const std::byte* data, std::size_t bytes) {
    ASSERT_NE(data, nullptr);
    Note note;
    ASSERT_GE(bytes, sizeof note);
    std::memcpy(&note, data, sizeof note);
    if (network::sealed(note, secret_)) return on_note(data, bytes);
    ++heard[static_cast<Kind>(network::read_head(data).kind)];
  }
  const fi_cq_msg_entry* on_done(const fi_cq_msg_entry* entry, const fi_cq_msg_entry* /*end*/) {
    ++sent_;
    return entry + 1;
  }
  void on_finished(OperationContext& /*operation*/, int error) {
    EXPECT_EQ(error, 0);
    ++sent_;
  }

 private:
  void send(fi_addr_t to, const std::vector<std::byte>& bytes) {
    OperationContext operation(OperationContext::Kind::note);
    EXPECT_TRUE(test::within_time(
        [&] { return fi_send(endpoint_.ep(), bytes.data(), bytes.size(), nullptr, to, &operation.context) == 0; },
        [&] { progress(); }))
        << "never taken";
    const std::uint64_t before = sent_;
    EXPECT_TRUE(test::within_time([&] { return sent_ == before + 1; }, [&] { progress(); })) << "never sent";
  }
  const bootstrap::JobSecret secret_;
  const Library& library_;
  std::optional<Fabric> fabric_;
  Endpoint endpoint_;
  std::uint64_t sent_ = 0;
};

class OfiForged : public network::Forged<RawRank> {
 protected:
  // Both ways: worker 0 has heard the raw rank's, and sends to it.
  void meet_both() {
    ASSERT_NO_FATAL_FAILURE(meet());
    send(Kind::credit, bytes_of(head_of(0, Kind::credit)));
    ASSERT_TRUE(until([&] { return raw_->asked_for_workers != 0; }));
    ASSERT_NO_FATAL_FAILURE(answer_worker());
    first_ = post_to_raw();
    ASSERT_TRUE(until([&] { return raw_->heard[Kind::message] == 1; }));
  }

  Token first_ = 0;
};

// In this transport only, the kind is in the head, and any length arrives.
TEST_F(OfiForged, HeadsOfNoKindAreDropped) {
  meet();
  for (const std::uint32_t kind : {0U, 7U, UINT32_MAX}) {
    Head head = head_of(0);
    head.kind = kind;
    expect_refused(Kind::message, bytes_of(head, 8));
  }
  expect_refused(Kind::message, bytes_of(head_of(0), 20'000));  // than any receive buffer
  expect_refused(Kind::message, std::vector<std::byte>(sizeof(Head)));
  expect_heard(0);
}

// Words that have nothing behind them and do not fit their stream.
TEST_F(OfiForged, WordsThatCannotBeAreRefused) {
  meet();
  expect_refused(Kind::credit, bytes_of(head_of(0, Kind::credit), 8));
  Head ahead = head_of(1, Kind::credit);
  ahead.position = 24;
  expect_refused(Kind::credit, bytes_of(ahead));
  ahead = head_of(2, Kind::question);
  ahead.position = 24;
  expect_refused(Kind::credit, bytes_of(ahead));
  send(Kind::ended, bytes_of(head_of(3, Kind::ended)));  // of a worker that was never sent anything
  expect_heard(3);
}

// ---- what is lost -------------------------------------------------------------------------------

TEST_F(OfiForged, AQuestionIsAnsweredThoughAllWasTold) {
  meet_both();
  for (std::uint32_t times = 1; times <= 2; ++times) {
    const std::uint32_t before = raw_->heard[Kind::credit];
    send(Kind::question, bytes_of(head_of(0, Kind::question)));
    EXPECT_TRUE(until([&] { return raw_->heard[Kind::credit] > before; }));
  }
  EXPECT_EQ(malformed(), 0U);
}

// Its sender is told each time that nothing of it is taken any more.
TEST_F(OfiForged, AQuestionAfterAGapIsAnsweredByTheEnd) {
  meet_both();
  Head ahead = head_of(0, Kind::question);
  ahead.position = 24;
  send(Kind::question, bytes_of(ahead));
  EXPECT_TRUE(until([&] { return raw_->heard[Kind::ended] > 0; }));
  EXPECT_TRUE(until([&] { return ended_.contains(first_); }));
  EXPECT_EQ(ended_[first_], HEDDLE_ERR_PEER_FAILED);
  const std::uint32_t before = raw_->heard[Kind::ended];
  send(Kind::question, bytes_of(ahead));
  EXPECT_TRUE(until([&] { return raw_->heard[Kind::ended] > before; }));
}

TEST_F(OfiForged, WhatWasSentToWhoHasEndedFails) {
  meet_both();
  EXPECT_FALSE(ended_.contains(first_));
  send(Kind::ended, bytes_of(head_of(0, Kind::ended)));
  EXPECT_TRUE(until([&] { return ended_.contains(first_); }));
  EXPECT_EQ(ended_[first_], HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_PEER_FAILED);
}

// When others hear that the worker is closed, everything that they wait for ends. So they must hear
// that last.
TEST_F(OfiForged, AWorkerIsClosedWhenItsMessagesHaveLeft) {
  meet();
  static_cast<void>(post_to_raw());  // it asks for the address
  ASSERT_TRUE(until([&] { return raw_->asked_for_workers != 0; }));
  worker_.reset();
  answer_worker();
  EXPECT_TRUE(test::within_time([&] { return raw_->closed_after.has_value(); }, [&] { raw_->progress(); }));
  EXPECT_EQ(raw_->closed_after, 1U);
}

class OfiLost : public OfiForged {
 protected:
  void SetUp() override { set_up({{"HEDDLE_NETWORK_TIMEOUT", "1s"}}); }
};

// The raw rank has got the message, or has not. It tells nothing, so the thread that makes progress
// asks it.
TEST_F(OfiLost, WhoTellsNothingIsAsked) {
  for (const bool polls : {true, false}) {
    if (polls) meet_both();
    const std::uint32_t before = raw_->heard[Kind::question];
    EXPECT_TRUE(test::within_time([&] { return raw_->heard[Kind::question] > before + 1; },
                                  [&] {
                                    raw_->progress();
                                    if (polls) poll();
                                  }));
  }
  EXPECT_FALSE(ended_.contains(first_));
  Head told = head_of(0, Kind::credit);
  told.consumed = told.arrived = network::cost_of(0);
  send(Kind::credit, bytes_of(told));
  EXPECT_TRUE(until([&] { return ended_.contains(first_); }));
  EXPECT_EQ(ended_[first_], HEDDLE_DONE);
}

// Over a network whose connections the kernel does not watch, a peer is asked although it has
// nothing to tell.
#ifdef HEDDLE_STRICT_FABRIC
class OfiIdle : public OfiForged {
 protected:
  void SetUp() override {
    set_up({{"HEDDLE_LIBRARIES", "ofi=" HEDDLE_STRICT_FABRIC},
            {"HEDDLE_NET_DEVICES", "loop"},
            {"HEDDLE_NETWORK_TIMEOUT", "1s"}});
  }
};

TEST_F(OfiIdle, WhoIsSilentIsAsked) {
  meet_both();
  Head told = head_of(0, Kind::credit);
  told.consumed = told.arrived = network::cost_of(0);
  send(Kind::credit, bytes_of(told));
  ASSERT_TRUE(until([&] { return ended_.contains(first_); }));
  for (int times = 0; times < 3; ++times) {
    const std::uint32_t before = raw_->heard[Kind::question];
    ASSERT_TRUE(until([&] { return raw_->heard[Kind::question] > before; }));
    send(Kind::credit, bytes_of(told));
  }
}
#endif

TEST_F(OfiLost, AQuestionForAWorkerIsRepeated) {
  meet();
  static_cast<void>(post_to_raw());
  EXPECT_TRUE(until([&] { return raw_->asked_for_workers > 2; }));
  answer_worker();
  EXPECT_TRUE(until([&] { return raw_->heard[Kind::message] == 1; }));
}

// Nobody listens at the address in its card.
TEST_F(OfiLost, WhoIsNotReachedIsGivenUp) {
  publish([](CardHead*) {});
  raw_.reset();
  Command command;
  command.rank = kRaw;
  command.token = next_++;
  ASSERT_TRUE(test::within_time([&] { return worker_->post({&command, 1}) == 1; }, [this] { poll(); }));
  EXPECT_TRUE(test::within_time([&] { return ended_.contains(command.token); }, [this] { poll(); }));
  EXPECT_EQ(ended_[command.token], HEDDLE_ERR_PEER_FAILED);
}

TEST_F(OfiForged, AnotherProviderIsToldByItsCard) {
  publish([](CardHead* head) { std::memset(head->provider, 'p', sizeof head->provider); });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_CONFIG);
}

}  // namespace
}  // namespace heddle::transport::ofi

namespace heddle::transport::network {
INSTANTIATE_TYPED_TEST_SUITE_P(Ofi, Forged, ofi::RawRank);
}  // namespace heddle::transport::network
