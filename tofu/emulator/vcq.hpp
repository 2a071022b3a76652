// A VCQ: the part of a CQ that one handle uses.
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
  // Not used: handles.hpp records the thread in CqUser::thread.
  std::atomic<std::uint32_t> owner{0};
  // 1 + the index of this handle's clock in the timing model; 0: none yet
  std::uint64_t model_clock = 0;
};

}  // namespace tofu_emulator
