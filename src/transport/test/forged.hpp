// For tests of messages that a peer may write and no rank of ours would, over one network. Rank 1
// is the test itself, the raw rank: a queue of the library, which sends what it is told to, and is
// that rank's device worker and its worker 0.
//
// A transport has a RawRank, from RawEnd:
//   using Connection; connect(address); send_note(to, bytes); send(to, kind, bytes); progress();
//   address(), version(), provider(): for its card
//   static why_not(), transport(), settings(), window()
//   kHasHandshake: nothing is sent to a worker before that has sent something
//   kinds(): of messages that are forged; note_kinds(): of notes that are none;
//   note_tails(): how much more a note may have than it says
// and instantiates the suite Forged with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/network/directory.hpp"
#include "transport/network/wire.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::network {

inline constexpr std::uint32_t kRaw = 1;

// While it is held it stands still, or advances by one step at each read.
class HeldClock final : public base::Clock {
 public:
  std::uint64_t now_ns() override {
    if (!held_) return system_.now_ns() + ahead_;
    return at_ += step_;
  }
  void hold() {
    at_ = now_ns();
    held_ = true;
  }
  void jump_ns(std::uint64_t by) { at_ += by; }
  void hasten(std::uint64_t step) { step_ = step; }
  void release() {
    ahead_ += at_;  // it never goes back
    held_ = false;
  }

 private:
  base::SystemClock system_;
  std::atomic<bool> held_{false};
  std::atomic<std::uint64_t> at_{0};
  std::atomic<std::uint64_t> step_{0};
  std::atomic<std::uint64_t> ahead_{0};
};

template <class Record>
std::vector<std::byte> bytes_of(const Record& record, std::size_t more = 0) {
  std::vector<std::byte> bytes(sizeof record + more);
  std::memcpy(bytes.data(), &record, sizeof record);
  return bytes;
}

// Everything that has come to the raw rank.
struct RawEnd {
  // From the device: the address in the answer to its question for a worker (empty: none has
  // arrived), and questions.
  Bytes answer;
  std::uint32_t asked_for_workers = 0;
  std::uint32_t asked_for_keys = 0;
  std::optional<std::uint32_t> closed_after;  // worker 0: how many messages had come from it then
  // From worker 0, by kind.
  std::map<Kind, std::uint32_t> heard;

  void on_note(const std::byte* data, std::size_t bytes) {
    Note note;
    ASSERT_GE(bytes, sizeof note);
    std::memcpy(&note, data, sizeof note);
    if (note.kind == Note::worker && note.state == Note::is_open) answer.assign(data + sizeof note, data + bytes);
    if (note.kind == Note::worker && note.state == Note::is_closed) closed_after = heard[Kind::message];
    if (note.kind == Note::ask_worker) ++asked_for_workers;
    if (note.kind == Note::ask_key) ++asked_for_keys;
  }
};

template <class Raw>
class Forged : public testing::Test {
 protected:
  void SetUp() override { set_up({}); }
  void set_up(const base::Config::Overrides& more) {
    if (const std::string why = Raw::why_not(); !why.empty()) GTEST_SKIP() << why;
    base::Config::Overrides settings = more;
    settings.merge(Raw::settings());
    settings.emplace("HEDDLE_MAX_WORKERS", "4");
    auto config = base::Config::read(settings);
    ASSERT_TRUE(config.ok());
    environment_.config = *config;
    environment_.log = base::Log(base::Level::error, 0);
    environment_.clock = &clock_;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      auto member = bootstrap::inproc::open(*job_, rank);
      ASSERT_TRUE(member.ok());
      members_[rank] = std::move(*member);
    }
    auto transport = transport::open(Raw::transport(), *members_[0], environment_);
    ASSERT_TRUE(transport.ok()) << base::last_message();
    transport_ = std::move(*transport);
    auto worker = transport_->open_worker(0);
    ASSERT_TRUE(worker.ok());
    worker_ = std::move(*worker);
    raw_ = std::make_unique<Raw>(environment_.config, secret());
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
  // Polls this end only.
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
    seal(&note, secret());
    return note;
  }
  // A head of the raw rank's worker `worker`, at the beginning of its stream.
  [[nodiscard]] Head head_of(std::uint32_t worker, Kind kind = Kind::message) const {
    Head head;
    head.rank = kRaw;
    head.worker = worker;
    head.pass = pass_of(kRaw, worker, secret());
    head.kind = static_cast<std::uint32_t>(kind);
    return head;
  }
  [[nodiscard]] const bootstrap::JobSecret& secret() const { return members_[0]->secret(); }
  [[nodiscard]] std::uint64_t malformed() const { return worker_->counters().malformed; }

  // The raw rank's card, changed by `change`.
  void publish(const std::function<void(CardHead*)>& change) {
    CardHead head;
    std::strncpy(head.transport, Raw::transport(), sizeof head.transport - 1);
    raw_->version().copy(head.version, sizeof head.version - 1);
    raw_->provider().copy(head.provider, sizeof head.provider - 1);
    head.agreed = agreed_of(environment_.config);
    head.max_workers = environment_.config.number(base::Var::max_workers);
    head.window = Raw::window();
    const Bytes address = raw_->address();
    head.address_bytes = address.size();
    change(&head);
    bootstrap::Card card;
    card.bytes = bytes_of(head, address.size());
    std::copy(address.begin(), address.end(), card.bytes.begin() + sizeof head);
    ASSERT_EQ(members_[kRaw]->publish(card), HEDDLE_DONE);
  }
  // Connects the raw rank to the device worker, then to worker 0.
  void meet() {
    publish([](CardHead*) {});
    const auto card = members_[kRaw]->fetch_wait(0);
    ASSERT_TRUE(card.ok());
    device_ = raw_->connect(std::span(card->bytes).subspan(sizeof(CardHead)));
    note(ask_worker(0));
    ASSERT_TRUE(until([&] { return !raw_->answer.empty(); }));
    port_ = raw_->connect(raw_->answer);
  }
  void note(const Note& note, std::size_t more = 0) { raw_->send_note(device_, bytes_of(note, more)); }
  // The raw rank's answer to a question.
  void answer(std::uint32_t kind, std::uint64_t number, std::uint32_t state, std::span<const std::byte> bytes) {
    Note note;
    note.kind = kind;
    note.rank = kRaw;
    note.number = number;
    note.state = state;
    note.bytes = static_cast<std::uint32_t>(bytes.size());
    seal(&note, secret());
    auto written = bytes_of(note, bytes.size());
    std::copy(bytes.begin(), bytes.end(), written.begin() + sizeof note);
    raw_->send_note(device_, written);
  }
  // The answer to the question for its worker 0, the only one that it has.
  void answer_worker() {
    answer(Note::worker, 0, Note::is_open, raw_->address());
    if (Raw::kHasHandshake) send(Kind::credit, bytes_of(head_of(0, Kind::credit)));
  }
  // To worker 0.
  void send(Kind kind, const std::vector<std::byte>& bytes) { raw_->send(port_, kind, bytes); }
  // The first message of worker `worker` of the raw rank arrives.
  void expect_heard(std::uint32_t worker) {
    const std::size_t before = messages_;
    send(Kind::message, bytes_of(head_of(worker), 8));
    EXPECT_TRUE(until([&] { return messages_ == before + 1; }));
  }
  void expect_refused(Kind kind, const std::vector<std::byte>& bytes) {
    const std::uint64_t before = malformed();
    send(kind, bytes);
    EXPECT_TRUE(until([&] { return malformed() == before + 1; }));
  }

  HeldClock clock_;
  base::Environment environment_;
  std::optional<bootstrap::inproc::ThreadJob> job_{std::in_place, 2};
  std::array<std::unique_ptr<bootstrap::Bootstrap>, 2> members_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<TransportWorker> worker_;
  std::unique_ptr<Raw> raw_;
  typename Raw::Connection device_{};
  typename Raw::Connection port_{};
  std::size_t messages_ = 0;
  std::map<Token, base::Status> ended_;
  Token next_ = 1;
};

TYPED_TEST_SUITE_P(Forged);

TYPED_TEST_P(Forged, MessagesThatNobodyWroteAreCountedAndDropped) {
  this->meet();
  EXPECT_EQ(this->malformed(), 0U);
  // shorter than a head
  this->expect_refused(Kind::message, std::vector<std::byte>(3));
  // longer than any
  this->expect_refused(Kind::message, bytes_of(this->head_of(0), kMostMessage + 8));
  for (const Kind kind : TypeParam::kinds()) {
    for (const auto& spoil : std::vector<std::function<void(Head*)>>{
             [](Head* head) { ++head->pass; }, [](Head* head) { head->rank = 2; },
             [](Head* head) { head->rank = UINT32_MAX; }, [](Head* head) { head->worker = 4; },
             [](Head* head) { head->worker = UINT32_MAX; }}) {
      Head head = this->head_of(0, kind);
      spoil(&head);
      this->expect_refused(kind, bytes_of(head, kind == Kind::message ? 8 : 0));
    }
  }
  // a credit has nothing behind it
  this->expect_refused(Kind::credit, bytes_of(this->head_of(0, Kind::credit), 8));
  this->expect_heard(1);
}

// The parts of a bundle before the first impossible one arrive; then the stream has a gap.
TYPED_TEST_P(Forged, BundlesThatNobodyWroteAreRefused) {
  this->meet();
  const auto bundle = [this](std::uint32_t worker, const std::vector<std::uint32_t>& says, std::size_t cut = 0) {
    std::vector<std::byte> bytes = bytes_of(this->head_of(worker, Kind::bundle));
    for (const std::uint32_t length : says) {
      const Part part{length, 0};
      const auto* begin = reinterpret_cast<const std::byte*>(&part);
      bytes.insert(bytes.end(), begin, begin + sizeof part);
      bytes.resize(bytes.size() + std::min(part_bytes(length) - sizeof part, std::size_t{kMostPart}));
    }
    bytes.resize(bytes.size() - cut);
    return bytes;
  };
  this->expect_refused(Kind::bundle, std::vector<std::byte>(3));
  this->expect_refused(Kind::bundle, std::vector<std::byte>(kMostBundle + 8));
  this->send(Kind::bundle, bundle(0, {8, 0, 40}));
  EXPECT_TRUE(this->until([&] { return this->messages_ == 3; }));
  this->send(Kind::bundle, bundle(1, {}));  // an empty bundle has no effect
  const std::size_t heard = this->messages_;
  this->expect_refused(Kind::bundle, bundle(1, {8, kMostPart + 8}));
  EXPECT_TRUE(this->until([&] { return this->messages_ == heard + 1; }));
  this->expect_refused(Kind::bundle, bundle(2, {UINT32_MAX}));
  this->expect_refused(Kind::bundle, bundle(3, {8, 8}, 1));
  EXPECT_TRUE(this->until([&] { return this->messages_ == heard + 2; }));
}

// A stream that has a gap is disconnected; others of the same rank are not.
TYPED_TEST_P(Forged, AStreamThatCannotBeIsDisconnected) {
  this->meet();
  const auto spoiled = [this](std::uint32_t worker, const std::function<void(Head*)>& spoil) {
    Head head = this->head_of(worker);
    spoil(&head);
    return bytes_of(head, 8);
  };
  // not the position of the stream
  this->expect_refused(Kind::message, spoiled(0, [](Head* head) { head->position = 8; }));
  // says that something arrived that nobody has sent
  this->expect_refused(Kind::message, spoiled(1, [](Head* head) { head->consumed = 24; }));
  this->expect_refused(Kind::message, spoiled(2, [](Head* head) { head->arrived = 24; }));
  this->expect_heard(3);
  EXPECT_EQ(this->transport_->lost(kRaw), 1U) << "who asks what has become of its commands is told the rank";
  EXPECT_EQ(this->transport_->lost(0), 0U);
  EXPECT_EQ(this->transport_->lost(2), 0U) << "no such rank";
}

TYPED_TEST_P(Forged, NotesThatNobodyWroteAreDropped) {
  this->meet();
  Note forged = this->ask_worker(0);
  ++forged.seal;
  this->raw_->answer.clear();
  this->note(forged);
  this->raw_->send_note(this->device_, std::vector<std::byte>(5));
  for (const std::size_t more : TypeParam::note_tails()) this->note(this->ask_worker(0), more);
  this->note(this->ask_worker(UINT64_MAX));
  for (const std::uint32_t kind : TypeParam::note_kinds()) {
    Note note = this->ask_worker(0);
    note.kind = kind;
    seal(&note, this->secret());
    this->note(note);
  }
  Note stranger = this->ask_worker(0);
  stranger.rank = 2;
  seal(&stranger, this->secret());
  this->note(stranger);
  // One connection keeps its order: the answer to the last note shows that the others were read.
  this->note(this->ask_worker(0));
  EXPECT_TRUE(this->until([&] { return !this->raw_->answer.empty(); }));
  this->expect_heard(0);
}

// Cards of others.
TYPED_TEST_P(Forged, AnotherCardIsRefused) {
  struct Change {
    const char* what;
    void (*change)(CardHead*);
    base::Status status;
  };
  for (const Change& one : std::to_array<Change>(
           {{"another kind of transport", [](CardHead* head) { head->tag[0] = 'H'; }, HEDDLE_ERR_CONFIG},
            {"another transport", [](CardHead* head) { std::memcpy(head->transport, "abc", 4); }, HEDDLE_ERR_CONFIG},
            {"another version", [](CardHead* head) { ++head->wire; }, HEDDLE_ERR_VERSION},
            {"another library", [](CardHead* head) { std::memcpy(head->version, "1.999.1", 8); }, HEDDLE_ERR_VERSION},
            {"another window", [](CardHead* head) { head->window += 64; }, HEDDLE_ERR_VERSION},
            {"a card that is cut off", [](CardHead* head) { ++head->address_bytes; }, HEDDLE_ERR_PROTOCOL}})) {
    SCOPED_TRACE(one.what);
    this->TearDown();
    this->job_.emplace(2);
    this->SetUp();
    if (this->IsSkipped()) return;
    this->publish(one.change);
    EXPECT_EQ(this->send_to_raw(), one.status);
  }
}

REGISTER_TYPED_TEST_SUITE_P(Forged, MessagesThatNobodyWroteAreCountedAndDropped, BundlesThatNobodyWroteAreRefused,
                            AStreamThatCannotBeIsDisconnected, NotesThatNobodyWroteAreDropped, AnotherCardIsRefused);

}  // namespace heddle::transport::network
