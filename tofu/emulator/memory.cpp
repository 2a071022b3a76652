#include "tofu/emulator/memory.hpp"

#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utofu.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "tofu/emulator/machine.hpp"
#include "tofu/emulator/report.hpp"

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

Stags::Stags(const EmulatorSettings& /*settings*/, const Machine& machine, const VcqPlace& place)
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

namespace {

// Results of a copy by the kernel, which reports faults. If the process may not ask it (EPERM,
// ENOSYS: a sandbox), memcpy copies.
enum class Copied : std::uint8_t { all, fault, unable };

Copied by_kernel(void* here, const void* there, std::size_t bytes, bool write) {
  const iovec local{here, bytes};
  const iovec remote{const_cast<void*>(there), bytes};
  const ssize_t done = write ? ::process_vm_writev(::getpid(), &local, 1, &remote, 1, 0)
                             : ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
  if (done == static_cast<ssize_t>(bytes)) return Copied::all;
  return done < 0 && errno != EFAULT ? Copied::unable : Copied::fault;
}

template <class Word>
void store_word(std::byte* to, const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELEASE);
}

// Stores ascending, in the largest aligned words. Each word is visible after those before it.
void store_words(std::byte* to, const std::byte* from, std::size_t bytes) {
  while (bytes != 0) {
    const auto place = reinterpret_cast<std::uintptr_t>(to);
    std::size_t step = 1;
    if (place % 8 == 0 && bytes >= 8) {
      step = 8;
      store_word<std::uint64_t>(to, from);
    } else if (place % 4 == 0 && bytes >= 4) {
      step = 4;
      store_word<std::uint32_t>(to, from);
    } else if (place % 2 == 0 && bytes >= 2) {
      step = 2;
      store_word<std::uint16_t>(to, from);
    } else {
      store_word<std::uint8_t>(to, from);
    }
    to += step;
    from += step;
    bytes -= step;
  }
}

// The object with which the calling thread now accesses the application's memory; null: none.
// Volatile: read by the signal handler that interrupts it. initial-exec: accessed without a call,
// which might allocate.
thread_local constinit const Memory* volatile t_touches [[gnu::tls_model("initial-exec")]] = nullptr;

class Touch {
 public:
  explicit Touch(const Memory& memory) { t_touches = &memory; }
  ~Touch() { t_touches = nullptr; }
  Touch(const Touch&) = delete;
  Touch& operator=(const Touch&) = delete;
};

constexpr std::array kFaults{SIGSEGV, SIGBUS};
std::array<struct sigaction, kFaults.size()> former;  // written before the handlers are installed
std::atomic<Memory::Name> vcq_name{nullptr};          // relaxed: likewise

// The fault is not ours, or has been reported: calls the previous handler.
void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& old = former.at(signal == SIGSEGV ? 0 : 1);
  const bool default_action =
      (old.sa_flags & SA_SIGINFO) == 0 && (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN);
  if (default_action) {
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;  // for an ignored fault the kernel kills the process
    ::sigaction(signal, &plain, nullptr);
    // another process has sent the signal: no access would fault again
    if (info->si_code <= 0) ::raise(signal);
    return;
  }
  if ((old.sa_flags & SA_SIGINFO) != 0) {
    old.sa_sigaction(signal, info, context);
  } else {
    old.sa_handler(signal);
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const Memory* memory = t_touches;
  if (memory != nullptr && info->si_code > 0) {
    t_touches = nullptr;
    char vcq[96] = "a VCQ";
    if (const Memory::Name name = vcq_name.load(std::memory_order_relaxed); name != nullptr)
      name(memory->vcq(), vcq, sizeof vcq);
    last_words(
        "memory at %p cannot be touched: %s names steering address %016llx, which is registered as %p here, but was "
        "unmapped, or is not writable; deregister memory before it is unmapped. The process ends with signal %d",
        info->si_addr, vcq, static_cast<unsigned long long>(memory->stadd()),
        static_cast<const void*>(memory->address()), signal);
  }
  pass_on(signal, info, context);
}

// the last bytes of a copy, or all of a short one, go word by word
constexpr std::size_t kInWords = 32;

template <class Word>
std::uint64_t exchange_word(std::byte* place, std::uint8_t op, std::uint64_t operand, std::uint64_t compare) {
  auto* word = reinterpret_cast<Word*>(place);
  const auto value = static_cast<Word>(operand);
  switch (op) {
    case UTOFU_ARMW_OP_SWAP:
      return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_ADD:
      return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_XOR:
      return __atomic_fetch_xor(word, value, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_AND:
      return __atomic_fetch_and(word, value, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_OR:
      return __atomic_fetch_or(word, value, __ATOMIC_SEQ_CST);
    default: {
      auto before = static_cast<Word>(compare);
      __atomic_compare_exchange_n(word, &before, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      return before;
    }
  }
}

}  // namespace

void Memory::watch_faults(Name name) {
  static const bool installed = [name] {
    vcq_name.store(name, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kFaults.size(); ++i) {
      struct sigaction action{};
      if (::sigaction(kFaults.at(i), nullptr, &former.at(i)) != 0) return false;
      action.sa_sigaction = &on_fault;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigemptyset(&action.sa_mask);
      if (::sigaction(kFaults.at(i), &action, nullptr) != 0) return false;
    }
    return true;
  }();
  if (!installed) warn("what the network interfaces cannot touch will not be explained");
}

void Memory::let_faults_in() {
  sigset_t faults;
  sigemptyset(&faults);
  for (const int fault : kFaults) sigaddset(&faults, fault);
  ::pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

bool Memory::read(std::byte* to, const std::byte* application, std::size_t bytes) const {
  if (careful_) {
    const Copied copied = by_kernel(to, application, bytes, false);
    if (copied != Copied::unable) return copied == Copied::all;
  }
  const Touch touch(*this);
  std::memcpy(to, application, bytes);
  return true;
}

bool Memory::write(std::byte* application, const std::byte* from, std::size_t bytes, Order order) const {
  const Touch touch(*this);
  if (order == Order::ascending) {
    // The kernel copies in any order, so it only checks that the memory is there.
    std::byte look[kMtu];
    for (std::size_t at = 0; careful_ && at < bytes; at += sizeof look) {
      if (by_kernel(look, application + at, std::min(bytes - at, sizeof look), false) == Copied::fault) return false;
    }
    store_words(application, from, bytes);
    return true;
  }
  const std::size_t first = bytes - std::min(bytes, kInWords);
  if (careful_) {
    // The end is stored separately afterwards, in order; reading it has shown that it is there.
    std::byte end[kInWords];
    if (by_kernel(end, application + first, bytes - first, false) == Copied::fault) return false;
    const Copied copied = first == 0 ? Copied::all : by_kernel(const_cast<std::byte*>(from), application, first, true);
    if (copied == Copied::fault) return false;
    if (copied == Copied::unable) std::memcpy(application, from, first);
  } else if (first != 0) {
    std::memcpy(application, from, first);
  }
  store_words(application + first, from + first, bytes - first);
  return true;
}

bool Memory::exchange(std::byte* application, std::size_t bytes, std::uint8_t op, std::uint64_t operand,
                      std::uint64_t compare, std::uint64_t* before) const {
  std::byte look[8];
  if (careful_ && by_kernel(look, application, bytes, false) == Copied::fault) return false;
  const Touch touch(*this);
  *before = bytes == 8 ? exchange_word<std::uint64_t>(application, op, operand, compare)
                       : exchange_word<std::uint32_t>(application, op, operand, compare);
  return true;
}

}  // namespace tofu_emulator
