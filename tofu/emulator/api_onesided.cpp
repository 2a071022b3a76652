// The exported functions for commands and their completions. Each finds the handle; then it encodes
// slots and posts or returns them.
#include <utofu_profile.h>

#include <cstring>
#include <new>
#include <optional>
#include <vector>

#include "tofu/emulator/api.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {
namespace {

template <class Call>
[[gnu::always_inline]] inline int in_call(utofu_vcq_hdl_t vcq_hdl, Call&& call) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) [[unlikely]]
    return no_handle(vcq_hdl);
  const InCall guard(*handle);
  return call(*handle);
}

// Posts the one slot that `encode(const Encoder&, Slot*)` writes.
template <class Encode>
[[gnu::always_inline]] inline int post_one(utofu_vcq_hdl_t vcq_hdl, void* cbdata, Encode&& encode) {
  return in_call(vcq_hdl, [&](Handle& handle) {
    return handle.vcq.cq->post_one(handle.vcq, cbdata, [&](Slot* slot) { return encode(handle.encoder, slot); });
  });
}

// The same with two slots.
template <class Encode>
int post_two(utofu_vcq_hdl_t vcq_hdl, void* cbdata, Encode&& encode) {
  return in_call(vcq_hdl, [&](Handle& handle) -> int {
    Slot slots[2];
    if (const int status = encode(handle.encoder, slots); status != UTOFU_SUCCESS) return failed(status);
    return handle.vcq.cq->post(handle.vcq, slots, 2, cbdata);
  });
}

// Writes `count` slots into the program's buffer. Its size is as the program states it, and it may
// be aligned to 8 bytes only.
template <class Encode>
int prepare(utofu_vcq_hdl_t vcq_hdl, std::size_t count, void* desc, std::size_t* desc_size, Encode&& encode) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  const InCall call(*handle);
  if (desc == nullptr || desc_size == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  Slot slots[2];
  if (const int status = encode(handle->encoder, slots); status != UTOFU_SUCCESS) return failed(status);
  std::memcpy(desc, slots, count * sizeof(Slot));
  *desc_size = count * sizeof(Slot);
  return UTOFU_SUCCESS;
}

struct Transfer {
  coding::Code code;
  Target target;
  utofu_stadd_t local;
  Blocks blocks;
  Pace pace{};

  int encode(const Encoder& encoder, Slot* slots) const {
    return encode_transfer(code, encoder, target, local, blocks, pace, slots);
  }
};

int post_transfer(utofu_vcq_hdl_t vcq_hdl, const Transfer& transfer, void* cbdata) {
  return post_one(vcq_hdl, cbdata, [&](const Encoder& encoder, Slot* slot) { return transfer.encode(encoder, slot); });
}

int prepare_transfer(utofu_vcq_hdl_t vcq_hdl, const Transfer& transfer, void* desc, std::size_t* desc_size) {
  return prepare(vcq_hdl, 1, desc, desc_size,
                 [&](const Encoder& encoder, Slot* slots) { return transfer.encode(encoder, slots); });
}

// Checks the number of blocks: one slot for each.
bool wrong_number(const Handle& handle, const Transfer& transfer) {
  const bool delayed = (transfer.target.flags & UTOFU_ONESIDED_FLAG_DELAY_START) != 0;
  return transfer.blocks.count == 0 || handle.vcq.cq->too_long(transfer.blocks.count, delayed);
}

int post_strided(utofu_vcq_hdl_t vcq_hdl, const Transfer& transfer, void* cbdata) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  const InCall call(*handle);
  if (wrong_number(*handle, transfer)) return failed(UTOFU_ERR_INVALID_NUMBER);
  try {
    std::vector<Slot> slots(transfer.blocks.count);
    const int status = transfer.encode(handle->encoder, slots.data());
    if (status != UTOFU_SUCCESS) return failed(status);
    return handle->vcq.cq->post(handle->vcq, slots.data(), slots.size(), cbdata);
  } catch (const std::bad_alloc&) {
    return failed(UTOFU_ERR_OUT_OF_MEMORY);
  }
}

int prepare_strided(utofu_vcq_hdl_t vcq_hdl, Transfer transfer, void* desc, std::size_t* desc_size) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  const InCall call(*handle);
  if (desc == nullptr || desc_size == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  const std::size_t count = transfer.blocks.count;
  if (wrong_number(*handle, transfer)) return failed(UTOFU_ERR_INVALID_NUMBER);
  transfer.blocks.count = 1;
  for (std::size_t block = 0; block < count; ++block) {
    Slot slot;
    const int status = transfer.encode(handle->encoder, &slot);
    if (status != UTOFU_SUCCESS) return failed(status);
    std::memcpy(static_cast<std::byte*>(desc) + block * sizeof(Slot), &slot, sizeof(Slot));
    transfer.target.stadd += transfer.blocks.stride;
    transfer.local += transfer.blocks.stride;
  }
  *desc_size = count * sizeof(Slot);
  return UTOFU_SUCCESS;
}

}  // namespace
}  // namespace tofu_emulator

using namespace tofu_emulator;  // NOLINT(google-build-using-namespace): the rest are C functions

extern "C" {

int putofu_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
               size_t length, uint64_t edata, unsigned long int flags, void* cbdata) {
  return post_one(vcq_hdl, cbdata, [&](const Encoder& encoder, Slot* slot) {
    return encode_plain_transfer(coding::kPut, encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, length, slot);
  });
}

int putofu_prepare_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                       utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void* desc,
                       size_t* desc_size) {
  return prepare_transfer(vcq_hdl, {coding::kPut, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length}, {}}, desc,
                          desc_size);
}

int putofu_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                   size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* cbdata) {
  return post_transfer(vcq_hdl, {coding::kPut, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length}, {mtu, gap}},
                       cbdata);
}

int putofu_prepare_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                           utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                           size_t gap, void* desc, size_t* desc_size) {
  return prepare_transfer(
      vcq_hdl, {coding::kPut, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length}, {mtu, gap}}, desc, desc_size);
}

int putofu_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                      unsigned long int flags, void* cbdata) {
  return post_strided(
      vcq_hdl, {coding::kPut, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length, stride, num_blocks}, {}},
      cbdata);
}

int putofu_prepare_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                              utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                              unsigned long int flags, void* desc, size_t* desc_size) {
  return prepare_strided(
      vcq_hdl, {coding::kPut, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length, stride, num_blocks}, {}}, desc,
      desc_size);
}

int putofu_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                          unsigned long int flags, size_t mtu, size_t gap, void* cbdata) {
  return post_strided(
      vcq_hdl,
      {coding::kPut, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length, stride, num_blocks}, {mtu, gap}},
      cbdata);
}

int putofu_prepare_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                  utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                  uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* desc,
                                  size_t* desc_size) {
  return prepare_strided(
      vcq_hdl,
      {coding::kPut, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length, stride, num_blocks}, {mtu, gap}}, desc,
      desc_size);
}

int putofu_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
               size_t length, uint64_t edata, unsigned long int flags, void* cbdata) {
  return post_one(vcq_hdl, cbdata, [&](const Encoder& encoder, Slot* slot) {
    return encode_plain_transfer(coding::kGet, encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, length, slot);
  });
}

int putofu_prepare_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                       utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void* desc,
                       size_t* desc_size) {
  return prepare_transfer(vcq_hdl, {coding::kGet, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length}, {}}, desc,
                          desc_size);
}

int putofu_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                   size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* cbdata) {
  return post_transfer(vcq_hdl, {coding::kGet, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length}, {mtu, gap}},
                       cbdata);
}

int putofu_prepare_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                           utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                           size_t gap, void* desc, size_t* desc_size) {
  return prepare_transfer(
      vcq_hdl, {coding::kGet, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length}, {mtu, gap}}, desc, desc_size);
}

int putofu_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                      unsigned long int flags, void* cbdata) {
  return post_strided(
      vcq_hdl, {coding::kGet, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length, stride, num_blocks}, {}},
      cbdata);
}

int putofu_prepare_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                              utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                              unsigned long int flags, void* desc, size_t* desc_size) {
  return prepare_strided(
      vcq_hdl, {coding::kGet, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length, stride, num_blocks}, {}}, desc,
      desc_size);
}

int putofu_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                          unsigned long int flags, size_t mtu, size_t gap, void* cbdata) {
  return post_strided(
      vcq_hdl,
      {coding::kGet, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length, stride, num_blocks}, {mtu, gap}},
      cbdata);
}

int putofu_prepare_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                  utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                  uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* desc,
                                  size_t* desc_size) {
  return prepare_strided(
      vcq_hdl,
      {coding::kGet, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_stadd, {length, stride, num_blocks}, {mtu, gap}}, desc,
      desc_size);
}

int putofu_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void* lcl_data, utofu_stadd_t rmt_stadd,
                         size_t length, uint64_t edata, unsigned long int flags, void* cbdata) {
  const auto encode = [&](const Encoder& encoder, Slot* slots) {
    return encode_piggyback(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_data, length, slots);
  };
  return piggyback_slots(length) == 1 ? post_one(vcq_hdl, cbdata, encode) : post_two(vcq_hdl, cbdata, encode);
}

int putofu_prepare_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void* lcl_data,
                                 utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                 void* desc, size_t* desc_size) {
  return prepare(vcq_hdl, piggyback_slots(length), desc, desc_size, [&](const Encoder& encoder, Slot* slots) {
    return encode_piggyback(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_data, length, slots);
  });
}

int putofu_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                          utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                          void* cbdata) {
  return post_one(vcq_hdl, cbdata, [&](const Encoder& encoder, Slot* slots) {
    return encode_piggyback8(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_data, length, slots);
  });
}

int putofu_prepare_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                                  utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                  void* desc, size_t* desc_size) {
  return prepare(vcq_hdl, 1, desc, desc_size, [&](const Encoder& encoder, Slot* slots) {
    return encode_piggyback8(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, lcl_data, length, slots);
  });
}

int putofu_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint32_t op_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata) {
  return post_one(vcq_hdl, cbdata, [&](const Encoder& encoder, Slot* slots) {
    return encode_armw(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, armw_op, op_value, 4, slots);
  });
}

int putofu_prepare_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                         uint32_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags,
                         void* desc, size_t* desc_size) {
  return prepare(vcq_hdl, 1, desc, desc_size, [&](const Encoder& encoder, Slot* slots) {
    return encode_armw(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, armw_op, op_value, 4, slots);
  });
}

int putofu_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint64_t op_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata) {
  return post_one(vcq_hdl, cbdata, [&](const Encoder& encoder, Slot* slots) {
    return encode_armw(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, armw_op, op_value, 8, slots);
  });
}

int putofu_prepare_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                         uint64_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags,
                         void* desc, size_t* desc_size) {
  return prepare(vcq_hdl, 1, desc, desc_size, [&](const Encoder& encoder, Slot* slots) {
    return encode_armw(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, armw_op, op_value, 8, slots);
  });
}

int putofu_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                  utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata) {
  return post_two(vcq_hdl, cbdata, [&](const Encoder& encoder, Slot* slots) {
    return encode_cswap(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, old_value, new_value, 4, slots);
  });
}

int putofu_prepare_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                          utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                          size_t* desc_size) {
  return prepare(vcq_hdl, 2, desc, desc_size, [&](const Encoder& encoder, Slot* slots) {
    return encode_cswap(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, old_value, new_value, 4, slots);
  });
}

int putofu_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                  utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata) {
  return post_two(vcq_hdl, cbdata, [&](const Encoder& encoder, Slot* slots) {
    return encode_cswap(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, old_value, new_value, 8, slots);
  });
}

int putofu_prepare_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                          utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                          size_t* desc_size) {
  return prepare(vcq_hdl, 2, desc, desc_size, [&](const Encoder& encoder, Slot* slots) {
    return encode_cswap(encoder, {rmt_vcq_id, rmt_stadd, edata, flags}, old_value, new_value, 8, slots);
  });
}

int putofu_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void* cbdata) {
  return post_one(vcq_hdl, cbdata, [&](const Encoder& /*encoder*/, Slot* slots) { return encode_nop(flags, slots); });
}

int putofu_prepare_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void* desc, size_t* desc_size) {
  return prepare(vcq_hdl, 1, desc, desc_size,
                 [&](const Encoder& /*encoder*/, Slot* slots) { return encode_nop(flags, slots); });
}

int putofu_post_toq(utofu_vcq_hdl_t vcq_hdl, void* desc, size_t desc_size, void* cbdata) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  const InCall call(*handle);
  if (desc == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  const bool aligned = reinterpret_cast<std::uintptr_t>(desc) % alignof(Slot) == 0;
  if (!aligned)
    trouble("utofu_post_toq of %s got descriptors at %p, which is no multiple of %zu; align their buffer",
            handle->encoder.machine->name_of(handle->vcq.id).text, desc, alignof(Slot));
  if (desc_size % sizeof(Slot) != 0 || !aligned) return failed(UTOFU_ERR_INVALID_DESC);
  const auto* slots = static_cast<const Slot*>(desc);
  const std::size_t count = desc_size / sizeof(Slot);
  if (!whole_commands(slots, count)) return failed(UTOFU_ERR_INVALID_DESC);
  return handle->vcq.cq->post(handle->vcq, slots, count, cbdata);
}

int putofu_poll_tcq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void** cbdata) {
  return in_call(vcq_hdl, [&](Handle& handle) -> int {
    if (flags != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
    if (cbdata == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
    return handle.vcq.cq->poll_tcq(handle.vcq, cbdata);
  });
}

int putofu_poll_mrq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, struct utofu_mrq_notice* notice) {
  return in_call(vcq_hdl, [&](Handle& handle) -> int {
    if (flags != 0) return failed(UTOFU_ERR_INVALID_FLAGS);
    if (notice == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
    return handle.vcq.cq->poll_mrq(handle.vcq, notice);
  });
}

int putofu_query_num_unread_tcq(utofu_vcq_hdl_t vcq_hdl, size_t* count) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  const InCall call(*handle);
  if (count == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  *count = handle->vcq.cq->unread_tcq(handle->vcq);
  return UTOFU_SUCCESS;
}

int putofu_query_num_unread_mrq(utofu_vcq_hdl_t vcq_hdl, size_t* count) {
  Handle* handle = find_handle(vcq_hdl);
  if (handle == nullptr) return no_handle(vcq_hdl);
  const InCall call(*handle);
  if (count == nullptr) return failed(UTOFU_ERR_INVALID_POINTER);
  *count = handle->vcq.cq->unread_mrq(handle->vcq);
  return UTOFU_SUCCESS;
}

// The names that programs use; weak, so that a profiling library may define them and call the
// putofu_ names.
[[gnu::weak, gnu::alias("putofu_put")]] decltype(putofu_put) utofu_put;
[[gnu::weak, gnu::alias("putofu_prepare_put")]] decltype(putofu_prepare_put) utofu_prepare_put;
[[gnu::weak, gnu::alias("putofu_put_gap")]] decltype(putofu_put_gap) utofu_put_gap;
[[gnu::weak, gnu::alias("putofu_prepare_put_gap")]] decltype(putofu_prepare_put_gap) utofu_prepare_put_gap;
[[gnu::weak, gnu::alias("putofu_put_stride")]] decltype(putofu_put_stride) utofu_put_stride;
[[gnu::weak, gnu::alias("putofu_prepare_put_stride")]] decltype(putofu_prepare_put_stride) utofu_prepare_put_stride;
[[gnu::weak, gnu::alias("putofu_put_stride_gap")]] decltype(putofu_put_stride_gap) utofu_put_stride_gap;
[[gnu::weak,
  gnu::alias("putofu_prepare_put_stride_gap")]] decltype(putofu_prepare_put_stride_gap) utofu_prepare_put_stride_gap;
[[gnu::weak, gnu::alias("putofu_get")]] decltype(putofu_get) utofu_get;
[[gnu::weak, gnu::alias("putofu_prepare_get")]] decltype(putofu_prepare_get) utofu_prepare_get;
[[gnu::weak, gnu::alias("putofu_get_gap")]] decltype(putofu_get_gap) utofu_get_gap;
[[gnu::weak, gnu::alias("putofu_prepare_get_gap")]] decltype(putofu_prepare_get_gap) utofu_prepare_get_gap;
[[gnu::weak, gnu::alias("putofu_get_stride")]] decltype(putofu_get_stride) utofu_get_stride;
[[gnu::weak, gnu::alias("putofu_prepare_get_stride")]] decltype(putofu_prepare_get_stride) utofu_prepare_get_stride;
[[gnu::weak, gnu::alias("putofu_get_stride_gap")]] decltype(putofu_get_stride_gap) utofu_get_stride_gap;
[[gnu::weak,
  gnu::alias("putofu_prepare_get_stride_gap")]] decltype(putofu_prepare_get_stride_gap) utofu_prepare_get_stride_gap;
[[gnu::weak, gnu::alias("putofu_put_piggyback")]] decltype(putofu_put_piggyback) utofu_put_piggyback;
[[gnu::weak,
  gnu::alias("putofu_prepare_put_piggyback")]] decltype(putofu_prepare_put_piggyback) utofu_prepare_put_piggyback;
[[gnu::weak, gnu::alias("putofu_put_piggyback8")]] decltype(putofu_put_piggyback8) utofu_put_piggyback8;
[[gnu::weak,
  gnu::alias("putofu_prepare_put_piggyback8")]] decltype(putofu_prepare_put_piggyback8) utofu_prepare_put_piggyback8;
[[gnu::weak, gnu::alias("putofu_armw4")]] decltype(putofu_armw4) utofu_armw4;
[[gnu::weak, gnu::alias("putofu_prepare_armw4")]] decltype(putofu_prepare_armw4) utofu_prepare_armw4;
[[gnu::weak, gnu::alias("putofu_armw8")]] decltype(putofu_armw8) utofu_armw8;
[[gnu::weak, gnu::alias("putofu_prepare_armw8")]] decltype(putofu_prepare_armw8) utofu_prepare_armw8;
[[gnu::weak, gnu::alias("putofu_cswap4")]] decltype(putofu_cswap4) utofu_cswap4;
[[gnu::weak, gnu::alias("putofu_prepare_cswap4")]] decltype(putofu_prepare_cswap4) utofu_prepare_cswap4;
[[gnu::weak, gnu::alias("putofu_cswap8")]] decltype(putofu_cswap8) utofu_cswap8;
[[gnu::weak, gnu::alias("putofu_prepare_cswap8")]] decltype(putofu_prepare_cswap8) utofu_prepare_cswap8;
[[gnu::weak, gnu::alias("putofu_nop")]] decltype(putofu_nop) utofu_nop;
[[gnu::weak, gnu::alias("putofu_prepare_nop")]] decltype(putofu_prepare_nop) utofu_prepare_nop;
[[gnu::weak, gnu::alias("putofu_post_toq")]] decltype(putofu_post_toq) utofu_post_toq;
[[gnu::weak, gnu::alias("putofu_poll_tcq")]] decltype(putofu_poll_tcq) utofu_poll_tcq;
[[gnu::weak, gnu::alias("putofu_poll_mrq")]] decltype(putofu_poll_mrq) utofu_poll_mrq;
[[gnu::weak,
  gnu::alias("putofu_query_num_unread_tcq")]] decltype(putofu_query_num_unread_tcq) utofu_query_num_unread_tcq;
[[gnu::weak,
  gnu::alias("putofu_query_num_unread_mrq")]] decltype(putofu_query_num_unread_mrq) utofu_query_num_unread_mrq;
}
