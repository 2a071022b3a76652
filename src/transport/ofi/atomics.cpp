#include "transport/ofi/atomics.hpp"

#include <rdma/fi_atomic.h>

#include <cstring>

namespace heddle::transport::ofi {
namespace {

// Indexed by heddle_atomic_op without its width.
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

long begin_atomic(fid_ep* endpoint, const Command& command, fi_addr_t to, Transfer* transfer, void* descriptor) {
  const fi_datatype type = command.bytes == sizeof(std::uint64_t) ? FI_UINT64 : FI_UINT32;
  const fi_op op = kOps[command.atomic_op & 7U];
  const std::uint64_t address = command.remote->handle[1] + command.offset;
  const std::uint64_t key = command.remote->handle[0];
  // A short word is in the first bytes of each field.
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
