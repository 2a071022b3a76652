// What a peer may write that no rank of ours would: notes, messages, credits, questions and ends
// that are forged, truncated or out of order, and cards of other versions; and what a rank does
// whose messages, or the answers to them, are lost. Rank 1 is this test itself, which has an
// endpoint of libfabric and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/test_waits.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/ofi/endpoint.hpp"
#include "transport/ofi/provider.hpp"
#include "transport/ofi/wire.hpp"
#include "transport/test_ofi.hpp"
#include "transport/transport.hpp"

// libfabric 1.17 loses a fi_info with some connections that are cut off.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libfabric.so";
}

namespace heddle::transport::ofi {
namespace {

using network::CardHead;
using network::Head;
using network::Kind;
using network::kMostBundle;
using network::kMostMessage;
using network::kMostPart;
using network::Note;
using network::Part;
using network::part_bytes;
using network::pass_of;

constexpr std::uint32_t kRaw = 1;

// An endpoint that sends what the test tells it to. It is the raw rank's device, and its worker 0.
class RawRank final {
 public:
  RawRank(bootstrap::Bootstrap& bootstrap, const base::Config& config)
      : bootstrap_(bootstrap), config_(config), library_(**Library::open(config.text(base::Var::ofi_library))) {
    auto info = choose_provider(library_, config, false);
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

  // Its card, changed by `change`.
  void publish(const std::function<void(CardHead*)>& change) {
    CardHead head;
    std::strncpy(head.transport, "ofi", sizeof head.transport - 1);
    library_.version().copy(head.version, sizeof head.version - 1);
    std::strncpy(head.provider, fabric_->info()->fabric_attr->prov_name, sizeof head.provider - 1);
    head.agreed = agreed_of(config_);
    head.max_workers = config_.number(base::Var::max_workers);
    head.window = config_.number(base::Var::ofi_window_bytes);
    head.address_bytes = address().size();
    change(&head);
    bootstrap::Card card;
    card.bytes.resize(sizeof head + address().size());
    std::memcpy(card.bytes.data(), &head, sizeof head);
    std::memcpy(card.bytes.data() + sizeof head, address().data(), address().size());
    ASSERT_EQ(bootstrap_.publish(card), HEDDLE_DONE);
  }

  [[nodiscard]] const network::Bytes& address() const { return endpoint_.address(); }
  [[nodiscard]] fi_addr_t connect(std::span<const std::byte> address) { return endpoint_.insert(address); }
  void send(fi_addr_t to, const std::vector<std::byte>& bytes) {
    Operation operation(Operation::Kind::note);
    EXPECT_TRUE(test::within_time(
        [&] { return fi_send(endpoint_.ep(), bytes.data(), bytes.size(), nullptr, to, &operation.context) == 0; },
        [&] { progress(); }))
        << "never taken";
    const std::uint64_t before = sent_;
    EXPECT_TRUE(test::within_time([&] { return sent_ == before + 1; }, [&] { progress(); })) << "never sent";
  }
  void progress() { endpoint_.progress(*this); }

  // What has come from the device: the address in the answer to its question for a worker (empty:
  // none has arrived), and questions.
  network::Bytes answer;
  std::uint32_t asked_for_workers = 0;
  // What has come from worker 0, by kind.
  std::map<Kind, std::uint32_t> heard;

  // ---- see Endpoint::progress()
  void on_receive(const std::byte* data, std::size_t bytes) {
    ASSERT_NE(data, nullptr);
    Note note;
    ASSERT_GE(bytes, sizeof note);
    std::memcpy(&note, data, sizeof note);
    if (network::sealed(note, bootstrap_.secret())) {
      if (note.kind == Note::worker && note.state == Note::is_open) answer.assign(data + sizeof note, data + bytes);
      if (note.kind == Note::ask_worker) ++asked_for_workers;
    } else {
      ++heard[static_cast<Kind>(network::read_head(data).kind)];
    }
  }
  const fi_cq_msg_entry* on_done(const fi_cq_msg_entry* entry, const fi_cq_msg_entry* /*end*/) {
    ++sent_;
    return entry + 1;
  }
  void on_failed(Operation& /*operation*/, int error) {
    EXPECT_EQ(error, 0);
    ++sent_;
  }

 private:
  bootstrap::Bootstrap& bootstrap_;
  const base::Config& config_;
  const Library& library_;
  std::optional<Fabric> fabric_;
  Endpoint endpoint_;
  std::uint64_t sent_ = 0;
};

template <class Record>
std::vector<std::byte> bytes_of(const Record& record, std::size_t more = 0) {
  std::vector<std::byte> bytes(sizeof record + more);
  std::memcpy(bytes.data(), &record, sizeof record);
  return bytes;
}

class OfiForged : public testing::Test {
 protected:
  void SetUp() override { set_up("30s"); }
  void set_up(const char* timeout) {
    if (const std::string why = why_no_ofi(); !why.empty()) GTEST_SKIP() << why;
    auto config =
        base::Config::read({{"HEDDLE_OFI_DOMAIN", "lo"}, {"HEDDLE_MAX_WORKERS", "4"}, {"HEDDLE_OFI_TIMEOUT", timeout}});
    ASSERT_TRUE(config.ok());
    environment_.config = *config;
    environment_.log = base::Log(base::Level::error, 0);
    environment_.clock = &clock_;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      auto member = bootstrap::inproc::open(job_, rank);
      ASSERT_TRUE(member.ok());
      members_[rank] = std::move(*member);
    }
    auto transport = transport::open("ofi", *members_[0], environment_);
    ASSERT_TRUE(transport.ok()) << base::last_message();
    transport_ = std::move(*transport);
    auto worker = transport_->open_worker(0);
    ASSERT_TRUE(worker.ok());
    worker_ = std::move(*worker);
    raw_ = std::make_unique<RawRank>(*members_[kRaw], environment_.config);
  }
  void TearDown() override {
    raw_.reset();
    worker_.reset();
    transport_.reset();
    members_ = {};
  }

  // Polls, until `condition`.
  bool until(const std::function<bool()>& condition) {
    return test::within_time(condition, [this] {
      poll();
      raw_->progress();
    });
  }
  void poll() {
    std::array<Completion, 16> completions;
    const std::size_t n = worker_->poll(completions);
    for (std::size_t i = 0; i < n; ++i) {
      if (completions[i].event == Event::message) ++messages_;
      if (completions[i].event == Event::done) ended_[completions[i].token] = completions[i].status;
    }
  }
  // A message to the raw rank's worker 0 is accepted; its token.
  Token post_to_raw() {
    const Token token = next_++;
    EXPECT_TRUE(until([&] {
      Command command;
      command.rank = kRaw;
      command.token = token;
      return worker_->post({&command, 1}) == 1;
    }));
    return token;
  }
  base::Status send_to_raw() {
    const Token token = post_to_raw();
    EXPECT_TRUE(until([&] { return ended_.contains(token); }));
    return ended_[token];
  }

  [[nodiscard]] Note ask_worker(std::uint64_t number) const {
    Note note;
    note.kind = Note::ask_worker;
    note.rank = kRaw;
    note.number = number;
    network::seal(&note, members_[0]->secret());
    return note;
  }
  // Of the raw rank's worker `worker`, at the beginning of its stream.
  [[nodiscard]] Head head_of(std::uint32_t worker, Kind kind = Kind::message) const {
    Head head;
    head.rank = kRaw;
    head.worker = worker;
    head.pass = pass_of(kRaw, worker, members_[0]->secret());
    head.kind = static_cast<std::uint32_t>(kind);
    return head;
  }
  [[nodiscard]] std::uint64_t malformed() const { return worker_->counters().malformed; }

  // Connects the raw rank to the device, then to worker 0.
  void meet() {
    raw_->publish([](CardHead*) {});
    const auto card = members_[kRaw]->fetch_wait(0);
    ASSERT_TRUE(card.ok());
    device_ = raw_->connect(std::span(card->bytes).subspan(sizeof(CardHead)));
    raw_->send(device_, bytes_of(ask_worker(0)));
    ASSERT_TRUE(until([&] { return !raw_->answer.empty(); }));
    port_ = raw_->connect(raw_->answer);
  }
  // Answers the question for its worker 0.
  void answer_worker() {
    Note note;
    note.kind = Note::worker;
    note.rank = kRaw;
    note.state = Note::is_open;
    note.bytes = static_cast<std::uint32_t>(raw_->address().size());
    network::seal(&note, members_[0]->secret());
    auto letter = bytes_of(note, note.bytes);
    std::copy(raw_->address().begin(), raw_->address().end(), letter.begin() + sizeof note);
    raw_->send(device_, letter);
  }
  // Both ways: worker 0 has heard the raw rank's, and sends to it.
  void meet_both() {
    ASSERT_NO_FATAL_FAILURE(meet());
    raw_->send(port_, bytes_of(head_of(0, Kind::credit)));
    ASSERT_TRUE(until([&] { return raw_->asked_for_workers != 0; }));
    ASSERT_NO_FATAL_FAILURE(answer_worker());
    first_ = post_to_raw();
    ASSERT_TRUE(until([&] { return raw_->heard[Kind::message] == 1; }));
  }
  // The first message of worker `worker` of the raw rank arrives.
  void expect_heard(std::uint32_t worker) {
    const std::size_t before = messages_;
    raw_->send(port_, bytes_of(head_of(worker), 8));
    EXPECT_TRUE(until([&] { return messages_ == before + 1; }));
  }
  void expect_refused(const std::vector<std::byte>& bytes) {
    const std::uint64_t before = malformed();
    raw_->send(port_, bytes);
    EXPECT_TRUE(until([&] { return malformed() == before + 1; }));
  }

  base::SystemClock clock_;
  base::Environment environment_;
  bootstrap::inproc::Job job_{2};
  std::array<std::unique_ptr<bootstrap::Bootstrap>, 2> members_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<TransportWorker> worker_;
  std::unique_ptr<RawRank> raw_;
  fi_addr_t device_ = FI_ADDR_NOTAVAIL;
  fi_addr_t port_ = FI_ADDR_NOTAVAIL;
  std::size_t messages_ = 0;
  std::map<Token, base::Status> ended_;
  Token next_ = 1;
  Token first_ = 0;
};

TEST_F(OfiForged, MessagesThatNobodyWroteAreCountedAndDropped) {
  meet();
  EXPECT_EQ(malformed(), 0U);
  expect_refused(std::vector<std::byte>(3));               // shorter than a head
  expect_refused(bytes_of(head_of(0), kMostMessage + 8));  // longer than any
  expect_refused(bytes_of(head_of(0), 20'000));            // than any receive buffer
  expect_refused(std::vector<std::byte>(sizeof(Head)));
  for (const Kind kind : {Kind::message, Kind::credit, Kind::bundle, Kind::question, Kind::ended}) {
    for (const auto& spoil : std::vector<std::function<void(Head*)>>{
             [](Head* head) { ++head->pass; }, [](Head* head) { head->rank = 2; },
             [](Head* head) { head->rank = UINT32_MAX; }, [](Head* head) { head->worker = 4; },
             [](Head* head) { head->worker = UINT32_MAX; }, [](Head* head) { head->kind = 0; },
             [](Head* head) { head->kind = 7; }, [](Head* head) { head->kind = UINT32_MAX; }}) {
      Head head = head_of(0, kind);
      spoil(&head);
      expect_refused(bytes_of(head, kind == Kind::message ? 8 : 0));
    }
  }
  expect_heard(0);
}

// The parts of a bundle before the first impossible one arrive; then the stream has a gap.
TEST_F(OfiForged, BundlesThatNobodyWroteAreRefused) {
  meet();
  const auto bundle = [this](std::uint32_t worker, const std::vector<std::uint32_t>& says, std::size_t cut = 0) {
    std::vector<std::byte> bytes = bytes_of(head_of(worker, Kind::bundle));
    for (const std::uint32_t length : says) {
      const Part part{length, 0};
      const auto* begin = reinterpret_cast<const std::byte*>(&part);
      bytes.insert(bytes.end(), begin, begin + sizeof part);
      bytes.resize(bytes.size() + std::min(part_bytes(length) - sizeof part, std::size_t{kMostPart}));
    }
    bytes.resize(bytes.size() - cut);
    return bytes;
  };
  raw_->send(port_, bundle(0, {8, 0, 40}));
  EXPECT_TRUE(until([&] { return messages_ == 3; }));
  raw_->send(port_, bundle(1, {}));  // an empty bundle has no effect
  const std::size_t heard = messages_;
  expect_refused(bundle(1, {8, kMostPart + 8}));
  EXPECT_TRUE(until([&] { return messages_ == heard + 1; }));
  expect_refused(bundle(2, {UINT32_MAX}));
  expect_refused(bundle(3, {8, 8}, 1));
  EXPECT_TRUE(until([&] { return messages_ == heard + 2; }));
}

// A stream that has a gap is disconnected; others of the same rank are not.
TEST_F(OfiForged, AStreamThatCannotBeIsGivenUp) {
  meet();
  const auto spoiled = [this](std::uint32_t worker, const std::function<void(Head*)>& spoil) {
    Head head = head_of(worker);
    spoil(&head);
    return bytes_of(head, 8);
  };
  // not the position of the stream
  expect_refused(spoiled(0, [](Head* head) { head->position = 8; }));
  // says that something arrived that nobody has sent
  expect_refused(spoiled(1, [](Head* head) { head->consumed = 24; }));
  expect_refused(spoiled(2, [](Head* head) { head->arrived = 24; }));
  expect_heard(3);
  EXPECT_EQ(transport_->lost(kRaw), 1U) << "who asks what has become of its commands is told the rank";
  EXPECT_EQ(transport_->lost(0), 0U);
  EXPECT_EQ(transport_->lost(2), 0U) << "no such rank";
}

// What has nothing behind it and does not fit its stream.
TEST_F(OfiForged, WordsThatCannotBeAreRefused) {
  meet();
  expect_refused(bytes_of(head_of(0, Kind::credit), 8));
  Head ahead = head_of(1, Kind::credit);
  ahead.position = 24;
  expect_refused(bytes_of(ahead));
  ahead = head_of(2, Kind::question);
  ahead.position = 24;
  expect_refused(bytes_of(ahead));
  raw_->send(port_, bytes_of(head_of(3, Kind::ended)));  // of who was never sent anything
  expect_heard(3);
}

TEST_F(OfiForged, NotesThatNobodyWroteAreDropped) {
  meet();
  Note forged = ask_worker(0);
  ++forged.seal;
  raw_->answer.clear();
  raw_->send(device_, bytes_of(forged));
  raw_->send(device_, std::vector<std::byte>(5));
  raw_->send(device_, bytes_of(ask_worker(0), 40));    // more bytes than it says
  raw_->send(device_, bytes_of(ask_worker(0), 4000));  // more than a note has
  raw_->send(device_, bytes_of(ask_worker(0), 20'000));
  raw_->send(device_, bytes_of(ask_worker(UINT64_MAX)));
  for (const std::uint32_t kind : {0U, 3U, 4U, 99U}) {
    Note note = ask_worker(0);
    note.kind = kind;
    network::seal(&note, members_[0]->secret());
    raw_->send(device_, bytes_of(note));
  }
  Note stranger = ask_worker(0);
  stranger.rank = 2;
  network::seal(&stranger, members_[0]->secret());
  raw_->send(device_, bytes_of(stranger));
  // One connection keeps its order: the answer to the last note shows that the others were read.
  raw_->send(device_, bytes_of(ask_worker(0)));
  EXPECT_TRUE(until([&] { return !raw_->answer.empty(); }));
  expect_heard(0);
}

// ---- what is lost -------------------------------------------------------------------------------

TEST_F(OfiForged, AQuestionIsAnsweredThoughAllWasTold) {
  meet_both();
  for (std::uint32_t times = 1; times <= 2; ++times) {
    const std::uint32_t before = raw_->heard[Kind::credit];
    raw_->send(port_, bytes_of(head_of(0, Kind::question)));
    EXPECT_TRUE(until([&] { return raw_->heard[Kind::credit] > before; }));
  }
  EXPECT_EQ(malformed(), 0U);
}

// Its sender is told each time that nothing of it is taken any more.
TEST_F(OfiForged, AQuestionAfterAGapIsAnsweredByTheEnd) {
  meet_both();
  Head ahead = head_of(0, Kind::question);
  ahead.position = 24;
  raw_->send(port_, bytes_of(ahead));
  EXPECT_TRUE(until([&] { return raw_->heard[Kind::ended] > 0; }));
  EXPECT_TRUE(until([&] { return ended_.contains(first_); }));
  EXPECT_EQ(ended_[first_], HEDDLE_ERR_PEER_FAILED);
  const std::uint32_t before = raw_->heard[Kind::ended];
  raw_->send(port_, bytes_of(ahead));
  EXPECT_TRUE(until([&] { return raw_->heard[Kind::ended] > before; }));
}

TEST_F(OfiForged, WhatWasSentToWhoHasEndedFails) {
  meet_both();
  EXPECT_FALSE(ended_.contains(first_));
  raw_->send(port_, bytes_of(head_of(0, Kind::ended)));
  EXPECT_TRUE(until([&] { return ended_.contains(first_); }));
  EXPECT_EQ(ended_[first_], HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_PEER_FAILED);
}

class OfiLost : public OfiForged {
 protected:
  void SetUp() override { set_up("1s"); }
};

// The raw rank has got the message, or has not: it tells nothing, and so it is asked, by whoever
// makes progress.
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
  raw_->send(port_, bytes_of(told));
  EXPECT_TRUE(until([&] { return ended_.contains(first_); }));
  EXPECT_EQ(ended_[first_], HEDDLE_DONE);
}

TEST_F(OfiLost, AQuestionForAWorkerIsRepeated) {
  meet();
  static_cast<void>(post_to_raw());
  EXPECT_TRUE(until([&] { return raw_->asked_for_workers > 2; }));
  answer_worker();
  EXPECT_TRUE(until([&] { return raw_->heard[Kind::message] == 1; }));
}

// Nobody listens at the address in its card.
TEST_F(OfiLost, WhoIsNotReachedIsGivenUp) {
  raw_->publish([](CardHead*) {});
  raw_.reset();
  Command command;
  command.rank = kRaw;
  command.token = next_++;
  ASSERT_TRUE(test::within_time([&] { return worker_->post({&command, 1}) == 1; }, [this] { poll(); }));
  EXPECT_TRUE(test::within_time([&] { return ended_.contains(command.token); }, [this] { poll(); }));
  EXPECT_EQ(ended_[command.token], HEDDLE_ERR_PEER_FAILED);
}

// ---- cards --------------------------------------------------------------------------------------

TEST_F(OfiForged, AnotherTransportIsToldByItsCard) {
  raw_->publish([](CardHead* head) { head->tag[0] = 'H'; });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_CONFIG);
}

TEST_F(OfiForged, AnotherProviderIsToldByItsCard) {
  raw_->publish([](CardHead* head) { std::memset(head->provider, 'p', sizeof head->provider); });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_CONFIG);
}

TEST_F(OfiForged, AnotherVersionIsRefused) {
  raw_->publish([](CardHead* head) { ++head->wire; });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_VERSION);
}

TEST_F(OfiForged, AnotherLibfabricIsRefused) {
  raw_->publish([](CardHead* head) { std::memcpy(head->version, "1.99", 5); });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_VERSION);
}

TEST_F(OfiForged, AnotherWindowIsRefused) {
  raw_->publish([](CardHead* head) { head->window += 64; });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_VERSION);
}

TEST_F(OfiForged, ACardThatIsCutOffIsRefused) {
  raw_->publish([](CardHead* head) { ++head->address_bytes; });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_PROTOCOL);
}

}  // namespace
}  // namespace heddle::transport::ofi
