// A worker of the loopback transport. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/common/backlog.hpp"
#include "transport/loopback/node.hpp"
#include "transport/loopback/ranks.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::loopback {

class Worker final : public TransportWorker {
 public:
  Worker(Ranks& ranks, Node& node, std::uint32_t index, std::uint32_t opcodes);
  ~Worker() override { mailbox_.close(); }

  [[nodiscard]] std::size_t post(std::span<Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override;
  void peer_failed(std::uint32_t rank) override;
  [[nodiscard]] bool closed(Target target) override;
  [[nodiscard]] bool arm() override {
    mailbox_.arm();
    return failures_.empty();
  }
  [[nodiscard]] bool armed() const override { return mailbox_.armed(); }
  // The mailbox's mutex orders arming and putting: nothing is left for settle().
  [[nodiscard]] bool has_arrivals() override { return !mailbox_.empty(); }
  [[nodiscard]] bool has_untaken() override { return !mailbox_.empty(); }
  [[nodiscard]] std::size_t unopened(std::span<Unopened> found) override;

 private:
  static constexpr std::size_t kMostFailures = 256;

  bool post_one(Command& command);
  // DONE, AGAIN (not accepted) or the error that it completes with.
  base::Status execute(Command& command);
  base::Status send(Node& node, const Command& command);
  base::Status access(Node& node, const Command& command);

  Ranks& ranks_;
  Mailbox& mailbox_;
  const std::uint32_t rank_;
  const std::uint32_t index_;
  const std::uint32_t opcodes_;
  std::vector<std::uint8_t> failed_;  // by rank
  Backlog failures_{kMostFailures};
  std::vector<Packet> lent_;  // handed out by the last poll; at most kMailboxPackets
};

}  // namespace heddle::transport::loopback
