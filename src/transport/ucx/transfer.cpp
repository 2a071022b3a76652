// Puts, gets, atomics.
#include <algorithm>
#include <cstring>
#include <new>

#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {
namespace {

// By heddle_atomic_op without its width.
constexpr ucp_atomic_op_t kAtomics[] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_AND,  UCP_ATOMIC_OP_OR,
                                        UCP_ATOMIC_OP_XOR, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP};
static_assert(HEDDLE_ADD32 == 0 && HEDDLE_AND32 == 1 && HEDDLE_OR32 == 2 && HEDDLE_XOR32 == 3 && HEDDLE_SWAP32 == 4 &&
              HEDDLE_COMPARE_SWAP32 == 5 && HEDDLE_ADD64 == 8 && HEDDLE_COMPARE_SWAP64 == 13);

// A put or get in which check_transfer() would find nothing wrong, but for its rank.
bool is_sound_block(const Command& command) {
  return (command.opcode == Opcode::put || command.opcode == Opcode::get) && command.remote != nullptr &&
         command.offset <= command.remote->bytes && command.bytes <= command.remote->bytes - command.offset;
}

}  // namespace

base::Status Station::check_transfer(const Command& command) const {
  if (command.opcode >= Opcode::kCount) return base::fail(HEDDLE_ERR_UNSUPPORTED, "there is no such command");
  if (command.remote == nullptr) return base::fail(HEDDLE_ERR_ARGUMENT, "a command without remote memory");
  if (command.rank >= home_.size()) return base::fail(HEDDLE_ERR_RANK, "rank %u of %u", command.rank, home_.size());
  if (command.opcode == Opcode::atomic) {
    const bool wide = command.atomic_op >= HEDDLE_ADD64;
    if (command.atomic_op > HEDDLE_COMPARE_SWAP64 || (command.atomic_op & 7U) > HEDDLE_COMPARE_SWAP32) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "there is no atomic operation %u", command.atomic_op);
    }
    if (command.bytes != (wide ? 8U : 4U)) {
      return base::fail(HEDDLE_ERR_SIZE, "an atomic operation on %llu bytes; this one works on %u",
                        static_cast<unsigned long long>(command.bytes), wide ? 8U : 4U);
    }
  }
  if (command.offset > command.remote->bytes || command.bytes > command.remote->bytes - command.offset) {
    return base::fail(HEDDLE_ERR_RANGE, "a transfer of %llu bytes at offset %llu leaves the region",
                      static_cast<unsigned long long>(command.bytes), static_cast<unsigned long long>(command.offset));
  }
  if (command.opcode == Opcode::atomic && (command.remote->handle[2] + command.offset) % command.bytes != 0) {
    return base::fail(HEDDLE_ERR_ALIGNMENT, "an atomic operation at offset %llu; its word must be aligned to %llu",
                      static_cast<unsigned long long>(command.offset), static_cast<unsigned long long>(command.bytes));
  }
  return HEDDLE_DONE;
}

bool Station::post_transfer(Command& command) {
  if (command.alone) return false;  // it takes UCX's progress, here and often there
  if (!is_sound_block(command)) {
    if (const base::Status status = check_transfer(command); status != HEDDLE_DONE) return refuse(command, status);
  }
  base::Status why = HEDDLE_DONE;
  Channel* channel = connected(command.rank, command.worker);
  if (channel == nullptr) [[unlikely]] {
    channel = channel_to(command.rank, command.worker, &why);
    if (channel == nullptr) return refuse(command, why);
  }
  if (command.bytes == 0) [[unlikely]] {
    command.done = command.source_free = true;
    return true;
  }
  if (channel->stage != Channel::Stage::ready) [[unlikely]] {
    // A worker that is closed serves nobody any more.
    return channel->stage == Channel::Stage::closed && refuse(command, HEDDLE_ERR_PEER_FAILED);
  }
  if (free_operation_ == nullptr || backlog_count_ > kRefusals) [[unlikely]]
    return false;
  ucp_rkey_h key = key_for(command, *channel, &why);
  if (key == nullptr) [[unlikely]]
    return refuse(command, why);
  const base::Status status = begin(command, *channel, key);
  return status == HEDDLE_DONE || refuse(command, status);
}

[[gnu::cold]] ucp_rkey_h Station::unpack_key(const Command& command, Channel& channel, base::Status* why) {
  const std::uint64_t number = command.remote->handle[0];
  const std::uint64_t generation = command.remote->handle[1];
  const auto packed = home_.key(number, generation);
  if (!packed) {
    *why = packed.status();
    return nullptr;
  }
  if (number >= unpacked_.size()) {
    try {
      unpacked_.resize(number + 1);
    } catch (const std::bad_alloc&) {
      *why = HEDDLE_AGAIN;
      return nullptr;
    }
  }
  Unpacked& entry = unpacked_[number];
  if (entry.key != nullptr) drop_key(&entry);
  const ucs_status_t status = call_.ep_rkey_unpack(channel.endpoint, packed->data(), &entry.key);
  if (status != UCS_OK) {
    entry.key = nullptr;
    *why = base::fail(status == UCS_ERR_NO_MEMORY ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM,
                      "UCX cannot use the key of a region of rank %u: %s", command.rank, call_.status_string(status));
    return nullptr;
  }
  entry.generation = generation;
  entry.channel = &channel;
  return entry.key;
}

// Keys of imports that were released would keep the peers' memory mapped.
[[gnu::cold]] void Station::forget_releases() {
  for (std::size_t i = 0; i < unpacked_.size(); ++i) {
    Unpacked& entry = unpacked_[i];
    if (entry.key == nullptr || home_.import_is(i, entry.generation)) continue;
    drop_key(&entry);
  }
}

// UCX needs it until the commands that use it have ended.
[[gnu::cold]] void Station::drop_key(Unpacked* entry) {
  try {
    old_keys_.push_back(entry->key);
  } catch (const std::bad_alloc&) {
    entry->key = nullptr;  // it is UCX's until the worker ends
  }
  *entry = Unpacked{};
  if (under_way_ + orphans_ != 0) return;
  for (ucp_rkey_h key : old_keys_) call_.rkey_destroy(key);
  old_keys_.clear();
}

base::Status Station::begin(Command& command, Channel& channel, ucp_rkey_h key) {
  Operation* operation = free_operation_;
  const std::uint64_t address = command.remote->handle[2] + command.offset;
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_local;
  params.user_data = operation;
  void* request = nullptr;
  operation->is_put = command.opcode == Opcode::put;
  operation->local = nullptr;
  switch (command.opcode) {
    case Opcode::put:
      request = call_.put_nbx(channel.endpoint, command.local, command.bytes, address, key, &params);
      break;
    case Opcode::get:
      request = call_.get_nbx(channel.endpoint, command.local, command.bytes, address, key, &params);
      break;
    default:
      operation->channel = &channel;
      request = update(command, operation, address, key);
  }
  if (UCS_PTR_IS_ERR(request)) [[unlikely]] {
    operation->change.active = false;  // it stays at the head of the free list: the next command is none
    const ucs_status_t status = UCS_PTR_STATUS(request);
    const base::Status meaning = meaning_of(status);
    if (meaning == HEDDLE_ERR_PEER_FAILED) home_.lose(command.rank);
    return base::fail(meaning, "UCX refuses a transfer of %llu bytes with rank %u: %s",
                      static_cast<unsigned long long>(command.bytes), command.rank, call_.status_string(status));
  }
  free_operation_ = operation->next;
  operation->channel = &channel;
  started(command, operation, request);
  return HEDDLE_DONE;
}

// Always with a result: its arrival says that the word was changed.
void* Station::update(const Command& command, Operation* operation, std::uint64_t address, ucp_rkey_h key) {
  const ucp_atomic_op_t op = kAtomics[command.atomic_op & 7U];
  operation->local = command.local;
  operation->local_bytes = static_cast<std::uint32_t>(command.bytes);
  const bool bitwise = op == UCP_ATOMIC_OP_AND || op == UCP_ATOMIC_OP_OR || op == UCP_ATOMIC_OP_XOR;
  if (bitwise && !home_.recovers()) {
    operation->change = {true, static_cast<std::uint8_t>(command.atomic_op & 7U), command.operand, address, key};
    operation->result = 0;
    return change(operation);
  }
  operation->operand = command.operand;
  if (op == UCP_ATOMIC_OP_CSWAP) {
    operation->operand = command.compare;
    operation->result = command.operand;
  }
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE |
                        UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  params.cb.send = on_local;
  params.user_data = operation;
  params.datatype = ucp_dt_make_contig(command.bytes);
  params.reply_buffer = &operation->result;
  void* request = call_.atomic_op_nbx(operation->channel->endpoint, op, &operation->operand, 1, address, key, &params);
  if (request == nullptr) take_result(*operation);
  return request;
}

// Bitwise atomics over UCX's shared memory: what UCX 1.13 has for them there leaves the word as it was, as it is compiled on x86. So
// by compare-and-swap, from operation->result as the word's last known value. Null: changed. Else as UCX answers; in progress,
// on_local() goes on.
void* Station::change(Operation* operation) {
  Operation::Change& change = operation->change;
  const ucp_atomic_op_t op = kAtomics[change.op];
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE |
                        UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  params.cb.send = on_local;
  params.user_data = operation;
  params.datatype = ucp_dt_make_contig(operation->local_bytes);
  params.reply_buffer = &operation->result;
  for (;;) {
    const std::uint64_t known = operation->result;
    operation->operand = known;
    std::uint64_t next = known & change.operand;
    if (op == UCP_ATOMIC_OP_OR) next = known | change.operand;
    if (op == UCP_ATOMIC_OP_XOR) next = known ^ change.operand;
    std::memcpy(&operation->result, &next, operation->local_bytes);  // the upper half of a short word's stays as it is
    void* request = call_.atomic_op_nbx(operation->channel->endpoint, UCP_ATOMIC_OP_CSWAP, &operation->operand, 1,
                                        change.address, change.key, &params);
    if (request != nullptr) return request;
    if (std::memcmp(&operation->result, &operation->operand, operation->local_bytes) != 0) continue;
    take_result(*operation);
    change.active = false;
    return nullptr;
  }
}

// Those that another had forestalled.
[[gnu::cold]] void Station::change_again() {
  List<Operation> again = std::exchange(changing_, {});
  while (!again.empty()) {
    Operation* operation = again.take();
    const bool broken = operation->channel->stage != Channel::Stage::ready;
    void* request = broken ? UCS_STATUS_PTR(UCS_ERR_CANCELED) : change(operation);
    if (request != nullptr && !UCS_PTR_IS_ERR(request)) {
      operation->request = request;
      continue;
    }
    if (request != nullptr) operation->status = meaning_of(UCS_PTR_STATUS(request));
    if (operation->status == HEDDLE_AGAIN) operation->status = HEDDLE_ERR_PEER_FAILED;
    operation->change.active = false;
    operation->local_done = true;
    finish(operation);
  }
}

void Station::started(Command& command, Operation* operation, void* request) {
  if (request == nullptr && !operation->is_put) {
    command.done = command.source_free = true;
    operation->next = free_operation_;
    free_operation_ = operation;
    return;
  }
  ++under_way_;
  operation->token = command.token;
  operation->request = request;
  operation->active = true;
  operation->local_done = request == nullptr;
  operation->flushed = !operation->is_put;
  operation->orphan = false;
  operation->owes_source = false;
  operation->status = HEDDLE_DONE;
  if (!operation->is_put) {
    command.source_free = true;
    return;
  }
  command.source_free = operation->local_done;
  operation->owes_source = command.wants_source_free && !operation->local_done;
  Channel& channel = *operation->channel;
  channel.unflushed.append(operation);
  if (!channel.dirty) {
    channel.dirty = true;
    dirty_.push_back(&channel);
  }
}

void Station::on_local(void* request, ucs_status_t status, void* user) {
  auto* operation = static_cast<Operation*>(user);
  Station& station = *operation->station;
  station.call_.request_free(request);
  operation->request = nullptr;
  if (operation->change.active) [[unlikely]] {
    if (status == UCS_OK && !operation->orphan &&
        std::memcmp(&operation->result, &operation->operand, operation->local_bytes) != 0) {
      station.changing_.append(operation);
      return;
    }
    operation->change.active = false;
  }
  if (status == UCS_OK && !operation->orphan) take_result(*operation);
  operation->local_done = true;
  if (status != UCS_OK) operation->status = meaning_of(status);
  // It came back from the peer; a put's end here says nothing of the way.
  if (status == UCS_OK && !operation->is_put) operation->channel->used = true;
  if (operation->owes_source) {
    operation->owes_source = false;
    station.emit(operation->token, HEDDLE_DONE, Event::source_free);
  }
  if (operation->flushed) station.finish(operation);
}

void Station::finish(Operation* operation) {
  if (operation->status == HEDDLE_ERR_PEER_FAILED && !closed_) [[unlikely]]
    home_.lose(operation->channel->rank);
  if (!operation->orphan) [[likely]] {
    emit(operation->token, operation->status, Event::done);
    --under_way_;
  } else {
    --orphans_;
  }
  operation->active = false;
  operation->next = free_operation_;
  free_operation_ = operation;
}

// ---- flushing -----------------------------------------------------------------------------------------------------------

void Station::flush_dirty() {
  for (std::size_t i = 0; i < dirty_.size();) {
    Channel& channel = *dirty_[i];
    if (!channel.flush_flies && !channel.unflushed.empty() && channel.stage == Channel::Stage::ready) flush(channel);
    if (channel.flush_flies || (!channel.unflushed.empty() && channel.stage == Channel::Stage::ready)) {
      ++i;
      continue;
    }
    channel.dirty = false;
    dirty_[i] = dirty_.back();
    dirty_.pop_back();
  }
}

// True: it has ended at once.
bool Station::flush(Channel& channel) {
  channel.flushing = std::exchange(channel.unflushed, {});
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_flushed;
  params.user_data = &channel;
  void* request = call_.ep_flush_nbx(channel.endpoint, &params);
  if (request == nullptr) {
    flush_ended(channel, HEDDLE_DONE);
    return true;
  }
  if (UCS_PTR_IS_ERR(request)) {
    on_broken(&channel, channel.endpoint, UCS_PTR_STATUS(request));
    flush_ended(channel, HEDDLE_ERR_PEER_FAILED);
    return true;
  }
  channel.flush_flies = true;
  channel.flush_request = request;
  return false;
}

void Station::on_flushed(void* request, ucs_status_t status, void* user) {
  auto& channel = *static_cast<Channel*>(user);
  Station& station = *channel.station;
  station.call_.request_free(request);
  channel.flush_flies = false;
  channel.flush_request = nullptr;
  if (status == UCS_OK) channel.used = true;
  station.flush_ended(channel, status == UCS_OK ? HEDDLE_DONE : HEDDLE_ERR_PEER_FAILED);
}

void Station::flush_ended(Channel& channel, base::Status status) {
  const auto end = [this, status](List<Operation> list) {
    while (!list.empty()) {
      Operation* operation = list.take();
      operation->flushed = true;
      if (status != HEDDLE_DONE) operation->status = status;
      if (operation->local_done) finish(operation);
    }
  };
  end(std::exchange(channel.flushing, {}));
  // Of a broken connection nothing is flushed any more.
  if (channel.stage == Channel::Stage::broken) end(std::exchange(channel.unflushed, {}));
}

}  // namespace heddle::transport::ucx
