#include "transport/shm/ways.hpp"

#include <algorithm>

namespace heddle::transport::shm {
namespace {

// The time of the kernel's copy on common machines, used until the real time is known.
constexpr std::uint64_t kernel_guess(std::uint64_t bytes) {
  return 2300 + bytes * 9 / 100;
}

// The new value counts for a quarter.
constexpr std::uint32_t blend(std::uint32_t known, std::uint32_t sample) {
  return known == 0 ? sample : static_cast<std::uint32_t>((std::uint64_t{3} * known + sample) / 4);
}

}  // namespace

std::size_t Ways::class_of(std::uint64_t bytes) {
  constexpr std::uint64_t kFirst = 512;
  std::size_t of = 0;
  for (std::uint64_t limit = kFirst; of + 1 < kClasses && bytes > limit; limit *= 4) ++of;
  return of;
}

std::uint32_t Ways::rate(std::uint64_t bytes, std::uint64_t ns) {
  constexpr std::uint64_t kMostNs = 1'000'000'000;
  const std::uint64_t sixteenths = std::min(ns, kMostNs) * 16 * 1024 / std::max(bytes, kShort);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(sixteenths, 1, std::uint32_t{1} << 26));
}

std::uint32_t Ways::kernel_rate(const Class& of, std::uint64_t bytes) {
  return of.kernel != 0 ? of.kernel : rate(bytes, kernel_guess(bytes));
}

void Ways::wait_for_trial(Class& of, std::uint32_t kernel) {
  const std::uint64_t more = of.bounce > kernel ? of.bounce - kernel : 0;
  of.wait =
      static_cast<std::uint16_t>(std::clamp<std::uint64_t>(kTrialShare * more / kernel, kShortestWait, kLongestWait));
}

void Ways::skip(PeerProcess& peer, std::uint64_t bytes) {
  if (peer.avoids && bytes <= kShort && ++peer.parts < kShortAsOne) return;
  peer.parts = 0;
  --peer.skip;
}

Way Ways::choose(std::uint32_t rank, std::uint64_t bytes) {
  PeerProcess& peer = peers_[rank];
  if (peer.skip != 0) {
    skip(peer, bytes);
    return Way::kernel;
  }
  Class& of = peer.classes[class_of(bytes)];
  if (!prefers_kernel(rank, bytes)) {
    if (++of.since < (of.kernel == 0 && bytes <= kShort ? kFirstPeriod : kKernelPeriod)) return Way::bounce;
    of.since = 0;
    return Way::kernel;
  }
  if (of.wait != 0) {
    --of.wait;
    return Way::kernel;
  }
  of.wait = kShortestWait;  // should the trial tell nothing
  return Way::trial;
}

bool Ways::unknown(std::uint32_t rank, std::uint64_t bytes) const {
  return peers_[rank].classes[class_of(bytes)].bounce == 0;
}

bool Ways::prefers_kernel(std::uint32_t rank, std::uint64_t bytes) const {
  const Class& of = peers_[rank].classes[class_of(bytes)];
  return of.bounce > kernel_rate(of, bytes);
}

std::uint64_t Ways::kernel_ns(std::uint32_t rank, std::uint64_t bytes) const {
  const Class& of = peers_[rank].classes[class_of(bytes)];
  return of.kernel != 0 ? of.kernel * std::max(bytes, kShort) / (std::uint64_t{16} * 1024) : kernel_guess(bytes);
}

void Ways::kernel_took(std::uint32_t rank, std::uint64_t bytes, std::uint64_t ns) {
  if (ns == 0) return;  // the clock stands still
  Class& of = peers_[rank].classes[class_of(bytes)];
  // This thread may have lost its core meanwhile, so a sample is limited.
  const std::uint32_t most = 2 * kernel_rate(of, bytes);
  of.kernel = blend(of.kernel, std::min(rate(bytes, ns), most));
}

void Ways::bounce_took(std::uint32_t rank, std::uint64_t bytes, std::uint64_t ns) {
  PeerProcess& peer = peers_[rank];
  peer.skipped = 0;
  if (peer.avoided != 0 && ++peer.calm >= kCalm) {
    peer.calm = 0;
    peer.avoided /= 2;
  }
  Class& of = peer.classes[class_of(bytes)];
  const std::uint32_t kernel = kernel_rate(of, bytes);
  const std::uint32_t sample = std::min(rate(bytes, ns), kWorst * kernel);
  of.bounce = blend(of.bounce, sample);
  // After one success the next trial follows soon: bounce space may have become better again.
  sample < kernel ? static_cast<void>(of.wait = 2) : wait_for_trial(of, kernel);
}

void Ways::bounce_slow(std::uint32_t rank, std::uint64_t bytes) {
  Class& of = peers_[rank].classes[class_of(bytes)];
  const std::uint32_t kernel = kernel_rate(of, bytes);
  of.bounce = std::max(blend(of.bounce, kWorst * kernel), kernel + 1);
  wait_for_trial(of, kernel);
}

void Ways::unanswered(std::uint32_t rank) {
  PeerProcess& peer = peers_[rank];
  peer.skipped = static_cast<std::uint16_t>(std::clamp(2U * peer.skipped, kLeastSkips, kMostSkips));
  if (peer.skip >= peer.skipped) return;
  peer.skip = peer.skipped;
  peer.avoids = false;
}

void Ways::stalled(std::uint32_t rank) {
  PeerProcess& peer = peers_[rank];
  peer.calm = 0;
  peer.avoided = static_cast<std::uint16_t>(std::clamp(2U * peer.avoided, kLeastAvoided, kMostAvoided));
  peer.skip = std::max(peer.skip, peer.avoided);
  peer.avoids = true;
}

}  // namespace heddle::transport::shm
