#include "bootstrap/local/count_rounds.hpp"

#include <utility>

namespace heddle::bootstrap::local {

void CountRounds::ask(Answer told, std::uint64_t now) {
  next_.push_back(std::move(told));
  if (until_ns_ == 0) begin(now);
}

void CountRounds::begin(std::uint64_t now) {
  ++number_;
  until_ns_ = now + kRoundNs;
  now_ = std::exchange(next_, {});
  for (std::uint32_t rank = 0; rank < texts_.size(); ++rank) {
    texts_[rank] = {};
    static_cast<void>(broker_.ask(rank, FrameType::ask_counters, number_));
  }
}

bool CountRounds::all_have_answered() const {
  for (std::uint32_t rank = 0; rank < texts_.size(); ++rank) {
    if (broker_.membership(rank) == Membership::joined && !texts_[rank].here) return false;
  }
  return true;
}

void CountRounds::tick(std::uint64_t now) {
  if (until_ns_ == 0 || (!all_have_answered() && now < until_ns_)) return;
  std::string text;
  for (const Text& each : texts_) text += each.text;
  until_ns_ = 0;
  // A callback may ask again.
  for (const Answer& told : std::exchange(now_, {})) told(text);
  if (until_ns_ == 0 && !next_.empty()) begin(now);
}

void CountRounds::answered(std::uint32_t rank, std::int32_t number, std::span<const std::byte> text) {
  if (number != number_ || until_ns_ == 0) return;
  texts_[rank] = {true, std::string(reinterpret_cast<const char*>(text.data()), text.size())};
}

}  // namespace heddle::bootstrap::local
