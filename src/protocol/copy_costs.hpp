// Decides whether the receiver should fetch a message of middle length, which fits one packet of
// the transport, or the sender should copy it into the packet. Between near cores a copy into
// shared memory takes a quarter of what it takes between far ones, where the kernel's single copy,
// which a receiver fetches by, is faster. No interface tells how far apart two cores are, and a
// virtual machine may move them. So copies are timed, for each worker that messages go to.
//
// Any thread; all accesses are relaxed, since these are hints: updates may be lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace heddle::engine {

// Zeroed memory is a valid initial state.
class CopyCosts {
 public:
  // Messages of up to so many bytes are always copied: there both ways take about as long between
  // far cores, too.
  static constexpr std::uint64_t kAlwaysCopied = std::uint64_t{8} << 10;

  // Whether the next message is to be fetched. One in kTrial is copied all the same, so that it is
  // noticed when the cores are near again.
  [[nodiscard]] bool prefers_fetch() {
    if (Ref(ns_per_kib_).load(std::memory_order_relaxed) <= kFarNsPerKib) return false;
    const std::uint32_t fetched = Ref(fetched_).load(std::memory_order_relaxed) + 1;
    Ref(fetched_).store(fetched % kTrial, std::memory_order_relaxed);
    return fetched != kTrial;
  }
  // A copy of `bytes` bytes took `ns`. If it took very long, the thread lost its core meanwhile, so
  // the copy counts as no more than twice a far one: only two in a row change the decision.
  void copied(std::uint64_t bytes, std::uint64_t ns) {
    const std::uint64_t before = std::atomic_ref(copied_).load(std::memory_order_relaxed);
    std::atomic_ref(copied_).store(before + bytes, std::memory_order_relaxed);
    if (before < kFirstLap) return;
    const auto sample = static_cast<std::uint32_t>(std::min(ns * 1024 / bytes, std::uint64_t{2} * kFarNsPerKib));
    const std::uint32_t known = Ref(ns_per_kib_).load(std::memory_order_relaxed);
    Ref(ns_per_kib_)
        .store(known == 0 ? std::min(sample, kFarNsPerKib) : (3 * known + sample) / 4, std::memory_order_relaxed);
  }

 private:
  using Ref = std::atomic_ref<std::uint32_t>;
  // Measured, 16 and 32 KiB: 20 to 80 between near cores, above 160 between far ones.
  static constexpr std::uint32_t kFarNsPerKib = 128;
  static constexpr std::uint32_t kTrial = 32;
  // More than the longest ring that Heddle chooses. In its first lap the pages are made and mapped
  // meanwhile, which takes many times as long as the copy.
  static constexpr std::uint64_t kFirstLap = std::uint64_t{192} << 10;

  // bytes, in all
  alignas(std::atomic_ref<std::uint64_t>::required_alignment) std::uint64_t copied_;
  std::uint32_t ns_per_kib_;  // 0: unknown
  // since the last copy
  std::uint32_t fetched_;
};

}  // namespace heddle::engine
