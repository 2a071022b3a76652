// Commands: from the TOQs into the rings.
#include <algorithm>
#include <cstring>

#include "tofu/emulator/engine.hpp"
#include "tofu/emulator/process.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {
namespace {

constexpr std::uint32_t kCommandsOfTurn = 32;

int tcq_error(Denied denied) {
  switch (denied) {
    case Denied::none:
      return UTOFU_SUCCESS;
    case Denied::stadd:
      return UTOFU_ERR_TCQ_STADD;
    case Denied::length:
      return UTOFU_ERR_TCQ_LENGTH;
    case Denied::memory:
      return UTOFU_ERR_TCQ_MEMORY;
  }
  return UTOFU_ERR_TCQ_OTHER;
}

const char* name_of(Denied denied) {
  switch (denied) {
    case Denied::none:
      break;
    case Denied::stadd:
      return "nothing is at that address";
    case Denied::length:
      return "it ends before";
    case Denied::memory:
      return "for reading only";
  }
  return "";
}

}  // namespace

Engine::Target& Engine::target(std::uint32_t process) {
  Target& to = targets_[process];
  if (!to.made) {
    to.made = true;
    to.ends[0] = world_.producer(process_.number(), process, Channel::requests);
    to.ends[1] = world_.producer(process_.number(), process, Channel::responses);
  }
  return to;
}

// Room for a head and `bytes` bytes of data. Null: the ring is full.
std::byte* Engine::place_for(std::uint32_t process, Channel channel, PacketKind kind, std::uint32_t bytes) {
  Target& to = target(process);
  const auto index = static_cast<std::size_t>(channel);
  std::byte* place = to.ends[index].begin(static_cast<std::uint8_t>(kind), 0, sizeof(PacketHead) + bytes);
  if (place == nullptr) {
    stalled_ = true;
    return nullptr;
  }
  if (!to.unpublished[0] && !to.unpublished[1]) unpublished_.push_back(process);
  to.unpublished[index] = true;
  return place;
}

bool Engine::send_request(std::uint32_t process, PacketKind kind, const PacketHead& head, const void* data) {
  if (gone(process)) return true;  // the process is gone: dropped without a report
  std::byte* place = place_for(process, Channel::requests, kind, head.bytes);
  if (place == nullptr) return false;
  std::memcpy(place, &head, sizeof head);
  if (head.bytes != 0) std::memcpy(place + sizeof head, data, head.bytes);
  return true;
}

std::size_t Engine::execute(EmulatedCq& cq) {
  std::size_t done = 0;
  while (done < kCommandsOfTurn) {
    if (!cq.begun()) {
      if (cq.open_messages >= kMaxMessages) break;
      std::uint64_t ready_ns = 0;
      if (!cq.take(&ready_ns)) break;
      if (!begin(cq, ready_ns)) {
        ++done;
        continue;
      }
    }
    if (push(cq) == Handled::stalled) break;
    ++done;
  }
  return done;
}

// False: the command has completed already.
bool Engine::begin(EmulatedCq& cq, std::uint64_t ready_ns) {
  CommandProgress& out = cq.outgoing();
  const CqCommand& command = out.command;
  const Machine& machine = process_.machine();
  out.left_ns = out.arrives_ns = ready_ns;
  if (command.error != UTOFU_SUCCESS || command.opcode == Opcode::nop) {
    cq.executed(command.error, ready_ns);
    return false;
  }
  if (!machine.decode(command.remote, &out.target)) {
    cq.executed(UTOFU_ERR_TCQ_DESC, ready_ns);
    return false;
  }
  if (process_.model().on()) {
    const Model::Sent sent =
        process_.model().sent(command, Route{process_.node(), out.target.node, cq.tni(), command.path}, ready_ns);
    out.left_ns = sent.left_ns;
    out.arrives_ns = sent.arrives_ns;
  }
  if (command.opcode == Opcode::put || command.opcode == Opcode::get) {
    const Hold hold = cq.stags().hold(command.local_stadd, command.length,
                                      command.opcode == Opcode::put ? Access::read : Access::write);
    if (hold.denied != Denied::none) {
      trouble("a command of %s names local memory %016llx, %u bytes, which is not registered with it so: %s",
              machine.name_of(cq.id_of(out.slot)).text, static_cast<unsigned long long>(command.local_stadd),
              command.length, name_of(hold.denied));
      cq.executed(tcq_error(hold.denied), ready_ns);
      return false;
    }
    cq.stags().release(hold);
  }
  const DirectoryOwner owner = world_.cq_owner(out.target.node, out.target.tni, out.target.cq);
  out.process = owner.process;
  out.generation = owner.generation;
  out.sequence = cq.next_sequence();
  if (!owner.somebody() || gone(owner.process)) {
    reject(cq, Rejection::peer);
    return false;
  }
  if (command.opcode == Opcode::get || command.has(UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)) open_message(cq);
  if (strict_ && (command.opcode == Opcode::put || command.opcode == Opcode::get))
    cq.stags().began(command.local_stadd);
  return true;
}

void Engine::open_message(EmulatedCq& cq) {
  CommandProgress& out = cq.outgoing();
  const CqCommand& command = out.command;
  Message& message = messages_.open();
  message.cq = &cq;
  message.process = out.process;
  message.generation = out.generation;
  message.target = out.target;
  message.slot = out.slot;
  message.opcode = command.opcode;
  message.edata = command.edata;
  message.notice = command.has(UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE);
  message.length = message.left = command.length;
  message.remote = command.remote;
  message.local_stadd = command.local_stadd;
  message.remote_stadd = command.remote_stadd;
  message.model_ns = out.arrives_ns;
  ++cq.open_messages;
  out.message = message.id;
}

PacketHead Engine::head_of(const EmulatedCq& cq) const {
  const CommandProgress& out = const_cast<EmulatedCq&>(cq).outgoing();
  const CqCommand& command = out.command;
  PacketHead head;
  head.source_vcq = cq.vcq(out.slot) != nullptr ? cq.vcq(out.slot)->id : 0;
  head.stadd = command.remote_stadd;
  head.message = out.message;
  head.model_ns = out.arrives_ns;
  head.length = command.length;
  head.sequence = out.sequence;
  head.generation = out.generation;
  head.flags = static_cast<std::uint16_t>(command.flags);
  head.tni = static_cast<std::uint8_t>(out.target.tni);
  head.cq = static_cast<std::uint8_t>(out.target.cq);
  head.slot = static_cast<std::uint8_t>(out.target.slot);
  head.path = command.path;
  head.edata = command.edata;
  head.sps = command.sps;
  return head;
}

Engine::Handled Engine::push(EmulatedCq& cq) {
  const CommandProgress& out = cq.outgoing();
  const Handled handled = out.command.opcode == Opcode::put ? push_put(cq) : push_small(cq);
  if (handled == Handled::stalled && gone(out.process)) {
    // The request will never be taken. look() fails messages that wait for an answer.
    finish(cq, UTOFU_SUCCESS);
    return Handled::done;
  }
  return handled;
}

Engine::Handled Engine::push_put(EmulatedCq& cq) {
  CommandProgress& out = cq.outgoing();
  const CqCommand& command = out.command;
  PacketHead head = head_of(cq);
  const Hold hold = cq.stags().hold(command.local_stadd, command.length, Access::read);
  if (hold.denied != Denied::none) {  // deregistered meanwhile
    finish(cq, tcq_error(hold.denied));
    return Handled::done;
  }
  Handled handled = Handled::done;
  int status = UTOFU_SUCCESS;
  memory_.about(head.source_vcq, command.local_stadd, hold.data);
  do {  // at least one packet: an empty put has notices too
    const std::uint32_t bytes = std::min<std::uint32_t>(command.mtu, command.length - out.offset);
    std::byte* place = place_for(out.process, Channel::requests, PacketKind::put, bytes);
    if (place == nullptr) {
      handled = Handled::stalled;
      break;
    }
    head.offset = out.offset;
    head.bytes = static_cast<std::uint16_t>(bytes);
    if (!memory_.read(place + sizeof head, hold.data + out.offset, bytes)) {
      broken_rule("%s puts from memory at %p, steering address %016llx, which is not mapped any more",
                  process_.machine().name_of(cq.id_of(out.slot)).text, static_cast<const void*>(hold.data + out.offset),
                  static_cast<unsigned long long>(command.local_stadd + out.offset));
      status = UTOFU_ERR_TCQ_MEMORY;
      head.length = 0;  // the ring already has the record: mark it to be ignored
      head.op = kAbandoned;
    }
    std::memcpy(place, &head, sizeof head);
    out.offset += bytes;
  } while (out.offset < command.length && status == UTOFU_SUCCESS);
  cq.stags().release(hold);
  if (handled == Handled::done) finish(cq, status);
  return handled;
}

Engine::Handled Engine::push_small(EmulatedCq& cq) {
  const CommandProgress& out = cq.outgoing();
  const CqCommand& command = out.command;
  PacketHead head = head_of(cq);
  std::array<std::uint64_t, 2> operands{command.operand, command.compare};
  const void* data = nullptr;
  PacketKind kind = PacketKind::get;
  if (command.opcode == Opcode::piggyback) {
    kind = PacketKind::put;
    data = command.inlined.data();
    head.bytes = static_cast<std::uint16_t>(command.length);
  } else if (command.opcode != Opcode::get) {
    kind = PacketKind::armw;
    data = operands.data();
    head.bytes = kExchangeBytes;
    head.op = command.opcode == Opcode::armw ? command.armw_op : 0;
  }
  if (!send_request(out.process, kind, head, data)) return Handled::stalled;
  finish(cq, UTOFU_SUCCESS);
  return Handled::done;
}

// Completes a command that has left. (A get's local memory stays in use until its data has
// arrived.)
void Engine::finish(EmulatedCq& cq, int status) {
  const CommandProgress& out = cq.outgoing();
  if (strict_ && out.command.opcode == Opcode::put) cq.stags().finished(out.command.local_stadd);
  if (status == UTOFU_SUCCESS && (out.command.opcode == Opcode::put || out.command.opcode == Opcode::piggyback)) {
    std::atomic<std::uint64_t>& bytes = put_bytes_[cq.tni()];
    bytes.store(bytes.load(std::memory_order_relaxed) + out.command.length, std::memory_order_relaxed);
  }
  if (status != UTOFU_SUCCESS && out.message != 0) {
    if (Message* message = messages_.find(out.message); message != nullptr) {
      --cq.open_messages;
      messages_.close(*message);
    }
  }
  cq.executed(status, out.left_ns);
}

// Completes a command that cannot be sent.
void Engine::reject(EmulatedCq& cq, Rejection rejection) {
  CommandProgress& out = cq.outgoing();
  if (out.command.has(UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE)) {
    out.process = 0;
    open_message(cq);
    Message* message = messages_.find(out.message);
    const bool holds = message->opcode == Opcode::get;
    if (strict_ && holds) cq.stags().began(message->local_stadd);
    cq.executed(UTOFU_SUCCESS, out.left_ns);
    complete(*message, mrq_error(rejection), 0, out.arrives_ns);
    return;
  }
  warn("a command of TNI %u CQ %u goes to %s, which nobody has (any more)", cq.tni(), cq.number(),
       process_.machine().name_of(out.command.remote).text);
  cq.executed(UTOFU_SUCCESS, out.left_ns);
}

}  // namespace tofu_emulator
