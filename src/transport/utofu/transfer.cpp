// Puts, gets and atomics of a worker: one uTofu command each. Puts and gets go to the owner's port
// that way_ selects: it follows from this worker's TNI, so that workers on many TNIs use many
// ports. Atomics go to the port that the word's address selects: no document says whether two TNIs
// of a node are atomic against each other.
#include <cstring>
#include <new>

#include "transport/common/rejections.hpp"
#include "transport/utofu/out.hpp"
#include "transport/utofu/port.hpp"

namespace heddle::transport::utofu {
namespace {

constexpr std::uint64_t kWord = sizeof(std::uint64_t);

// As try_import() fills RemoteMemory::handle.
const Way* ways_of(const RemoteMemory& memory) {
  return reinterpret_cast<const Way*>(memory.handle[0]);  // NOLINT(performance-no-int-to-ptr)
}
const Way& way_at(const RemoteMemory& memory, std::size_t bytes) {
  return *reinterpret_cast<const Way*>(memory.handle[0] + bytes);  // NOLINT(performance-no-int-to-ptr)
}
std::uint64_t address_of(const RemoteMemory& memory) {
  return memory.handle[2];
}
// A word at any lower offset is inside it.
std::uint64_t words_of(const RemoteMemory& memory) {
  return memory.handle[3];
}

base::Status check_target(const Command& command) {
  const RemoteMemory* remote = command.remote;
  if (remote == nullptr || command.offset > remote->bytes || command.bytes > remote->bytes - command.offset)
      [[unlikely]] {
    return check_remote(command);
  }
  return HEDDLE_DONE;
}

constexpr std::uint64_t kLine = 256;  // bytes whose atomics share a port

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

base::Status VcqRegistrar::register_memory(std::byte* begin, std::uint64_t bytes, memory::Access access,
                                           std::uint64_t* handle) {
  while (!later_.empty() && library_.try_deregister(vcq_, later_.back())) later_.pop_back();
  const auto stadd =
      library_.try_register(vcq_, begin, bytes, access == memory::Access::read ? UTOFU_REG_MEM_FLAG_READ_ONLY : 0UL);
  if (!stadd) return stadd.status();
  *handle = *stadd;
  return HEDDLE_DONE;
}

void VcqRegistrar::deregister(std::uint64_t handle) {
  if (leaves_ || library_.try_deregister(vcq_, handle)) return;
  try {
    later_.push_back(handle);
  } catch (const std::bad_alloc&) {
    // waits: it is called while a poll ends operations, whose ends would be lost if it threw
    library_.deregister(vcq_, handle);
  }
}

void VcqRegistrar::finish() {
  for (const std::uint64_t handle : later_) library_.deregister(vcq_, handle);
  later_.clear();
}

// uTofu did not accept a command: takes `operation` back. AGAIN (nothing happened) or an error.
[[gnu::cold]] base::Status Port::take_back(int code, TofuOperation* operation) {
  if (operation->lease != 0) registrations_->release(operation->lease);
  operations_.retire(operation);
  if (code == UTOFU_ERR_BUSY) {
    tcq_due_ = true;  // other users of the CQ may hold the slots
    return HEDDLE_AGAIN;
  }
  return base::fail(HEDDLE_ERR_SYSTEM, "uTofu refuses a command: %s (%d)", error_name(code), code);
}

// The cases that transfer() does not handle: errors, and 0 bytes.
[[gnu::cold]] base::Status Port::reject_transfer(const Command& command) {
  if (const base::Status status = check_target(command); status != HEDDLE_DONE) return status;
  if (command.bytes == 0) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SIZE, "a transfer of %llu bytes; the utofu transport takes %llu in one command",
                    static_cast<unsigned long long>(command.bytes), static_cast<unsigned long long>(kMostTransfer));
}

[[gnu::always_inline]] inline bool Port::inside(const Command& command) {
  const std::uint64_t size = command.remote->bytes;
  return command.bytes <= size && command.offset <= size - command.bytes;
}

// The target of a put or get of this worker.
[[gnu::always_inline]] inline Way Port::target_of(const Command& command) const {
  const Way& way = way_at(*command.remote, way_);
  return {way.stadd + command.offset, way.vcq};
}

// The command carries the data itself.
[[gnu::always_inline]] inline base::Status Port::put_short(Command& command, Way target, TofuOperation* operation) {
  const std::uint64_t bytes = command.bytes;
  const utofu_stadd_t remote = target.stadd;
  const utofu_vcq_id_t vcq = target.vcq;
  if (operation == nullptr) [[unlikely]] {
    return HEDDLE_AGAIN;
  }
  operation->token = command.token;
  operation->rank = command.remote->rank;
  constexpr unsigned long kFlags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  void* tag = operation->tag;
  const std::uint64_t lane = TofuOperations::lane(*operation);
  int code = UTOFU_SUCCESS;
  if (bytes == sizeof(std::uint64_t)) {  // by value, so that uTofu need not read memory
    std::uint64_t value = 0;
    std::memcpy(&value, command.local, sizeof value);
    code = calls_.put_piggyback8(handle_, vcq, value, remote, bytes, lane, kFlags, tag);
  } else {
    code = calls_.put_piggyback(handle_, vcq, command.local, remote, bytes, lane, kFlags, tag);
  }
  if (code != UTOFU_SUCCESS) [[unlikely]] {
    return take_back(code, operation);
  }
  command.source_free = true;
  return HEDDLE_POSTED;
}

base::Status Port::transfer_registered(Command& command) {
  const auto [remote, vcq] = target_of(command);
  const bool get = command.opcode == Opcode::get;
  const std::uint64_t bytes = command.bytes;
  TofuOperation* operation = operations_.take(get ? Task::get : Task::put, vcq, remote + bytes);
  if (operation == nullptr) [[unlikely]] {
    return HEDDLE_AGAIN;
  }
  memory::RegistrationCache::Lease lease{};
  const auto access = get ? memory::Access::write : memory::Access::read;
  const base::Status leased = [&] {
    try {
      return registrations_->acquire(command.local, bytes, access, &lease);
    } catch (const std::bad_alloc&) {
      operations_.give_back(operation);
      throw;
    }
  }();
  if (leased != HEDDLE_DONE) [[unlikely]] {
    operations_.give_back(operation);
    return leased;
  }
  operation->token = command.token;
  operation->rank = command.remote->rank;
  operation->lease = lease.entry;
  const utofu_stadd_t local = lease.handle + lease.offset;
  unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  void* tag = operation->tag;
  const std::uint64_t lane = TofuOperations::lane(*operation);
  int code = UTOFU_SUCCESS;
  if (get) {
    code = calls_.get(handle_, vcq, local, remote, bytes, lane, flags, tag);
  } else {
    if (command.wants_source_free) {
      operation->set(TofuOperation::kOwesSource);
      flags |= UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
    }
    code = calls_.put(handle_, vcq, local, remote, bytes, lane, flags, tag);
  }
  return code == UTOFU_SUCCESS ? HEDDLE_POSTED : take_back(code, operation);
}

// Puts and gets: one uTofu command each.
[[gnu::always_inline]] inline base::Status Port::transfer(Command& command) {
  if (command.remote == nullptr || !inside(command) || command.bytes - 1 >= kMostTransfer) [[unlikely]] {
    return reject_transfer(command);
  }
  const bool travels = command.opcode == Opcode::put && command.bytes <= kPiggyback;
  if (!travels) return transfer_registered(command);
  const Way target = target_of(command);
  return put_short(command, target, operations_.take(Task::put, target.vcq, target.stadd + command.bytes));
}

base::Status Port::update(Command& command) {
  if (const base::Status status = check_target(command); status != HEDDLE_DONE) return status;
  if (const base::Status status = check_atomic(command); status != HEDDLE_DONE) return status;
  const std::uint64_t word = address_of(*command.remote) + command.offset;
  const Way& way = ways_of(*command.remote)[word / kLine % kWays];
  const utofu_stadd_t remote = way.stadd + command.offset;
  const utofu_vcq_id_t vcq = way.vcq;
  TofuOperation* operation = operations_.take(Task::atomic, vcq, remote);
  if (operation == nullptr) return HEDDLE_AGAIN;
  operation->token = command.token;
  operation->rank = command.rank;
  operation->result = command.local;
  operation->bytes = static_cast<std::uint8_t>(command.bytes);
  const std::uint64_t lane = TofuOperations::lane(*operation);
  constexpr unsigned long kFlags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  const unsigned kind = command.atomic_op & 7U;
  const bool wide = command.bytes == 8;
  void* tag = operation->tag;  // returned by the TCQ if the command fails on its way out
  const auto narrow = static_cast<std::uint32_t>(command.operand);
  int code = UTOFU_SUCCESS;
  if (kind == HEDDLE_COMPARE_SWAP32) {
    code = wide ? calls_.cswap8(handle_, vcq, command.compare, command.operand, remote, lane, kFlags, tag)
                : calls_.cswap4(handle_, vcq, static_cast<std::uint32_t>(command.compare), narrow, remote, lane, kFlags,
                                tag);
  } else {
    code = wide ? calls_.armw8(handle_, vcq, kArmw[kind].op, command.operand, remote, lane, kFlags, tag)
                : calls_.armw4(handle_, vcq, kArmw[kind].op, narrow, remote, lane, kFlags, tag);
  }
  if (code == UTOFU_SUCCESS) {
    command.source_free = true;
    return HEDDLE_POSTED;
  }
  return take_back(code, operation);
}

// ---- commands -----------------------------------------------------------------------------------

base::Status Port::start(Command& command) {
  if (command.alone) return HEDDLE_AGAIN;  // it would have to be done within post(); none is
  if (command.rank >= failed_.size()) {
    return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %zu", command.rank, failed_.size() - 1);
  }
  if (failed_[command.rank] != 0) return HEDDLE_ERR_PEER_FAILED;
  switch (command.opcode) {
    case Opcode::message:
      return send(command);
    case Opcode::put:
    case Opcode::get:
      return transfer(command);
    case Opcode::atomic:
      return update(command);
    case Opcode::kCount:
      break;
  }
  return base::fail(HEDDLE_ERR_UNSUPPORTED, "this transport has no such command; see its capabilities");
}

[[gnu::always_inline]] inline base::Status Port::begin(Command& command) {
  const bool transfers = command.opcode == Opcode::put || command.opcode == Opcode::get;
  return transfers && !command.alone ? transfer(command) : start(command);
}

// The engine mostly posts one short command at a time. A command that takes a fast path calls uTofu
// once, and keeps only `this` in registers meanwhile: the other cases are in functions of their
// own.
std::size_t Port::post(std::span<Command> batch) {
  if (batch.size() != quick_size_) [[unlikely]] {
    return post_all(batch);
  }
  Command& command = batch.front();
  const auto reaches = [&] { return !command.alone && command.remote != nullptr; };
  if (command.opcode == Opcode::put && reaches()) {
    if (command.bytes == kWord && command.offset < words_of(*command.remote)) return post_word(command);
    return command.bytes - 1 < kPiggyback ? post_short(command) : post_again<Task::put>(command);
  }
  if (command.opcode == Opcode::message) return post_message(command);
  return command.opcode == Opcode::get && reaches() ? post_again<Task::get>(command) : post_all(batch);
}

// A fast path: calls uTofu by call() for the first free operation, which it takes if uTofu accepts.
template <Task task, class Call>
[[gnu::always_inline]] inline std::size_t Port::post_quickly(Command& command, TofuOperation* operation, Call&& call) {
  begin_quickly<task>(command, operation, command.remote->rank);
  const int code = call(TofuOperations::lane(*operation), operation->tag);
  if (code != UTOFU_SUCCESS) [[unlikely]] {
    return not_posted(code);
  }
  operations_.take_front();
  return 1;
}

[[gnu::cold]] std::size_t Port::not_posted(int code) {
  Command& command = *posting_;
  TofuOperation* operation = operations_.front();
  operations_.take_front();
  const base::Status status = take_back(code, operation);
  command.source_free = false;
  if (status == HEDDLE_AGAIN) return 0;
  complete_at_post(command, status);
  return 1;
}

// A put of one word inside its region.
[[gnu::always_inline]] inline std::size_t Port::post_word(Command& command) {
  TofuOperation* operation = operations_.front();
  if (operation == nullptr) [[unlikely]] {
    return 0;
  }
  const Way target = target_of(command);
  command.source_free = true;
  return post_quickly<Task::put>(command, operation, [&](std::uint64_t lane, void* tag) {
    std::uint64_t value = 0;
    std::memcpy(&value, command.local, sizeof value);
    return calls_.put_piggyback8(handle_, target.vcq, value, target.stadd, kWord, lane,
                                 UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, tag);
  });
}

// Another put that the command carries itself.
[[gnu::noinline]] std::size_t Port::post_short(Command& command) {
  if (!inside(command)) [[unlikely]] {
    return post_all({&command, 1});
  }
  TofuOperation* operation = operations_.front();
  if (operation == nullptr) [[unlikely]] {
    return 0;
  }
  const Way target = target_of(command);
  command.source_free = true;
  return post_quickly<Task::put>(command, operation, [&](std::uint64_t lane, void* tag) {
    return calls_.put_piggyback(handle_, target.vcq, command.local, target.stadd, command.bytes, lane,
                                UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, tag);
  });
}

// Memory under the same registration as the last command's.
template <Task task>
[[gnu::noinline]] std::size_t Port::post_again(Command& command) {
  constexpr bool kGet = task == Task::get;
  const std::uint64_t bytes = command.bytes;
  const auto* lease = registrations_->latest(command.local, bytes, kGet ? memory::Access::write : memory::Access::read);
  if (lease == nullptr || bytes - 1 >= kMostTransfer || command.wants_source_free || !inside(command)) {
    return post_all({&command, 1});
  }
  TofuOperation* operation = operations_.front();
  if (operation == nullptr) [[unlikely]] {
    return 0;
  }
  const Way target = target_of(command);
  const utofu_stadd_t local = registrations_->use_latest(command.local);
  operation->lease = registrations_->latest_entry();
  return post_quickly<task>(command, operation, [&](std::uint64_t lane, void* tag) {
    const auto call = kGet ? calls_.get : calls_.put;
    return call(handle_, target.vcq, local, target.stadd, bytes, lane, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, tag);
  });
}

template <class Begin>
std::size_t Port::each_of(std::span<Command> batch, Begin&& begin_one) {
  std::size_t accepted = 0;
  try {
    for (Command& command : batch) {
      const base::Status status = begin_one(command);
      if (status == HEDDLE_AGAIN) break;
      ++accepted;
      if (status != HEDDLE_POSTED && !complete_at_post(command, status)) break;
    }
  } catch (const std::bad_alloc&) {  // the first use of a peer allocates memory
    if (accepted == 0) throw;
  }
  return accepted;
}

[[gnu::noinline]] std::size_t Port::post_all(std::span<Command> batch) {
  if (careful_) [[unlikely]] {
    return post_carefully(batch);
  }
  if (batch.size() > 1 && quick_size_ == 1) return post_each(batch);
  return each_of(batch, [this](Command& command) { return begin(command); });
}

// Posts each command by its fast path. The prefix ends behind a command that fails, since then the
// careful path is needed.
std::size_t Port::post_each(std::span<Command> batch) {
  std::size_t accepted = 0;
  try {
    for (Command& command : batch) {
      if (post({&command, 1}) == 0) break;
      ++accepted;
      if (quick_size_ != 1) [[unlikely]] {
        break;
      }
    }
  } catch (const std::bad_alloc&) {  // as in each_of()
    if (accepted == 0) throw;
  }
  return accepted;
}

[[gnu::cold]] std::size_t Port::post_carefully(std::span<Command> batch) {
  const HeldCq held(lock_);
  if (!held || backlog_.size() >= kMostBacklog) return 0;
  return each_of(batch, [this](Command& command) { return start(command); });
}

// The command is complete already, or has failed. False: no more commands can be accepted now.
bool Port::complete_at_post(Command& command, base::Status status) {
  command.source_free = true;
  if (status == HEDDLE_DONE) {
    command.done = true;
    return true;
  }
  Completion failure;
  failure.token = command.token;
  failure.status = status;
  backlog_.push_back(failure);
  set_careful(true);
  return backlog_.size() < kMostBacklog;
}

}  // namespace heddle::transport::utofu
