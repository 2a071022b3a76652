// Tests messages that a peer may write over UCX and no rank of ours would: see
// transport/test/forged.hpp. Also tests replies that come late, and bytes that are no keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/test/forged.hpp"
#include "transport/test/ucx_available.hpp"
#include "transport/ucx/library.hpp"
#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {
namespace {

using network::bytes_of;
using network::CardHead;
using network::Kind;
using network::kRaw;
using network::Note;

// A UCX worker that sends what the test tells it to.
class RawRank : public network::RawEnd {
 public:
  using Connection = ucp_ep_h;
  static constexpr bool kHasHandshake = true;
  static std::string why_not() { return why_no_ucx(); }
  static const char* transport() { return "ucx"; }
  static base::Config::Overrides settings() { return {{"HEDDLE_UCX_TLS", "tcp"}}; }
  static constexpr std::uint32_t window() { return 42U << 10; }
  static std::vector<Kind> kinds() { return {Kind::message, Kind::credit}; }
  static std::vector<std::uint32_t> note_kinds() { return {0, 99}; }
  static std::vector<std::size_t> note_tails() { return {40}; }

  RawRank(const base::Config&, const bootstrap::JobSecret&, const char* transports = "tcp") {
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
    handler.cb = receive;
    handler.arg = this;
    EXPECT_EQ(call_->worker_set_am_recv_handler(worker_, &handler), UCS_OK);
  }
  ~RawRank() {
    // A peer must not find its connection cut off in the middle of a handshake.
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

  [[nodiscard]] network::Bytes address() {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    EXPECT_EQ(call_->worker_get_address(worker_, &address, &bytes), UCS_OK);
    const auto* begin = reinterpret_cast<const std::byte*>(address);
    network::Bytes copy(begin, begin + bytes);
    call_->worker_release_address(worker_, address);
    return copy;
  }
  static std::string version() { return (*Library::open("libucp.so.0"))->version(); }
  static std::string provider() { return {}; }

  [[nodiscard]] ucp_ep_h connect(std::span<const std::byte> address) {
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // both ends alike
    params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {};
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    ucp_ep_h endpoint = nullptr;
    EXPECT_EQ(call_->ep_create(worker_, &params, &endpoint), UCS_OK);
    return endpoint;
  }
  void send_note(ucp_ep_h to, const std::vector<std::byte>& bytes) { send(to, kNoteId, bytes); }
  void send(ucp_ep_h to, Kind kind, const std::vector<std::byte>& bytes) {
    send(to, kind == Kind::message ? kMessageId : kind == Kind::bundle ? kBundleId : kCreditId, bytes);
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

 private:
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

  static ucs_status_t receive(void* arg, const void*, std::size_t, void* data, std::size_t bytes,
                              const ucp_am_recv_param_t*) {
    static_cast<RawRank*>(arg)->on_note(static_cast<const std::byte*>(data), bytes);
    return UCS_OK;
  }

  const Functions* call_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_mem_h shared_ = nullptr;
};

class UcxForged : public network::Forged<RawRank> {
 protected:
  // A region of the raw rank, by a key as that rank would write it.
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint64_t id, std::uint64_t address, std::uint64_t bytes) {
    KeyBytes key;
    key.rank = kRaw;
    key.id = id;
    key.address = address;
    key.bytes = bytes;
    network::seal(&key, secret());
    MemoryKey packed;
    std::memcpy(packed.bytes.data(), &key, sizeof key);
    return transport_->import(kRaw, packed);
  }
};

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
  note(ask_worker(0));
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

  // More than one round of progress reads, and no more than sockets hold: UCX 1.13 may abort if a
  // reply waits for a connection that is cut.
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

// The address in its card leads nowhere. A death may have that effect, so it is not reported as a
// mistake in the settings before a death would be known.
TEST_F(UcxForged, WhoIsNotReachedMayHaveDied) {
  for (const bool dies : {true, false}) {
    TearDown();
    job_.emplace(2);
    SetUp();
    raw_.reset();
    raw_ = std::make_unique<RawRank>(environment_.config, secret(), "posix,self");
    publish([](CardHead*) {});
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

}  // namespace
}  // namespace heddle::transport::ucx

namespace heddle::transport::network {
INSTANTIATE_TYPED_TEST_SUITE_P(Ucx, Forged, ucx::RawRank);
}  // namespace heddle::transport::network
