#include "transport/verbs/port.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "transport/common/rejections.hpp"

namespace heddle::transport::verbs {
namespace {

constexpr std::uint64_t kPage = 4096;

// Each half has a page at least.
std::uint32_t split_above(const base::Config& config) {
  const std::uint64_t bytes = config.number(base::Var::verbs_stripe_bytes);
  return bytes == 0 ? UINT32_MAX : static_cast<std::uint32_t>(std::max(bytes, 2 * kPage));
}

// Flags of a request whose memory the adapter reads or writes itself.
constexpr std::uint32_t kNotInline = 0;

}  // namespace

SendQueue::SendQueue(Port& port)
    : port_(port),
      window_(port.device().window()),
      split_above_(split_above(port.device().environment().config)),
      messages_(port.completions().messages()),
      transfers_(port.completions().transfers()),
      packets_(kPackets) {
  for (std::size_t i = 0; i < work_.size(); ++i) {
    work_[i].sg_list = &parts_[i];
    work_[i].next = i + 1 < work_.size() ? &work_[i + 1] : nullptr;
  }
  for (Alone* one : {&put_, &get_, &message_}) {
    one->work.sg_list = &one->part;
    one->work.num_sge = 1;
  }
  put_.work.opcode = IBV_WR_RDMA_WRITE;
  get_.work.opcode = IBV_WR_RDMA_READ;
  message_.work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
}

base::Status SendQueue::open(const CompletionChannel& channel) {
  const Adapter& adapter = port_.adapter();
  most_bytes_ = adapter.most_bytes();
  if (const base::Status status = queue_.open(adapter, channel, kCompletions, &port_); status != HEDDLE_DONE)
    return status;
  constexpr std::size_t kBytes = std::size_t{kPackets} * kMostMessage;
  if (const base::Status status = packet_memory_.open(adapter, kBytes, IBV_ACCESS_LOCAL_WRITE); status != HEDDLE_DONE)
    return status;
  for (std::uint32_t i = 0; i < kPackets; ++i)
    packets_.all()[i].data = packet_memory_.begin() + std::size_t{i} * kMostMessage;
  memory_.open(adapter, port_.device().environment());
  return HEDDLE_DONE;
}

void SendQueue::close() {
  memory_.close();
  packet_memory_.close();
  queue_.close();
}

void SendQueue::make_room_for(std::size_t peers) {
  network::make_room(&stuck_, peers);
  network::make_room(&flushes_due_, peers);
}

inline base::Status SendQueue::lease(const Command& command, memory::Access access,
                                     memory::RegistrationCache::Lease* lease) {
  return memory_.cache().acquire(command.local, command.bytes, access, lease);
}

// ---- posting ------------------------------------------------------------------------------------

// A single command of the usual kinds has a path of its own, without the work that it does not
// need.
std::size_t SendQueue::post(std::span<Command> batch) {
  if (batch.size() != 1) return post_otherwise(batch);
  Command& command = batch.front();
  PeerState* const peer = ready_peer(command);
  if (peer == nullptr || peer->under_way() >= PeerState::kDepth - PeerState::kSpare || under_way_ >= kCompletions)
      [[unlikely]]
    return post_otherwise(batch);
  if (command.opcode == Opcode::put) return post_put(*peer, command);
  if (command.opcode == Opcode::get) return post_get(*peer, command);
  return post_message(*peer, command);
}

// Null: its target is not ready.
inline PeerState* SendQueue::ready_peer(const Command& command) {
  PeerState* peer = latest_;
  if (peer == nullptr || peer->rank != command.rank || peer->worker != command.worker) [[unlikely]] {
    network::Peer* known = port_.peers().known(command.rank, command.worker);
    if (known == nullptr) return nullptr;
    peer = latest_ = &state(*known);
  }
  return peer->by_value ? peer : nullptr;
}

[[gnu::noinline]] std::size_t SendQueue::post_message(PeerState& peer, Command& command) {
  const std::uint64_t bytes = command.bytes;
  const std::uint32_t cost = cost_of(static_cast<std::uint32_t>(bytes));
  const std::uint32_t credit = peer.mine.mailbox->credit.load(std::memory_order_acquire);
  if (command.opcode != Opcode::message || !command.inlined || bytes > inline_bytes_ || bytes == 0 ||
      peer.sent - credit + cost > window_ || !messages_.has(1)) [[unlikely]]
    return post_otherwise({&command, 1});
  messages_.take();
  peer.request(peer.posted) = {.token = command.token, .shape = {.kind = WorkRequest::Kind::message}};
  const std::uint32_t write_at = peer.write_at;
  peer.sent += cost;
  peer.write_at = write_at + cost < window_ ? write_at + cost : 0;
  ibv_send_wr& work = message_.work;
  work.imm_data = command.immediate;
  work.wr.rdma.remote_addr = peer.theirs.mailbox + sizeof(MailboxHead) + write_at;
  work.wr.rdma.rkey = peer.theirs.rkey;
  message_.part.addr = reinterpret_cast<std::uintptr_t>(command.packet);
  message_.part.length = static_cast<std::uint32_t>(bytes);
  command.source_free = true;
  call(peer, work, IBV_SEND_INLINE);
  return 1;
}

// A transfer of the usual kind that can begin now: not alone, inside the region, not of 0 bytes.
inline bool SendQueue::is_usual(const Command& command, std::uint64_t most) const {
  const RemoteMemory* const remote = command.remote;
  return !command.alone && remote != nullptr && command.offset <= remote->bytes && command.bytes <= most &&
         command.bytes - 1 < remote->bytes - command.offset && transfers_.has(1);  // 0 bytes wrap
}

inline void SendQueue::post_transfer(PeerState& peer, Command& command, Alone& one, std::uint32_t flags,
                                     std::uint32_t lease) {
  const RemoteMemory& remote = *command.remote;
  transfers_.take();
  peer.request(peer.posted) = {.token = command.token, .lease = lease, .shape = {.kind = WorkRequest::Kind::transfer}};
  one.work.wr.rdma.remote_addr = remote.handle[1] + command.offset;
  one.work.wr.rdma.rkey = static_cast<std::uint32_t>(remote.handle[0] >> peer.rkey_at);
  one.part.addr = reinterpret_cast<std::uintptr_t>(command.local);
  one.part.length = static_cast<std::uint32_t>(command.bytes);
  command.source_free = true;
  call(peer, one.work, flags);
}

[[gnu::noinline]] std::size_t SendQueue::post_put(PeerState& peer, Command& command) {
  if (!is_usual(command, inline_bytes_)) [[unlikely]]
    return post_otherwise({&command, 1});
  post_transfer(peer, command, put_, IBV_SEND_INLINE, WorkRequest::kNoLease);
  return 1;
}

[[gnu::noinline]] std::size_t SendQueue::post_get(PeerState& peer, Command& command) {
  memory::RegistrationCache& cache = memory_.cache();
  if (!is_usual(command, peer.most_whole) ||
      cache.latest(command.local, command.bytes, memory::Access::write) == nullptr) [[unlikely]]
    return post_otherwise({&command, 1});
  get_.part.lkey = CallersMemory::registration(cache.take_latest())->lkey;
  post_transfer(peer, command, get_, kNotInline, cache.latest_entry() + 1);
  return 1;
}

// One request that is not numbered yet.
inline void SendQueue::call(PeerState& peer, ibv_send_wr& first, std::uint32_t flags) {
  ++under_way_;
  ++peer.posted;
  first.wr_id = peer.number_above | peer.posted;
  first.send_flags = flags | signal(peer);
  ibv_send_wr* bad;  // NOLINT(cppcoreguidelines-init-variables): the call writes it
  if (const int error = ibv_post_send(peer.pair, &first, &bad); error != 0) [[unlikely]]
    rejected(peer, error);
}

// The request has room, so the adapter rejects it because of an error of the pair. The peer is lost
// with the pair.
[[gnu::cold]] void SendQueue::rejected(PeerState& peer, int error) {
  port_.note_lost(peer, std::strerror(error));
}

// ---- chains -------------------------------------------------------------------------------------

[[gnu::noinline]] std::size_t SendQueue::post_otherwise(std::span<Command> batch) {
  std::size_t accepted = 0;
  try {
    while (accepted < batch.size()) {
      const std::size_t chained = post_chain(batch.subspan(accepted));
      if (chained == 0 && !post_alone(batch[accepted])) break;
      accepted += chained != 0 ? chained : 1;
    }
  } catch (const std::bad_alloc&) {  // the first use of a worker connects to it
    if (accepted == 0) throw;
  }
  return accepted;
}

// Posts commands from the front that go to one worker, if it is ready.
std::size_t SendQueue::post_chain(std::span<Command> batch) {
  PeerState* const known = ready_peer(batch.front());
  if (known == nullptr) return 0;
  PeerState& peer = *known;
  Command* command = batch.data();
  Command* const end = command + std::min<std::size_t>(batch.size(), room(peer, PeerState::kSpare));
  while (command != end && add(peer, *command)) {
    ++command;
    if (command != end && (command->rank != peer.rank || command->worker != peer.worker)) break;
  }
  const auto count = static_cast<std::size_t>(command - batch.data());
  if (count != 0) ring(peer);
  return count;
}

inline bool SendQueue::add(PeerState& peer, Command& command) {
  if (command.opcode == Opcode::message) return add_message(peer, command);
  return (command.opcode == Opcode::put || command.opcode == Opcode::get) && add_transfer(peer, command);
}

// The request writes so many bytes into the peer's ring.
inline void SendQueue::add_write(PeerState& peer, ibv_send_wr& work, std::uint32_t bytes, std::uint32_t immediate) {
  work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  work.imm_data = immediate;
  work.wr.rdma.remote_addr = peer.theirs.mailbox + sizeof(MailboxHead) + peer.write_at;
  work.wr.rdma.rkey = peer.theirs.rkey;
  if (bytes == 0) [[unlikely]]
    work.num_sge = 0;
  const std::uint32_t cost = cost_of(bytes);
  peer.sent += cost;
  const std::uint32_t behind = peer.write_at + cost;
  peer.write_at = behind < window_ ? behind : 0;
}

inline bool SendQueue::add_message(PeerState& peer, Command& command) {
  if (!command.inlined && (command.header_bytes > kMaxHeaderBytes || command.bytes > kMostMessage ||
                           command.packet_bytes() > kMostMessage)) [[unlikely]]
    return false;
  const auto bytes = static_cast<std::uint32_t>(command.inlined ? command.bytes : command.packet_bytes());
  const std::uint32_t credit = peer.mine.mailbox->credit.load(std::memory_order_acquire);
  if (peer.sent - credit + cost_of(bytes) > window_ || !messages_.has(1)) [[unlikely]]
    return false;
  const WorkRequest request{.token = command.token, .shape = {.kind = WorkRequest::Kind::message}};
  if (command.inlined && bytes <= inline_bytes_) [[likely]] {
    ibv_send_wr& work = next(peer, request);
    work.send_flags = IBV_SEND_INLINE;
    *work.sg_list = {reinterpret_cast<std::uintptr_t>(command.packet), bytes, 0};
    add_write(peer, work, bytes, command.immediate);
  } else {
    if (packets_.front() == nullptr) return false;
    Packet& packet = *packets_.take();
    packet.bytes = bytes;
    packet.immediate = command.immediate;
    packet.token = command.token;
    write_packet(command, packet.data);
    add_packet(peer, packet);
  }
  messages_.take();
  command.source_free = true;
  return true;
}

inline bool SendQueue::add_transfer(PeerState& peer, Command& command) {
  if (!is_usual(command, peer.most_whole)) [[unlikely]]
    return false;
  WorkRequest request{.token = command.token, .shape = {.kind = WorkRequest::Kind::transfer}};
  ibv_sge part{reinterpret_cast<std::uintptr_t>(command.local), static_cast<std::uint32_t>(command.bytes), 0};
  std::uint32_t flags = IBV_SEND_INLINE;
  const bool puts = command.opcode == Opcode::put;
  if (puts && command.bytes <= inline_bytes_) {
    command.source_free = true;
  } else {
    memory::RegistrationCache::Lease taken;
    if (lease(command, puts ? memory::Access::read : memory::Access::write, &taken) != HEDDLE_DONE) [[unlikely]]
      return false;
    request.lease = taken.entry + 1;
    request.shape.owes_source = puts && command.wants_source_free;
    part.lkey = CallersMemory::registration(taken.handle)->lkey;
    flags = kNotInline;
    command.source_free = !puts;
  }
  ibv_send_wr& work = next(peer, request);
  work.opcode = puts ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  work.send_flags = flags;
  work.wr.rdma.remote_addr = command.remote->handle[1] + command.offset;
  work.wr.rdma.rkey = static_cast<std::uint32_t>(command.remote->handle[0] >> peer.rkey_at);
  *work.sg_list = part;
  transfers_.take();
  return true;
}

// Not usual, or not now.
[[gnu::noinline]] bool SendQueue::post_alone(Command& command) {
  if (command.alone) return false;  // the transport completes nothing while it is called
  base::Status why = check(command);
  if (why != HEDDLE_DONE) return port_.completions().reject(command, why);
  network::Peer* used = port_.peers().use(command.rank, command.worker, &why);
  if (used == nullptr) return port_.completions().reject(command, why);
  PeerState& peer = state(*used);
  const bool message = command.opcode == Opcode::message;
  if (!message && command.bytes == 0) {
    command.done = command.source_free = true;
    return true;
  }
  if (message && peer.ready() && port_.device().directory().known_closed(peer.rank, peer.worker)) {
    port_.peers().note_closed(peer);
    peer.update_by_value();
  }
  if (peer.stage == network::Peer::Stage::closed) {
    if (!message) return port_.completions().reject(command, HEDDLE_ERR_PEER_FAILED);
    command.done = command.source_free = true;  // such a message is lost, which is no error
    return true;
  }
  if (!peer.ready()) return message && wait(peer, command);
  if (message || peer.waiting != 0 || room(peer, PeerState::kSpare) == 0 || !transfers_.has(1)) return false;
  if (command.bytes > peer.most_whole) return post_split(peer, command);
  memory::RegistrationCache::Lease none;
  const bool writes = command.opcode == Opcode::get;
  why = lease(command, writes ? memory::Access::write : memory::Access::read, &none);
  if (why == HEDDLE_DONE) memory_.cache().release(none.entry);
  return port_.completions().reject(command, why == HEDDLE_DONE ? HEDDLE_AGAIN : why);
}

// The first half, a whole number of pages, goes by this adapter; the second by Stripes.
bool SendQueue::post_split(PeerState& peer, Command& command) {
  Stripes& stripes = port_.stripes();
  if (!stripes.has_room(peer)) return false;
  const bool puts = command.opcode == Opcode::put;
  Command first = command;
  const std::uint64_t most = stripes.adapter()->most_bytes();  // perhaps less than this one takes
  first.bytes = std::max(command.bytes / 2 / kPage * kPage, command.bytes - std::min(command.bytes, most));
  memory::RegistrationCache::Lease taken;
  base::Status why = lease(first, puts ? memory::Access::read : memory::Access::write, &taken);
  if (why != HEDDLE_DONE) return port_.completions().reject(command, why);
  std::uint16_t number = 0;
  why = stripes.begin(peer, command, first.bytes, &number);
  if (why != HEDDLE_DONE) {
    memory_.cache().release(taken.entry);
    if (why == HEDDLE_ERR_NO_MEMORY) return port_.completions().reject(command, why);
    // The other adapter has failed, and its event has not come yet. Or the memory is the reason;
    // the next attempt finds that out.
    peer.most_whole = most_whole(false);
    return false;
  }
  ibv_send_wr& work =
      next(peer, {.lease = taken.entry + 1, .shape = {.packet = number, .kind = WorkRequest::Kind::half}});
  work.opcode = puts ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  work.send_flags = kNotInline;
  work.wr.rdma.remote_addr = command.remote->handle[1] + command.offset;
  work.wr.rdma.rkey = static_cast<std::uint32_t>(command.remote->handle[0] >> peer.rkey_at);
  *work.sg_list = {reinterpret_cast<std::uintptr_t>(command.local), static_cast<std::uint32_t>(first.bytes),
                   CallersMemory::registration(taken.handle)->lkey};
  ring(peer);
  transfers_.take();
  command.source_free = !puts;
  return true;
}

base::Status SendQueue::check(const Command& command) const {
  if (command.opcode == Opcode::message) {
    return check_message(command, kMostMessage, "verbs");
  }
  if (command.opcode != Opcode::put && command.opcode != Opcode::get)
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "the verbs transport has puts and gets, no other transfers");
  if (command.bytes > most_bytes_)
    return base::fail(HEDDLE_ERR_SIZE, "a transfer of %llu bytes; the adapter takes %u",
                      static_cast<unsigned long long>(command.bytes), most_bytes_);
  return check_remote(command);
}

// ---- messages that wait for a connection --------------------------------------------------------

bool SendQueue::wait(PeerState& peer, Command& command) {
  if (peer.waiting == kWaitingPackets || waiting_ == kMostWaiting || packets_.front() == nullptr || !messages_.has(1))
    return false;
  Packet* packet = packets_.take();
  packet->bytes = static_cast<std::uint32_t>(command.inlined ? command.bytes : command.packet_bytes());
  packet->immediate = command.immediate;
  packet->token = command.token;
  write_packet(command, packet->data);
  peer.packets.append(packet);
  ++peer.waiting;
  ++waiting_;
  messages_.take();
  command.source_free = true;
  return true;
}

void SendQueue::begin(PeerState& peer) {
  peer.update_by_value();
  if (peer.waiting != 0 && !push(peer)) stuck_.push_back(&peer);
}

// True: nothing waits any more.
bool SendQueue::push(PeerState& peer) {
  while (peer.waiting != 0) {
    const Packet& first = *peer.packets.first;
    const std::uint32_t credit = peer.mine.mailbox->credit.load(std::memory_order_acquire);
    if (room(peer, PeerState::kSpare) == 0 || peer.sent - credit + cost_of(first.bytes) > window_) return false;
    --peer.waiting;
    --waiting_;
    add_packet(peer, *peer.packets.take());
    ring(peer);
  }
  peer.update_by_value();
  return true;
}

[[gnu::noinline]] void SendQueue::add_packet(PeerState& peer, Packet& packet) {
  const auto number = static_cast<std::uint16_t>(&packet - packets_.all().data() + 1);
  ibv_send_wr& work =
      next(peer, {.token = packet.token, .shape = {.packet = number, .kind = WorkRequest::Kind::message}});
  work.send_flags = kNotInline;
  *work.sg_list = {reinterpret_cast<std::uintptr_t>(packet.data), packet.bytes, packet_memory_.lkey()};
  add_write(peer, work, packet.bytes, packet.immediate);
}

void SendQueue::push_all() {
  std::erase_if(stuck_, [this](PeerState* peer) { return push(*peer); });
}

void SendQueue::drop_waiting(PeerState& peer) {
  const base::Status status = peer.stage == network::Peer::Stage::broken ? peer.status : HEDDLE_DONE;
  while (!peer.packets.empty()) {
    Packet* packet = peer.packets.take();
    messages_.give(1);
    port_.completions().done(packet->token, status, 1);
    packets_.give_back(packet);
  }
  waiting_ -= std::exchange(peer.waiting, 0U);
  peer.update_by_value();
  std::erase(stuck_, &peer);
}

}  // namespace heddle::transport::verbs
