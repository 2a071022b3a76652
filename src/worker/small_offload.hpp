// Small-message offload, after PIOMan: a nonblocking send is only registered in the worker's queue;
// an idle core copies and submits it, or, if none came, the thread that next waits or makes
// progress. So an idle core takes the copy off the program's path; if there is none, the copy is
// only made later.
//
// Measurements decide whether that pays, for each class of lengths (a power of two): the cost of
// submitting for the poster, the cost of registering, and how often a helper came before the poster
// had to submit the message itself. A message is registered if
//
//   share of helpers × cost of submitting  >  cost of registering + what a helper's visit costs the
//                                             owner
//
// and a helper has gone round since the last message. Every kExplore-th message of a class is sent
// the other way, so that the figures do not grow old.
//
// All numbers are hints: written by any thread with relaxed loads and stores, a lost update is a
// lost sample. They order nothing.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle::engine {

enum class OffloadPolicy : std::uint8_t { off, on, automatic };
// HEDDLE_SMALL_OFFLOAD; empty: it is none of them.
std::optional<OffloadPolicy> offload_policy_named(std::string_view text);

class SmallOffload {
 public:
  static constexpr std::uint32_t kExplore = 64;
  static constexpr std::uint32_t kSample = 8;  // one message in so many is timed

  // `visit_ns`: what a helper's visit costs the thread that owns the worker.
  SmallOffload(OffloadPolicy policy, std::uint32_t visit_ns) : policy_(policy), visit_ns_(visit_ns) {}

  struct Plan {
    bool registers = false;
    bool timed = false;  // the caller tells submitted() or registered() how long it took
  };
  // The plan for the next message of this length. `rounds`: how often helpers have gone round;
  // `asleep`: they need a wake-up, which costs more than the copy.
  [[nodiscard]] Plan plan(std::uint64_t bytes, std::uint64_t rounds, bool asleep);
  void submitted(std::uint64_t bytes, std::uint64_t ns) { learn(classes_[class_of(bytes)].submit_ns, ns); }
  void registered(std::uint64_t ns) { learn(register_ns_, ns); }
  // count_registered(): a message was registered. executed(): a registered message has been
  // submitted.
  void count_registered() { registered_.fetch_add(1, std::memory_order_relaxed); }
  void executed(std::uint64_t bytes, bool by_helper);

  [[nodiscard]] std::uint64_t registered_messages() const { return registered_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t helped_messages() const { return helped_.load(std::memory_order_relaxed); }

 private:
  using Average = std::atomic<std::uint32_t>;  // in sixteenths; 0: nothing is known
  static constexpr std::uint32_t kUnit = 16;
  static constexpr std::uint32_t kWhole = 1024;  // of a share
  struct Class {
    Average submit_ns{0};
    std::atomic<std::uint32_t> share{kWhole};  // that helpers submitted; hopeful until it is known
    std::atomic<std::uint32_t> turns{0};
  };
  static constexpr std::size_t kClasses = 12;  // up to 2 KiB, 4 KiB, … and all beyond

  static std::size_t class_of(std::uint64_t bytes) {
    const auto width = static_cast<std::size_t>(std::bit_width(bytes >> 11));
    return width < kClasses ? width : kClasses - 1;
  }
  static void learn(Average& average, std::uint64_t ns);
  [[nodiscard]] bool pays(const Class& of) const;

  const OffloadPolicy policy_;
  const std::uint32_t visit_ns_;
  std::array<Class, kClasses> classes_;
  Average register_ns_{0};
  std::atomic<std::uint64_t> rounds_{0};  // of helpers, at the last message
  std::atomic<std::uint64_t> registered_{0};
  std::atomic<std::uint64_t> helped_{0};
};

}  // namespace heddle::engine
