// The registered memory of one CQ. Application threads register and deregister, the engine looks up; any thread may call
// anything.
#pragma once

#include <utofu.h>

#include <cstddef>
#include <cstdint>

#include "utofu/machine.hpp"
#include "utofu/settings.hpp"

namespace tofu_emulator {

enum class Access : std::uint8_t { read, write, atomic };
// stadd: nothing is registered there; length: it is, but not all of the range; memory: read-only, or misaligned for an atomic.
enum class Denied : std::uint8_t { none, stadd, length, memory };

// A range that the engine is about to touch.
struct Hold {
  std::byte* data = nullptr;
  Denied denied = Denied::stadd;
  std::uint32_t entry = 0;
  // The registration's range, for padding: bytes before and after `data` that are registered too.
  std::size_t before = 0;
  std::size_t after = 0;
};

class Stags {
 public:
  // `place`: of the CQ; its slot does not matter.
  Stags(const Settings& settings, const Machine& machine, const VcqPlace& place);
  ~Stags();
  Stags(const Stags&) = delete;
  Stags& operator=(const Stags&) = delete;

  // While held the range is not deregistered: dereg takes the entry out, then waits. So hold it for the time of a copy, never
  // across rounds. Release only what was not denied.
  [[nodiscard]] Hold hold(utofu_stadd_t stadd, std::size_t length, Access access);
  void release(const Hold& hold);
  // Strict mode: a command that the engine has begun uses, until finished(), this range of its own side; dereg reports it.
  void began(utofu_stadd_t stadd);
  void finished(utofu_stadd_t stadd);
};

}  // namespace tofu_emulator
