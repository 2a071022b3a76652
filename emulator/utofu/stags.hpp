// The registered memory of one CQ: steering addresses and what they stand for. Application threads
// register and deregister, the engine looks up; any thread may call anything. Nothing here is on
// the way of a post.
//
// A steering address is 6 bits that name the CQ within its node, 18 of a stag, 40 of an offset.
// With random numbering the upper 24 are mixed with the world's seed and the CQ, and each
// registration begins at another offset, so an address of one CQ means nothing to another. In the
// vendor's the upper 6 are 0, the offset begins with the memory's place in its page, and that of a
// stag that the program names with 0: the same stag has the same address everywhere.
// Byte k of a registration is at address + k. The VCQs of a CQ share it: the same range gets the
// same address, counted.
#pragma once

#include <utofu.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "utofu/machine.hpp"
#include "utofu/settings.hpp"

namespace tofu_emulator {

enum class Access : std::uint8_t { read, write, atomic };
// stadd: nothing is registered there; length: it is, but not all of the range; memory: read-only,
// or misaligned for an atomic.
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
  ~Stags() = default;
  Stags(const Stags&) = delete;
  Stags& operator=(const Stags&) = delete;

  // Program: UTOFU_SUCCESS, or UTOFU_ERR_INVALID_SIZE (beyond what an address can span), _FULL,
  // _OUT_OF_MEMORY.
  int add(void* address, std::size_t size, bool read_only, utofu_stadd_t* stadd);
  // With the stag that the program names, below kFixedStags; also _ERR_USED.
  int add_fixed(void* address, std::size_t size, std::uint32_t stag, bool read_only, utofu_stadd_t* stadd);
  // Where no registration begins: UTOFU_ERR_INVALID_STADD. `in_flight`: commands that the engine
  // has begun and that still use it, when the last holder gives it back.
  int remove(utofu_stadd_t stadd, std::uint32_t* in_flight);
  // Whether the address lies in the registration that remove() would end with it (its last
  // holder's): for its caller's checks.
  [[nodiscard]] bool would_end(utofu_stadd_t begin, utofu_stadd_t stadd);

  // While held the range is not deregistered: dereg takes the entry out, then waits. So hold it for
  // the time of a copy, never across rounds. Release only what was not denied.
  [[nodiscard]] Hold hold(utofu_stadd_t stadd, std::size_t length, Access access);
  void release(const Hold& hold);
  // Strict mode: a command that the engine has begun uses, until finished(), this range of its own
  // side; dereg reports it. What is not registered is not counted, and finished() of what is gone
  // does nothing.
  void began(utofu_stadd_t stadd);
  void finished(utofu_stadd_t stadd);

  [[nodiscard]] std::size_t size();

  // The address that add_fixed() gives on the CQ of this place, whether or not it was called.
  // Arithmetic.
  [[nodiscard]] static utofu_stadd_t fixed_address(const Machine& machine, const VcqPlace& place, std::uint32_t stag);

 private:
  struct Registration {
    std::byte* address = nullptr;
    std::size_t size = 0;
    std::uint64_t first = 0;  // what the 40-bit field of the first byte holds
    std::uint32_t count = 0;
    std::uint32_t in_flight = 0;
    std::uint32_t held = 0;
    bool read_only = false;
    bool leaving = false;  // taken out; it stays until nobody holds it
  };
  struct Range {
    std::byte* address;
    std::size_t size;
    bool read_only;
    bool operator==(const Range&) const = default;
  };
  struct RangeHash {
    std::size_t operator()(const Range& range) const;
  };

  Registration* find(utofu_stadd_t stadd, std::uint64_t* offset, std::uint32_t* stag);
  std::uint32_t free_stag(bool read_only);
  [[nodiscard]] utofu_stadd_t address_of(std::uint32_t stag, std::uint64_t offset) const;

  const Machine& machine_;
  const VcqPlace place_;
  const std::uint64_t upper_;  // the upper 24 bits of addresses, before the stag
  std::mutex mutex_;           // of all that follows
  std::condition_variable released_;
  std::uint32_t next_stag_;
  std::uint64_t given_ = 0;  // automatic registrations so far: each begins at another offset
  std::unordered_map<std::uint32_t, Registration> by_stag_;
  std::unordered_map<Range, std::uint32_t, RangeHash> by_range_;  // the automatic ones
};

}  // namespace tofu_emulator
