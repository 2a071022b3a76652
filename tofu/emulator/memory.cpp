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

#include "tofu/emulator/machine.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {
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
