// For the tests of this folder: a job whose ranks are objects of one process, and one of two
// processes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "bootstrap/bootstrap.hpp"
#include "transport/shm/shm.hpp"

namespace heddle::transport::shm {

// The cards of a job whose ranks are objects.
struct TestCards {
  std::mutex mutex;
  std::map<std::uint32_t, bootstrap::Card> cards;
  std::map<std::uint32_t, bool> failed;
};

class TestBootstrap final : public bootstrap::Bootstrap {
 public:
  TestBootstrap(TestCards& cards, std::uint32_t rank, std::uint32_t size) : cards_(cards), rank_(rank), size_(size) {}

  [[nodiscard]] const char* name() const override { return "test"; }
  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  [[nodiscard]] const bootstrap::JobSecret& secret() const override { return secret_; }
  [[nodiscard]] base::Status publish(const bootstrap::Card& card) override {
    const std::lock_guard lock(cards_.mutex);
    cards_.cards[rank_] = card;
    return HEDDLE_DONE;
  }
  [[nodiscard]] base::Result<bootstrap::Card> fetch(std::uint32_t rank) override {
    const std::lock_guard lock(cards_.mutex);
    const auto found = cards_.cards.find(rank);
    if (found == cards_.cards.end()) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u never published", rank);
    bootstrap::Card card = found->second;
    card.fd = fcntl(card.fd, F_DUPFD_CLOEXEC, 0);
    if (card.fd < 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "dup of the card of rank %u", rank);
    return card;
  }
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte>) override { return HEDDLE_ERR_UNSUPPORTED; }
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>*) override {
    return HEDDLE_ERR_UNSUPPORTED;
  }
  [[nodiscard]] bool failed(std::uint32_t rank) const override {
    const std::lock_guard lock(cards_.mutex);
    const auto found = cards_.failed.find(rank);
    return found != cards_.failed.end() && found->second;
  }
  void leave() override {}
  [[noreturn]] void abort(int code, const char*) override { std::exit(code); }

 private:
  TestCards& cards_;
  std::uint32_t rank_;
  std::uint32_t size_;
  bootstrap::JobSecret secret_{};
};

inline base::SystemClock& test_clock() {
  static base::SystemClock clock;
  return clock;
}

// One rank: its settings, its transport, worker 0.
struct TestRank {
  using Settings = base::Config::Overrides;

  TestRank(TestCards& cards, std::uint32_t rank, std::uint32_t size, const Settings& settings = {})
      : bootstrap(cards, rank, size) {
    auto config = base::Config::read(settings);
    EXPECT_TRUE(config.ok()) << base::last_message();
    environment.config = *config;
    environment.log = base::Log(base::Level::error, rank);
    environment.clock = &test_clock();
    auto opened = open(bootstrap, environment);
    status = opened.status();
    if (!opened) return;
    transport = std::move(*opened);
    worker = std::move(*transport->open_worker(0));
  }
  ~TestRank() {
    worker.reset();
    transport.reset();
  }
  TestRank(const TestRank&) = delete;
  TestRank& operator=(const TestRank&) = delete;

  // True: accepted.
  bool send(std::uint32_t to, std::span<const std::byte> payload, std::uint32_t immediate = 0,
            std::uint32_t to_worker = 0) {
    Command command;
    command.rank = to;
    command.worker = to_worker;
    command.immediate = immediate;
    command.local = const_cast<std::byte*>(payload.data());  // NOLINT: a source, not written
    command.bytes = payload.size();
    command.token = 1;
    return worker->post({&command, 1}) == 1;
  }
  // A put or get; true: accepted. *posted is the command as post() left it.
  bool transfer(Opcode opcode, const RemoteMemory& remote, std::uint64_t offset, std::span<std::byte> local,
                Command* posted = nullptr) {
    Command command;
    if (posted != nullptr) command = *posted;
    if (command.token == 0) command.token = 1;  // 0 is of no command
    command.opcode = opcode;
    command.rank = remote.rank;
    command.local = local.data();
    command.bytes = local.size();
    command.remote = &remote;
    command.offset = offset;
    const bool accepted = worker->post({&command, 1}) == 1;
    if (posted != nullptr) *posted = command;
    return accepted;
  }
  // The events of one poll, with the message data copied.
  struct Got {
    Completion completion;
    std::vector<std::byte> data;
  };
  std::vector<Got> poll(std::size_t most = 16) {
    std::vector<Completion> events(most);
    const std::size_t n = worker->poll(events);
    std::vector<Got> out;
    for (std::size_t i = 0; i < n; ++i) {
      if (events[i].event == Event::done && events[i].token == 0) continue;  // a peer was served
      Got got{events[i], {}};
      if (events[i].event == Event::message) got.data.assign(events[i].data, events[i].data + events[i].bytes);
      out.push_back(std::move(got));
    }
    return out;
  }

  TestBootstrap bootstrap;
  base::Environment environment;
  base::Status status = HEDDLE_DONE;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<TransportWorker> worker;
};

inline std::vector<std::byte> bytes_of(std::uint64_t seed, std::size_t n) {
  std::vector<std::byte> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>((seed * 131 + i * 7 + (i >> 8)) & 0xFF);
  return out;
}

}  // namespace heddle::transport::shm
