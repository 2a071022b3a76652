// More processes than the two that a participant usually has: 2, 4, … that do the same work at the
// same time, in pairs of ranks 2i and 2i + 1. Ranks 0 and 1 have the Session and lead; the others
// follow, and sleep while nothing is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "harness/channel.hpp"
#include "harness/session.hpp"

namespace heddle::bench::harness {

// What every process does. Called a few times per figure.
struct CrowdWork {
  std::function<void()> prepare;  // before all begin
  // n iterations; the time counts from the first begin to the last end
  std::function<Interval(std::uint64_t n)> run;
  std::function<bool()> right;  // after all have ended: is what came here right?
};

class Crowd {
 public:
  // `rank` and `size` of the job; with 2 processes nobody follows.
  Crowd(Channel& channel, std::uint32_t rank, std::uint32_t size) : channel_(channel), rank_(rank), size_(size) {}
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool leads() const { return rank_ < 2; }

  // All processes call it for the same figures in the same order; `session` is null in those that
  // follow.
  void measure(Session* session, const Figure& figure, const CrowdWork& work) {
    measure(session, std::span(&figure, 1), work);
  }
  void measure(Session* session, std::span<const Figure> figures, const CrowdWork& work);
  // Those that follow sleep until both leaders have come.
  void meet_asleep();

 private:
  Run take_part(std::uint64_t n, const CrowdWork& work);
  void follow(const CrowdWork& work);
  void call(std::uint64_t n);
  void barrier();

  Channel& channel_;
  const std::uint32_t rank_;
  const std::uint32_t size_;
};

}  // namespace heddle::bench::harness
