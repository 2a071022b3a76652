// Puts, gets and atomics of a worker: one uTofu command each. The target is the home VCQ of the region's owner.
#include "transport/utofu/worker.hpp"

namespace heddle::transport::utofu {
namespace {

// How import() fills RemoteMemory::handle.
utofu_stadd_t stadd_of(const RemoteMemory& memory) {
  return memory.handle[0];
}
utofu_vcq_id_t vcq_of(const RemoteMemory& memory) {
  return memory.handle[1];
}
std::uint64_t address_of(const RemoteMemory& memory) {
  return memory.handle[2];
}

[[gnu::cold]] base::Status fail_outside(const Command& command) {
  return base::fail(HEDDLE_ERR_RANGE, "%llu bytes at offset %llu are not inside a region of %llu bytes of rank %u",
                    static_cast<unsigned long long>(command.bytes), static_cast<unsigned long long>(command.offset),
                    static_cast<unsigned long long>(command.remote->bytes), command.rank);
}

base::Status check_target(const Command& command) {
  if (command.remote == nullptr) [[unlikely]] {
    return base::fail(HEDDLE_ERR_ARGUMENT, "a command without remote memory");
  }
  const std::uint64_t size = command.remote->bytes;
  if (command.offset > size || command.bytes > size - command.offset) [[unlikely]] {
    return fail_outside(command);
  }
  return HEDDLE_DONE;
}

struct ArmwRow {
  std::uint8_t narrow;
  utofu_armw_op op;
};
constexpr ArmwRow kArmw[] = {{HEDDLE_ADD32, UTOFU_ARMW_OP_ADD},
                             {HEDDLE_AND32, UTOFU_ARMW_OP_AND},
                             {HEDDLE_OR32, UTOFU_ARMW_OP_OR},
                             {HEDDLE_XOR32, UTOFU_ARMW_OP_XOR},
                             {HEDDLE_SWAP32, UTOFU_ARMW_OP_SWAP}};
constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kArmw); ++i) {
    if (kArmw[i].narrow != i) return false;
  }
  return HEDDLE_COMPARE_SWAP32 == std::size(kArmw) && HEDDLE_ADD64 == 8;
}
static_assert(in_order());

base::Status check_atomic(const Command& command) {
  const bool wide = command.atomic_op >= HEDDLE_ADD64;
  if (command.atomic_op > HEDDLE_COMPARE_SWAP64 || (command.atomic_op & 7U) > HEDDLE_COMPARE_SWAP32) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "there is no atomic operation %u", command.atomic_op);
  }
  if (command.bytes != (wide ? 8U : 4U)) {
    return base::fail(HEDDLE_ERR_SIZE, "an atomic operation on %llu bytes; this one works on %u",
                      static_cast<unsigned long long>(command.bytes), wide ? 8U : 4U);
  }
  if ((address_of(*command.remote) + command.offset) % command.bytes != 0) {
    return base::fail(HEDDLE_ERR_ALIGNMENT, "an atomic operation at offset %llu; its word must be aligned to %llu",
                      static_cast<unsigned long long>(command.offset), static_cast<unsigned long long>(command.bytes));
  }
  return HEDDLE_DONE;
}

}  // namespace

base::Status Registrar::enroll(std::byte* begin, std::uint64_t bytes, memory::Access access, std::uint64_t* handle) {
  const auto stadd =
      library_.enroll(vcq_, begin, bytes, access == memory::Access::read ? UTOFU_REG_MEM_FLAG_READ_ONLY : 0UL);
  if (!stadd) return stadd.status();
  *handle = *stadd;
  return HEDDLE_DONE;
}

// After the call: AGAIN and nothing happened, or an error.
[[gnu::cold]] base::Status Worker::refused(int code, Operation* operation) {
  if (operation->lease != 0) registrations_->release(operation->lease);
  operations_.give_back(operation);
  if (code == UTOFU_ERR_BUSY) return HEDDLE_AGAIN;
  return base::fail(HEDDLE_ERR_SYSTEM, "uTofu refuses a command: %s (%d)", error_name(code), code);
}

base::Status Worker::transfer(Command& command) {
  if (const base::Status status = check_target(command); status != HEDDLE_DONE) return status;
  if (command.bytes == 0) return HEDDLE_DONE;
  if (command.bytes > kMostTransfer) [[unlikely]] {
    return base::fail(HEDDLE_ERR_SIZE, "a transfer of %llu bytes; the utofu transport takes %llu in one command",
                      static_cast<unsigned long long>(command.bytes), static_cast<unsigned long long>(kMostTransfer));
  }
  const bool get = command.opcode == Opcode::get;
  const utofu_stadd_t remote = stadd_of(*command.remote) + command.offset;
  const utofu_vcq_id_t vcq = vcq_of(*command.remote);
  Operation* operation =
      operations_.take(get ? UTOFU_MRQ_TYPE_LCL_GET : UTOFU_MRQ_TYPE_LCL_PUT, vcq, remote + command.bytes);
  if (operation == nullptr) return HEDDLE_AGAIN;
  operation->task = get ? Task::get : Task::put;
  operation->token = command.token;
  operation->rank = command.rank;
  const std::uint64_t lane = Operations::lane(*operation);
  if (!get && command.bytes <= kPiggyback) {
    const int code = call_.put_piggyback(handle_, vcq, command.local, remote, command.bytes, lane,
                                         UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, Operations::tag(*operation));
    if (code != UTOFU_SUCCESS) return refused(code, operation);
    command.source_free = true;
    return HEDDLE_POSTED;
  }
  memory::RegistrationCache::Lease lease{};
  const auto access = get ? memory::Access::write : memory::Access::read;
  const base::Status leased = registrations_->acquire(command.local, command.bytes, access, &lease);
  if (leased != HEDDLE_DONE) {
    operations_.give_back(operation);
    return leased;
  }
  operation->lease = lease.entry;
  const utofu_stadd_t local = lease.handle + lease.offset;
  unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  int code = UTOFU_SUCCESS;
  if (get) {
    code = call_.get(handle_, vcq, local, remote, command.bytes, lane, flags, Operations::tag(*operation));
  } else {
    operation->owes_source_free = command.wants_source_free;
    if (command.wants_source_free) flags |= UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
    code = call_.put(handle_, vcq, local, remote, command.bytes, lane, flags, Operations::tag(*operation));
  }
  return code == UTOFU_SUCCESS ? HEDDLE_POSTED : refused(code, operation);
}

base::Status Worker::update(Command& command) {
  if (const base::Status status = check_target(command); status != HEDDLE_DONE) return status;
  if (const base::Status status = check_atomic(command); status != HEDDLE_DONE) return status;
  const utofu_stadd_t remote = stadd_of(*command.remote) + command.offset;
  const utofu_vcq_id_t vcq = vcq_of(*command.remote);
  Operation* operation = operations_.take(UTOFU_MRQ_TYPE_LCL_ARMW, vcq, remote);
  if (operation == nullptr) return HEDDLE_AGAIN;
  operation->task = Task::atomic;
  operation->token = command.token;
  operation->rank = command.rank;
  operation->result = command.local;
  operation->bytes = static_cast<std::uint8_t>(command.bytes);
  const std::uint64_t lane = Operations::lane(*operation);
  constexpr unsigned long kFlags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  const unsigned kind = command.atomic_op & 7U;
  const bool wide = command.bytes == 8;
  void* tag = Operations::tag(*operation);  // comes back if the command fails on its way out
  const auto narrow = static_cast<std::uint32_t>(command.operand);
  int code = UTOFU_SUCCESS;
  if (kind == HEDDLE_COMPARE_SWAP32) {
    code = wide ? call_.cswap8(handle_, vcq, command.compare, command.operand, remote, lane, kFlags, tag)
                : call_.cswap4(handle_, vcq, static_cast<std::uint32_t>(command.compare), narrow, remote, lane, kFlags,
                               tag);
  } else {
    code = wide ? call_.armw8(handle_, vcq, kArmw[kind].op, command.operand, remote, lane, kFlags, tag)
                : call_.armw4(handle_, vcq, kArmw[kind].op, narrow, remote, lane, kFlags, tag);
  }
  if (code == UTOFU_SUCCESS) {
    command.source_free = true;
    return HEDDLE_POSTED;
  }
  return refused(code, operation);
}

}  // namespace heddle::transport::utofu
