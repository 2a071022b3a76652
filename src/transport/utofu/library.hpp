// libtofucom, opened at run time, and what all users of it in this process must share.
//
// The library is one per process whatever the number of contexts, and says nothing of threads for
// what it sets up (queues, registrations), so those calls are made under one lock of the process;
// and queues that share a hardware CQ are used under the lock of that CQ, even if they belong to
// different ranks. That is why this, alone in Heddle, hangs off the process.
#pragma once

#include <utofu.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "queue/try_lock.hpp"

namespace heddle::transport::utofu {

// The functions that the transport calls, typed by the header, so that a library of another shape
// does not compile.
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
  // For barrier gates; likewise.
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

// Between a load and what must be read or written after it, where the other side is the NIC: a
// notice and what it announces, a slot and the credit for it. <utofu.h> promises no order of its
// own.
inline void after_notice() {
#if defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");  // NOLINT: the outer domain, in which devices are
#else
  asm volatile("" ::: "memory");  // NOLINT: x86 keeps loads in order, and stores after them
#endif
}

// Between what was written for others and the doorbell of an operation that tells them so without
// passing it on itself.
inline void before_signal() {
#if defined(__aarch64__)
  asm volatile("dmb osh" ::: "memory");  // NOLINT: as above
#else
  asm volatile("" ::: "memory");  // NOLINT: x86 keeps stores in order, and loads before them
#endif
}

using CqLock = queue::TryLock<>;

// One VCQ. Its calls are made by one thread at a time, under `lock` if there is one.
struct Vcq {
  utofu_vcq_hdl_t handle = 0;
  utofu_vcq_id_t id = 0;
  utofu_tni_id_t tni = 0;
  utofu_cq_id_t cq = 0;
  CqLock* lock = nullptr;  // of the CQ; null: this VCQ has it for itself
  bool session = false;    // in session mode
};

class Library {
 public:
  // Opens it, once per process and name; it stays open, since it may have threads of its own.
  // CONFIG: there is none, or it lacks a function.
  static base::Result<Library*> open(const std::string& name);

  [[nodiscard]] const Functions& call() const { return call_; }
  [[nodiscard]] std::size_t tnis() const { return tnis_.size(); }

  // A VCQ on the next TNI in turn. It has a CQ of its own if fewer than `most_exclusive` of this
  // process have one and there is one; else it is beside others. With `spare` a TNI's last CQ is
  // never given to one alone, so that others can still come.
  // NO_MEMORY: none left.
  base::Result<Vcq> create(std::uint64_t most_exclusive, bool spare);
  // One that shares its CQ, on the TNI that is `step` behind that of `first`.
  base::Result<Vcq> create_behind(const Vcq& first, std::size_t step);
  // In session mode, on the TNI of this process that comes `tni`-th, counted round, or else on one
  // that has fewest of these; a TNI's last CQ is left to workers. NO_MEMORY: none left, or this
  // process has `most` of them.
  base::Result<Vcq> create_session(std::uint64_t most, std::optional<std::uint32_t> tni);
  [[nodiscard]] bool has_sessions() const { return has_sessions_; }
  void destroy(const Vcq& vcq);

  // Barrier gates of a TNI: ids[0] is a start gate, the others relay. Words of an operation; 0:
  // there are no gates.
  [[nodiscard]] std::uint32_t gate_words() const { return gate_words_; }
  [[nodiscard]] utofu_tni_id_t gate_tni(std::uint32_t lane) const { return gate_tnis_[lane % gate_tnis_.size()]; }
  // NO_MEMORY: that TNI has not so many left, or this process would have more than `most`.
  base::Status take_gates(utofu_tni_id_t tni, std::uint64_t most, std::vector<utofu_vbg_id_t>* ids);
  base::Status set_gates(std::vector<utofu_vbg_setting>* settings);
  void free_gates(std::vector<utofu_vbg_id_t>* ids);
  // Its place among the TNIs of this process.
  [[nodiscard]] std::size_t tni_index(const Vcq& vcq) const;

  // What a VCQ must know to reach memory of this process. The caller holds the VCQ's lock, if any.
  base::Result<utofu_stadd_t> enroll(const Vcq& vcq, void* address, std::uint64_t bytes, unsigned long flags = 0);
  // The same for who may not wait: AGAIN, or false, if another thread sets something up now.
  base::Result<utofu_stadd_t> try_enroll(const Vcq& vcq, void* address, std::uint64_t bytes, unsigned long flags);
  [[nodiscard]] bool try_withdraw(const Vcq& vcq, utofu_stadd_t stadd);
  // By a number of ours, from which peers compute the STADD. `address`: aligned to 256. STATE: the
  // number is taken on this CQ.
  base::Result<utofu_stadd_t> enroll_as(const Vcq& vcq, void* address, std::uint64_t bytes, unsigned stag);
  void withdraw(const Vcq& vcq, utofu_stadd_t stadd);
  // What enroll_as() gives or gave the owner of that VCQ.
  base::Status stadd_of(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t* stadd);

 private:
  Library() = default;
  base::Status load(const std::string& name);
  base::Status ask_machine();
  void ask_for_gates();
  // What this process has on a TNI.
  struct Tni {
    utofu_tni_id_t id = 0;
    std::uint64_t exclusive = 0;  // VCQs with a CQ of their own
    std::uint64_t sharing = 0;    // the others
    std::uint64_t sessions = 0;   // of the exclusive ones: in session mode
    // holds a CQ for those that share, until the first of them gets it
    std::optional<Vcq> spare;
  };
  base::Result<utofu_stadd_t> enroll_locked(const Vcq& vcq, void* address, std::uint64_t bytes, unsigned long flags);
  int create_on(const Tni& tni, unsigned long flags, Vcq* vcq);
  int create_alone(Tni& tni, unsigned long flags, bool spare, Vcq* vcq);
  int create_beside(Tni& tni, Vcq* vcq);
  void drop_spare(Tni& tni);

  Functions call_{};
  std::vector<Tni> tnis_;
  std::mutex set_up_;  // around every call that sets something up; taken after a CQ's lock
  std::size_t next_tni_ = 0;
  bool has_sessions_ = false;
  std::uint64_t sessions_ = 0;                              // VCQs in session mode, on all TNIs
  std::uint64_t exclusive_ = 0;                             // other VCQs with a CQ of their own
  std::map<std::uint32_t, std::unique_ptr<CqLock>> locks_;  // by TNI and CQ
  std::uint32_t gate_words_ = 0;
  std::vector<utofu_tni_id_t> gate_tnis_;
  std::uint64_t gates_ = 0;  // that this process has
};

// The words of a return code.
const char* error_name(int code);

// Holds the lock of a VCQ that shares its CQ; for calls that may wait for it.
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

}  // namespace heddle::transport::utofu
