// The port of the fault decorator, which is what a worker has of it. It wraps the port of the inner
// transport. One thread at a time.
//
// A post is refused, or goes straight to the inner port, or is accepted and held. poll() gives a
// held command to the inner port once it is due; it also holds what the inner port reports until
// that is due.
//
// Invariants
//   Held commands and events are bounded: at the bound, posts are refused and the inner port is not
//   polled.
//   In order (no reordering): commands to one worker of a peer reach the inner port in the order of
//   posting, events leave in the order in which they came, except that arrivals do not wait for
//   completions that are still on their way back. A peer that accepts nothing does not delay
//   commands to others. A command's source_free leaves before its done.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "transport/common/forwarding.hpp"

namespace heddle::transport::fault {

struct Settings {
  std::uint64_t seed = 0;
  std::uint64_t again_percent = 0;
  std::uint64_t delay = 0;
  bool reorder = false;
  std::uint64_t latency_ns = 0;

  [[nodiscard]] bool holds() const { return delay != 0 || reorder || latency_ns != 0; }
  [[nodiscard]] bool any() const { return holds() || again_percent != 0; }
};

class Port final : public ForwardingWorker {
 public:
  // The clock outlives the worker.
  Port(std::unique_ptr<TransportWorker> inner, const Settings& settings, std::uint64_t seed, base::Clock& clock);

  [[nodiscard]] std::size_t post(std::span<Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override;
  // Only polls advance the commands and events that are held here.
  [[nodiscard]] bool arm() override { return commands_.empty() && events_.empty() && inner_->arm(); }

 private:
  static constexpr std::size_t kMostCommands = 64;
  static constexpr std::size_t kMostEvents = 1024;
  static constexpr std::size_t kPortion = 32;  // events taken from the inner worker in one poll
  static constexpr std::uint64_t kLongestStorm = 64;

  struct HeldCommand {
    Command command;
    std::array<std::byte, kMaxHeaderBytes> header;
    std::uint64_t due = 0;      // poll
    std::uint64_t arrives = 0;  // time
  };
  struct HeldEvent {
    Completion completion;
    std::unique_ptr<std::uint64_t[]> data;  // of a message
    std::uint64_t due = 0;                  // poll
    std::uint64_t arrives = 0;              // time
    bool gone = false;
  };

  std::size_t allowance(std::size_t batch);
  std::size_t pass(std::span<Command> batch);
  std::size_t keep(std::span<Command> batch);
  void submit();
  bool submit_one(HeldCommand& held);
  void events_for(const Command& command);
  void collect();
  void hold(const Completion& completion);
  std::size_t deliver(std::span<Completion> completions);
  [[nodiscard]] bool awaits_source_free(const HeldEvent& event) const;
  std::uint64_t due();
  // The time at which something that leaves now reaches the other end.
  std::uint64_t arrival() { return settings_.latency_ns == 0 ? 0 : now() + settings_.latency_ns; }
  std::uint64_t now() { return settings_.latency_ns == 0 ? 0 : clock_.now_ns(); }
  void shuffle(std::vector<std::size_t>* order);

  const Settings settings_;
  base::Random random_;
  base::Clock& clock_;
  // chance, of 2^16, that a post begins a refusal or a storm of them
  std::uint64_t refusal_threshold_;
  std::uint64_t longest_hold_;  // in polls
  std::uint64_t polls_ = 0;
  std::uint64_t storm_ = 0;  // posts still to be refused
  std::vector<HeldCommand> commands_;
  std::vector<HeldEvent> events_;
  std::size_t held_source_free_ = 0;    // events of that kind in events_
  std::vector<HeldEvent> lent_;         // handed out by the last poll
  std::vector<std::size_t> order_;      // scratch
  std::vector<std::uint64_t> waiting_;  // scratch: targets that must not be overtaken
};

}  // namespace heddle::transport::fault
