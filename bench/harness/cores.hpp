// The core on which a process and each of its threads run: the same for Heddle and for all peers,
// independent of the launcher's binding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::bench::harness {

class Cores {
 public:
  // The processors this process may use, those of different physical cores first.
  static Cores allowed();
  // As from text(), such as "0,2,1,3". No processors: nothing is pinned.
  static Cores parse(const std::string& text);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::size_t count() const { return cpus_.size(); }

  // Binds the calling thread as thread `thread` of process `rank`, of two processes that are both
  // at work: each has its share of the cores.
  void pin_sharing(std::uint32_t rank, std::uint32_t thread) const;
  // Lets the calling thread run on any of them, so that threads which it starts, including the
  // library's own, find a free core.
  void unpin() const;
  // Binds the calling thread as one of a process that works alone while the other sleeps: it has
  // all cores.
  void pin_alone(std::uint32_t rank, std::uint32_t thread) const;

 private:
  void pin(std::size_t index) const;
  std::vector<int> cpus_;
};

}  // namespace heddle::bench::harness
