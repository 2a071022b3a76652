#include "worker/small_offload.hpp"

#include <algorithm>

namespace heddle::engine {

std::optional<OffloadPolicy> offload_policy_named(std::string_view text) {
  if (text == "off") return OffloadPolicy::off;
  if (text == "on") return OffloadPolicy::on;
  if (text == "auto") return OffloadPolicy::automatic;
  return std::nullopt;
}

void SmallOffload::learn(Average& average, std::uint64_t ns) {
  // A sample that took longer was interrupted.
  constexpr std::uint64_t kMost = 1'000'000;
  const auto sample = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(ns, 1, kMost) * kUnit);
  const std::uint32_t before = average.load(std::memory_order_relaxed);
  average.store(before == 0 ? sample : before - before / 8 + sample / 8, std::memory_order_relaxed);
}

bool SmallOffload::pays(const Class& of) const {
  const std::uint64_t gain =
      std::uint64_t{of.submit_ns.load(std::memory_order_relaxed)} * of.share.load(std::memory_order_relaxed) / kWhole;
  return gain > register_ns_.load(std::memory_order_relaxed) + std::uint64_t{visit_ns_} * kUnit;
}

SmallOffload::Plan SmallOffload::plan(std::uint64_t bytes, std::uint64_t rounds, bool asleep) {
  if (policy_ != OffloadPolicy::automatic) return {policy_ == OffloadPolicy::on, false};
  Class& of = classes_[class_of(bytes)];
  const std::uint32_t turn = of.turns.load(std::memory_order_relaxed);
  of.turns.store(turn + 1, std::memory_order_relaxed);
  const bool ready = rounds != rounds_.load(std::memory_order_relaxed) && !asleep;
  rounds_.store(rounds, std::memory_order_relaxed);
  const bool sample = turn % kSample == 0;
  if (of.submit_ns.load(std::memory_order_relaxed) == 0) return {false, true};
  if (!ready) return {false, sample};
  if (register_ns_.load(std::memory_order_relaxed) == 0) return {true, true};
  const bool other = turn % kExplore == kExplore - 1;
  return {pays(of) != other, sample || other};
}

void SmallOffload::executed(std::uint64_t bytes, bool by_helper) {
  if (by_helper) helped_.fetch_add(1, std::memory_order_relaxed);
  std::atomic<std::uint32_t>& share = classes_[class_of(bytes)].share;
  const std::uint32_t before = share.load(std::memory_order_relaxed);
  share.store(before - before / 8 + (by_helper ? kWhole / 8 : 0), std::memory_order_relaxed);
}

}  // namespace heddle::engine
