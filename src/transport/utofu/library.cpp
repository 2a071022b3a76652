#include "transport/utofu/library.hpp"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <tuple>

namespace heddle::transport::utofu {
namespace {

struct Opened {
  std::mutex mutex;
  std::map<std::string, Library*> by_name;  // never freed
};

Opened& opened() {
  static Opened* all = new Opened;
  return *all;
}

template <class Function>
bool find(void* handle, const char* name, Function* function) {
  void* symbol = dlsym(handle, name);
  *function = reinterpret_cast<Function>(symbol);
  return symbol != nullptr;
}

}  // namespace

const char* error_name(int code) {
  switch (code) {
    case UTOFU_ERR_BUSY:
      return "BUSY";
    case UTOFU_ERR_FULL:
      return "FULL";
    case UTOFU_ERR_USED:
      return "USED";
    case UTOFU_ERR_NOT_AVAILABLE:
      return "NOT_AVAILABLE";
    case UTOFU_ERR_NOT_SUPPORTED:
      return "NOT_SUPPORTED";
    case UTOFU_ERR_MRQ_PEER:
      return "MRQ_PEER";
    case UTOFU_ERR_MRQ_RMT_STADD:
      return "MRQ_RMT_STADD";
    case UTOFU_ERR_MRQ_RMT_MEMORY:
      return "MRQ_RMT_MEMORY";
    case UTOFU_ERR_MRQ_LCL_STADD:
      return "MRQ_LCL_STADD";
    case UTOFU_ERR_OUT_OF_RESOURCE:
      return "OUT_OF_RESOURCE";
    case UTOFU_ERR_OUT_OF_MEMORY:
      return "OUT_OF_MEMORY";
    case UTOFU_ERR_INVALID_ADDRESS:
      return "INVALID_ADDRESS";
    case UTOFU_ERR_INVALID_SIZE:
      return "INVALID_SIZE";
    case UTOFU_ERR_INVALID_VBG_ID:
      return "INVALID_VBG_ID";
    case UTOFU_ERR_BARRIER_MISMATCH:
      return "BARRIER_MISMATCH";
    case UTOFU_ERR_BARRIER_OTHER:
      return "BARRIER_OTHER";
    case UTOFU_ERR_FATAL:
      return "FATAL";
    default:
      return "see <utofu.h>";
  }
}

CqGuard::CqGuard(const Vcq& vcq) : lock_(vcq.lock) {
  while (lock_ != nullptr && !lock_->try_lock()) sched_yield();
}

base::Result<Library*> Library::open(const std::string& name) {
  Opened& all = opened();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.by_name.find(name); found != all.by_name.end()) return found->second;
  std::unique_ptr<Library> library(new Library);
  if (const base::Status status = library->load(name); status != HEDDLE_DONE) return status;
  if (const base::Status status = library->ask_machine(); status != HEDDLE_DONE) return status;
  return all.by_name[name] = library.release();
}

base::Status Library::load(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "no uTofu library \"%s\" (%s); name the file by HEDDLE_LIBRARIES=utofu=…, or start the job with "
                      "heddle run --utofu",
                      name.c_str(), dlerror());
  }
  const bool all =
      find(handle, "utofu_get_onesided_tnis", &call_.get_onesided_tnis) &&
      find(handle, "utofu_query_onesided_caps", &call_.query_onesided_caps) &&
      find(handle, "utofu_create_vcq", &call_.create_vcq) && find(handle, "utofu_free_vcq", &call_.free_vcq) &&
      find(handle, "utofu_query_vcq_id", &call_.query_vcq_id) &&
      find(handle, "utofu_query_vcq_info", &call_.query_vcq_info) && find(handle, "utofu_reg_mem", &call_.reg_mem) &&
      find(handle, "utofu_reg_mem_with_stag", &call_.reg_mem_with_stag) &&
      find(handle, "utofu_query_stadd", &call_.query_stadd) && find(handle, "utofu_dereg_mem", &call_.dereg_mem) &&
      find(handle, "utofu_put", &call_.put) && find(handle, "utofu_put_piggyback", &call_.put_piggyback) &&
      find(handle, "utofu_put_piggyback8", &call_.put_piggyback8) && find(handle, "utofu_get", &call_.get) &&
      find(handle, "utofu_armw4", &call_.armw4) && find(handle, "utofu_armw8", &call_.armw8) &&
      find(handle, "utofu_cswap4", &call_.cswap4) && find(handle, "utofu_cswap8", &call_.cswap8) &&
      find(handle, "utofu_poll_tcq", &call_.poll_tcq) && find(handle, "utofu_poll_mrq", &call_.poll_mrq);
  has_sessions_ = find(handle, "utofu_prepare_put", &call_.prepare_put) &&
                  find(handle, "utofu_prepare_nop", &call_.prepare_nop) &&
                  find(handle, "utofu_post_toq", &call_.post_toq);
  const bool gates = find(handle, "utofu_get_barrier_tnis", &call_.get_barrier_tnis) &&
                     find(handle, "utofu_query_barrier_caps", &call_.query_barrier_caps) &&
                     find(handle, "utofu_alloc_vbg", &call_.alloc_vbg) &&
                     find(handle, "utofu_free_vbg", &call_.free_vbg) && find(handle, "utofu_set_vbg", &call_.set_vbg) &&
                     find(handle, "utofu_barrier", &call_.barrier) &&
                     find(handle, "utofu_reduce_uint64", &call_.reduce_uint64) &&
                     find(handle, "utofu_poll_barrier", &call_.poll_barrier) &&
                     find(handle, "utofu_poll_reduce_uint64", &call_.poll_reduce_uint64);
  if (all && gates) ask_for_gates();
  if (all) return HEDDLE_DONE;
  const base::Status status = base::fail(HEDDLE_ERR_CONFIG, "\"%s\" is no uTofu library: %s", name.c_str(), dlerror());
  dlclose(handle);
  return status;
}

base::Status Library::ask_machine() {
  utofu_tni_id_t* ids = nullptr;
  std::size_t count = 0;
  const int code = call_.get_onesided_tnis(&ids, &count);
  if (code != UTOFU_SUCCESS || count == 0) {
    return base::fail(HEDDLE_ERR_SYSTEM, "utofu_get_onesided_tnis gives %zu TNIs: %s (%d)", count, error_name(code),
                      code);
  }
  for (std::size_t i = 0; i < count; ++i) tnis_.push_back({ids[i], 0, 0, 0, std::nullopt});
  std::free(ids);
  utofu_onesided_caps* caps = nullptr;
  if (call_.query_onesided_caps(tnis_.front().id, &caps) != UTOFU_SUCCESS || caps == nullptr) {
    return base::fail(HEDDLE_ERR_SYSTEM, "utofu_query_onesided_caps of TNI %u failed", unsigned{tnis_.front().id});
  }
  const unsigned long all_atomics = UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP | UTOFU_ONESIDED_CAP_ARMW_OP_SWAP |
                                    UTOFU_ONESIDED_CAP_ARMW_OP_ADD | UTOFU_ONESIDED_CAP_ARMW_OP_XOR |
                                    UTOFU_ONESIDED_CAP_ARMW_OP_AND | UTOFU_ONESIDED_CAP_ARMW_OP_OR;
  if ((caps->flags & UTOFU_ONESIDED_CAP_FLAG_ARMW) == 0 || (caps->armw_ops & all_atomics) != all_atomics ||
      caps->max_piggyback_size < 32 || caps->max_putget_size < 16'777'215 || caps->max_edata_size < 1) {
    return base::fail(HEDDLE_ERR_UNSUPPORTED,
                      "this Tofu lacks atomics, piggyback of 32 bytes or transfers of 16 MiB; a Tofu D is needed");
  }
  has_sessions_ = has_sessions_ && (caps->flags & UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE) != 0;
  return HEDDLE_DONE;
}

// Gates are optional: if they are not as expected, we use none.
void Library::ask_for_gates() {
  utofu_tni_id_t* ids = nullptr;
  std::size_t count = 0;
  if (call_.get_barrier_tnis(&ids, &count) != UTOFU_SUCCESS || count == 0) return;
  gate_tnis_.assign(ids, ids + count);
  std::free(ids);
  constexpr unsigned long kNeeded = UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER | UTOFU_BARRIER_CAP_REDUCE_OP_BAND |
                                    UTOFU_BARRIER_CAP_REDUCE_OP_BOR | UTOFU_BARRIER_CAP_REDUCE_OP_BXOR |
                                    UTOFU_BARRIER_CAP_REDUCE_OP_MAX | UTOFU_BARRIER_CAP_REDUCE_OP_SUM;
  std::size_t words = SIZE_MAX;
  for (const utofu_tni_id_t tni : gate_tnis_) {
    utofu_barrier_caps* caps = nullptr;
    if (call_.query_barrier_caps(tni, &caps) != UTOFU_SUCCESS || caps == nullptr) return;
    if ((caps->reduce_ops & kNeeded) != kNeeded) return;
    words = std::min(words, caps->max_uint64_reduction);
  }
  gate_words_ = static_cast<std::uint32_t>(words);
}

base::Status Library::take_gates(utofu_tni_id_t tni, std::uint64_t most, std::vector<utofu_vbg_id_t>* ids) {
  const std::lock_guard lock(set_up_);
  if (ids->size() > most || gates_ > most - ids->size()) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "this process has %llu barrier gates; %zu more would be above HEDDLE_UTOFU_GATES=%llu",
                      static_cast<unsigned long long>(gates_), ids->size(), static_cast<unsigned long long>(most));
  }
  const int code = call_.alloc_vbg(tni, ids->size(), 0, ids->data());
  if (code != UTOFU_SUCCESS) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "TNI %u has no %zu barrier gates left: %s (%d)", unsigned{tni}, ids->size(),
                      error_name(code), code);
  }
  gates_ += ids->size();
  return HEDDLE_DONE;
}

base::Status Library::set_gates(std::vector<utofu_vbg_setting>* settings) {
  const std::lock_guard lock(set_up_);
  const int code = call_.set_vbg(settings->data(), settings->size());
  if (code == UTOFU_SUCCESS) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "%zu barrier gates cannot be set: %s (%d)", settings->size(), error_name(code),
                    code);
}

void Library::free_gates(std::vector<utofu_vbg_id_t>* ids) {
  const std::lock_guard lock(set_up_);
  call_.free_vbg(ids->data(), ids->size());
  gates_ -= ids->size();
}

int Library::create_on(const Tni& tni, unsigned long flags, Vcq* vcq) {
  const int code = call_.create_vcq(tni.id, flags, &vcq->handle);
  if (code != UTOFU_SUCCESS) return code;
  std::uint8_t coordinates[6];
  std::uint16_t extra = 0;
  if (call_.query_vcq_id(vcq->handle, &vcq->id) != UTOFU_SUCCESS ||
      call_.query_vcq_info(vcq->id, coordinates, &vcq->tni, &vcq->cq, &extra) != UTOFU_SUCCESS) {
    call_.free_vcq(vcq->handle);
    return UTOFU_ERR_FATAL;
  }
  vcq->session = (flags & UTOFU_VCQ_FLAG_SESSION_MODE) != 0;
  if (flags != 0) return UTOFU_SUCCESS;
  std::unique_ptr<CqLock>& lock = locks_[std::uint32_t{vcq->tni} << 16 | vcq->cq];
  if (lock == nullptr) lock = std::make_unique<CqLock>();
  vcq->lock = lock.get();
  return UTOFU_SUCCESS;
}

// The library does not tell how many CQs are left, so the CQ that VCQs will share later is taken
// first.
int Library::create_alone(Tni& tni, unsigned long flags, bool spare, Vcq* vcq) {
  const bool reserve = spare && tni.sharing == 0 && !tni.spare;
  if (reserve) {
    Vcq held;
    if (const int code = create_on(tni, 0, &held); code != UTOFU_SUCCESS) return code;
    tni.spare = held;
  }
  const int code = create_on(tni, flags, vcq);
  if (code != UTOFU_SUCCESS) {
    if (reserve) drop_spare(tni);
    return code;
  }
  ++tni.exclusive;
  if (vcq->session) ++tni.sessions;
  ++(vcq->session ? sessions_ : exclusive_);
  return code;
}

int Library::create_beside(Tni& tni, Vcq* vcq) {
  if (tni.spare) {
    *vcq = *tni.spare;
    tni.spare.reset();
  } else if (const int code = create_on(tni, 0, vcq); code != UTOFU_SUCCESS) {
    return code;
  }
  ++tni.sharing;
  return UTOFU_SUCCESS;
}

void Library::drop_spare(Tni& tni) {
  call_.free_vcq(tni.spare->handle);
  tni.spare.reset();
}

base::Result<Vcq> Library::create(std::uint64_t most_exclusive, bool spare) {
  const std::lock_guard lock(set_up_);
  const std::size_t first = next_tni_++;
  int code = UTOFU_ERR_FULL;
  for (const bool alone : {true, false}) {
    if (alone && exclusive_ >= most_exclusive) continue;
    for (std::size_t i = 0; i < tnis_.size(); ++i) {
      Vcq vcq;
      Tni& tni = tnis_[(first + i) % tnis_.size()];
      code = alone ? create_alone(tni, UTOFU_VCQ_FLAG_EXCLUSIVE, spare, &vcq) : create_beside(tni, &vcq);
      if (code == UTOFU_SUCCESS) return vcq;
    }
  }
  return base::fail(HEDDLE_ERR_NO_MEMORY,
                    "no VCQ is left on any of %zu TNIs: %s (%d); open fewer workers or run fewer processes per node",
                    tnis_.size(), error_name(code), code);
}

base::Result<Vcq> Library::create_session(std::uint64_t most, std::optional<std::uint32_t> tni) {
  const std::lock_guard lock(set_up_);
  int code = UTOFU_ERR_NOT_AVAILABLE;
  if (sessions_ >= most) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "this process has %llu VCQs in session mode, as many as it may",
                      static_cast<unsigned long long>(sessions_));
  }
  std::vector<Tni*> order;
  for (Tni& one : tnis_) order.push_back(&one);
  const Tni* wanted = tni ? &tnis_[*tni % tnis_.size()] : nullptr;
  std::ranges::sort(order, {}, [&](const Tni* one) { return std::tuple(one != wanted, one->sessions, one->id); });
  for (Tni* one : order) {
    Vcq vcq;
    code = create_alone(*one, UTOFU_VCQ_FLAG_SESSION_MODE, true, &vcq);
    if (code == UTOFU_SUCCESS) return vcq;
  }
  return base::fail(HEDDLE_ERR_NO_MEMORY, "no VCQ in session mode is left on any of %zu TNIs: %s (%d)", tnis_.size(),
                    error_name(code), code);
}

base::Result<Vcq> Library::create_behind(const Vcq& first, std::size_t step) {
  const std::lock_guard lock(set_up_);
  Vcq vcq;
  const int code = create_beside(tnis_[(tni_index(first) + step) % tnis_.size()], &vcq);
  if (code == UTOFU_SUCCESS) return vcq;
  return base::fail(HEDDLE_ERR_NO_MEMORY, "no VCQ is left on a TNI: %s (%d)", error_name(code), code);
}

std::size_t Library::tni_index(const Vcq& vcq) const {
  std::size_t index = 0;
  while (index + 1 < tnis_.size() && tnis_[index].id != vcq.tni) ++index;
  return index;
}

// A spare stays as long as the TNI has VCQs with a CQ of their own, which could otherwise take it.
void Library::destroy(const Vcq& vcq) {
  const CqGuard guard(vcq);
  const std::lock_guard lock(set_up_);
  call_.free_vcq(vcq.handle);
  for (Tni& tni : tnis_) {
    if (tni.id != vcq.tni) continue;
    if (vcq.lock != nullptr) {
      --tni.sharing;
      return;
    }
    if (vcq.session) --tni.sessions;
    --(vcq.session ? sessions_ : exclusive_);
    if (--tni.exclusive == 0 && tni.spare) drop_spare(tni);
  }
}

base::Result<utofu_stadd_t> Library::register_memory(const Vcq& vcq, void* address, std::uint64_t bytes,
                                                     unsigned long flags) {
  const std::lock_guard lock(set_up_);
  return register_locked(vcq, address, bytes, flags);
}

base::Result<utofu_stadd_t> Library::try_register(const Vcq& vcq, void* address, std::uint64_t bytes,
                                                  unsigned long flags) {
  const std::unique_lock lock(set_up_, std::try_to_lock);
  if (!lock) return HEDDLE_AGAIN;
  return register_locked(vcq, address, bytes, flags);
}

bool Library::try_deregister(const Vcq& vcq, utofu_stadd_t stadd) {
  const std::unique_lock lock(set_up_, std::try_to_lock);
  if (!lock) return false;
  call_.dereg_mem(vcq.handle, stadd, 0);
  return true;
}

base::Result<utofu_stadd_t> Library::register_locked(const Vcq& vcq, void* address, std::uint64_t bytes,
                                                     unsigned long flags) {
  utofu_stadd_t stadd = 0;
  const int code = call_.reg_mem(vcq.handle, address, bytes, flags, &stadd);
  if (code == UTOFU_SUCCESS) return stadd;
  base::Status status = HEDDLE_ERR_SYSTEM;
  if (code == UTOFU_ERR_FULL || code == UTOFU_ERR_NOT_AVAILABLE || code == UTOFU_ERR_OUT_OF_RESOURCE ||
      code == UTOFU_ERR_OUT_OF_MEMORY) {
    status = HEDDLE_ERR_NO_MEMORY;  // the cache deregisters what is idle, then asks again
  } else if (code == UTOFU_ERR_INVALID_ADDRESS || code == UTOFU_ERR_INVALID_SIZE) {
    status = HEDDLE_ERR_ARGUMENT;
  }
  return base::fail(status, "%llu bytes at %p cannot be registered with Tofu: %s (%d)",
                    static_cast<unsigned long long>(bytes), address, error_name(code), code);
}

base::Result<utofu_stadd_t> Library::register_as(const Vcq& vcq, void* address, std::uint64_t bytes, unsigned stag) {
  const std::lock_guard lock(set_up_);
  utofu_stadd_t stadd = 0;
  const int code = call_.reg_mem_with_stag(vcq.handle, address, bytes, stag, 0, &stadd);
  if (code == UTOFU_SUCCESS) return stadd;
  return base::fail(code == UTOFU_ERR_USED ? HEDDLE_ERR_STATE : HEDDLE_ERR_NO_MEMORY,
                    "%llu bytes at %p cannot be registered with Tofu by the number %u: %s (%d)",
                    static_cast<unsigned long long>(bytes), address, stag, error_name(code), code);
}

void Library::deregister(const Vcq& vcq, utofu_stadd_t stadd) {
  const std::lock_guard lock(set_up_);
  call_.dereg_mem(vcq.handle, stadd, 0);
}

base::Status Library::stadd_of(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t* stadd) {
  const std::lock_guard lock(set_up_);
  return call_.query_stadd(vcq, stag, stadd) == UTOFU_SUCCESS ? HEDDLE_DONE : HEDDLE_ERR_SYSTEM;
}

}  // namespace heddle::transport::utofu
