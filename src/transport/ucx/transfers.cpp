#include "transport/ucx/port.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/common/rejections.hpp"

namespace heddle::transport::ucx {
namespace {

// Indexed by heddle_atomic_op without its width.
constexpr ucp_atomic_op_t kAtomics[] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_AND,  UCP_ATOMIC_OP_OR,
                                        UCP_ATOMIC_OP_XOR, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP};
static_assert(HEDDLE_ADD32 == 0 && HEDDLE_AND32 == 1 && HEDDLE_OR32 == 2 && HEDDLE_XOR32 == 3 && HEDDLE_SWAP32 == 4 &&
              HEDDLE_COMPARE_SWAP32 == 5 && HEDDLE_ADD64 == 8 && HEDDLE_COMPARE_SWAP64 == 13);

}  // namespace

Transfers::Transfers(Port& port, Device& device, std::uint32_t slots)
    : port_(port), device_(device), room_(port.completions().transfers()), pool_(slots), keys_(port.call(), device) {
  for (Transfer& transfer : pool_.all()) transfer.port = &port;
  params_.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params_.cb.send = on_local;
  params_.user_data = pool_.front();
}

// The key of a put or get of at least one byte that can begin now, and in which check() would find
// nothing wrong. Null: post_otherwise() finds out more.
inline const Key* Transfers::usual(Port& port, const Command& command) {
  if (command.alone || command.remote == nullptr || command.offset > command.remote->bytes ||
      command.bytes - 1 >= command.remote->bytes - command.offset)  // 0 bytes wrap
    return nullptr;
  const Key* key = port.transfers().keys_.find(command);
  return key != nullptr && key->peer->ready() && port.completions().transfers().has(1) ? key : nullptr;
}

std::size_t Transfers::put(Port& port, Command& command) {
  const Port::Turn turn(port, std::try_to_lock);
  if (!turn.inside()) return 0;
  const Key* key = usual(port, command);
  if (key == nullptr) [[unlikely]]
    return post_otherwise(port, command) ? 1 : 0;
  return put(port, command, *key) ? 1 : 0;
}

std::size_t Transfers::get(Port& port, Command& command) {
  const Port::Turn turn(port, std::try_to_lock);
  if (!turn.inside()) return 0;
  const Key* key = usual(port, command);
  if (key == nullptr) [[unlikely]]
    return post_otherwise(port, command) ? 1 : 0;
  return get(port, command, *key) ? 1 : 0;
}

std::size_t Transfers::post(Port& port, Command& command) {
  const Port::Turn turn(port, std::try_to_lock);
  return turn.inside() && post_otherwise(port, command) ? 1 : 0;
}

[[gnu::noinline]] bool Transfers::post_otherwise(Port& port, Command& command) {
  Transfers& self = port.transfers();
  if (command.alone) return false;  // it needs UCX's progress, here and often at the peer
  base::Status why = self.check(command);
  if (why != HEDDLE_DONE) return port.completions().reject(command, why);
  PeerState* peer = state_of(port.peers().use(command.rank, command.worker, &why));
  if (peer == nullptr) return port.completions().reject(command, why);
  if (command.bytes == 0) {
    command.done = command.source_free = true;
    return true;
  }
  if (!peer->ready()) {
    // A worker that is closed serves nobody any more.
    return peer->stage == PeerState::Stage::closed && port.completions().reject(command, HEDDLE_ERR_PEER_FAILED);
  }
  if (!self.room_.has(1)) return false;
  const Key* key = self.keys_.find(command);
  if (key == nullptr) key = self.keys_.unpack(command, *peer, &why);
  if (key == nullptr) return port.completions().reject(command, why);
  if (command.opcode == Opcode::atomic) return self.update(command, *key);
  return command.opcode == Opcode::put ? put(port, command, *key) : get(port, command, *key);
}

base::Status Transfers::check(const Command& command) const {
  if (command.opcode >= Opcode::kCount || (command.opcode == Opcode::atomic && !device_.has_atomics()))
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "there is no such command");
  const base::Status status = check_remote(command);
  if (status != HEDDLE_DONE || command.opcode != Opcode::atomic) return status;
  return check_atomic(command, command.remote->handle[2]);
}

// ---- beginning ----------------------------------------------------------------------------------

// Each uses the first free slot, which stays free if nothing is under way afterwards.

inline bool Transfers::get(Port& port, Command& command, const Key& key) {
  void* request = port.call().get_nbx(key.peer->endpoint, command.local, command.bytes,
                                      command.remote->handle[2] + command.offset, key.key, &port.transfers().params_);
  if (request != nullptr) [[unlikely]]
    return begin(port, *key.peer, command, request);
  command.done = command.source_free = true;
  return true;
}

inline bool Transfers::put(Port& port, Command& command, const Key& key) {
  PeerState& peer = *key.peer;
  void* request = port.call().put_nbx(peer.endpoint, command.local, command.bytes,
                                      command.remote->handle[2] + command.offset, key.key, &port.transfers().params_);
  Transfer* last = peer.joinable;
  if (request != nullptr || last == nullptr || last->token != command.token) [[unlikely]]
    return begin(port, peer, command, request);
  ++last->count;
  port.completions().transfers().take();
  command.source_free = true;
  return true;
}

bool Transfers::update(Command& command, const Key& key) {
  Transfer* transfer = pool_.front();
  transfer->peer = key.peer;
  void* request = begin_update(command, transfer, key);
  if (request != nullptr) return begin(port_, *key.peer, command, request);
  transfer->local = nullptr;
  command.done = command.source_free = true;
  return true;
}

// `request`: UCX's; null: UCX has finished with the source of a put.
[[gnu::noinline]] bool Transfers::begin(Port& port, PeerState& peer, Command& command, void* request) {
  Transfers& self = port.transfers();
  if (UCS_PTR_IS_ERR(request)) return self.not_started(command, UCS_PTR_STATUS(request));
  const bool puts = command.opcode == Opcode::put;
  command.source_free = !puts || request == nullptr;
  Transfer* transfer = self.take_slot();
  transfer->peer = &peer;
  transfer->token = command.token;
  transfer->request = request;
  transfer->count = 1;
  transfer->flags = request == nullptr ? kPutLeft : Transfer::active | (puts ? Transfer::is_put : Transfer::flushed);
  if (!command.source_free && command.wants_source_free) transfer->flags |= Transfer::owes_source;
  if (!puts) return true;
  transfer->next = std::exchange(peer.unflushed, transfer);
  peer.joinable = request == nullptr ? transfer : nullptr;
  if (!std::exchange(peer.dirty, true)) self.dirty_.push_back(&peer);
  return true;
}

Transfer* Transfers::take_slot() {
  room_.take();
  Transfer* transfer = pool_.take();
  params_.user_data = pool_.front();
  return transfer;
}

void Transfers::give_slot(Transfer* transfer) {
  pool_.give_back(transfer);
  params_.user_data = transfer;
}

[[gnu::cold]] bool Transfers::not_started(Command& command, ucs_status_t status) {
  pool_.front()->change.active = false;
  pool_.front()->local = nullptr;
  const base::Status meaning = meaning_of(status);
  if (meaning == HEDDLE_ERR_PEER_FAILED) port_.endpoints().lose(command.rank, command.worker);
  return port_.completions().reject(
      command,
      base::fail(meaning, "UCX refuses a transfer of %llu bytes with rank %u: %s",
                 static_cast<unsigned long long>(command.bytes), command.rank, port_.call().status_string(status)));
}

// ---- atomics ------------------------------------------------------------------------------------

// Always with a result: its arrival says that the word was changed.
void* Transfers::begin_update(const Command& command, Transfer* transfer, const Key& key) {
  const std::uint64_t address = command.remote->handle[2] + command.offset;
  const ucp_atomic_op_t op = kAtomics[command.atomic_op & 7U];
  transfer->local = command.local;
  transfer->local_bytes = static_cast<std::uint32_t>(command.bytes);
  const bool bitwise = op == UCP_ATOMIC_OP_AND || op == UCP_ATOMIC_OP_OR || op == UCP_ATOMIC_OP_XOR;
  if (bitwise && !device_.recovers()) {
    transfer->change = {.active = true,
                        .op = static_cast<std::uint8_t>(command.atomic_op & 7U),
                        .operand = command.operand,
                        .address = address,
                        .key = key.key};
    transfer->result = 0;
    return change(transfer);
  }
  transfer->operand = command.operand;
  if (op == UCP_ATOMIC_OP_CSWAP) {
    transfer->operand = command.compare;
    transfer->result = command.operand;
  }
  void* request = fetch(transfer, op, address, key.key);
  if (request == nullptr) take_result(*transfer);
  return request;
}

void* Transfers::fetch(Transfer* transfer, ucp_atomic_op_t op, std::uint64_t address, ucp_rkey_h key) {
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE |
                        UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  params.cb.send = on_local;
  params.user_data = transfer;
  params.datatype = ucp_dt_make_contig(transfer->local_bytes);
  params.reply_buffer = &transfer->result;
  return port_.call().atomic_op_nbx(transfer->peer->endpoint, op, &transfer->operand, 1, address, key, &params);
}

// Bitwise atomics over UCX's shared memory: UCX 1.13, as it is compiled on x86, leaves the word
// unchanged there. So they use compare-and-swap, from transfer->result as the word's last known
// value. Null: changed. Else UCX's answer; if it is in progress, on_local() goes on.
void* Transfers::change(Transfer* transfer) {
  Transfer::Change& change = transfer->change;
  const ucp_atomic_op_t op = kAtomics[change.op];
  for (;;) {
    const std::uint64_t known = transfer->result;
    transfer->operand = known;
    std::uint64_t next = known & change.operand;
    if (op == UCP_ATOMIC_OP_OR) next = known | change.operand;
    if (op == UCP_ATOMIC_OP_XOR) next = known ^ change.operand;
    // the upper half stays as it is if the word is short
    std::memcpy(&transfer->result, &next, transfer->local_bytes);
    void* request = fetch(transfer, UCP_ATOMIC_OP_CSWAP, change.address, change.key);
    if (request != nullptr) return request;
    if (was_forestalled(*transfer)) continue;
    take_result(*transfer);
    change.active = false;
    return nullptr;
  }
}

[[gnu::cold]] void Transfers::change_all_again() {
  List<Transfer> again = std::exchange(changing_, {});
  while (!again.empty()) {
    Transfer* transfer = again.take();
    void* request = transfer->peer->flushable() ? change(transfer) : UCS_STATUS_PTR(UCS_ERR_CANCELED);
    if (request != nullptr && !UCS_PTR_IS_ERR(request)) {
      transfer->request = request;
      continue;
    }
    if (request != nullptr) transfer->status = meaning_of(UCS_PTR_STATUS(request));
    if (transfer->status == HEDDLE_AGAIN) transfer->status = HEDDLE_ERR_PEER_FAILED;
    transfer->change.active = false;
    transfer->flags |= Transfer::local_done;
    finish(transfer);
  }
}

// ---- ending -------------------------------------------------------------------------------------

void Transfers::on_local(void* request, ucs_status_t status, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  Transfers& self = transfer->port->transfers();
  self.port_.call().request_free(request);
  transfer->request = nullptr;
  const bool told = transfer->has(Transfer::orphan);
  if (transfer->change.active) [[unlikely]] {
    if (status == UCS_OK && !told && was_forestalled(*transfer)) return self.changing_.append(transfer);
    transfer->change.active = false;
  }
  if (status == UCS_OK && !told) take_result(*transfer);
  transfer->flags |= Transfer::local_done;
  if (status != UCS_OK) {
    transfer->flags |= Transfer::failed;
    transfer->status = meaning_of(status);
  }
  // An answer came back from the peer; the local end of a put shows no such thing.
  if (status == UCS_OK && !transfer->has(Transfer::is_put)) transfer->peer->used = true;
  if (transfer->has(Transfer::owes_source)) {
    transfer->flags &= ~std::uint32_t{Transfer::owes_source};
    self.port_.completions().source_free(transfer->token);
  }
  if (transfer->has(Transfer::flushed)) self.finish(transfer);
}

// Reports each command that the transfer stands for.
inline void Transfers::tell(const Transfer& transfer, base::Status status) {
  port_.completions().done(transfer.token, status, transfer.count);
  room_.give(transfer.count);
}

inline void Transfers::finish(Transfer* transfer) {
  if (transfer->status == HEDDLE_ERR_PEER_FAILED && !port_.closed()) [[unlikely]]
    port_.endpoints().lose(transfer->peer->rank, transfer->peer->worker);
  if (!transfer->has(Transfer::orphan)) [[likely]] {
    tell(*transfer, transfer->status);
  } else {
    --orphans_;
    room_.give(1);
  }
  transfer->flags = 0;
  transfer->status = HEDDLE_DONE;
  transfer->local = nullptr;
  give_slot(transfer);
}

[[gnu::cold]] void Transfers::orphan(PeerState& peer) {
  for (Transfer& transfer : pool_.all()) {
    if (!transfer.is_of(peer) || transfer.has(Transfer::orphan)) continue;
    if (transfer.has(Transfer::local_done) && !peer.flush_flies) continue;  // end_flush() ends it
    transfer.flags |= Transfer::orphan;
    transfer.flags &= ~std::uint32_t{Transfer::owes_source};
    tell(transfer, HEDDLE_ERR_PEER_FAILED);
    ++orphans_;  // it keeps its slot
    room_.take();
  }
}

[[gnu::cold]] bool Transfers::holds_some(const PeerState& peer) const {
  return peer.flush_flies || std::ranges::any_of(pool_.all(), [&peer](const Transfer& transfer) {
           return transfer.is_of(peer) && transfer.request != nullptr;
         });
}

// Its endpoint is closed, and UCX has ended the operations of that endpoint. But UCX 1.13 forgets a
// fetching atomic that waited for its turn, for example while the connection was being made
// (ucp_request_send_state_ff() relies on a completion that has not begun). A request that is
// released calls no callback afterwards.
[[gnu::cold]] void Transfers::abandon(PeerState& peer) {
  if (peer.flush_flies) on_flushed(peer.flush_request, UCS_ERR_CANCELED, &peer);
  for (Transfer& transfer : pool_.all()) {
    if (transfer.is_of(peer) && transfer.request != nullptr) on_local(transfer.request, UCS_ERR_CANCELED, &transfer);
  }
}

void Transfers::disconnect_all() {
  for (const Transfer& transfer : pool_.all()) {
    if (transfer.has(Transfer::active)) port_.endpoints().disconnect(*transfer.peer, Endpoints::Close::when_safe);
  }
}

// ---- flushing -----------------------------------------------------------------------------------

void Transfers::flush_all_dirty() {
  std::erase_if(dirty_, [this](PeerState* peer) {
    const auto waits = [peer] { return peer->unflushed != nullptr && peer->flushable(); };
    if (!peer->flush_flies && waits()) flush(*peer);
    return !(peer->dirty = peer->flush_flies || waits());
  });
}

void Transfers::flush(PeerState& peer) {
  peer.flushing = std::exchange(peer.unflushed, nullptr);
  peer.joinable = nullptr;
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_flushed;
  params.user_data = &peer;
  void* request = port_.call().ep_flush_nbx(peer.endpoint, &params);
  if (request == nullptr) return end_flush(peer, HEDDLE_DONE);
  if (UCS_PTR_IS_ERR(request)) {
    Endpoints::on_broken(&peer, peer.endpoint, UCS_PTR_STATUS(request));
    return end_flush(peer, HEDDLE_ERR_PEER_FAILED);
  }
  peer.flush_flies = true;
  peer.flush_request = request;
}

void Transfers::on_flushed(void* request, ucs_status_t status, void* user) {
  auto& peer = *static_cast<PeerState*>(user);
  Transfers& self = peer.port->transfers();
  self.port_.call().request_free(request);
  peer.flush_flies = false;
  peer.flush_request = nullptr;
  if (status == UCS_OK) peer.used = true;
  self.end_flush(peer, status == UCS_OK ? HEDDLE_DONE : HEDDLE_ERR_PEER_FAILED);
}

void Transfers::end_flush(PeerState& peer, base::Status status) {
  end_puts(std::exchange(peer.flushing, nullptr), status);
  // On a broken connection nothing is flushed any more: what this flush did not cover has failed,
  // even if the flush itself went well.
  if (!peer.flushable() && peer.over()) {
    peer.joinable = nullptr;
    const base::Status why = peer.stage == PeerState::Stage::broken ? peer.status : HEDDLE_ERR_PEER_FAILED;
    end_puts(std::exchange(peer.unflushed, nullptr), status != HEDDLE_DONE ? status : why);
  }
}

void Transfers::end_puts(Transfer* put, base::Status status) {
  while (put != nullptr) {
    Transfer* next = put->next;
    put->flags |= Transfer::flushed;
    if (status != HEDDLE_DONE) put->status = status;
    if (put->has(Transfer::local_done)) finish(put);
    put = next;
  }
}

}  // namespace heddle::transport::ucx
