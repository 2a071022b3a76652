// What a peer may write that no rank of ours would: notes, messages and credits that are forged,
// truncated or out of order, and cards of other versions. Rank 1 is this test itself, which uses
// only UCX.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/test_waits.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/test_ucx.hpp"
#include "transport/transport.hpp"
#include "transport/ucx/library.hpp"
#include "transport/ucx/wire.hpp"

namespace heddle::transport::ucx {
namespace {

using network::CardHead;
using network::kMostBundle;
using network::kMostPart;
using network::Note;
using network::Part;
using network::part_bytes;
using network::pass_of;
using network::seal;

constexpr std::uint32_t kRaw = 1;

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

// A UCX worker that sends what the test tells it to.
class RawRank {
 public:
  RawRank(bootstrap::Bootstrap& bootstrap, const base::Config& config, const char* transports = "tcp")
      : bootstrap_(bootstrap), config_(config) {
    call_ = &(*Library::open("libucp.so.0"))->call();
    ucp_config_t* settings = nullptr;
    EXPECT_EQ(call_->config_read(nullptr, nullptr, &settings), UCS_OK);
    EXPECT_EQ(call_->config_modify(settings, "TLS", transports), UCS_OK);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    EXPECT_EQ(call_->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, settings, &context_), UCS_OK);
    call_->config_release(settings);
    ucp_worker_params_t worker{};
    EXPECT_EQ(call_->worker_create(context_, &worker, &worker_), UCS_OK);
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kNoteId;
    handler.cb = on_note;
    handler.arg = this;
    EXPECT_EQ(call_->worker_set_am_recv_handler(worker_, &handler), UCS_OK);
  }
  ~RawRank() {
    // A peer must not find its connection cut off in the middle of a greeting.
    const ucp_request_param_t params{};
    void* request = call_->worker_flush_nbx(worker_, &params);
    if (request != nullptr && !UCS_PTR_IS_ERR(request)) {
      EXPECT_TRUE(test::within_time([&] { return call_->request_check_status(request) != UCS_INPROGRESS; },
                                    [&] { call_->worker_progress(worker_); }));
      call_->request_free(request);
    }
    call_->worker_destroy(worker_);
    if (shared_ != nullptr) call_->mem_unmap(context_, shared_);
    call_->cleanup(context_);
  }
  RawRank(const RawRank&) = delete;
  RawRank& operator=(const RawRank&) = delete;

  // Its card, changed by `change`.
  void publish(const std::function<void(CardHead*)>& change) {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    ASSERT_EQ(call_->worker_get_address(worker_, &address, &bytes), UCS_OK);
    CardHead head;
    std::memcpy(head.transport, "ucx", 4);
    (*Library::open("libucp.so.0"))->version().copy(head.version, sizeof head.version - 1);
    head.agreed = agreed_of(config_);
    head.max_workers = config_.number(base::Var::max_workers);
    head.window = config_.number(base::Var::ucx_window_bytes);
    head.address_bytes = bytes;
    change(&head);
    bootstrap::Card card;
    card.bytes.resize(sizeof head + bytes);
    std::memcpy(card.bytes.data(), &head, sizeof head);
    std::memcpy(card.bytes.data() + sizeof head, address, bytes);
    call_->worker_release_address(worker_, address);
    ASSERT_EQ(bootstrap_.publish(card), HEDDLE_DONE);
  }

  [[nodiscard]] ucp_ep_h connect(const void* address) {
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // both ends alike
    params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {};
    params.address = static_cast<const ucp_address_t*>(address);
    ucp_ep_h endpoint = nullptr;
    EXPECT_EQ(call_->ep_create(worker_, &params, &endpoint), UCS_OK);
    return endpoint;
  }

  void send(ucp_ep_h endpoint, unsigned id, const std::vector<std::byte>& bytes) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    void* request = call_->am_send_nbx(endpoint, id, nullptr, 0, bytes.data(), bytes.size(), &params);
    ASSERT_FALSE(UCS_PTR_IS_ERR(request));
    if (request == nullptr) return;
    EXPECT_TRUE(test::within_time([&] { return call_->request_check_status(request) != UCS_INPROGRESS; },
                                  [&] { call_->worker_progress(worker_); }));
    call_->request_free(request);
  }

  // Registers one region, once; returns UCX's key of it.
  [[nodiscard]] std::vector<std::byte> share(std::span<std::byte> memory) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = memory.data();
    params.length = memory.size();
    EXPECT_EQ(call_->mem_map(context_, &params, &shared_), UCS_OK);
    void* packed = nullptr;
    std::size_t bytes = 0;
    EXPECT_EQ(call_->rkey_pack(context_, shared_, &packed, &bytes), UCS_OK);
    const auto* begin = static_cast<const std::byte*>(packed);
    std::vector<std::byte> key(begin, begin + bytes);
    call_->rkey_buffer_release(packed);
    return key;
  }

  void progress() { call_->worker_progress(worker_); }
  // The address, from the answer to its question for a worker. Empty: none has arrived.
  std::vector<std::byte> answer;
  std::uint32_t asked_for_workers = 0;
  std::uint32_t asked_for_keys = 0;

 private:
  static ucs_status_t on_note(void* arg, const void*, std::size_t, void* data, std::size_t bytes,
                              const ucp_am_recv_param_t*) {
    Note note;
    std::memcpy(&note, data, sizeof note);
    const auto* begin = static_cast<const std::byte*>(data);
    auto& self = *static_cast<RawRank*>(arg);
    if (note.kind == Note::worker && note.state == Note::is_open)
      self.answer.assign(begin + sizeof note, begin + bytes);
    if (note.kind == Note::ask_worker) ++self.asked_for_workers;
    if (note.kind == Note::ask_key) ++self.asked_for_keys;
    return UCS_OK;
  }

  bootstrap::Bootstrap& bootstrap_;
  const base::Config& config_;
  const Functions* call_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_mem_h shared_ = nullptr;
};

template <class Record>
std::vector<std::byte> bytes_of(const Record& record, std::size_t more = 0) {
  std::vector<std::byte> bytes(sizeof record + more);
  std::memcpy(bytes.data(), &record, sizeof record);
  return bytes;
}

class UcxForged : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
    auto config = base::Config::read({{"HEDDLE_UCX_TLS", "tcp"}, {"HEDDLE_MAX_WORKERS", "4"}});
    ASSERT_TRUE(config.ok());
    environment_.config = *config;
    environment_.log = base::Log(base::Level::error, 0);
    environment_.clock = &clock_;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      auto member = bootstrap::inproc::open(*job_, rank);
      ASSERT_TRUE(member.ok());
      members_[rank] = std::move(*member);
    }
    auto transport = transport::open("ucx", *members_[0], environment_);
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
  // Polls this end only.
  void poll() {
    std::array<Completion, 16> completions;
    const std::size_t n = worker_->poll(completions);
    for (std::size_t i = 0; i < n; ++i) {
      if (completions[i].event == Event::message) ++messages_;
      if (completions[i].event == Event::done) ended_[completions[i].token] = completions[i].status;
    }
  }

  // Sends a message to the raw rank's worker 0; returns its status.
  base::Status send_to_raw() {
    const Token token = next_++;
    bool taken = false;
    EXPECT_TRUE(until([&] {
      Command command;
      command.rank = kRaw;
      command.token = token;
      if (!taken) taken = worker_->post({&command, 1}) == 1;
      return ended_.contains(token);
    }));
    return ended_[token];
  }

  [[nodiscard]] Note ask_worker(std::uint64_t number) const {
    Note note;
    note.kind = Note::ask_worker;
    note.rank = kRaw;
    note.number = number;
    seal(&note, members_[0]->secret());
    return note;
  }
  // Of the raw rank's worker `worker`, at the beginning of its stream.
  [[nodiscard]] Head head_of(std::uint32_t worker) const {
    Head head;
    head.rank = kRaw;
    head.worker = worker;
    head.pass = pass_of(kRaw, worker, members_[0]->secret());
    return head;
  }
  [[nodiscard]] std::uint64_t malformed() const { return worker_->counters().malformed; }

  // Connects the raw rank to the device worker, then to worker 0.
  void meet() {
    raw_->publish([](CardHead*) {});
    const auto card = members_[kRaw]->fetch_wait(0);
    ASSERT_TRUE(card.ok());
    home_ = raw_->connect(card->bytes.data() + sizeof(CardHead));
    raw_->send(home_, kNoteId, bytes_of(ask_worker(0)));
    ASSERT_TRUE(until([&] { return !raw_->answer.empty(); }));
    station_ = raw_->connect(raw_->answer.data());
  }
  // The raw rank's answer to a question.
  void answer(std::uint32_t kind, std::uint64_t number, std::uint32_t state, std::span<const std::byte> bytes) {
    Note note;
    note.kind = kind;
    note.rank = kRaw;
    note.number = number;
    note.state = state;
    note.bytes = static_cast<std::uint32_t>(bytes.size());
    seal(&note, members_[0]->secret());
    auto letter = bytes_of(note, bytes.size());
    std::copy(bytes.begin(), bytes.end(), letter.begin() + sizeof note);
    raw_->send(home_, kNoteId, letter);
  }
  // The answer to the question for its worker 0, the only one that it has.
  void answer_worker() {
    const auto card = members_[0]->fetch_wait(kRaw);
    ASSERT_TRUE(card.ok());
    answer(Note::worker, 0, Note::is_open, std::span(card->bytes).subspan(sizeof(CardHead)));
    // its greeting, without which nothing is sent to it
    raw_->send(station_, kCreditId, bytes_of(head_of(0)));
  }
  // A region of the raw rank, by a key as that rank would write it.
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint64_t id, std::uint64_t address, std::uint64_t bytes) {
    KeyBytes key;
    key.rank = kRaw;
    key.id = id;
    key.address = address;
    key.bytes = bytes;
    seal(&key, members_[0]->secret());
    MemoryKey packed;
    std::memcpy(packed.bytes.data(), &key, sizeof key);
    return transport_->import(kRaw, packed);
  }
  // The first message of worker `worker` of the raw rank arrives.
  void expect_heard(std::uint32_t worker) {
    const std::size_t before = messages_;
    raw_->send(station_, kMessageId, bytes_of(head_of(worker), 8));
    EXPECT_TRUE(until([&] { return messages_ == before + 1; }));
  }
  void expect_refused(unsigned id, const std::vector<std::byte>& bytes) {
    const std::uint64_t before = malformed();
    raw_->send(station_, id, bytes);
    EXPECT_TRUE(until([&] { return malformed() == before + 1; }));
  }

  HeldClock clock_;
  base::Environment environment_;
  std::optional<bootstrap::inproc::Job> job_{std::in_place, 2};
  std::array<std::unique_ptr<bootstrap::Bootstrap>, 2> members_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<TransportWorker> worker_;
  std::unique_ptr<RawRank> raw_;
  ucp_ep_h home_ = nullptr;
  ucp_ep_h station_ = nullptr;
  std::size_t messages_ = 0;
  std::map<Token, base::Status> ended_;
  Token next_ = 1;
};

TEST_F(UcxForged, MessagesThatNobodyWroteAreCountedAndDropped) {
  meet();
  const std::uint64_t wrong = malformed();
  EXPECT_EQ(wrong, 0U);
  expect_refused(kMessageId, std::vector<std::byte>(3));               // shorter than a head
  expect_refused(kMessageId, bytes_of(head_of(0), kMostMessage + 8));  // longer than any
  // a credit has nothing behind it
  expect_refused(kCreditId, bytes_of(head_of(0), 8));
  for (const auto& spoil : std::vector<std::function<void(Head*)>>{
           [](Head* head) { ++head->pass; }, [](Head* head) { head->rank = 2; },
           [](Head* head) { head->rank = UINT32_MAX; }, [](Head* head) { head->worker = 4; },
           [](Head* head) { head->worker = UINT32_MAX; }}) {
    Head head = head_of(0);
    spoil(&head);
    expect_refused(kMessageId, bytes_of(head, 8));
    expect_refused(kCreditId, bytes_of(head));
  }
  expect_heard(0);
}

// The parts of a bundle before the first impossible one arrive; then the stream has a gap.
TEST_F(UcxForged, BundlesThatNobodyWroteAreRefused) {
  meet();
  const auto bundle = [this](std::uint32_t worker, std::vector<std::uint32_t> says, std::size_t cut = 0) {
    std::vector<std::byte> bytes = bytes_of(head_of(worker));
    for (const std::uint32_t length : says) {
      const Part part{length, 0};
      const auto* begin = reinterpret_cast<const std::byte*>(&part);
      bytes.insert(bytes.end(), begin, begin + sizeof part);
      bytes.resize(bytes.size() + std::min(part_bytes(length) - sizeof part, std::size_t{kMostPart}));
    }
    bytes.resize(bytes.size() - cut);
    return bytes;
  };
  expect_refused(kBundleId, std::vector<std::byte>(3));
  expect_refused(kBundleId, std::vector<std::byte>(kMostBundle + 8));
  raw_->send(station_, kBundleId, bundle(0, {8, 0, 40}));
  EXPECT_TRUE(until([&] { return messages_ == 3; }));
  raw_->send(station_, kBundleId, bundle(1, {}));  // an empty bundle has no effect
  const std::size_t heard = messages_;
  expect_refused(kBundleId, bundle(1, {8, kMostPart + 8}));
  EXPECT_TRUE(until([&] { return messages_ == heard + 1; }));
  expect_refused(kBundleId, bundle(2, {UINT32_MAX}));
  expect_refused(kBundleId, bundle(3, {8, 8}, 1));
  EXPECT_TRUE(until([&] { return messages_ == heard + 2; }));
}

// A stream that has a gap is disconnected; others of the same rank are not.
TEST_F(UcxForged, AStreamThatCannotBeIsGivenUp) {
  meet();
  const auto spoiled = [this](std::uint32_t worker, const std::function<void(Head*)>& spoil) {
    Head head = head_of(worker);
    spoil(&head);
    return bytes_of(head, 8);
  };
  // not the position of the stream
  expect_refused(kMessageId, spoiled(0, [](Head* head) { head->position = 8; }));
  // says that something arrived that nobody has sent
  expect_refused(kMessageId, spoiled(1, [](Head* head) { head->consumed = 24; }));
  expect_refused(kMessageId, spoiled(2, [](Head* head) { head->arrived = 24; }));
  expect_heard(3);
  EXPECT_EQ(transport_->lost(kRaw), 1U) << "who asks what has become of its commands is told the rank";
  EXPECT_EQ(transport_->lost(0), 0U);
  EXPECT_EQ(transport_->lost(2), 0U) << "no such rank";
}

TEST_F(UcxForged, NotesThatNobodyWroteAreDropped) {
  meet();
  Note forged = ask_worker(0);
  ++forged.seal;
  raw_->answer.clear();
  raw_->send(home_, kNoteId, bytes_of(forged));
  raw_->send(home_, kNoteId, std::vector<std::byte>(5));
  raw_->send(home_, kNoteId, bytes_of(ask_worker(0), 40));  // more bytes than it says
  raw_->send(home_, kNoteId, bytes_of(ask_worker(UINT64_MAX)));
  for (const std::uint32_t kind : {0U, 99U}) {
    Note note = ask_worker(0);
    note.kind = kind;
    seal(&note, members_[0]->secret());
    raw_->send(home_, kNoteId, bytes_of(note));
  }
  Note stranger = ask_worker(0);
  stranger.rank = 2;
  seal(&stranger, members_[0]->secret());
  raw_->send(home_, kNoteId, bytes_of(stranger));
  // One connection keeps its order: the answer to the last note shows that the others were read.
  raw_->send(home_, kNoteId, bytes_of(ask_worker(0)));
  EXPECT_TRUE(until([&] { return !raw_->answer.empty(); }));
  expect_heard(0);
}

// An answer that has a key, or says that there is one, is checked before it is used.
TEST_F(UcxForged, AKeyThatIsNoneIsNotUsed) {
  meet();
  const auto memory = import(77, 4096, 64);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  std::array<std::byte, 8> word{};
  bool taken = false;
  const Token token = next_++;
  const auto put = [&] {
    Command command;
    command.opcode = Opcode::put;
    command.rank = kRaw;
    command.local = word.data();
    command.bytes = word.size();
    command.remote = &*memory;
    command.token = token;
    if (!taken) taken = worker_->post({&command, 1}) == 1;
  };
  ASSERT_TRUE(until([&] { return put(), raw_->asked_for_workers == 1; }));
  ASSERT_NO_FATAL_FAILURE(answer_worker());
  ASSERT_TRUE(until([&] { return put(), raw_->asked_for_keys == 1; }));
  answer(Note::key, 77, Note::is_open, {});  // of no bytes
  answer(Note::key, 77, 99, word);           // no such state
  raw_->answer.clear();
  raw_->send(home_, kNoteId, bytes_of(ask_worker(0)));
  EXPECT_TRUE(until([&] { return put(), !raw_->answer.empty(); })) << "all before it was read";
  EXPECT_FALSE(taken);
  answer(Note::key, 77, Note::is_unknown, {});
  EXPECT_TRUE(until([&] { return put(), ended_.contains(token); }));
  EXPECT_EQ(ended_[token], HEDDLE_ERR_RANGE);
}

// A get whose reply lies in the socket, in part, when its connection is cut.
class UcxLateReply : public UcxForged {
 protected:
  // The get's token. Time stands still from here on, so that the helper, which waits until the
  // owner is away, reads nothing of the reply.
  Token get_in_part() {
    meet();
    key_ = raw_->share(source_);
    const auto memory = import(77, reinterpret_cast<std::uint64_t>(source_.data()), source_.size());
    EXPECT_TRUE(memory.ok()) << base::last_message();
    if (!memory.ok()) return 0;
    memory_ = *memory;
    const Token first = get(64);
    EXPECT_TRUE(until([&] { return ended_.contains(first); }));
    EXPECT_EQ(ended_[first], HEDDLE_DONE);
    clock_.hold();
    poll();
    const Token second = get(source_.size());
    for (int i = 0; i < 64; ++i) raw_->progress();
    return second;
  }
  Token get(std::uint64_t bytes) {
    Command command;
    command.opcode = Opcode::get;
    command.rank = kRaw;
    command.local = target_.data();
    command.bytes = bytes;
    command.remote = &memory_;
    command.token = next_++;
    EXPECT_TRUE(until([&] {
      if (raw_->asked_for_workers == 1) {
        ++raw_->asked_for_workers;
        answer_worker();
      }
      if (raw_->asked_for_keys == 1) {
        ++raw_->asked_for_keys;
        answer(Note::key, 77, Note::is_open, key_);
      }
      return worker_->post({&command, 1}) == 1;
    }));
    return command.token;
  }
  // How much of the reply is in its target: it comes in order.
  [[nodiscard]] std::ptrdiff_t arrived() const {
    return std::ranges::partition_point(target_, [](std::byte b) { return b == std::byte{0x11}; }) - target_.begin();
  }

  // More than one round of progress reads, and no more than sockets hold: UCX 1.13 may abort where
  // a reply waits for a connection that is cut.
  std::vector<std::byte> source_ = std::vector<std::byte>(std::size_t{1} << 20, std::byte{0x11});
  std::vector<std::byte> target_ = std::vector<std::byte>(source_.size());
  std::vector<std::byte> key_;
  RemoteMemory memory_;
};

// The peer was declared dead, but lives.
TEST_F(UcxLateReply, IsNotWrittenOnceItsGetHasFailed) {
  const Token token = get_in_part();
  ASSERT_EQ(job_->fail(kRaw), HEDDLE_DONE);
  worker_->peer_failed(kRaw);
  clock_.jump_ns(1'000'000'000);
  EXPECT_TRUE(test::within_time([&] { return ended_.contains(token); }, [this] { poll(); }));
  const std::ptrdiff_t before = arrived();
  EXPECT_EQ(ended_[token], HEDDLE_ERR_PEER_FAILED);
  EXPECT_GT(before, 0) << "no part of the reply has come: there is nothing to be seen";
  for (int i = 0; i < 100; ++i) poll();
  EXPECT_EQ(arrived(), before);
  clock_.release();
  transport_->release(memory_);
}

// Nobody waits for the reply: each read of the clock advances it by more than a worker waits when
// it closes.
TEST_F(UcxLateReply, IsNotWrittenOnceItsWorkerIsClosed) {
  static_cast<void>(get_in_part());
  clock_.hasten(300'000'000);
  worker_.reset();
  const std::ptrdiff_t before = arrived();
  EXPECT_LT(before, std::ssize(target_)) << "all had come before: there was nothing to be seen";
  clock_.release();
  transport_->release(memory_);
  transport_.reset();  // it has made progress on what was closed
  EXPECT_EQ(arrived(), before);
}

TEST_F(UcxForged, AnotherTransportIsToldByItsCard) {
  raw_->publish([](CardHead* head) { head->tag[0] = 'H'; });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_CONFIG);
}

TEST_F(UcxForged, ATransportOfTheSameKindIsToldByItsCard) {
  raw_->publish([](CardHead* head) { std::memcpy(head->transport, "ofi", 4); });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_CONFIG);
}

// The address in its card leads nowhere. A death may have that effect, so it is not reported as a
// mistake in the settings before a death would be known.
TEST_F(UcxForged, WhoIsNotReachedMayHaveDied) {
  for (const bool dies : {true, false}) {
    TearDown();
    job_.emplace(2);
    SetUp();
    raw_.reset();
    raw_ = std::make_unique<RawRank>(*members_[kRaw], environment_.config, "posix,self");
    raw_->publish([](CardHead*) {});
    Command command;
    command.rank = kRaw;
    command.token = next_++;
    ASSERT_TRUE(until([&] { return worker_->post({&command, 1}) == 1; }));
    for (int i = 0; i < 1000; ++i) {
      std::array<Completion, 4> none;
      ASSERT_EQ(worker_->poll(none), 0U);
    }
    if (dies) {
      ASSERT_EQ(job_->fail(kRaw), HEDDLE_DONE);
      worker_->peer_failed(kRaw);
    }
    EXPECT_TRUE(until([&] { return ended_.contains(command.token); }));
    EXPECT_EQ(ended_[command.token], dies ? HEDDLE_ERR_PEER_FAILED : HEDDLE_ERR_CONFIG);
  }
}

TEST_F(UcxForged, AnotherVersionIsRefused) {
  raw_->publish([](CardHead* head) { ++head->wire; });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_VERSION);
}

TEST_F(UcxForged, AnotherUcxIsRefused) {
  raw_->publish([](CardHead* head) { std::memcpy(head->version, "1.999.1", 8); });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_VERSION);
}

TEST_F(UcxForged, AnotherWindowIsRefused) {
  raw_->publish([](CardHead* head) { head->window += 64; });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_VERSION);
}

TEST_F(UcxForged, ACardThatIsCutOffIsRefused) {
  raw_->publish([](CardHead* head) { ++head->address_bytes; });
  EXPECT_EQ(send_to_raw(), HEDDLE_ERR_PROTOCOL);
}

}  // namespace
}  // namespace heddle::transport::ucx
