// A program's share of a CQ.
#pragma once

#include <utofu.h>

#include <atomic>
#include <cstdint>

namespace tofu_emulator {

class CommandQueue;

struct Vcq {
  CommandQueue* cq = nullptr;
  utofu_vcq_id_t id = 0;  // raw
  unsigned long flags = 0;
  std::uint16_t slot = 0;  // in the CQ
  // Strict mode: which thread is in a call on this handle; 0: none. (For who checks handles.)
  std::atomic<std::uint32_t> owner{0};
  // the timing model's: which of its clocks is this handle's; 0: none yet
  std::uint64_t model_clock = 0;
};

}  // namespace tofu_emulator
