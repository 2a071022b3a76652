// Asks all ranks of a job for their counters (diagnosis/counters.hpp), for people who look at the
// job while it runs. Requests that come while a round is under way share the next round.
//
// No threads, never waits: its owner calls tick() when due_ns() says so.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/local/broker.hpp"

namespace heddle::bootstrap::local {

class CountRounds {
 public:
  CountRounds(Broker& broker, std::uint32_t size) : broker_(broker), texts_(size) {}

  using Answer = std::function<void(std::string text)>;
  // Called once, with the texts of the ranks that answered in time, in the order of their numbers.
  void ask(Answer told, std::uint64_t now);
  // When tick() is to be called at the latest; 0: no time.
  [[nodiscard]] std::uint64_t due_ns() const { return until_ns_; }
  void tick(std::uint64_t now);
  void answered(std::uint32_t rank, std::int32_t number, std::span<const std::byte> text);

 private:
  // How long ranks may take: a rank that is stopped never answers.
  static constexpr std::uint64_t kRoundNs = 500'000'000;

  void begin(std::uint64_t now);
  [[nodiscard]] bool all_have_answered() const;

  Broker& broker_;
  struct Text {
    bool here = false;
    std::string text;
  };
  std::vector<Text> texts_;  // by rank
  std::int32_t number_ = 0;  // of the round
  std::uint64_t until_ns_ = 0;
  std::vector<Answer> now_;
  std::vector<Answer> next_;
};

}  // namespace heddle::bootstrap::local
