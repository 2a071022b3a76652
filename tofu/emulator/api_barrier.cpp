// The exported functions of barrier gates: arguments are checked here, gates.hpp does the rest.
#include <utofu_profile.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "tofu/emulator/gates.hpp"
#include "tofu/emulator/process.hpp"
#include "tofu/emulator/report.hpp"

using tofu_emulator::failed;
using tofu_emulator::GateData;
using tofu_emulator::GateValue;
using tofu_emulator::noted;
using tofu_emulator::Process;

extern "C" {

int putofu_get_barrier_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis) {
  if (!tni_ids || !num_tnis) return failed(UTOFU_ERR_INVALID_POINTER);
  // the caller frees it
  auto* ids = static_cast<utofu_tni_id_t*>(std::malloc(tofu_emulator::kTnis * sizeof(utofu_tni_id_t)));
  if (!ids) return failed(UTOFU_ERR_OUT_OF_MEMORY);
  for (utofu_tni_id_t tni = 0; tni < tofu_emulator::kTnis; tni++) ids[tni] = tni;
  *tni_ids = ids;
  *num_tnis = tofu_emulator::kTnis;
  return UTOFU_SUCCESS;
}

int putofu_query_barrier_caps(utofu_tni_id_t tni_id, struct utofu_barrier_caps** tni_caps) {
  static struct utofu_barrier_caps caps = {
      .flags = 0,
      .reduce_ops = UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER | UTOFU_BARRIER_CAP_REDUCE_OP_BAND |
                    UTOFU_BARRIER_CAP_REDUCE_OP_BOR | UTOFU_BARRIER_CAP_REDUCE_OP_BXOR |
                    UTOFU_BARRIER_CAP_REDUCE_OP_MAX | UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC |
                    UTOFU_BARRIER_CAP_REDUCE_OP_SUM | UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM,
      .max_uint64_reduction = tofu_emulator::kMostWords,
      .max_double_reduction = tofu_emulator::kMostDoubles};
  if (tni_id >= tofu_emulator::kTnis) return failed(UTOFU_ERR_INVALID_TNI_ID);
  if (!tni_caps) return failed(UTOFU_ERR_INVALID_POINTER);
  *tni_caps = &caps;
  return UTOFU_SUCCESS;
}

int putofu_alloc_vbg(utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long int flags, utofu_vbg_id_t vbg_ids[]) {
  if (tni_id >= tofu_emulator::kTnis) return failed(UTOFU_ERR_INVALID_TNI_ID);
  if (num_vbgs == 0) return failed(UTOFU_ERR_INVALID_NUMBER);
  if ((flags & ~UTOFU_VBG_FLAG_THREAD_SAFE) != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  if (!vbg_ids) return failed(UTOFU_ERR_INVALID_POINTER);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  const std::lock_guard lock(process->management());
  return noted(process->gates().allocate(*process, tni_id, num_vbgs, flags, vbg_ids));
}

int putofu_free_vbg(utofu_vbg_id_t vbg_ids[], size_t num_vbgs) {
  if (!vbg_ids) return failed(UTOFU_ERR_INVALID_POINTER);
  if (num_vbgs == 0) return failed(UTOFU_ERR_INVALID_NUMBER);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  const std::lock_guard lock(process->management());
  return noted(process->gates().free(*process, vbg_ids, num_vbgs));
}

int putofu_set_vbg(struct utofu_vbg_setting vbg_settings[], size_t num_vbg_settings) {
  if (!vbg_settings) return failed(UTOFU_ERR_INVALID_POINTER);
  if (num_vbg_settings == 0) return failed(UTOFU_ERR_INVALID_NUMBER);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  const std::lock_guard lock(process->management());
  return noted(process->gates().set(*process, vbg_settings, num_vbg_settings));
}

int putofu_query_vbg_info(utofu_vbg_id_t vbg_id, uint8_t coords[], utofu_tni_id_t* tni_id, utofu_bg_id_t* bg_id,
                          uint16_t* extra_val) {
  if (!coords || !tni_id || !bg_id || !extra_val) return failed(UTOFU_ERR_INVALID_POINTER);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  std::uint32_t node = 0;
  if (!process->machine().decode_vbg(vbg_id, &node, tni_id, bg_id)) return failed(UTOFU_ERR_INVALID_VBG_ID);
  const tofu_emulator::Coords place = process->machine().coords_of(node);
  std::copy(place.begin(), place.end(), coords);
  *extra_val = 0;
  return UTOFU_SUCCESS;
}

int putofu_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags) {
  if (flags != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  return noted(process->gates().start(*process, vbg_id, GateValue{}));
}

int putofu_reduce_uint64(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, uint64_t data[], size_t num_data,
                         unsigned long int flags) {
  if (flags != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  GateValue value;
  const int wrong = GateValue::of_words(op, data, num_data, &value);
  if (wrong != UTOFU_SUCCESS) return failed(wrong);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  return noted(process->gates().start(*process, vbg_id, value));
}

int putofu_reduce_double(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, double data[], size_t num_data,
                         unsigned long int flags) {
  if (flags != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  GateValue value;
  const int wrong = GateValue::of_doubles(op, data, num_data, &value);
  if (wrong != UTOFU_SUCCESS) return failed(wrong);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  return noted(process->gates().start(*process, vbg_id, value));
}

int putofu_poll_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags) {
  if (flags != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  GateValue result;
  return noted(process->gates().fetch(*process, vbg_id, GateData::none, &result));
}

int putofu_poll_reduce_uint64(utofu_vbg_id_t vbg_id, unsigned long int flags, uint64_t data[]) {
  if (flags != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  if (!data) return failed(UTOFU_ERR_INVALID_POINTER);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  GateValue result;
  const int code = process->gates().fetch(*process, vbg_id, GateData::words, &result);
  if (code == UTOFU_SUCCESS) std::copy_n(result.words.begin(), result.count, data);
  return noted(code);
}

int putofu_poll_reduce_double(utofu_vbg_id_t vbg_id, unsigned long int flags, double data[]) {
  if (flags != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
  if (!data) return failed(UTOFU_ERR_INVALID_POINTER);
  Process* process = Process::get();
  if (!process) return failed(UTOFU_ERR_FATAL);
  GateValue result;
  const int code = process->gates().fetch(*process, vbg_id, GateData::doubles, &result);
  if (code == UTOFU_SUCCESS)
    std::transform(result.sums.begin(), result.sums.begin() + result.count, data,
                   [](const tofu_emulator::BlockSum& sum) { return sum.value(); });
  return noted(code);
}

}  // extern "C"

// The names that programs use; weak, so that a profiling library may override them.
extern "C" {
[[gnu::weak, gnu::alias("putofu_get_barrier_tnis")]] decltype(putofu_get_barrier_tnis) utofu_get_barrier_tnis;
[[gnu::weak, gnu::alias("putofu_query_barrier_caps")]] decltype(putofu_query_barrier_caps) utofu_query_barrier_caps;
[[gnu::weak, gnu::alias("putofu_alloc_vbg")]] decltype(putofu_alloc_vbg) utofu_alloc_vbg;
[[gnu::weak, gnu::alias("putofu_free_vbg")]] decltype(putofu_free_vbg) utofu_free_vbg;
[[gnu::weak, gnu::alias("putofu_set_vbg")]] decltype(putofu_set_vbg) utofu_set_vbg;
[[gnu::weak, gnu::alias("putofu_query_vbg_info")]] decltype(putofu_query_vbg_info) utofu_query_vbg_info;
[[gnu::weak, gnu::alias("putofu_barrier")]] decltype(putofu_barrier) utofu_barrier;
[[gnu::weak, gnu::alias("putofu_reduce_uint64")]] decltype(putofu_reduce_uint64) utofu_reduce_uint64;
[[gnu::weak, gnu::alias("putofu_reduce_double")]] decltype(putofu_reduce_double) utofu_reduce_double;
[[gnu::weak, gnu::alias("putofu_poll_barrier")]] decltype(putofu_poll_barrier) utofu_poll_barrier;
[[gnu::weak, gnu::alias("putofu_poll_reduce_uint64")]] decltype(putofu_poll_reduce_uint64) utofu_poll_reduce_uint64;
[[gnu::weak, gnu::alias("putofu_poll_reduce_double")]] decltype(putofu_poll_reduce_double) utofu_poll_reduce_double;
}
