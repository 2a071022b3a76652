// Which core a process and each of its threads run on: the same for Heddle and for all peers,
// whatever launcher bound them.
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

  // The calling thread as thread `thread` of process `rank` of 2 that are both at work: each has
  // its share of the cores.
  void pin_sharing(std::uint32_t rank, std::uint32_t thread) const;
  // The calling thread on any of them. So that threads which it starts, the library's own among
  // them, find a free core.
  void unpin() const;
  // The calling thread as one of a process that works alone, while the other sleeps: all cores are
  // its own.
  void pin_alone(std::uint32_t rank, std::uint32_t thread) const;

 private:
  void pin(std::size_t index) const;
  std::vector<int> cpus_;
};

}  // namespace heddle::bench::harness
