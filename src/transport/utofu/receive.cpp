// The reports of the queues: ends of this worker's own operations, messages, credit.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/utofu/out.hpp"
#include "transport/utofu/port.hpp"

namespace heddle::transport::utofu {

// ---- what peers put -----------------------------------------------------------------------------

[[gnu::always_inline]] inline void Port::arrived(const utofu_mrq_notice& notice) {
  // wraps around if it is outside our block
  const std::uint64_t end = notice.rmt_stadd - own_vcq_->stadd;
  if (end > sizes_.rings_at() && end <= sizes_.pool_at()) {
    // fits: the rings are less than 2 KiB for each notice that an MRQ holds, of which there are at
    // most 2^20
    message_arrived(static_cast<std::uint32_t>(end - sizes_.rings_at()), notice.vcq_id);
  } else {
    credit_arrived(end, notice);
  }
}

// `end`: offset of the message's end in the rings.
[[gnu::always_inline]] inline void Port::message_arrived(std::uint32_t end, utofu_vcq_id_t from) {
  const std::uint32_t slot = (end - 1) / kSlotBytes;
  const std::uint32_t number = slot / sizes_.slots;
  const std::uint32_t in_ring = slot % sizes_.slots;
  Ring& ring = rings_[number];
  if (ring.vcq == 0) ring.vcq = from;  // the owner of the ring; the hello must name the same VCQ
  if (ring.vcq != from || (ring.arrived >> in_ring & 1U) != 0) {
    ++malformed_;  // another sender's ring, or a second message in one slot
    return;
  }
  ring.arrived |= 1U << in_ring;
  ring.length[in_ring] = static_cast<std::uint16_t>(end - slot * kSlotBytes);
  if (!ring.queued && ring.slot == in_ring) {
    ring.queued = true;
    ready_.push_back(number);
  }
}

// `end`: offset in the block of the end of the put.
[[gnu::noinline]] void Port::credit_arrived(std::uint64_t end, const utofu_mrq_notice& notice) {
  const std::uint64_t word = end - sizes_.credits_at() - sizeof(std::uint64_t);
  const std::uint64_t index = word / sizeof(std::uint64_t);
  if (word % sizeof(std::uint64_t) != 0 || index >= peer_states_.size()) {
    ++malformed_;
    return;
  }
  PeerState& peer_state = *peer_states_[index];
  if (notice.vcq_id != peer_state.vcq) {
    ++malformed_;
    return;
  }
  const auto given = static_cast<std::uint32_t>(notice.edata);
  if (given == 0 || given > peer_state.slots || peer_state.credits > peer_state.slots - given) {
    ++malformed_;
    return;
  }
  peer_state.credits += given;
  peer_state.starved = 0;
}

// ---- notices ------------------------------------------------------------------------------------

// Polling the TCQ also frees the slots of the TOQ. The TCQ is empty if nothing was posted since all
// operations ended.
void Port::drain_tcq(Out& out) {
  void* tag = nullptr;
  for (;;) {
    const int code = calls_.poll_tcq(handle_, 0, &tag);
    if (code != UTOFU_SUCCESS && (code > UTOFU_ERR_TCQ_OTHER || code < UTOFU_ERR_TCQ_LENGTH)) break;
    TofuOperation* operation = operations_.tagged(tag);
    if (operation == nullptr) continue;
    if (code != UTOFU_SUCCESS) {
      finished(operation, code, {}, out);
    } else if (operation->has(TofuOperation::kOwesSource)) {
      operation->clear(TofuOperation::kOwesSource);
      out.source_free(operation->token);
    }
  }
  tcq_due_ = operations_.under_way() != 0;
}

namespace {

// Makes it the end of an operation that succeeded; the fields of a message stay as they were.
inline void write_done(Completion* completion, Token token) {
  // event and status: all zeros, by one store
  static_assert(static_cast<int>(Event::done) == 0 && HEDDLE_DONE == 0);
  static_assert(offsetof(Completion, event) == 0 && offsetof(Completion, token) == sizeof(std::uint64_t));
  std::memset(static_cast<void*>(completion), 0, offsetof(Completion, token));
  completion->token = token;
}

// No notice was found.
constexpr bool nothing(int code) {
  return code != UTOFU_SUCCESS && (code > UTOFU_ERR_MRQ_OTHER || code < UTOFU_ERR_MRQ_RMT_LENGTH);
}

}  // namespace

// Takes notices while they are peers' puts or plain ends. True: `notice` and `code` are another.
template <bool crowded>
[[gnu::always_inline]] inline bool Port::drain_plain(Out& out, utofu_mrq_notice* notice, int* code) {
  TofuOperations::Ends ends(operations_);
  Completion* const first = out.next();
  Completion* const end = out.end();
  Completion* next = first;
  bool other = false;
  while (next != end) {
    *code = calls_.poll_mrq(handle_, 0, notice);
    if (*code != UTOFU_SUCCESS) [[unlikely]] {
      other = !nothing(*code);
      break;
    }
    after_notice();
    TofuOperation* operation = nullptr;
    if (!operations_.plain_of<crowded>(*notice, &operation)) [[unlikely]] {
      if (notice->notice_type == UTOFU_MRQ_TYPE_RMT_PUT) {
        arrived(*notice);
        continue;
      }
      other = true;
      break;
    }
    write_done(next, operation->token);
    if (operation->lease != 0) registrations_->release(std::exchange(operation->lease, 0));
    ends.give_back(operation);
    ++next;
  }
  ends.finish(static_cast<std::size_t>(next - first));
  out.wrote(next);
  return other;
}

template <bool crowded>
void Port::drain_all(Out& out) {
  utofu_mrq_notice notice;
  int code = UTOFU_SUCCESS;
  while (drain_plain<crowded>(out, &notice, &code)) noticed(notice, code, out);
}

void Port::drain_mrq(Out& out) {
  operations_.crowded() ? drain_all<true>(out) : drain_all<false>(out);
}

[[gnu::noinline]] void Port::noticed(const utofu_mrq_notice& notice, int code, Out& out) {
  after_notice();
  if (notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT) {
    if (code == UTOFU_SUCCESS) arrived(notice);
    return;
  }
  TofuOperation* operation = operations_.find(notice, code != UTOFU_SUCCESS);
  if (operation == nullptr) return;
  if (code != UTOFU_SUCCESS || !operation->buffered(notice.notice_type)) return finished(operation, code, notice, out);
  give_buffer(operation->buffer);
  out.done(operation->token, HEDDLE_DONE);
  operations_.give_back(operation);
}

base::Status Port::outcome(const TofuOperation& operation, int code) const {
  if (code == UTOFU_SUCCESS) return HEDDLE_DONE;
  if (code == UTOFU_ERR_MRQ_PEER) device_.lose(operation.rank);
  if (code == UTOFU_ERR_MRQ_PEER || failed_[operation.rank] != 0 || device_.failed(operation.rank)) {
    return HEDDLE_ERR_PEER_FAILED;
  }
  if (code == UTOFU_ERR_MRQ_RMT_STADD || code == UTOFU_ERR_MRQ_RMT_MEMORY || code == UTOFU_ERR_MRQ_RMT_LENGTH) {
    return base::fail(HEDDLE_ERR_RANGE,
                      "rank %u has deregistered the region, or left; release it after the peers' last operation",
                      operation.rank);
  }
  return base::fail(HEDDLE_ERR_SYSTEM, "a Tofu operation to rank %u failed: %s (%d)", operation.rank, error_name(code),
                    code);
}

void Port::finished(TofuOperation* operation, int code, const utofu_mrq_notice& notice, Out& out) {
  const TofuOperation ended = *operation;
  operations_.retire(operation);
  if (ended.has(TofuOperation::kOrphan)) [[unlikely]] {
    if (ended.lease != 0) registrations_->release(ended.lease);
    if (ended.task == Task::message) give_buffer(ended.buffer);
    return;
  }
  switch (ended.task) {
    case Task::put:
    case Task::get:
      if (ended.lease != 0) registrations_->release(ended.lease);
      if (ended.has(TofuOperation::kOwesSource)) out.source_free(ended.token);
      out.done(ended.token, outcome(ended, code));
      return;
    case Task::atomic:
      if (code == UTOFU_SUCCESS && ended.result != nullptr) {
        const auto narrow = static_cast<std::uint32_t>(notice.rmt_value);
        if (ended.bytes == 8) {
          std::memcpy(ended.result, &notice.rmt_value, 8);
        } else {
          std::memcpy(ended.result, &narrow, 4);
        }
      }
      out.done(ended.token, outcome(ended, code));
      return;
    case Task::message:
      give_buffer(ended.buffer);
      [[fallthrough]];
    case Task::short_message:
      if (code == UTOFU_ERR_MRQ_PEER) device_.lose(peer_states_[ended.peer_state]->rank);
      if (code != UTOFU_SUCCESS) break_off(*peer_states_[ended.peer_state], HEDDLE_ERR_PEER_FAILED);
      out.done(ended.token, code == UTOFU_SUCCESS ? HEDDLE_DONE : HEDDLE_ERR_PEER_FAILED);
      return;
    case Task::read_entry:
    case Task::claim:
    case Task::hello: {
      PeerState& peer_state = *peer_states_[ended.peer_state];
      if (code == UTOFU_ERR_MRQ_PEER) device_.lose(peer_state.rank);
      if (code != UTOFU_SUCCESS) {
        break_off(peer_state, HEDDLE_ERR_PEER_FAILED);
      } else if (ended.task == Task::read_entry) {
        entry_read(peer_state);
      } else if (ended.task == Task::claim) {
        claimed(peer_state, notice.rmt_value);
      }
      return;
    }
    case Task::none:
      return;
  }
}

// ---- messages -----------------------------------------------------------------------------------

void Port::hand_out(Out& out) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    const std::uint32_t number = ready_[i];
    Ring& ring = rings_[number];
    hand_out_ring(number, out);
    if ((ring.arrived >> ring.slot & 1U) != 0) {
      ready_[kept++] = number;  // no room for its next message now
    } else {
      ring.queued = false;
    }
  }
  ready_.resize(kept);
  if (kept > 1) std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
}

void Port::hand_out_ring(std::uint32_t number, Out& out) {
  Ring& ring = rings_[number];
  const std::uint32_t slots = sizes_.slots;
  const std::byte* const first = own_vcq_->block.data() + sizes_.rings_at() + number * sizes_.ring_bytes();
  std::uint32_t in_ring = ring.slot;
  std::uint32_t arrived = ring.arrived;
  std::uint32_t taken = 0;
  Completion* next = out.next();
  Completion* const end = out.end();
  while (next != end && (arrived >> in_ring & 1U) != 0) {
    const std::byte* slot = first + std::uint64_t{in_ring} * kSlotBytes;
    const std::uint32_t length = ring.length[in_ring];
    arrived &= ~(1U << in_ring);
    in_ring = in_ring + 1 == slots ? 0 : in_ring + 1;
    ++taken;
    if (!ring.greeted) [[unlikely]] {
      if (!accept_hello(ring, slot, length)) ++malformed_;
      continue;
    }
    SlotHead head;
    std::memcpy(&head, slot, sizeof head);
    if (head.bytes > kMostMessage || head.bytes + sizeof head != length) [[unlikely]] {
      ++malformed_;
      continue;
    }
    next->event = Event::message;
    next->status = HEDDLE_DONE;
    next->token = 0;
    next->data = slot + sizeof head;
    next->bytes = head.bytes;
    next->immediate = head.immediate;
    next->rank = ring.rank;
    next->worker = ring.worker;
    ++next;
  }
  out.wrote(next);
  if (taken != 0 && ring.lent == 0) lending_.push_back(number);
  ring.slot = in_ring;
  ring.arrived = arrived;
  ring.next += taken;
  ring.lent += taken;
}

bool Port::accept_hello(Ring& ring, const std::byte* slot, std::uint32_t length) {
  RingGreeting hello;
  std::memcpy(&hello, slot, sizeof hello);
  if (length != sizeof hello || hello.magic != RingGreeting::kMagic || !sealed(hello, device_.secret()) ||
      hello.vcq != ring.vcq || hello.rank >= device_.size() || hello.worker >= device_.max_workers()) {
    return false;
  }
  ring.greeted = true;
  ring.rank = hello.rank;
  ring.worker = hello.worker;
  ring.credit_stadd = hello.credit_stadd;
  return true;
}

// The caller has finished with the messages of the last poll. Credit is returned for half a ring at
// once, so at most two such notices are on their way.
void Port::release_lent() {
  for (const std::uint32_t number : lending_) {
    Ring& ring = rings_[number];
    const bool owed = 2 * ring.owed >= sizes_.slots;
    ring.owed += std::exchange(ring.lent, 0);
    if (!owed && ring.greeted && 2 * ring.owed >= sizes_.slots) owing_.push_back(number);
  }
  lending_.clear();
  after_notice();  // we have read the slots before the sender may write to them again
  return_credits();
}

// Credit that is lost would stall its sender for ever, once it is a whole ring's: whatever the
// library's reason was not to take it, the next poll tries again.
void Port::return_credits() {
  std::size_t kept = 0;
  for (const std::uint32_t number : owing_) {
    Ring& ring = rings_[number];
    if (failed_[ring.rank] != 0) continue;
    const int code = calls_.put_piggyback8(handle_, ring.vcq, ring.next, ring.credit_stadd, sizeof(std::uint64_t),
                                           ring.owed, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr);
    tcq_due_ = true;
    if (code == UTOFU_SUCCESS) {
      ring.owed = 0;
      continue;
    }
    owing_[kept++] = number;
    if (code != UTOFU_ERR_BUSY) report_rejected_credit(ring, code);
  }
  owing_.resize(kept);
}

[[gnu::cold]] void Port::report_rejected_credit(const Ring& ring, int code) {
  if (std::exchange(credit_rejected_, true)) return;
  device_.environment().log.line(base::Level::warn,
                                 "worker %u cannot return credit to worker %u of rank %u, and tries again: uTofu "
                                 "refuses the put: %s (%d)",
                                 index_, ring.worker, ring.rank, error_name(code), code);
}

}  // namespace heddle::transport::utofu
