// Decides whether the job stands still, or whether its interfaces lack a processor. Values come in
// and a finding goes out: no clock, no system call.
//
// Commands that are posted or executed, and data that is received or read, count as movement. A
// poll never does: a process that polls in vain looks busy but does not go on.
#pragma once

#include <cstdint>

namespace tofu_emulator {

class JobWatch {
 public:
  enum class Finding : std::uint8_t {
    nothing,
    // For the limit nothing has moved in any process, and this process uses the processor: it
    // computes, or it polls for something that nobody has posted. Once for each standstill.
    stands_still,
    // The job moves; for a quarter of the limit or more this process's engine was ready and got no
    // core. Once.
    starved,
  };
  struct Seen {
    std::uint64_t now_ns;
    std::uint64_t moved;        // of all processes of the job; any change is a move
    std::uint64_t used_ns;      // processor time of this process
    std::uint64_t kept_out_ns;  // how long the engine's thread was ready and had no core
  };

  // 0: never finds anything.
  explicit JobWatch(std::uint64_t limit_ns) : limit_ns_(limit_ns) {}

  [[nodiscard]] Finding look(const Seen& seen) {
    if (limit_ns_ == 0) return Finding::nothing;
    if (!begun_) {
      begun_ = true;
      window_ = seen;
      moved_ = seen;
      return Finding::nothing;
    }
    if (seen.moved != moved_.moved) {
      moved_ = seen;
      standstill_told_ = false;
    }
    if (seen.now_ns - window_.now_ns >= limit_ns_ && starved(seen)) return Finding::starved;
    const std::uint64_t since_ns = seen.now_ns - moved_.now_ns;
    if (standstill_told_ || since_ns < limit_ns_ || seen.used_ns - moved_.used_ns < since_ns / kUses)
      return Finding::nothing;
    standstill_told_ = true;
    return Finding::stands_still;
  }

  // The finding for the last whole window, which is at least as long as the limit.
  [[nodiscard]] std::uint64_t last_kept_out_ns() const { return last_kept_out_ns_; }
  [[nodiscard]] std::uint64_t last_window_ns() const { return last_window_ns_; }

 private:
  // At the end of a window: begins the next.
  bool starved(const Seen& seen) {
    // a new thread counts from 0
    last_kept_out_ns_ = seen.kept_out_ns > window_.kept_out_ns ? seen.kept_out_ns - window_.kept_out_ns : 0;
    last_window_ns_ = seen.now_ns - window_.now_ns;
    const bool found = !starved_told_ && seen.moved != window_.moved && last_kept_out_ns_ >= last_window_ns_ / kStarved;
    starved_told_ = starved_told_ || found;
    window_ = seen;
    return found;
  }

  static constexpr std::uint64_t kStarved = 4;
  // One that sleeps, or looks once a millisecond, uses less than this part of the time; one that
  // polls beside thirty others on its core uses more.
  static constexpr std::uint64_t kUses = 32;

  const std::uint64_t limit_ns_;
  Seen window_{};
  Seen moved_{};  // at the last move
  std::uint64_t last_kept_out_ns_ = 0;
  std::uint64_t last_window_ns_ = 0;
  bool begun_ = false;
  bool standstill_told_ = false;
  bool starved_told_ = false;
};

}  // namespace tofu_emulator
