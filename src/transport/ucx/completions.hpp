// The completions of a port: written to the records of the running poll, or kept for the next one.
//
// The kept completions cannot overflow: there is room for those of all commands under way, and for
// kRefusals more. While more than kRefusals are kept, no command is accepted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/common/backlog.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::ucx {

class Completions {
 public:
  // `slots`: transfers, and as many messages.
  explicit Completions(std::size_t slots) : kept_(kRefusals, kRefusals + 3 * slots) {}

  // A poll begins: what was kept comes first.
  void begin(std::span<Completion> out) {
    begin_ = out_ = out.data();
    end_ = out_ + out.size();
    if (!kept_.empty()) [[unlikely]]
      out_ += kept_.drain(out);
  }
  // How many there are so far.
  [[nodiscard]] std::size_t written() const { return static_cast<std::size_t>(out_ - begin_); }
  // The poll ends, or there is none: later completions are kept. Returns how many there were.
  std::size_t end() {
    const std::size_t n = written();
    begin_ = out_ = end_ = nullptr;
    return n;
  }

  // Of `count` commands with one token.
  void done(Token token, base::Status status, std::uint32_t count) { tell(token, status, Event::done, count); }
  void source_free(Token token) { tell(token, HEDDLE_DONE, Event::source_free, 1); }
  // The record for a message; only if has_room().
  [[nodiscard]] Completion* place() { return out_++; }
  [[nodiscard]] bool has_room() const { return out_ != end_; }

  // Too much is kept to accept more.
  [[nodiscard]] bool crowded() const { return kept_.full(); }
  [[nodiscard]] bool empty() const { return kept_.empty(); }
  // Nobody polls any more: drops what is kept.
  void forget() {
    for (std::array<Completion, 16> nobody; !kept_.empty();) static_cast<void>(kept_.drain(nobody));
  }

  // Outside a poll. Accepts a command that fails: its completion comes from the next poll. False:
  // not accepted.
  [[gnu::cold]] bool refuse(Command& command, base::Status status) { return kept_.refuse(command, status); }

 private:
  static constexpr std::size_t kRefusals = 256;

  void tell(Token token, base::Status status, Event event, std::uint32_t count) {
    Completion* out = out_;
    for (; count != 0 && out != end_; --count, ++out) {
      out->event = event;
      out->status = status;
      out->token = token;
    }
    out_ = out;
    for (; count != 0; --count) kept_.put(token, status, event);
  }

  Completion* begin_ = nullptr;
  Completion* out_ = nullptr;
  Completion* end_ = nullptr;
  Backlog kept_;
};

}  // namespace heddle::transport::ucx
