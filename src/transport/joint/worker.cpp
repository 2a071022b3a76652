#include "transport/joint/worker.hpp"

#include <algorithm>
#include <new>

namespace heddle::transport::joint {

std::size_t Worker::post_portion(std::span<Command> portion, std::size_t way) {
  const std::size_t taken = inner_[way]->post(portion);
  if (way == 1) {
    warm_up();
    for (const Command& command : portion.first(taken)) far_under_way_ += command.done ? 0 : 1;
  }
  return taken;
}

// Portions for one transport each, so that the accepted commands are a prefix.
void Worker::post_portions(std::span<Command> batch, std::size_t* accepted) {
  while (*accepted < batch.size()) {
    if (too_long(batch[*accepted])) [[unlikely]] {
      const base::Status status =
          base::fail(HEDDLE_ERR_SIZE, "a message is longer than %u bytes, the most of both transports", max_message_);
      if (!refused_.refuse(batch[*accepted], status)) return;
      alone_ = 0;
      ++*accepted;
      continue;
    }
    const std::size_t way = way_to(batch[*accepted].rank);
    std::size_t end = *accepted + 1;
    while (end < batch.size() && way_to(batch[end].rank) == way && !too_long(batch[end])) ++end;
    *accepted += post_portion(batch.subspan(*accepted, end - *accepted), way);
    if (*accepted != end) return;
  }
}

// If a portion runs out of memory, the portions before it are still reported as accepted.
std::size_t Worker::post(std::span<Command> batch) {
  std::size_t accepted = 0;
  try {
    post_portions(batch, &accepted);
  } catch (const std::bad_alloc&) {
    if (accepted == 0) throw;
  }
  return accepted;
}

bool Worker::far_is_due() {
  if (warm_ > 0) --warm_;
  if (warm_ > 0 || far_under_way_ > 0) return true;
  const std::uint64_t now = clock_.now_ns();
  // Polls in quick succession do not need the clock each.
  alone_ = now - seen_ns_ < kColdNs ? kGlance - 1 : 0;
  seen_ns_ = now;
  skipped_ += alone_ + 1;
  if (now - looked_ns_ < cold_ns_ && skipped_ < kLongest) return false;
  looked_ns_ = now;
  skipped_ = 0;
  timed_ = true;
  return true;
}

// True only after a poll that has found nothing in both transports. A caller that gets false may
// poll for long before it tries again, so each of the next polls polls FAR (warm_).
bool Worker::arm() {
  if (!refused_.empty()) return false;
  warm_ = std::max(warm_, far_polled_ ? kAwake : kWarm);
  alone_ = 0;
  return far_polled_ && inner_[0]->arm() && inner_[1]->arm();
}

std::size_t Worker::poll_far(std::span<Completion> completions) {
  const std::size_t count = inner_[1]->poll(completions);
  for (const Completion& completion : completions.first(count)) {
    far_under_way_ -= completion.ends();
  }
  if (count > 0) {
    warm_up();
  } else if (timed_) {
    cold_ns_ = std::clamp(kShare * (clock_.now_ns() - looked_ns_), kColdNs, kColdestNs);
  }
  timed_ = false;
  return count;
}

// The completions that were fetched are reported even if the poll that follows runs out of memory.
template <class Poll>
std::size_t Worker::and_then(std::size_t count, Poll&& poll) {
  try {
    return count + poll();
  } catch (const std::bad_alloc&) {
    if (count == 0) throw;
    return count;
  }
}

// The transport that is polled second gets the room that the first has left; so each is first every
// other time.
std::size_t Worker::poll_both(std::span<Completion> completions) {
  far_polled_ = far_is_due();
  if (!far_polled_) return inner_[0]->poll(completions);
  far_first_ = !far_first_;
  const std::size_t first = far_first_ ? poll_far(completions) : inner_[0]->poll(completions);
  const std::span<Completion> rest = completions.subspan(first);
  if (rest.empty()) return first;
  return and_then(first, [&] { return far_first_ ? inner_[0]->poll(rest) : poll_far(rest); });
}

std::size_t Worker::poll(std::span<Completion> completions) {
  if (alone_ == 0) [[unlikely]]
    return poll_seldom(completions);
  --alone_;
  far_polled_ = false;
  return inner_[0]->poll(completions);
}

[[gnu::noinline]] std::size_t Worker::poll_seldom(std::span<Completion> completions) {
  if (refused_.empty()) [[likely]] {
    return poll_both(completions);
  }
  const std::size_t told = refused_.drain(completions);
  return told == completions.size() ? told : and_then(told, [&] { return poll_both(completions.subspan(told)); });
}

}  // namespace heddle::transport::joint
