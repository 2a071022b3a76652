#include "transport/ofi/atomics.hpp"

#include <rdma/fi_atomic.h>

#include <cstring>

namespace heddle::transport::ofi {
namespace {

// By heddle_atomic_op without its width.
constexpr fi_op kOps[] = {FI_SUM, FI_BAND, FI_BOR, FI_BXOR, FI_ATOMIC_WRITE, FI_CSWAP};
static_assert(HEDDLE_ADD32 == 0 && HEDDLE_AND32 == 1 && HEDDLE_OR32 == 2 && HEDDLE_XOR32 == 3 && HEDDLE_SWAP32 == 4 &&
              HEDDLE_COMPARE_SWAP32 == 5 && HEDDLE_ADD64 == 8 && HEDDLE_COMPARE_SWAP64 == 13);

}  // namespace

bool serves_atomics(fid_ep* endpoint) {
  for (const fi_datatype type : {FI_UINT32, FI_UINT64}) {
    for (const fi_op op : kOps) {
      std::size_t count = 0;
      const int answer = op == FI_CSWAP ? fi_compare_atomicvalid(endpoint, type, op, &count)
                                        : fi_fetch_atomicvalid(endpoint, type, op, &count);
      if (answer != 0 || count == 0) return false;
    }
  }
  return true;
}

base::Status check_atomic(const Command& command, std::uint64_t address) {
  const bool wide = command.atomic_op >= HEDDLE_ADD64;
  if (command.atomic_op > HEDDLE_COMPARE_SWAP64 || (command.atomic_op & 7U) > HEDDLE_COMPARE_SWAP32)
    return base::fail(HEDDLE_ERR_ARGUMENT, "there is no atomic operation %u", command.atomic_op);
  if (command.bytes != (wide ? 8U : 4U)) {
    return base::fail(HEDDLE_ERR_SIZE, "an atomic operation on %llu bytes; this one works on %u",
                      static_cast<unsigned long long>(command.bytes), wide ? 8U : 4U);
  }
  if ((address + command.offset) % command.bytes != 0) {
    return base::fail(HEDDLE_ERR_ALIGNMENT, "an atomic operation at offset %llu; its word must be aligned to %llu",
                      static_cast<unsigned long long>(command.offset), static_cast<unsigned long long>(command.bytes));
  }
  return HEDDLE_DONE;
}

long begin_atomic(fid_ep* endpoint, const Command& command, fi_addr_t to, Transfer* transfer, void* descriptor) {
  const fi_datatype type = command.bytes == sizeof(std::uint64_t) ? FI_UINT64 : FI_UINT32;
  const fi_op op = kOps[command.atomic_op & 7U];
  const std::uint64_t address = command.remote->handle[1] + command.offset;
  const std::uint64_t key = command.remote->handle[0];
  // Of a short word the first bytes.
  if (type == FI_UINT64) {
    transfer->operand = command.operand;
    transfer->compare = command.compare;
  } else {
    const auto operand = static_cast<std::uint32_t>(command.operand);
    const auto compare = static_cast<std::uint32_t>(command.compare);
    std::memcpy(&transfer->operand, &operand, sizeof operand);
    std::memcpy(&transfer->compare, &compare, sizeof compare);
  }
  if (op == FI_CSWAP) {
    return fi_compare_atomic(endpoint, &transfer->operand, 1, descriptor, &transfer->compare, descriptor,
                             &transfer->result, descriptor, to, address, key, type, op, &transfer->context);
  }
  return fi_fetch_atomic(endpoint, &transfer->operand, 1, descriptor, &transfer->result, descriptor, to, address, key,
                         type, op, &transfer->context);
}

}  // namespace heddle::transport::ofi
