// What a port has to tell its owner: written where the running poll wants it, or kept for the next
// one.
//
// What is kept is a ring that cannot overflow: each slot of an operation has room there for its
// ends, and so have kRefusals commands that were accepted and fail. While it holds more than these
// nothing is accepted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/transport.hpp"

namespace heddle::transport::ucx {

class Completions {
 public:
  // `slots`: transfers, and as many messages.
  explicit Completions(std::size_t slots) : kept_(2 * kRefusals + 3 * slots) {}

  // A poll begins: what was kept comes first.
  void begin(std::span<Completion> out) {
    begin_ = out_ = out.data();
    end_ = out_ + out.size();
    if (count_ != 0) [[unlikely]]
      drain();
  }
  // How many there are so far.
  [[nodiscard]] std::size_t written() const { return static_cast<std::size_t>(out_ - begin_); }
  // It ends, or there is none: what happens now is kept. Returns how many there were.
  std::size_t end() {
    const std::size_t n = written();
    begin_ = out_ = end_ = nullptr;
    return n;
  }

  void done(Token token, base::Status status) { tell(token, status, Event::done); }
  void source_free(Token token) { tell(token, HEDDLE_DONE, Event::source_free); }
  // For a message, where a poll has room for it.
  [[nodiscard]] Completion* place() { return out_++; }
  [[nodiscard]] bool has_room() const { return out_ != end_; }

  // Too much is kept to accept more.
  [[nodiscard]] bool crowded() const { return count_ > kRefusals; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  // Nobody polls any more.
  void forget() { count_ = refusals_ = 0; }

  // Accepts a command that fails: its completion comes from the next poll. False: not accepted.
  [[gnu::cold]] bool refuse(Command& command, base::Status status) {
    if (status == HEDDLE_AGAIN || refusals_ == kRefusals) return false;
    ++refusals_;
    command.source_free = true;
    done(command.token, status);
    return true;
  }

 private:
  static constexpr std::uint32_t kRefusals = 256;

  void tell(Token token, base::Status status, Event event) {
    Completion* record = out_ != end_ ? out_++ : keep();
    record->event = event;
    record->status = status;
    record->token = token;
  }
  [[gnu::noinline]] Completion* keep() { return &kept_[(first_ + count_++) % kept_.size()]; }
  [[gnu::noinline]] void drain() {
    for (; count_ != 0 && out_ != end_; --count_) {
      *out_++ = kept_[first_];
      first_ = (first_ + 1) % kept_.size();
    }
    if (count_ == 0) refusals_ = 0;
  }

  Completion* begin_ = nullptr;
  Completion* out_ = nullptr;
  Completion* end_ = nullptr;
  std::vector<Completion> kept_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::uint32_t refusals_ = 0;  // among what is kept, at most
};

}  // namespace heddle::transport::ucx
