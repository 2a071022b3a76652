// The duties of every transport, as tests that know nothing but the contract in transport.hpp.
//
// A Setting is one way to set up one transport; conformance_test.cpp lists them, conformance_*.cpp
// hold the tests. A World is a job of a few ranks in this process with their transports. A Port is
// one worker that keeps account of its commands: it fails the test if a completion is missing,
// comes twice or comes in the wrong order, or if message data changes before the next poll.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/config.hpp"
#include "base/random.hpp"
#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::conformance {

struct Setting {
  std::string label;
  std::string transport;
  base::Config::Overrides variables;
  std::string why_not{};   // not empty: why it cannot be tried here
  bool by_kernel = false;  // it needs the kernel's copy: skipped where there is none
};

// For gtest, which would print bytes.
inline void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.label;
}
// For gtest: the label, as letters and digits.
std::string name_of(const Setting& setting);

// The same bytes for the same seed.
std::vector<std::byte> pattern(std::uint64_t seed, std::size_t bytes);

// How many rounds a test should do; sanitizers are slow.
int scaled(int rounds);

struct Arrival {
  std::uint32_t rank = 0;
  std::uint32_t worker = 0;
  std::uint32_t immediate = 0;
  std::vector<std::byte> data;
};

class Port {
 public:
  Port(std::unique_ptr<TransportWorker> worker, std::uint32_t rank, std::uint32_t index)
      : worker_(std::move(worker)), rank_(rank), index_(index) {}

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] TransportWorker& worker() { return *worker_; }

  // Posts the batch with fresh tokens; returns how many were accepted. The others are unchanged.
  std::size_t post(std::span<Command> batch);
  // One command: its token, or 0: not accepted.
  Token post_one(Command command);
  // post_one() for a message, which is inlined if it fits. False: not accepted.
  bool send(Command command);

  // Polls once with room for `most` records; returns how many came.
  std::size_t poll(std::size_t most = 16);

  [[nodiscard]] bool done(Token token) const { return commands_.at(token).done; }
  [[nodiscard]] bool source_free(Token token) const {
    const Entry& entry = commands_.at(token);
    return entry.source_free || entry.done;
  }
  [[nodiscard]] base::Status status(Token token) const { return commands_.at(token).status; }
  [[nodiscard]] std::size_t outstanding() const { return outstanding_; }

  std::vector<Arrival> arrivals;

 private:
  struct Entry {
    bool wants_source_free = false;
    bool source_free = false;
    bool done = false;
    base::Status status = HEDDLE_DONE;
  };
  struct Lent {
    const std::byte* data;
    std::size_t arrival;
  };
  void enter(const Command& command);
  void finished(const Completion& completion);
  void check_lent();

  std::unique_ptr<TransportWorker> worker_;
  const std::uint32_t rank_;
  const std::uint32_t index_;
  Token next_token_ = 1;
  std::unordered_map<Token, Entry> commands_;
  std::size_t outstanding_ = 0;
  std::vector<Lent> lent_;  // the last poll's data: must be unchanged before the next
};

class World {
 public:
  static constexpr std::uint32_t kMaxWorkers = 6;

  // Opens `workers` workers on each of `ranks` ranks.
  World(const Setting& setting, std::uint32_t ranks, std::uint32_t workers = 1);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  [[nodiscard]] Transport& transport(std::uint32_t rank) { return *ranks_[rank]->transport; }
  [[nodiscard]] Port& port(std::uint32_t rank, std::uint32_t worker = 0) { return *ranks_[rank]->ports[worker]; }
  [[nodiscard]] const Capabilities& capabilities() { return transport(0).capabilities(); }

  // The next worker of a rank.
  Port& open_port(std::uint32_t rank);
  void close_port(std::uint32_t rank, std::uint32_t worker) { ranks_[rank]->ports[worker].reset(); }
  // Declares a rank dead, as the launcher would; the workers are not told.
  void declare_dead(std::uint32_t rank) { EXPECT_EQ(job_.fail(rank), HEDDLE_DONE); }
  // Declares a rank dead and tells all workers of the others.
  void fail(std::uint32_t rank);
  // Closes a rank: its workers, its transport, its membership.
  void close(std::uint32_t rank) { ranks_[rank].reset(); }

  // Polls every open port once.
  void pump();
  // Pumps until the condition holds. False: it did not within a time-out that is far longer than it
  // takes.
  [[nodiscard]] bool until(const std::function<bool()>& condition);
  // Posts, and pumps until the command is accepted. 0: it never was.
  Token must_post(Port& port, const Command& command);
  bool must_send(Port& port, const Command& command);
  // Pumps until every command of every open port is done.
  [[nodiscard]] bool quiet();
  // Posts and pumps until it is done; its status.
  base::Status run(Port& port, const Command& command);

 private:
  struct Rank {
    base::Environment environment;
    std::unique_ptr<bootstrap::Bootstrap> bootstrap;
    std::unique_ptr<Transport> transport;
    std::vector<std::unique_ptr<Port>> ports;  // declared last: they end first
  };

  base::SystemClock clock_;
  bootstrap::inproc::ThreadJob job_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

using test::Deadline;

class Conformance : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (!GetParam().why_not.empty()) GTEST_SKIP() << GetParam().why_not;
    if (GetParam().by_kernel && !test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  }
};

// A message to a worker.
Command message_to(std::uint32_t rank, std::uint32_t worker, const std::vector<std::byte>& payload,
                   std::uint32_t immediate = 0);

// For tests of networks: what one end does alone, while the other rank makes no calls.

// Polls only this port until the condition holds.
inline bool alone(Port& port, const std::function<bool()>& condition) {
  return test::within_time(condition, [&port] { port.poll(); });
}

inline base::Status run_alone(Port& port, const Command& command) {
  Token token = 0;
  if (!alone(port, [&] { return (token = port.post_one(command)) != 0; })) {
    ADD_FAILURE() << "never accepted";
    return HEDDLE_AGAIN;
  }
  if (!alone(port, [&] { return port.done(token); })) {
    ADD_FAILURE() << "never done";
    return HEDDLE_AGAIN;
  }
  return port.status(token);
}

inline Command transfer(Opcode opcode, const RemoteMemory& memory, std::vector<std::byte>* local) {
  Command command;
  command.opcode = opcode;
  command.rank = memory.rank;
  command.remote = &memory;
  command.local = local->data();
  command.bytes = local->size();
  return command;
}

}  // namespace heddle::transport::conformance
