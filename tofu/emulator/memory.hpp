// Registered memory: the steering addresses and ranges of one CQ, and access to the application's
// memory.
//
// Application threads register and deregister, the engine looks up; any thread may call any
// function. None of this is on the path of a post.
//
// A steering address has 6 bits that name the CQ within its node, 18 bits of a stag, 40 bits of an
// offset. With random numbering, the upper 24 bits are mixed with the world's seed and the CQ, and
// each registration begins at another offset, so an address of one CQ is invalid for another. With
// the vendor's numbering, the upper 6 bits are 0. The offset begins with the memory's place in its
// page, and for a stag that the program names with 0, so that the same stag has the same address
// everywhere.
// Byte k of a registration is at address + k. The VCQs of a CQ share its registrations: the same
// range gets the same address, with a count.
#pragma once

#include <utofu.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "tofu/emulator/machine.hpp"
#include "tofu/emulator/settings.hpp"

namespace tofu_emulator {

enum class Access : std::uint8_t { read, write, atomic };
// stadd: no registration there; length: not all of the range is registered; memory: read-only, or
// misaligned for an atomic.
enum class Denied : std::uint8_t { none, stadd, length, memory };

// A range that the engine is about to access.
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
  Stags(const EmulatorSettings& settings, const Machine& machine, const VcqPlace& place);
  ~Stags() = default;
  Stags(const Stags&) = delete;
  Stags& operator=(const Stags&) = delete;

  // Called by the program: UTOFU_SUCCESS, or UTOFU_ERR_INVALID_SIZE (larger than an address can
  // span), _FULL, _OUT_OF_MEMORY.
  int add(void* address, std::size_t size, bool read_only, utofu_stadd_t* stadd);
  // With the stag that the program names, below kFixedStags; also _ERR_USED.
  int add_fixed(void* address, std::size_t size, std::uint32_t stag, bool read_only, utofu_stadd_t* stadd);
  // UTOFU_ERR_INVALID_STADD: no registration begins there. `in_flight`: begun commands that still
  // use it when the last holder deregisters it.
  int remove(utofu_stadd_t stadd, std::uint32_t* in_flight);
  // Whether `stadd` lies in the registration that remove(begin) would end (called by its last
  // holder): for the caller's checks.
  [[nodiscard]] bool would_end(utofu_stadd_t begin, utofu_stadd_t stadd);

  // While it is held, the range is not deregistered: deregistration removes the entry, then waits.
  // So hold it for a copy only, never across rounds. Release it only if it was not denied.
  [[nodiscard]] Hold hold(utofu_stadd_t stadd, std::size_t length, Access access);
  void release(const Hold& hold);
  // Strict mode: a begun command uses this local range until finished(); deregistration reports it.
  // Unregistered ranges are not counted, and finished() for a removed registration does nothing.
  void began(utofu_stadd_t stadd);
  void finished(utofu_stadd_t stadd);

  [[nodiscard]] std::size_t size();

  // The address that add_fixed() gives on the CQ of this place, whether or not it was called. Pure
  // computation.
  [[nodiscard]] static utofu_stadd_t fixed_address(const Machine& machine, const VcqPlace& place, std::uint32_t stag);

 private:
  struct Registration {
    std::byte* address = nullptr;
    std::size_t size = 0;
    std::uint64_t first = 0;  // the 40-bit field of the first byte's address
    std::uint32_t count = 0;
    std::uint32_t in_flight = 0;
    std::uint32_t held = 0;
    bool read_only = false;
    bool leaving = false;  // being removed; the entry stays until it is not held
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
  std::mutex mutex_;           // protects all members below
  std::condition_variable released_;
  std::uint32_t next_stag_;
  // automatic registrations so far; it makes each begin at another offset
  std::uint64_t given_ = 0;
  std::unordered_map<std::uint32_t, Registration> by_stag_;
  std::unordered_map<Range, std::uint32_t, RangeHash> by_range_;  // the automatic ones
};

// Access of the network interfaces to the application's memory.
class Memory {
 public:
  // careful: detects ranges that are registered but no longer mapped (a system call for each copy);
  // otherwise an access to them is a fault.
  explicit Memory(bool careful) : careful_(careful) {}

  // Describes the next accesses: a VCQ that named `stadd`, which is `address` here. If an access
  // without checks faults, a handler of SIGSEGV and SIGBUS prints this before the process dies of
  // the fault.
  void about(utofu_vcq_id_t vcq, utofu_stadd_t stadd, const std::byte* address) {
    vcq_ = vcq;
    stadd_ = stadd;
    address_ = address;
  }
  [[nodiscard]] utofu_vcq_id_t vcq() const { return vcq_; }
  [[nodiscard]] utofu_stadd_t stadd() const { return stadd_; }
  [[nodiscard]] const std::byte* address() const { return address_; }
  // Installs that handler, once for the process; it calls the previous handlers. `name`: gives the
  // name of a VCQ.
  using Name = void (*)(utofu_vcq_id_t vcq, char* text, std::size_t bytes);
  static void watch_faults(Name name);
  // For a thread that has all signals blocked: the handler must be able to run on it.
  static void let_faults_in();

  // False: the application's memory is not mapped, or lacks the right.
  [[nodiscard]] bool read(std::byte* to, const std::byte* application, std::size_t bytes) const;
  enum class Order : std::uint8_t { end_last, ascending };
  // end_last: the last bytes are stored after all others, so a thread that reads the last word
  // (acquire) finds everything before it. ascending: that holds for each word. Words stored in this
  // way, up to 8 bytes and aligned, are never seen half-written.
  [[nodiscard]] bool write(std::byte* application, const std::byte* from, std::size_t bytes,
                           Order order = Order::end_last) const;
  // bytes: 4 or 8, aligned. op: enum utofu_armw_op, 0: compare and swap. Atomic for all, processors
  // included.
  [[nodiscard]] bool exchange(std::byte* application, std::size_t bytes, std::uint8_t op, std::uint64_t operand,
                              std::uint64_t compare, std::uint64_t* before) const;

 private:
  bool careful_;
  utofu_vcq_id_t vcq_ = 0;
  utofu_stadd_t stadd_ = 0;
  const std::byte* address_ = nullptr;
};

}  // namespace tofu_emulator
