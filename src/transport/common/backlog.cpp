#include "transport/common/backlog.hpp"

#include <algorithm>

namespace heddle::transport {

void Backlog::put(Token token, base::Status status, Event event) {
  slots_[(first_ + count_) % slots_.size()] = {token, status, event};
  ++count_;
}

std::size_t Backlog::drain(std::span<Completion> out) {
  const std::size_t n = std::min(out.size(), count_);
  for (std::size_t i = 0; i < n; ++i) {
    const Slot& slot = slots_[first_];
    out[i] = Completion{};
    out[i].event = slot.event;
    out[i].token = slot.token;
    out[i].status = slot.status;
    first_ = (first_ + 1) % slots_.size();
  }
  count_ -= n;
  return n;
}

}  // namespace heddle::transport
