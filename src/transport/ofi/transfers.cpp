#include <rdma/fi_atomic.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "transport/common/rejections.hpp"
#include "transport/ofi/port.hpp"

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

namespace {

// The status that libfabric's positive number stands for, for the caller of a transfer.
base::Status meaning_of(int error) {
  switch (error) {
    case FI_ENOMEM:
      return HEDDLE_ERR_NO_MEMORY;
    case FI_EINVAL:
    case FI_EMSGSIZE:
    case FI_EOPNOTSUPP:
      return HEDDLE_ERR_SYSTEM;
    default:
      return HEDDLE_ERR_PEER_FAILED;  // the many errors of a connection
  }
}

}  // namespace

Transfers::Transfers(Port& port, std::uint32_t slots)
    : port_(port),
      completions_(port.completions()),
      room_(completions_.transfers()),
      pool_(slots),
      inject_bytes_(port.device().inject_bytes()) {
  put_.message.msg_iov = &put_.local;
  put_.message.rma_iov = &put_.remote;
  put_.message.desc = &put_.descriptor;
  put_.message.iov_count = put_.message.rma_iov_count = 1;
}

base::Status Transfers::open(Endpoint& endpoint) {
  endpoint.open_callers_memory(port_.device().environment());
  callers_ = endpoint.callers_memory();
  if (!port_.device().has_atomics()) return HEDDLE_DONE;
  return endpoint.add_buffers(pool_.all().data(), pool_.all().size_bytes(), &descriptor_);
}

// True: the command has that opcode, and asks for nothing besides. One load reads all of these
// fields.
template <Opcode kOpcode>
inline bool is_plain(const Command& command) {
  static_assert(offsetof(Command, opcode) == 0 && offsetof(Command, wants_source_free) == 1 &&
                offsetof(Command, alone) == 2 && offsetof(Command, inlined) == 3);
  return network::read_word(&command, 0) == static_cast<std::uint32_t>(kOpcode);
}

// The first free slot is taken.
inline void Transfers::begin(PeerState& peer, const Command& command, Transfer* transfer) {
  room_.take();
  pool_.take_front(transfer);
  peer.taken = PeerState::Taken::some;
  transfer->peer = &peer;
  transfer->token = command.token;
}

// Uses the first free slot, which stays free if nothing is under way afterwards. Static, with the
// port as an argument, so that all that it uses is at a fixed distance from the port.
template <Opcode kOpcode>
inline bool Transfers::start(Port& port, PeerState& peer, Command& command, std::uint64_t flags) {
  Transfers& self = port.transfers();
  Transfer* transfer = self.pool_.front();
  fid_ep* ep = port.endpoint().ep();
  const std::uint64_t address = command.remote->handle[1] + command.offset;
  const std::uint64_t key = command.remote->handle[0];
  const std::uint64_t bytes = command.bytes;
  void* descriptor = nullptr;
  const bool leases = self.callers_ != nullptr && (flags & FI_INJECT) == 0;
  if (leases) [[unlikely]] {
    constexpr auto kAccess = kOpcode == Opcode::put ? memory::Access::read : memory::Access::write;
    const base::Status status = self.callers_->acquire(command.local, bytes, kAccess, &descriptor, &transfer->lease);
    if (status != HEDDLE_DONE) return port.completions().reject(command, status);
  }
  ssize_t answer = 0;
  if constexpr (kOpcode == Opcode::put) {
    self.put_.local = {command.local, bytes};
    self.put_.remote = {address, bytes, key};
    self.put_.descriptor = descriptor;
    self.put_.message.addr = peer.memory;
    self.put_.message.context = &transfer->context;
    answer = fi_writemsg(ep, &self.put_.message, flags);
  } else {
    answer = fi_read(ep, command.local, bytes, descriptor, peer.memory, address, key, &transfer->context);
  }
  if (answer != 0) [[unlikely]] {
    if (leases) self.callers_->release(transfer->lease);
    return self.not_started(peer, command, answer);
  }
  self.begin(peer, command, transfer);
  transfer->is_get = kOpcode == Opcode::get;
  if (leases) [[unlikely]]
    transfer->owe(Transfer::has_lease);
  return true;
}

// The usual put or get can begin now, check() would find nothing wrong in it, and nobody asks when
// its source is free. post_otherwise() does the others.
template <Opcode kOpcode>
std::size_t Transfers::post(Port& port, Command& command) {
  const Port::Turn turn(port, std::try_to_lock);
  if (!turn.inside()) return 0;
  const RemoteMemory* remote = command.remote;
  if (!is_plain<kOpcode>(command) || remote == nullptr || command.offset > remote->bytes ||
      command.bytes - 1 >= remote->bytes - command.offset) [[unlikely]]  // 0 bytes wrap
    return post_otherwise(port, command);
  network::Peer* known = port.peers().known(command.rank, command.worker);
  if (known == nullptr || !known->ready() || !port.completions().transfers().has(1)) [[unlikely]]
    return post_otherwise(port, command);
  return start<kOpcode>(port, state(*known), command, FI_COMPLETION | FI_DELIVERY_COMPLETE) ? 1 : 0;
}
template std::size_t Transfers::post<Opcode::put>(Port&, Command&);
template std::size_t Transfers::post<Opcode::get>(Port&, Command&);

[[gnu::noinline]] std::size_t Transfers::post_otherwise(Port& port, Command& command) {
  return port.transfers().take_otherwise(command) ? 1 : 0;
}

bool Transfers::take_otherwise(Command& command) {
  if (command.alone) return false;  // it needs progress, here and often at the peer
  base::Status why = check(command);
  if (why != HEDDLE_DONE) return port_.completions().reject(command, why);
  network::Peer* peer = port_.peers().use(command.rank, command.worker, &why);
  if (peer == nullptr) return port_.completions().reject(command, why);
  if (command.bytes == 0) {
    command.done = command.source_free = true;
    return true;
  }
  // A worker that is closed serves nobody any more.
  if (peer->stage == network::Peer::Stage::closed) return port_.completions().reject(command, HEDDLE_ERR_PEER_FAILED);
  if (!peer->ready() || !room_.has(1)) return false;
  if (command.opcode == Opcode::atomic) return update(state(*peer), command);
  constexpr std::uint64_t kFlags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
  if (command.opcode == Opcode::get) {
    if (!start<Opcode::get>(port_, state(*peer), command, 0)) return false;
    command.source_free = true;
    return true;
  }
  if (!command.wants_source_free) return start<Opcode::put>(port_, state(*peer), command, kFlags);
  // libfabric copies the source only if somebody waits for source_free: otherwise the copy costs
  // more than it brings.
  const bool by_value = command.bytes <= inject_bytes_;
  Transfer* transfer = pool_.front();
  if (!start<Opcode::put>(port_, state(*peer), command, kFlags | (by_value ? FI_INJECT : 0))) return false;
  command.source_free = by_value;
  if (!by_value && transfer->peer != nullptr) transfer->owe(Transfer::owes_source);
  return true;
}

std::size_t Transfers::reject(Port& port, Command& command) {
  const Port::Turn turn(port, std::try_to_lock);
  return turn.inside() ? post_otherwise(port, command) : 0;
}

base::Status Transfers::check(const Command& command) const {
  const bool atomic = command.opcode == Opcode::atomic && port_.device().has_atomics();
  if (command.opcode != Opcode::put && command.opcode != Opcode::get && !atomic)
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "the ofi transport has no such transfers over this network");
  const base::Status status = check_remote(command);
  return atomic && status == HEDDLE_DONE ? check_atomic(command, command.remote->handle[2]) : status;
}

bool Transfers::update(PeerState& peer, Command& command) {
  Transfer* transfer = pool_.front();
  const long answer = begin_atomic(port_.endpoint().ep(), command, peer.memory, transfer, descriptor_);
  if (answer != 0) return not_started(peer, command, answer);
  command.source_free = true;
  begin(peer, command, transfer);
  transfer->is_get = false;
  if (command.local == nullptr) return true;
  transfer->result_to = command.local;
  transfer->result_bytes = command.bytes;
  transfer->owe(Transfer::has_result);
  return true;
}

[[gnu::cold]] bool Transfers::not_started(PeerState& peer, Command& command, long answer) {
  port_.not_taken(peer, answer);
  if (is_temporary(answer)) return false;
  const auto error = static_cast<int>(-answer);
  return port_.completions().reject(
      command,
      base::fail(meaning_of(error), "libfabric refuses a transfer of %llu bytes with rank %u: %s",
                 static_cast<unsigned long long>(command.bytes), command.rank, port_.device().library().why(answer)));
}

// If the transfer has succeeded, it has further duties: on_done() takes the other ones.
[[gnu::noinline]] void Transfers::on_finished(Transfer& transfer, int error) {
  PeerState& peer = *transfer.peer;
  if (transfer.duties != 0) do_duties(transfer, error);
  if (transfer.orphan) [[unlikely]] {
    --orphans_;
  } else {
    port_.completions().done(transfer.token, error == FI_SUCCESS ? HEDDLE_DONE : meaning_of(error), 1);
  }
  give_back(&transfer);
  if (error != FI_SUCCESS) [[unlikely]]
    port_.on_broken(peer, error);
}

// If the transfer was reported as failed, nobody takes its result any more.
void Transfers::do_duties(Transfer& transfer, int error) {
  const std::uint8_t duties = std::exchange(transfer.duties, std::uint8_t{0});
  if ((duties & Transfer::has_lease) != 0) callers_->release(transfer.lease);
  if (transfer.orphan) return;
  if ((duties & Transfer::owes_source) != 0) port_.completions().source_free(transfer.token);
  if ((duties & Transfer::has_result) != 0 && error == FI_SUCCESS)
    std::memcpy(transfer.result_to, &transfer.result, transfer.result_bytes);
}

[[gnu::cold]] bool Transfers::orphan(PeerState& peer) {
  bool left = false;
  for (Transfer& transfer : pool_.all()) {
    if (transfer.peer != &peer || transfer.orphan) continue;
    if (transfer.is_get) {
      left = true;
      continue;
    }
    transfer.orphan = true;
    transfer.usual_transfer = false;
    ++orphans_;
    port_.completions().done(transfer.token, HEDDLE_ERR_PEER_FAILED, 1);
  }
  return left;
}

bool Transfers::holds_some(const PeerState& peer) const {
  return room_.taken() != 0 &&
         std::ranges::any_of(pool_.all(), [&peer](const Transfer& transfer) { return transfer.peer == &peer; });
}

void Transfers::forget() {
  for (Transfer& transfer : pool_.all()) {
    if (transfer.peer == nullptr) continue;
    if ((transfer.duties & Transfer::has_lease) != 0) callers_->release(transfer.lease);
    transfer.duties = 0;
    if (!transfer.orphan) port_.completions().done(transfer.token, HEDDLE_ERR_PEER_FAILED, 1);
    give_back(&transfer);
  }
  orphans_ = 0;
}

}  // namespace heddle::transport::ofi
