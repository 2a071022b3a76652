// The two parts of a rank of the joint transport: what each of the two transports sees of the job,
// and the worker over both.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/bootstrap.hpp"
#include "transport/common/rejections.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::joint {

// The view that each of the two transports has of the job: the same ranks, and its own part of each
// card.
//
// A rank publishes one card: a head, the part of NEAR, the part of FAR. So two ranks whose settings
// differ find out when one reads the other's card.

inline constexpr std::size_t kWays = 2;  // 0: near, 1: far

// Settings that must be the same in all ranks. They travel in the card.
struct Settings {
  std::array<std::string, kWays> names;
  std::uint64_t node_ranks = 0;      // HEDDLE_NODE_RANKS
  std::vector<std::uint32_t> nodes;  // by rank
};

// The bootstrap as one of the two sees it. It publishes nothing: it keeps the card that it is
// given, for the card of both.
class Share final : public bootstrap::Bootstrap {
 public:
  Share(bootstrap::Bootstrap& whole, const Settings& settings, std::size_t way)
      : whole_(whole), settings_(settings), way_(way) {}

  [[nodiscard]] const char* name() const override { return whole_.name(); }
  [[nodiscard]] std::uint32_t rank() const override { return whole_.rank(); }
  [[nodiscard]] std::uint32_t size() const override { return whole_.size(); }
  [[nodiscard]] const bootstrap::JobSecret& secret() const override { return whole_.secret(); }
  [[nodiscard]] std::uint32_t host(std::uint32_t rank) const override { return settings_.nodes[rank]; }
  [[nodiscard]] std::span<std::byte> board() override { return whole_.board(); }
  [[nodiscard]] bool atomics_beside_processors() const override { return true; }
  [[nodiscard]] const queue::Bell<>* common_bell() const override { return common_bell_; }
  // Before the transport is opened on it.
  void set_common_bell(const queue::Bell<>* bell) { common_bell_ = bell; }
  // Once; the descriptor stays the caller's.
  [[nodiscard]] base::Status publish(const bootstrap::Card& card) override;
  // The card that was published, for publish_both(); empty: none yet.
  [[nodiscard]] const bootstrap::Card& card() const { return card_; }
  // CONFIG, VERSION: that rank has other settings. Otherwise as `whole`.
  [[nodiscard]] base::Result<bootstrap::Card> fetch(std::uint32_t rank) override;
  void ask_ahead(std::uint32_t rank) override { whole_.ask_ahead(rank); }
  [[nodiscard]] const queue::Bell<>* card_bell() const override { return whole_.card_bell(); }
  // Not supported: a transport takes no part in the job's exchanges.
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte> mine) override;
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>* all) override;
  [[nodiscard]] bool failed(std::uint32_t rank) const override { return whole_.failed(rank); }
  void note_disconnected() override { whole_.note_disconnected(); }
  void leave() override {}
  [[noreturn]] void abort(int code, const char* message) override {
    whole_.abort(code, message);
    std::_Exit(code);  // for GCC 12, which forgets that the call above does not return
  }

 private:
  bootstrap::Bootstrap& whole_;
  const Settings& settings_;
  const std::size_t way_;
  const queue::Bell<>* common_bell_ = nullptr;
  bool published_ = false;
  bootstrap::Card card_;
};

// Publishes the card of this rank, made of the cards that the two have published. CONFIG: both show
// a descriptor, and there is room for one. SIZE: the card is too long.
base::Status publish_both(bootstrap::Bootstrap& whole, const Settings& settings, const Share& near, const Share& far);

// The port of the joint transport: a worker's ports of both transports. One thread at a time.
//
// A poll of FAR may cost much more than one of NEAR (UCX asks the kernel), and a rank that
// communicates only within its node would pay for it in each poll. So each poll polls FAR while
// something of this rank is under way there, and for a while after anything has happened there.
// Otherwise FAR is polled so seldom that it takes one part in 32 of the time, yet every 50 µs (or
// up to 8 polls later), and by every 256th poll whatever the time.
class Port final : public TransportWorker {
 public:
  // `ways`: by rank, 0 or 1; they and the clock outlive the worker.
  Port(std::array<std::unique_ptr<TransportWorker>, kWays> inner, std::span<const std::uint8_t> ways,
       std::uint32_t max_message, base::Clock& clock)
      : inner_(std::move(inner)), ways_(ways), max_message_(max_message), clock_(clock) {}

  [[nodiscard]] std::size_t post(std::span<Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override;
  void peer_failed(std::uint32_t rank) override {
    for (auto& worker : inner_) worker->peer_failed(rank);
    warm_up();
  }
  [[nodiscard]] bool closed(Target target) override { return of(target.rank).closed(target); }
  [[nodiscard]] bool ended(Target target) override { return of(target.rank).ended(target); }
  [[nodiscard]] bool arm() override;
  [[nodiscard]] bool armed() const override { return inner_[0]->armed() && inner_[1]->armed(); }
  [[nodiscard]] bool has_arrivals() override { return inner_[0]->has_arrivals() || inner_[1]->has_arrivals(); }
  [[nodiscard]] bool has_untaken() override { return inner_[0]->has_untaken() || inner_[1]->has_untaken(); }
  [[nodiscard]] std::size_t unopened(std::span<Unopened> found) override {
    const std::size_t near = inner_[0]->unopened(found);
    return near + inner_[1]->unopened(found.subspan(near));
  }
  [[nodiscard]] PortCounters counters() const override {
    return {inner_[0]->counters().malformed + inner_[1]->counters().malformed};
  }

 private:
  static constexpr std::size_t kMostRejected = 256;
  static constexpr std::uint32_t kWarm = 256;     // polls
  static constexpr std::uint32_t kAwake = 8;      // polls: after a sleep, which FAR may have ended
  static constexpr std::uint32_t kGlance = 8;     // polls between two looks at the clock
  static constexpr std::uint32_t kLongest = 256;  // polls without FAR
  static constexpr std::uint64_t kShare = 32;
  static constexpr std::uint64_t kColdNs = 10'000;     // between two polls of FAR, at least, ...
  static constexpr std::uint64_t kColdestNs = 50'000;  // ... and at the most

  // NEAR reports the error for a number that is no rank of the job.
  [[nodiscard]] std::size_t way_to(std::uint32_t rank) const { return rank < ways_.size() ? ways_[rank] : 0; }
  [[nodiscard]] TransportWorker& of(std::uint32_t rank) { return *inner_[way_to(rank)]; }
  // One of the two might accept it; the other does not, and the joint transport's limit is the
  // lower one.
  [[nodiscard]] bool too_long(const Command& command) const {
    return command.opcode == Opcode::message && (command.bytes > max_message_ || command.packet_bytes() > max_message_);
  }
  std::size_t post_portion(std::span<Command> portion, std::size_t way);
  void post_portions(std::span<Command> batch, std::size_t* accepted);
  void warm_up() {
    warm_ = kWarm;
    alone_ = 0;
  }
  [[nodiscard]] bool far_is_due();
  std::size_t poll_seldom(std::span<Completion> completions);
  template <class Poll>
  static std::size_t and_then(std::size_t count, Poll&& poll);
  std::size_t poll_both(std::span<Completion> completions);
  std::size_t poll_far(std::span<Completion> completions);

  const std::array<std::unique_ptr<TransportWorker>, kWays> inner_;
  const std::span<const std::uint8_t> ways_;
  const std::uint32_t max_message_;
  base::Clock& clock_;
  Backlog rejected_{kMostRejected};  // messages that are too long
  bool far_first_ = false;
  bool far_polled_ = false;  // by the last poll
  bool timed_ = false;       // FAR's next poll is timed, since looked_ns_
  // so many of the next polls only poll NEAR: while it is not 0 there is nothing else to do
  std::uint32_t alone_ = 0;
  std::uint32_t warm_ = kWarm;
  std::uint32_t skipped_ = 0;
  std::uint64_t looked_ns_ = 0;      // when FAR was polled
  std::uint64_t seen_ns_ = 0;        // the clock
  std::uint64_t cold_ns_ = kColdNs;  // between two looks at FAR
  std::uint64_t far_under_way_ = 0;  // commands that FAR has accepted and not completed
};

}  // namespace heddle::transport::joint
