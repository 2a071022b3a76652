// Packets: from the rings into memory, counters and notices.

#include <algorithm>
#include <bit>
#include <cstring>

#include "tofu/emulator/engine.hpp"
#include "tofu/emulator/process.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {

namespace {

constexpr std::uint32_t kPacketsOfTurn = 64;
// padding overwrites at most the rest of the target's cache lines
constexpr std::uint64_t kLine = 256;
constexpr std::byte kJunk{0xDB};

Rejection rejection_of(Denied denied) {
  switch (denied) {
    case Denied::none:
      return Rejection::none;
    case Denied::stadd:
      return Rejection::stadd;
    case Denied::length:
      return Rejection::length;
    case Denied::memory:
      return Rejection::memory;
  }
  return Rejection::memory;
}

const char* name_of(Rejection rejection) {
  switch (rejection) {
    case Rejection::stadd:
      return "is not registered with it";
    case Rejection::length:
      return "is registered with it, but not as long";
    case Rejection::memory:
      return "is read-only, not aligned, or not mapped";
    case Rejection::none:
    case Rejection::peer:
      break;
  }
  return "is of a VCQ that is no more";
}

int local_error(Denied denied) {
  switch (denied) {
    case Denied::none:
      return UTOFU_SUCCESS;
    case Denied::stadd:
      return UTOFU_ERR_MRQ_LCL_STADD;
    case Denied::length:
      return UTOFU_ERR_MRQ_LCL_LENGTH;
    case Denied::memory:
      return UTOFU_ERR_MRQ_LCL_MEMORY;
  }
  return UTOFU_ERR_MRQ_OTHER;
}

std::uint8_t local_type(Opcode opcode) {
  if (opcode == Opcode::get) return UTOFU_MRQ_TYPE_LCL_GET;
  return opcode == Opcode::armw || opcode == Opcode::cswap ? UTOFU_MRQ_TYPE_LCL_ARMW : UTOFU_MRQ_TYPE_LCL_PUT;
}

Memory::Order order_of(const PacketHead& head) {
  return (head.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0 ? Memory::Order::ascending : Memory::Order::end_last;
}

}  // namespace

int mrq_error(Rejection rejection) {
  switch (rejection) {
    case Rejection::none:
      return UTOFU_SUCCESS;
    case Rejection::peer:
      return UTOFU_ERR_MRQ_PEER;
    case Rejection::stadd:
      return UTOFU_ERR_MRQ_RMT_STADD;
    case Rejection::length:
      return UTOFU_ERR_MRQ_RMT_LENGTH;
    case Rejection::memory:
      return UTOFU_ERR_MRQ_RMT_MEMORY;
  }
  return UTOFU_ERR_MRQ_OTHER;
}

std::size_t Engine::receive(Channel channel) {
  const auto index = static_cast<std::size_t>(channel);
  auto& shared = world_.entry(process_.number()).filled[index];
  std::size_t done = 0;
  for (std::uint32_t word = 0; word < kMaskWords; ++word) {
    if (shared[word].load(std::memory_order_relaxed) != 0)
      filled_[index][word] |= shared[word].exchange(0, std::memory_order_seq_cst);
    for (std::uint64_t left = filled_[index][word]; left != 0; left &= left - 1) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(left));
      bool emptied = false;
      done += drain_ring(word * 64 + bit, channel, &emptied);
      if (emptied) filled_[index][word] &= ~(std::uint64_t{1} << bit);
    }
  }
  return done;
}

Engine::Source& Engine::source(std::uint32_t process) {
  Source& from = sources_[process];
  if (!from.made) {
    from.made = true;
    from.ends[0] = world_.consumer(process, process_.number(), Channel::requests);
    from.ends[1] = world_.consumer(process, process_.number(), Channel::responses);
  }
  return from;
}

// False: no correct sender can have written this. (The world belongs to this user, but the user's
// other programs may write to it.)
bool Engine::makes_sense(PacketKind kind, const PacketHead& head, std::uint32_t bytes, Channel channel) {
  if (bytes != sizeof head + head.bytes || (kind >= PacketKind::ack) != (channel == Channel::responses)) return false;
  switch (kind) {
    case PacketKind::put:
      if (head.op == kAbandoned) return true;
      [[fallthrough]];
    case PacketKind::got:
      return std::uint64_t{head.offset} + head.bytes <= head.length;
    case PacketKind::armw:
      return head.bytes == kExchangeBytes && (head.length == 4 || head.length == 8) && head.op <= UTOFU_ARMW_OP_OR;
    case PacketKind::get:
    case PacketKind::ack:
    case PacketKind::exchanged:
      return head.bytes == 0;
    case PacketKind::gate:
      return true;  // the gates check it themselves
  }
  return false;
}

std::size_t Engine::drain_ring(std::uint32_t from, Channel channel, bool* emptied) {
  if (from >= sources_.size()) fatal("a process %u that does not exist has rung: the world's memory is broken", from);
  Source& sender = source(from);
  auto& ring = sender.ends[static_cast<std::size_t>(channel)];
  std::size_t done = 0;
  heddle::queue::Record record;
  for (; done < kPacketsOfTurn; ++done) {
    Delivery& delayed = channel == Channel::requests ? delayed_requests_ : delayed_responses_;
    if (strict_ && delayed.full()) break;
    const heddle::queue::Take taken = ring.take(&record);
    if (taken == heddle::queue::Take::none) {
      *emptied = true;
      break;
    }
    // Before sending this request, the sender answered requests that had come from here. Those that
    // wait for its answers must get them first.
    if (channel == Channel::requests && !take_answers(from)) {
      ring.put_back(record);
      break;
    }
    PacketHead head;
    if (taken == heddle::queue::Take::malformed || record.bytes < sizeof head)
      fatal("the ring from process %u is broken: somebody else has written to the world's memory", from);
    std::memcpy(&head, record.data, sizeof head);
    const auto kind = static_cast<PacketKind>(record.type);
    if (!makes_sense(kind, head, record.bytes, channel))
      fatal("process %u has sent a packet of kind %u that makes no sense", from, static_cast<unsigned>(kind));
    const std::byte* data = record.data + sizeof head;
    if (kind == PacketKind::gate) {
      process_.gates().receive(head, data);
    } else if (strict_) {
      delayed.add(kind, head, data, from, ++arrivals_);
    } else {
      const bool last = head.offset + head.bytes >= head.length;
      const Arrival arrival{kind, &head, data, from, last, Rejection::none, &sender.served, nullptr};
      if (channel == Channel::responses) {
        take_response(arrival);
      } else if (take_request(arrival) == Handled::stalled) {
        ring.put_back(record);
        break;
      } else {
        sender.served = 0;
      }
    }
    ring.release();
  }
  if (done != 0) freed_.push_back(from);
  return done;
}

// Takes all answers of a process that are there. False: not all can be taken now.
bool Engine::take_answers(std::uint32_t from) {
  bool emptied = false;
  while (source(from).ends[static_cast<std::size_t>(Channel::responses)].has_more()) {
    if (drain_ring(from, Channel::responses, &emptied) == 0) return false;
  }
  return true;
}

std::size_t Engine::release_delayed() {
  const auto take_answer = [this](Delivery::Parcel& parcel, const Delivery::Pieces& pieces) {
    take_response(Arrival{parcel.kind, &parcel.head, parcel.data.data(), parcel.source, pieces.last, pieces.rejected,
                          &parcel.served, &parcel});
    return true;
  };
  const std::size_t answers = delayed_responses_.tick(take_answer);
  return answers + delayed_requests_.tick([&](Delivery::Parcel& parcel, const Delivery::Pieces& pieces) {
    delayed_responses_.release(parcel.source, parcel.arrived, take_answer);
    return take_request(Arrival{parcel.kind, &parcel.head, parcel.data.data(), parcel.source, pieces.last,
                                pieces.rejected, &parcel.served, &parcel}) == Handled::done;
  });
}

// The CQ that a request is for; null: it is not, or is no longer, the one that the sender meant.
EmulatedCq* Engine::addressee(const PacketHead& head) {
  EmulatedCq* cq = process_.cq(head.tni, head.cq);
  return cq != nullptr && cq->generation() == head.generation && cq->vcq(head.slot) != nullptr ? cq : nullptr;
}

Engine::Handled Engine::take_request(const Arrival& arrival) {
  const PacketHead& head = *arrival.head;
  Reply reply;
  EmulatedCq* cq = addressee(head);
  switch (arrival.kind) {
    case PacketKind::put:
      if (head.op == kAbandoned) return Handled::done;
      if (arrival.last && !reserve(arrival, PacketKind::ack, 0, &reply)) return Handled::stalled;
      take_put(arrival, cq, reply);
      return Handled::done;
    case PacketKind::get:
      return take_get(arrival, cq);
    case PacketKind::armw:
      if (!reserve(arrival, PacketKind::exchanged, 0, &reply)) return Handled::stalled;
      take_exchange(arrival, cq, reply);
      return Handled::done;
    case PacketKind::gate:
    case PacketKind::ack:
    case PacketKind::got:
    case PacketKind::exchanged:
      break;
  }
  fatal("process %u has sent a packet of kind %u", arrival.source, static_cast<unsigned>(arrival.kind));
}

// Reserves room for the answer to a request, before anything that must not be done twice. False: no
// room.
bool Engine::reserve(const Arrival& arrival, PacketKind kind, std::uint32_t bytes, Reply* reply) {
  *reply = {nullptr, kind, bytes};
  if (arrival.head->message == 0 || gone(arrival.source)) return true;  // no answer is expected
  reply->place = place_for(arrival.source, Channel::responses, kind, bytes);
  return reply->place != nullptr;
}

void Engine::answer(const Arrival& arrival, const Reply& reply, Rejection rejection, std::uint64_t value,
                    std::uint32_t offset) {
  if (reply.place == nullptr) return;
  PacketHead head = *arrival.head;
  head.stadd = value;
  head.offset = offset;
  head.bytes = static_cast<std::uint16_t>(reply.bytes);
  head.denied = static_cast<std::uint8_t>(rejection);
  if (process_.model().on()) {
    const Opcode opcode = reply.kind == PacketKind::got   ? Opcode::get
                          : reply.kind == PacketKind::ack ? Opcode::put
                                                          : Opcode::armw;
    const Route back{process_.node(), process_.machine().node_of(arrival.source), head.tni, head.path};
    head.model_ns = process_.model().answered(opcode, {offset, reply.bytes}, back, head.model_ns);
  }
  std::memcpy(reply.place, &head, sizeof head);
}

// Answers a request that cannot be executed.
void Engine::turn_away(const Arrival& arrival, const Reply& reply, Rejection rejection) {
  const PacketHead& head = *arrival.head;
  answer(arrival, reply, rejection, 0, 0);
  if (head.message != 0 && rejection == Rejection::peer) return;
  warn("%s of process %u names memory %016llx, %u bytes, at TNI %u CQ %u, which %s",
       process_.machine().name_of(head.source_vcq).text, arrival.source, static_cast<unsigned long long>(head.stadd),
       head.length, head.tni, head.cq, name_of(rejection));
}

void Engine::pad(const PacketHead& head, const Hold& hold) {
  if (!strict_ || (head.flags & UTOFU_ONESIDED_FLAG_PADDING) == 0 || head.offset != 0 || head.length == 0) return;
  const std::uint64_t first = reinterpret_cast<std::uint64_t>(hold.data);
  const std::uint64_t end = first + head.length;
  const std::size_t before = std::min<std::uint64_t>(first % kLine, hold.before);
  const std::size_t after = std::min<std::uint64_t>((kLine - end % kLine) % kLine, hold.after);
  const std::array<std::byte, kLine> junk = [] {
    std::array<std::byte, kLine> all;
    all.fill(kJunk);
    return all;
  }();
  (void)memory_.write(hold.data - before, junk.data(), before);
  (void)memory_.write(hold.data + head.length, junk.data(), after);
}

Rejection Engine::store(const Arrival& arrival, EmulatedCq& cq) {
  const PacketHead& head = *arrival.head;
  const Hold hold = cq.stags().hold(head.stadd, head.length, Access::write);
  if (hold.denied != Denied::none) return rejection_of(hold.denied);
  pad(head, hold);
  // Before the data is visible: a thread that sees it queries the model.
  if (process_.model().on()) process_.model().stored(hold.data + head.offset, head.bytes, head.model_ns);
  memory_.about(head.source_vcq, head.stadd, hold.data);
  const bool stored = memory_.write(hold.data + head.offset, arrival.data, head.bytes, order_of(head));
  cq.stags().release(hold);
  return stored ? Rejection::none : Rejection::memory;
}

void Engine::take_put(const Arrival& arrival, EmulatedCq* cq, const Reply& reply) {
  Rejection rejection = arrival.rejected;
  if (rejection == Rejection::none) rejection = cq != nullptr ? store(arrival, *cq) : Rejection::peer;
  if (!arrival.last) {
    if (rejection != Rejection::none && arrival.parcel != nullptr)
      delayed_requests_.rejected(*arrival.parcel, rejection);
    return;
  }
  if (rejection != Rejection::none) {
    turn_away(arrival, reply, rejection);
    return;
  }
  answer(arrival, reply, Rejection::none, 0, 0);
  arrived(arrival, *cq, UTOFU_MRQ_TYPE_RMT_PUT, arrival.head->stadd + arrival.head->length);
}

// The target's part of a completed message: a notice, credits.
void Engine::arrived(const Arrival& arrival, EmulatedCq& cq, std::uint8_t type, std::uint64_t value) {
  const PacketHead& head = *arrival.head;
  if ((head.flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) != 0) {
    utofu_mrq_notice notice{};
    notice.notice_type = type;
    notice.vcq_id = head.source_vcq;
    notice.edata = head.edata;
    notice.rmt_value = value;
    notice.rmt_stadd = type == UTOFU_MRQ_TYPE_RMT_ARMW ? head.stadd : head.stadd + head.length;
    cq.notify(head.slot, notice, UTOFU_SUCCESS, head.model_ns);
  }
  if (head.sps != 0) cq.credit(head.sps, process_.model().on() ? process_.model().released(head.model_ns) : 0);
}

Engine::Handled Engine::take_get(const Arrival& arrival, EmulatedCq* cq) {
  const PacketHead& head = *arrival.head;
  Reply reply;
  Hold hold;
  if (cq != nullptr) hold = cq->stags().hold(head.stadd, head.length, Access::read);
  if (hold.denied != Denied::none) {
    if (!reserve(arrival, PacketKind::got, 0, &reply)) return Handled::stalled;
    turn_away(arrival, reply, cq != nullptr ? rejection_of(hold.denied) : Rejection::peer);
    return Handled::done;
  }
  Handled handled = Handled::done;
  bool mapped = true;
  if (hold.data != nullptr) memory_.about(head.source_vcq, head.stadd, hold.data);
  while (*arrival.served < head.length && mapped) {
    const std::uint32_t bytes = std::min(kMtu, head.length - *arrival.served);
    if (!reserve(arrival, PacketKind::got, bytes, &reply)) {
      handled = Handled::stalled;
      break;
    }
    if (reply.place == nullptr) break;  // no answer is expected
    mapped = memory_.read(reply.place + sizeof head, hold.data + *arrival.served, bytes);
    answer(arrival, reply, mapped ? Rejection::none : Rejection::memory, head.stadd, *arrival.served);
    *arrival.served += bytes;
  }
  cq->stags().release(hold);
  if (!mapped)
    broken_rule("%s gets from memory at %p, steering address %016llx, which is not mapped any more",
                process_.machine().name_of(head.source_vcq).text, static_cast<const void*>(hold.data),
                static_cast<unsigned long long>(head.stadd));
  if (handled == Handled::done && mapped) arrived(arrival, *cq, UTOFU_MRQ_TYPE_RMT_GET, 0);
  return handled;
}

void Engine::take_exchange(const Arrival& arrival, EmulatedCq* cq, const Reply& reply) {
  const PacketHead& head = *arrival.head;
  Hold hold;
  if (cq != nullptr) hold = cq->stags().hold(head.stadd, head.length, Access::atomic);
  if (hold.denied != Denied::none) {
    turn_away(arrival, reply, cq != nullptr ? rejection_of(hold.denied) : Rejection::peer);
    return;
  }
  std::array<std::uint64_t, 2> operands{};
  std::memcpy(operands.data(), arrival.data, sizeof operands);
  std::uint64_t before = 0;
  if (process_.model().on()) process_.model().stored(hold.data, head.length, head.model_ns);
  memory_.about(head.source_vcq, head.stadd, hold.data);
  const bool mapped = memory_.exchange(hold.data, head.length, head.op, operands[0], operands[1], &before);
  cq->stags().release(hold);
  if (!mapped) {
    turn_away(arrival, reply, Rejection::memory);
    return;
  }
  answer(arrival, reply, Rejection::none, before, 0);
  arrived(arrival, *cq, UTOFU_MRQ_TYPE_RMT_ARMW, head.stadd);
}

void Engine::take_response(const Arrival& arrival) {
  Message* message = messages_.find(arrival.head->message);
  if (message == nullptr) return;  // dropped: its peer was considered dead, or its CQ is closed
  message->model_ns = std::max(message->model_ns, arrival.head->model_ns);
  const auto rejection = static_cast<Rejection>(arrival.head->denied);
  if (arrival.kind == PacketKind::got && rejection == Rejection::none) {
    land(arrival, *message);
    return;
  }
  complete(*message, mrq_error(rejection), arrival.head->stadd, message->model_ns);
}

// Stores a piece of the data that a get requested.
void Engine::land(const Arrival& arrival, Message& message) {
  const PacketHead& head = *arrival.head;
  const Hold hold = message.cq->stags().hold(message.local_stadd, message.length, Access::write);
  if (hold.denied != Denied::none) {
    message.error = local_error(hold.denied);
  } else if (std::uint64_t{head.offset} + head.bytes > message.length) {
    // The length that a packet states for itself is checked on arrival. Here the packet is longer
    // than this get asked for.
    message.error = UTOFU_ERR_MRQ_LCL_MEMORY;
    message.cq->stags().release(hold);
  } else {
    if (process_.model().on()) process_.model().stored(hold.data + head.offset, head.bytes, head.model_ns);
    memory_.about(message.cq->id_of(message.slot), message.local_stadd, hold.data);
    if (!memory_.write(hold.data + head.offset, arrival.data, head.bytes, order_of(head)))
      message.error = UTOFU_ERR_MRQ_LCL_MEMORY;
    message.cq->stags().release(hold);
  }
  message.left -= std::min<std::uint32_t>(message.left, head.bytes);
  if (message.left == 0) complete(message, message.error, 0, message.model_ns);
}

void Engine::complete(Message& message, int status, std::uint64_t value, std::uint64_t model_ns) {
  EmulatedCq& cq = *message.cq;
  if (strict_ && message.opcode == Opcode::get) cq.stags().finished(message.local_stadd);
  if (message.notice) {
    utofu_mrq_notice notice{};
    notice.notice_type = local_type(message.opcode);
    notice.vcq_id = message.remote;
    notice.edata = message.edata;
    notice.rmt_stadd = message.remote_stadd;
    if (notice.notice_type == UTOFU_MRQ_TYPE_LCL_ARMW) {
      notice.rmt_value = status == UTOFU_SUCCESS ? value : 0;
    } else {
      notice.rmt_stadd += message.length;
    }
    if (message.opcode == Opcode::get) notice.lcl_stadd = message.local_stadd + message.length;
    cq.notify(message.slot, notice, status, model_ns);
  } else if (status != UTOFU_SUCCESS) {
    warn("a get of %s without a notice has failed: %d", process_.machine().name_of(cq.id_of(message.slot)).text,
         status);
  }
  --cq.open_messages;
  messages_.close(message);
}

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  a ^= b + 0x9E3779B97F4A7C15ULL + (a << 6) + (a >> 2);
  a *= 0xFF51AFD7ED558CCDULL;
  return a ^ a >> 33;
}

std::uint64_t where(const PacketHead& head) {
  return std::uint64_t{head.tni} << 16 | std::uint64_t{head.cq} << 8 | head.slot;
}

bool in_pieces(PacketKind kind) {
  return kind == PacketKind::put || kind == PacketKind::got;
}

}  // namespace

// Usually short, sometimes long: neighbouring packets change places, and whole messages overtake
// many others.
std::uint64_t Delivery::hold_back() {
  const std::uint64_t kind = random_.below(16);
  if (kind < 8) return random_.below(4);
  if (kind < 14) return random_.below(64);
  return random_.below(512);
}

void Delivery::add(PacketKind kind, const PacketHead& head, const std::byte* data, std::uint32_t source,
                   std::uint64_t arrived) {
  Parcel parcel;
  parcel.head = head;
  if (head.bytes != 0) parcel.data.assign(data, data + head.bytes);
  parcel.kind = kind;
  parcel.source = source;
  parcel.arrived = arrived;
  const std::uint64_t from = mix(mix(head.source_vcq, source), static_cast<std::uint64_t>(where(head)));
  // An answer belongs to the message that it answers.
  parcel.message = kind >= PacketKind::ack ? mix(source, head.message) : mix(from, head.sequence);
  if ((head.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0) {
    parcel.stream = mix(from, head.path) | 1;
    Stream& stream = streams_[parcel.stream];
    // a stream ends when all its packets have been handled
    if (stream.arrived == 0) stream.held_until = now_ + hold_back();
    parcel.turn = stream.arrived++;
  } else {
    if (in_pieces(kind) && head.bytes < head.length && messages_.find(parcel.message) == messages_.end())
      messages_[parcel.message].held_until = now_ + hold_back();
    parcel.due = now_ + hold_back();
  }
  parcels_.push_back(std::move(parcel));
}

bool Delivery::may_go(const Parcel& parcel, bool hurry) {
  if (parcel.stream != 0) {
    const Stream& stream = streams_[parcel.stream];
    return parcel.turn == stream.handled && (hurry || stream.held_until <= now_);
  }
  if (hurry) return true;
  if (parcel.due > now_) return false;
  const auto state = messages_.find(parcel.message);
  return state == messages_.end() || state->second.held_until <= now_;
}

Delivery::Pieces Delivery::pieces_of(const Parcel& parcel) {
  if (!in_pieces(parcel.kind) || parcel.head.bytes >= parcel.head.length) return {};
  const MessageState& state = messages_[parcel.message];
  return {state.handled + parcel.head.bytes >= parcel.head.length, state.rejected};
}

void Delivery::gone(const Parcel& parcel) {
  if (parcel.stream != 0) {
    Stream& stream = streams_[parcel.stream];
    ++stream.handled;
    if (parcel.head.offset + parcel.head.bytes >= parcel.head.length || random_.below(16) == 0)
      stream.held_until = now_ + hold_back();
    if (stream.handled == stream.arrived) streams_.erase(parcel.stream);
  }
  const auto state = messages_.find(parcel.message);
  if (state == messages_.end()) return;
  state->second.handled += parcel.head.bytes;
  if (state->second.handled >= parcel.head.length) messages_.erase(state);
}

}  // namespace tofu_emulator
