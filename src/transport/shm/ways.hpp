// Which way large transfers to a peer go: through bounce space or by the kernel's copy. The faster
// way is chosen, as measured: that depends on how far the two cores are from each other, which no
// name tells, and on whether the peer has a core at all.
//
// The slower way is tried now and then: the kernel once in 256 transfers; bounce space the less
// often the slower it was, and then by one chunk first, which must not take the target much longer
// than the kernel. A target that does not take its chunks in time, or that loses its core in the
// middle of one, is left to the kernel for a number of transfers that doubles each time.
//
// There is no clock and no transfer in here: measurements come as numbers. One per worker; one
// thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace heddle::transport::shm {

enum class Way : std::uint8_t {
  kernel,
  bounce,
  // bounce space, which may be slower: one chunk first
  trial
};

class Ways {
 public:
  explicit Ways(std::size_t ranks) : peers_(ranks) {}

  // The way of the next transfer to a peer that polls, if both ways are possible.
  [[nodiscard]] Way choose(std::uint32_t rank, std::uint64_t bytes);
  // Nothing is known of bounce space to this peer yet.
  [[nodiscard]] bool unknown(std::uint32_t rank, std::uint64_t bytes) const;
  // Bounce space is slower, as far as known.
  [[nodiscard]] bool prefers_kernel(std::uint32_t rank, std::uint64_t bytes) const;
  // How long the kernel's copy takes, as far as known.
  [[nodiscard]] std::uint64_t kernel_ns(std::uint32_t rank, std::uint64_t bytes) const;

  void kernel_took(std::uint32_t rank, std::uint64_t bytes, std::uint64_t ns);
  // A transfer, or a long part of one, went through bounce space in `ns`, its share of the time
  // where several were under way.
  void bounce_took(std::uint32_t rank, std::uint64_t bytes, std::uint64_t ns);
  // The target polls, but has not finished a chunk in the time of the kernel.
  void bounce_slow(std::uint32_t rank, std::uint64_t bytes);
  // The target has not taken a request: it does not poll, or has no core.
  void unanswered(std::uint32_t rank);
  // The target has taken a chunk and has not finished it for so long that its thread must have lost
  // its core.
  void stalled(std::uint32_t rank);

  static constexpr std::uint64_t kStallNs = 200'000;
  // Up to so many bytes the time of a transfer hardly depends on its length, by either way.
  static constexpr std::uint64_t kShort = 8192;

 private:
  static constexpr std::size_t kClasses = 7;  // up to 512 B, 2, 8, 32, 128, 512 KiB, and more
  static constexpr std::uint32_t kKernelPeriod = 256;
  static constexpr std::uint32_t kFirstPeriod = 32;  // of short ones, before it is known at all
  // A slice of time that a target takes to get its core back is as long as many short transfers:
  // so many of them count as one of those that avoid it.
  static constexpr std::uint32_t kShortAsOne = 8;
  static constexpr std::uint32_t kShortestWait = 8;
  static constexpr std::uint32_t kLongestWait = 64;
  // Trials may cost one part in this of the time of all transfers.
  static constexpr std::uint32_t kTrialShare = 40;
  // a sample counts for no more than so many times the kernel's
  static constexpr std::uint32_t kWorst = 4;
  static constexpr std::uint32_t kLeastSkips = 4;
  static constexpr std::uint32_t kMostSkips = 64;
  static constexpr std::uint32_t kLeastAvoided = 64;
  static constexpr std::uint32_t kMostAvoided = 2048;
  static constexpr std::uint32_t kCalm = 64;

  // Times in sixteenths of a nanosecond for each KiB, a short transfer counted as of kShort; 0:
  // unknown.
  struct Class {
    std::uint32_t kernel = 0;
    std::uint32_t bounce = 0;
    std::uint16_t wait = 0;   // transfers until bounce space is tried
    std::uint16_t since = 0;  // transfers since the kernel was tried
  };
  struct PeerProcess {
    std::array<Class, kClasses> classes;
    std::uint16_t skip = 0;     // transfers that the kernel copies before anything else is asked
    std::uint16_t skipped = 0;  // the last number of them, for a target that did not answer
    std::uint16_t avoided = 0;  // for one that lost its core
    std::uint16_t calm = 0;     // transfers since then
    std::uint16_t parts = 0;    // short transfers, of kShortAsOne
    bool avoids = false;        // `skip` is for a target that lost its core
  };

  static void skip(PeerProcess& peer, std::uint64_t bytes);
  static std::size_t class_of(std::uint64_t bytes);
  static std::uint32_t rate(std::uint64_t bytes, std::uint64_t ns);
  static std::uint32_t kernel_rate(const Class& of, std::uint64_t bytes);
  static void wait_for_trial(Class& of, std::uint32_t kernel);

  std::vector<PeerProcess> peers_;
};

}  // namespace heddle::transport::shm
