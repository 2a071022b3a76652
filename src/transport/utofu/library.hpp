// libtofucom, opened at run time, and the state that all its users in this process share.
//
// The library exists once per process, whatever the number of contexts. Its documents do not say
// that set-up calls (queues, registrations) are thread-safe, so one lock of the process guards
// them. Queues that share a hardware CQ are used under the lock of that CQ, even if they belong to
// different ranks. This is why this state belongs to the process and not to a context.
#pragma once

#include <utofu.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "queue/locks.hpp"

namespace heddle::transport::utofu {

// The functions that the transport calls. Their types come from <utofu.h>, so that a library with
// another interface does not compile.
struct Functions {
  decltype(&::utofu_get_onesided_tnis) get_onesided_tnis;
  decltype(&::utofu_query_onesided_caps) query_onesided_caps;
  decltype(&::utofu_create_vcq) create_vcq;
  decltype(&::utofu_free_vcq) free_vcq;
  decltype(&::utofu_query_vcq_id) query_vcq_id;
  decltype(&::utofu_query_vcq_info) query_vcq_info;
  decltype(&::utofu_reg_mem) reg_mem;
  decltype(&::utofu_reg_mem_with_stag) reg_mem_with_stag;
  decltype(&::utofu_query_stadd) query_stadd;
  decltype(&::utofu_dereg_mem) dereg_mem;
  decltype(&::utofu_put) put;
  decltype(&::utofu_put_piggyback) put_piggyback;
  decltype(&::utofu_put_piggyback8) put_piggyback8;
  decltype(&::utofu_get) get;
  decltype(&::utofu_armw4) armw4;
  decltype(&::utofu_armw8) armw8;
  decltype(&::utofu_cswap4) cswap4;
  decltype(&::utofu_cswap8) cswap8;
  decltype(&::utofu_poll_tcq) poll_tcq;
  decltype(&::utofu_poll_mrq) poll_mrq;
  // For session queues; null where the library lacks one of them.
  decltype(&::utofu_prepare_put) prepare_put;
  decltype(&::utofu_prepare_nop) prepare_nop;
  decltype(&::utofu_post_toq) post_toq;
  // For barrier gates; null where the library lacks one of them.
  decltype(&::utofu_get_barrier_tnis) get_barrier_tnis;
  decltype(&::utofu_query_barrier_caps) query_barrier_caps;
  decltype(&::utofu_alloc_vbg) alloc_vbg;
  decltype(&::utofu_free_vbg) free_vbg;
  decltype(&::utofu_set_vbg) set_vbg;
  decltype(&::utofu_barrier) barrier;
  decltype(&::utofu_reduce_uint64) reduce_uint64;
  decltype(&::utofu_poll_barrier) poll_barrier;
  decltype(&::utofu_poll_reduce_uint64) poll_reduce_uint64;
};

// Orders a load before the reads and writes that must follow it, where the other side is the NIC: a
// notice before the data that it announces, the reading of a slot before the credit for it.
// <utofu.h> itself promises no order.
inline void after_notice() {
#if defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");  // NOLINT: the outer domain, in which devices are
#else
  asm volatile("" ::: "memory");  // NOLINT: x86 keeps loads in order, and stores after them
#endif
}

// Orders stores for others before the doorbell of an operation that signals them but does not carry
// the data itself.
inline void before_signal() {
#if defined(__aarch64__)
  asm volatile("dmb osh" ::: "memory");  // NOLINT: as above
#else
  asm volatile("" ::: "memory");  // NOLINT: x86 keeps stores in order, and loads before them
#endif
}

using CqLock = queue::TryLock<>;

// One VCQ. One thread at a time calls it, under `lock` if there is one.
struct Vcq {
  utofu_vcq_hdl_t handle = 0;
  utofu_vcq_id_t id = 0;
  utofu_tni_id_t tni = 0;
  utofu_cq_id_t cq = 0;
  CqLock* lock = nullptr;  // of the CQ; null: no other VCQ uses the CQ
  bool session = false;    // in session mode
};

class Library {
 public:
  // Opens the library, once per process and name. It stays open, since it may have threads of its
  // own. CONFIG: there is no such library, or it lacks a function.
  static base::Result<Library*> open(const std::string& name);

  [[nodiscard]] const Functions& call() const { return call_; }
  [[nodiscard]] std::size_t tnis() const { return tnis_.size(); }

  // A VCQ on the next TNI in turn. It gets a CQ of its own if fewer than `most_exclusive` VCQs of
  // this process have one and a CQ is free; else it shares a CQ. With `spare` no VCQ gets a TNI's
  // last CQ for itself, so that later ones can share it. NO_MEMORY: no VCQ is left.
  base::Result<Vcq> create(std::uint64_t most_exclusive, bool spare);
  // A VCQ that shares its CQ, on the TNI that comes `step` places after that of `first`, counted
  // round.
  base::Result<Vcq> create_behind(const Vcq& first, std::size_t step);
  // A VCQ in session mode, on the TNI with index `tni` in this process, counted round; without
  // `tni`, or if that TNI has none left, on the TNI with the fewest of them. A TNI's last CQ is
  // left to workers. NO_MEMORY: none left, or this process has `most` of them.
  base::Result<Vcq> create_session(std::uint64_t most, std::optional<std::uint32_t> tni);
  [[nodiscard]] bool has_sessions() const { return has_sessions_; }
  void destroy(const Vcq& vcq);

  // Barrier gates of a TNI: ids[0] is a start gate, the others are relays. gate_words(): most words
  // of an operation; 0: there are no gates.
  [[nodiscard]] std::uint32_t gate_words() const { return gate_words_; }
  [[nodiscard]] utofu_tni_id_t gate_tni(std::uint32_t lane) const { return gate_tnis_[lane % gate_tnis_.size()]; }
  // NO_MEMORY: that TNI has too few left, or this process would have more than `most`.
  base::Status take_gates(utofu_tni_id_t tni, std::uint64_t most, std::vector<utofu_vbg_id_t>* ids);
  base::Status set_gates(std::vector<utofu_vbg_setting>* settings);
  void free_gates(std::vector<utofu_vbg_id_t>* ids);
  // The index of its TNI among the TNIs of this process.
  [[nodiscard]] std::size_t tni_index(const Vcq& vcq) const;

  // Registers memory of this process with a VCQ. The caller holds the VCQ's lock, if any.
  base::Result<utofu_stadd_t> register_memory(const Vcq& vcq, void* address, std::uint64_t bytes,
                                              unsigned long flags = 0);
  // The same for callers that may not wait: AGAIN, or false, if another thread holds the set-up
  // lock.
  base::Result<utofu_stadd_t> try_register(const Vcq& vcq, void* address, std::uint64_t bytes, unsigned long flags);
  [[nodiscard]] bool try_deregister(const Vcq& vcq, utofu_stadd_t stadd);
  // Registers under a number that we choose, from which peers compute the STADD. `address`: aligned
  // to 256. STATE: the number is taken on this CQ.
  base::Result<utofu_stadd_t> register_as(const Vcq& vcq, void* address, std::uint64_t bytes, unsigned stag);
  void deregister(const Vcq& vcq, utofu_stadd_t stadd);
  // The STADD that register_as() returns to the owner of that VCQ.
  base::Status stadd_of(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t* stadd);

 private:
  Library() = default;
  base::Status load(const std::string& name);
  base::Status ask_machine();
  void ask_for_gates();
  // This process's use of a TNI.
  struct Tni {
    utofu_tni_id_t id = 0;
    std::uint64_t exclusive = 0;  // VCQs with a CQ of their own
    std::uint64_t sharing = 0;    // the others
    std::uint64_t sessions = 0;   // of the exclusive ones: in session mode
    // keeps a CQ for VCQs that share, until the first of them takes it
    std::optional<Vcq> spare;
  };
  base::Result<utofu_stadd_t> register_locked(const Vcq& vcq, void* address, std::uint64_t bytes, unsigned long flags);
  int create_on(const Tni& tni, unsigned long flags, Vcq* vcq);
  int create_alone(Tni& tni, unsigned long flags, bool spare, Vcq* vcq);
  int create_beside(Tni& tni, Vcq* vcq);
  void drop_spare(Tni& tni);

  Functions call_{};
  std::vector<Tni> tnis_;
  std::mutex set_up_;  // held in every set-up call; taken after a CQ's lock
  std::size_t next_tni_ = 0;
  bool has_sessions_ = false;
  std::uint64_t sessions_ = 0;                              // VCQs in session mode, on all TNIs
  std::uint64_t exclusive_ = 0;                             // other VCQs with a CQ of their own
  std::map<std::uint32_t, std::unique_ptr<CqLock>> locks_;  // by TNI and CQ
  std::uint32_t gate_words_ = 0;
  std::vector<utofu_tni_id_t> gate_tnis_;
  std::uint64_t gates_ = 0;  // of this process
};

// The name of a return code.
const char* error_name(int code);

// Holds the lock of a VCQ that shares its CQ; for callers that may wait for it.
class CqGuard {
 public:
  explicit CqGuard(const Vcq& vcq);
  ~CqGuard() {
    if (lock_ != nullptr) lock_->unlock();
  }
  CqGuard(const CqGuard&) = delete;
  CqGuard& operator=(const CqGuard&) = delete;

 private:
  CqLock* lock_;
};

// Keeps objects that must not be freed while peers, or the NIC, may still use them.

// Keeps `object` as long as the process: it is never destroyed.
template <class T>
void keep_to_the_end(T object) {
  static std::mutex mutex;
  static auto* const all = new std::vector<T>;
  const std::lock_guard lock(mutex);
  all->push_back(std::move(object));
}

}  // namespace heddle::transport::utofu
