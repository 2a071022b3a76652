// The processes of --busy: they compute beside each measurement, one to each core in turn, as
// another user's job would, and sleep while P is measured and between measurements.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "harness/channel.hpp"
#include "harness/cores.hpp"

namespace heddle::bench::driver {

class Busy {
 public:
  // `count` may be 0. They end with this object, and with this process.
  Busy(harness::Channel& channel, const harness::Cores& cores, std::uint32_t count);
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy();

 private:
  std::vector<pid_t> children_;
};

}  // namespace heddle::bench::driver
