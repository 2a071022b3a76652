#include "tofu/emulator/stags.hpp"

#include <new>

namespace tofu_emulator {
namespace {

constexpr unsigned kOffsetBits = 40;
constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kOffsetBits) - 1;
constexpr std::uint64_t kUpperMask = (std::uint64_t{1} << 24U) - 1;
constexpr std::uint32_t kStagMask = (1U << 18U) - 1;
// the largest registration; offsets begin in the lower half
constexpr std::uint64_t kLargest = std::uint64_t{1} << 39U;
constexpr std::uint32_t kFirstAutomatic = 4096;
// automatic stags of a CQ, half of them for read-only memory
constexpr std::uint32_t kAutomatic = 32768;
// the bits of an address within a page of 64 KiB, which the hardware keeps
constexpr std::uint64_t kPageOffset = 0xFFFF;

enum Purpose : std::uint64_t { kForNode = 0x51A6, kForUpper = 0x0BBE, kForFixed = 0xF18D, kForOffset = 0xBA5E };

std::uint64_t number_of(const VcqPlace& place) {
  return std::uint64_t{place.node} << 8U | std::uint64_t{place.tni} << 4U | place.cq;
}

// The 6 upper bits differ between the CQs of one node; the others have no pattern.
std::uint64_t upper_bits(const Machine& machine, const VcqPlace& place) {
  if (machine.vendor()) return 0;
  const std::uint64_t in_node = place.tni * kCqs + place.cq + machine.scramble(kForNode, place.node);
  return (in_node & 63U) << 18U | (machine.scramble(kForUpper, number_of(place)) & kStagMask);
}

std::uint64_t fixed_offset(const Machine& machine, const VcqPlace& place, std::uint32_t stag) {
  if (machine.vendor()) return 0;
  const std::uint64_t any = machine.scramble(kForFixed, number_of(place) << 8U | stag);
  return any & (kOffsetMask >> 1U) & ~std::uint64_t{kLineBytes - 1};
}

}  // namespace

Stags::Stags(const Settings& /*settings*/, const Machine& machine, const VcqPlace& place)
    : machine_(machine), place_(place), upper_(upper_bits(machine, place)), next_stag_(kFirstAutomatic) {}

std::size_t Stags::RangeHash::operator()(const Range& range) const {
  return (reinterpret_cast<std::uintptr_t>(range.address) ^ range.size * 0x9E3779B97F4A7C15ULL) +
         (range.read_only ? 1U : 0U);
}

utofu_stadd_t Stags::address_of(std::uint32_t stag, std::uint64_t offset) const {
  return (upper_ ^ stag) << kOffsetBits | offset;
}

utofu_stadd_t Stags::fixed_address(const Machine& machine, const VcqPlace& place, std::uint32_t stag) {
  return (upper_bits(machine, place) ^ stag) << kOffsetBits | fixed_offset(machine, place, stag);
}

// Even: writable; odd: read-only. Stags are used in turn, so that a freed one is not reused soon.
std::uint32_t Stags::free_stag(bool read_only) {
  for (;;) {
    const std::uint32_t stag = next_stag_ | (read_only ? 1U : 0U);
    next_stag_ = next_stag_ + 2 == kFirstAutomatic + kAutomatic ? kFirstAutomatic : next_stag_ + 2;
    if (!by_stag_.contains(stag)) return stag;
  }
}

int Stags::add(void* address, std::size_t size, bool read_only, utofu_stadd_t* stadd) {
  if (size > kLargest) return UTOFU_ERR_INVALID_SIZE;
  const std::lock_guard guard(mutex_);
  const Range range{static_cast<std::byte*>(address), size, read_only};
  if (const auto known = by_range_.find(range); known != by_range_.end()) {
    Registration& registration = by_stag_.at(known->second);
    ++registration.count;
    *stadd = address_of(known->second, registration.first);
    return UTOFU_SUCCESS;
  }
  // Half of the stags of one kind: those being removed still leave a stag free.
  if (by_range_.size() >= kAutomatic / 4) return UTOFU_ERR_FULL;
  const std::uint32_t stag = free_stag(read_only);
  const std::uint64_t any = machine_.vendor() ? 0 : machine_.scramble(kForOffset, number_of(place_) << 32U ^ ++given_);
  const std::uint64_t first =
      (any & (kOffsetMask >> 1U) & ~kPageOffset) | (reinterpret_cast<std::uintptr_t>(address) & kPageOffset);
  try {
    by_range_.emplace(range, stag);
    by_stag_.emplace(stag, Registration{range.address, size, first, 1, 0, 0, read_only, false});
  } catch (const std::bad_alloc&) {
    by_range_.erase(range);
    return UTOFU_ERR_OUT_OF_MEMORY;
  }
  *stadd = address_of(stag, first);
  return UTOFU_SUCCESS;
}

int Stags::add_fixed(void* address, std::size_t size, std::uint32_t stag, bool read_only, utofu_stadd_t* stadd) {
  if (size > kLargest) return UTOFU_ERR_INVALID_SIZE;
  const std::lock_guard guard(mutex_);
  const std::uint64_t first = fixed_offset(machine_, place_, stag);
  try {
    const Registration registration{static_cast<std::byte*>(address), size, first, 1, 0, 0, read_only, false};
    if (!by_stag_.emplace(stag, registration).second) return UTOFU_ERR_USED;
  } catch (const std::bad_alloc&) {
    return UTOFU_ERR_OUT_OF_MEMORY;
  }
  *stadd = address_of(stag, first);
  return UTOFU_SUCCESS;
}

// The registration of the address's stag; `offset` from its first byte may be beyond its end.
Stags::Registration* Stags::find(utofu_stadd_t stadd, std::uint64_t* offset, std::uint32_t* stag) {
  const std::uint64_t upper = (stadd >> kOffsetBits & kUpperMask) ^ upper_;
  if (upper > kStagMask) return nullptr;
  const auto found = by_stag_.find(static_cast<std::uint32_t>(upper));
  if (found == by_stag_.end() || found->second.leaving) return nullptr;
  // for an address before it: larger than any size
  *offset = (stadd & kOffsetMask) - found->second.first;
  *stag = found->first;
  return &found->second;
}

bool Stags::would_end(utofu_stadd_t begin, utofu_stadd_t stadd) {
  const std::lock_guard guard(mutex_);
  std::uint64_t offset = 0;
  std::uint32_t stag = 0;
  const Registration* leaves = find(begin, &offset, &stag);
  if (leaves == nullptr || offset != 0 || leaves->count != 1) return false;
  return find(stadd, &offset, &stag) == leaves && offset < leaves->size;
}

int Stags::remove(utofu_stadd_t stadd, std::uint32_t* in_flight) {
  std::unique_lock lock(mutex_);
  *in_flight = 0;
  std::uint64_t offset = 0;
  std::uint32_t stag = 0;
  Registration* registration = find(stadd, &offset, &stag);
  if (registration == nullptr || offset != 0) return UTOFU_ERR_INVALID_STADD;
  if (--registration->count != 0) return UTOFU_SUCCESS;
  *in_flight = registration->in_flight;
  registration->leaving = true;
  const auto range = by_range_.find({registration->address, registration->size, registration->read_only});
  if (range != by_range_.end() && range->second == stag)
    // a fixed stag may have the same range
    by_range_.erase(range);
  // elements of the map do not move
  released_.wait(lock, [registration] { return registration->held == 0; });
  by_stag_.erase(stag);
  return UTOFU_SUCCESS;
}

Hold Stags::hold(utofu_stadd_t stadd, std::size_t length, Access access) {
  const std::lock_guard guard(mutex_);
  Hold result;
  std::uint64_t offset = 0;
  Registration* registration = find(stadd, &offset, &result.entry);
  if (registration == nullptr) return result;
  if (offset > registration->size || length > registration->size - offset) {
    result.denied = Denied::length;
    return result;
  }
  result.data = registration->address + offset;
  const bool misaligned = access == Access::atomic && reinterpret_cast<std::uintptr_t>(result.data) % length != 0;
  if (misaligned || (registration->read_only && access != Access::read)) {
    return Hold{nullptr, Denied::memory, 0, 0, 0};
  }
  result.denied = Denied::none;
  result.before = offset;
  result.after = registration->size - offset - length;
  ++registration->held;
  return result;
}

void Stags::release(const Hold& hold) {
  bool last = false;
  {
    const std::lock_guard guard(mutex_);
    Registration& registration = by_stag_.at(hold.entry);
    last = --registration.held == 0 && registration.leaving;
  }
  if (last) released_.notify_all();
}

void Stags::began(utofu_stadd_t stadd) {
  const std::lock_guard guard(mutex_);
  std::uint64_t offset = 0;
  std::uint32_t stag = 0;
  if (Registration* registration = find(stadd, &offset, &stag); registration != nullptr) ++registration->in_flight;
}

void Stags::finished(utofu_stadd_t stadd) {
  const std::lock_guard guard(mutex_);
  std::uint64_t offset = 0;
  std::uint32_t stag = 0;
  Registration* registration = find(stadd, &offset, &stag);
  if (registration != nullptr && registration->in_flight != 0) --registration->in_flight;
}

std::size_t Stags::size() {
  const std::lock_guard guard(mutex_);
  return by_stag_.size();
}

}  // namespace tofu_emulator
