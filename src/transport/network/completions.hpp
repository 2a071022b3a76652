// The completions of a port: written to the records of the running poll, or kept for the next one.
//
// The kept completions cannot overflow: there is room for those of all commands under way, and for
// kRefusals more. While more than kRefusals are kept, no command is accepted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/common/backlog.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::network {

// How many commands of one kind may still be accepted. None while too many completions are kept.
class Room {
 public:
  explicit Room(std::uint32_t slots) : slots_(static_cast<std::int32_t>(slots)), left_(slots_) {}
  [[nodiscard]] bool has(std::uint32_t count) const { return left_ >= static_cast<std::int32_t>(count); }
  void take() { --left_; }
  void give(std::uint32_t count) { left_ += static_cast<std::int32_t>(count); }
  [[nodiscard]] std::uint32_t taken() const { return static_cast<std::uint32_t>(slots_ - left_ - (shut_ ? kShut : 0)); }
  void shut(bool shut) {
    left_ += (shut_ ? kShut : 0) - (shut ? kShut : 0);
    shut_ = shut;
  }

 private:
  static constexpr std::int32_t kShut = 1 << 30;  // more than any room
  const std::int32_t slots_;
  std::int32_t left_;  // less than none: shut
  bool shut_ = false;
};

class Completions {
 public:
  // `slots`: transfers, and as many messages.
  explicit Completions(std::uint32_t slots)
      : transfers_(slots), messages_(slots), kept_(kRefusals, kRefusals + 3 * std::size_t{slots}) {}

  [[nodiscard]] Room& transfers() { return transfers_; }
  [[nodiscard]] Room& messages() { return messages_; }
  [[nodiscard]] const Room& transfers() const { return transfers_; }
  [[nodiscard]] const Room& messages() const { return messages_; }

  // A poll begins: the kept completions come first.
  void begin(std::span<Completion> out) {
    begin_ = out_ = out.data();
    end_ = out_ + out.size();
    if (!kept_.empty()) [[unlikely]]
      out_ += drain(out);
  }
  // How many there are so far.
  [[nodiscard]] std::size_t written() const { return static_cast<std::size_t>(out_ - begin_); }
  // The poll ends, or there is none: later completions are kept. Returns how many there were.
  // `moved`: something has moved. If no completion tells that, a completion of no command does, so
  // that a waiting thread goes on looking.
  std::size_t end(bool moved = false) {
    if (moved && out_ == begin_ && has_room()) [[unlikely]]
      write(out_++, {Event::done, HEDDLE_DONE, 0});
    const std::size_t count = written();
    begin_ = end_ = out_;  // no room any more, and nothing to count with
    return count;
  }

  // Reports the end of `count` commands with one token. Commands whose end nobody asked for have
  // one token for all, so that one record often reports many.
  void done(Token token, base::Status status, std::uint32_t count) {
    if (out_ != begin_ && out_[-1].token == token && out_[-1].status == status) {
      Completion& last = out_[-1];
      if (last.event == Event::several) {
        last.bytes += count;
        return;
      }
      if (last.event == Event::done) {
        last.event = Event::several;
        last.bytes = 1 + count;
        return;
      }
    }
    if (out_ == end_) [[unlikely]]
      return keep(token, status, Event::done, count);
    Completion* to = out_++;
    write(to, {count == 1 ? Event::done : Event::several, status, token});
    if (count != 1) to->bytes = count;
  }
  void source_free(Token token) {
    if (out_ == end_) [[unlikely]]
      return keep(token, HEDDLE_DONE, Event::source_free, 1);
    write(out_++, {Event::source_free, HEDDLE_DONE, token});
  }
  // The record for a message; only if has_room().
  [[nodiscard]] Completion* slot() { return out_++; }
  [[nodiscard]] bool has_room() const { return out_ != end_; }

  [[nodiscard]] bool empty() const { return kept_.empty(); }
  // Nobody polls any more: drops the kept completions.
  void forget() {
    for (std::array<Completion, 16> nobody; !kept_.empty();) static_cast<void>(drain(nobody));
  }

  // Outside a poll. Accepts a command that fails: its completion comes from the next poll. False:
  // not accepted.
  [[gnu::cold]] bool refuse(Command& command, base::Status status) {
    const bool accepted = kept_.refuse(command, status);
    weigh();
    return accepted;
  }

 private:
  static constexpr std::size_t kRefusals = 256;
  static constexpr std::size_t kFront = offsetof(Completion, data);

  // These completions have only the fields of the front, which is one store of a vector.
  static void write(Completion* to, const Completion& told) {
    std::memcpy(static_cast<void*>(to), static_cast<const void*>(&told), kFront);
  }
  [[gnu::noinline]] void keep(Token token, base::Status status, Event event, std::uint32_t count) {
    for (; count != 0; --count) kept_.put(token, status, event);
    weigh();
  }
  [[gnu::noinline]] std::size_t drain(std::span<Completion> out) {
    const std::size_t drained = kept_.drain(out);
    weigh();
    return drained;
  }
  void weigh() {
    transfers_.shut(kept_.full());
    messages_.shut(kept_.full());
  }

  Room transfers_;
  Room messages_;
  Completion* begin_ = nullptr;
  Completion* out_ = nullptr;
  Completion* end_ = nullptr;
  Backlog kept_;
};

}  // namespace heddle::transport::network
