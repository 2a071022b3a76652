// What the queues report: ends of this worker's own operations, messages, credit.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/utofu/out.hpp"
#include "transport/utofu/worker.hpp"

namespace heddle::transport::utofu {

// Polling the TCQ also frees the slots of the TOQ. The TCQ is empty if nothing was posted since all
// operations ended.
void Worker::drain_tcq(Out& out) {
  void* tag = nullptr;
  for (;;) {
    const int code = calls_.poll_tcq(handle_, 0, &tag);
    if (code != UTOFU_SUCCESS && (code > UTOFU_ERR_TCQ_OTHER || code < UTOFU_ERR_TCQ_LENGTH)) break;
    Operation* operation = operations_.tagged(tag);
    if (operation == nullptr) continue;
    if (code != UTOFU_SUCCESS) {
      finished(operation, code, {}, out);
    } else if (operation->has(Operation::kOwesSource)) {
      operation->clear(Operation::kOwesSource);
      out.source_free(operation->token);
    }
  }
  tcq_due_ = operations_.under_way() != 0;
}

void Worker::drain_mrq(Out& out) {
  utofu_mrq_notice notice;
  Completion* next = out.next();
  Completion* const end = out.end();
  while (next != end) {
    const int code = calls_.poll_mrq(handle_, 0, &notice);
    if (code == UTOFU_SUCCESS) [[likely]] {
      after_notice();
      Operation* operation = nullptr;
      if (operations_.plain(notice, &operation)) [[likely]] {
        next->event = Event::done;  // the fields of a message stay as they were
        next->status = HEDDLE_DONE;
        next->token = operation->token;
        ++next;
        if (operation->lease != 0) registrations_->release(std::exchange(operation->lease, 0));
        operations_.give_back(operation);
        continue;
      }
    } else if (code > UTOFU_ERR_MRQ_OTHER || code < UTOFU_ERR_MRQ_RMT_LENGTH) {
      break;
    }
    out.wrote(next);
    noticed(notice, code, out);
    next = out.next();
  }
  out.wrote(next);
}

[[gnu::noinline]] void Worker::noticed(const utofu_mrq_notice& notice, int code, Out& out) {
  after_notice();
  if (notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT) {
    if (code == UTOFU_SUCCESS) arrived(notice);
    return;
  }
  Operation* operation = operations_.find(notice, code != UTOFU_SUCCESS);
  if (operation != nullptr) finished(operation, code, notice, out);
}

base::Status Worker::outcome(const Operation& operation, int code) const {
  if (code == UTOFU_SUCCESS) return HEDDLE_DONE;
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

void Worker::finished(Operation* operation, int code, const utofu_mrq_notice& notice, Out& out) {
  const Operation ended = *operation;
  operations_.retire(operation);
  if (ended.has(Operation::kOrphan)) [[unlikely]] {
    if (ended.lease != 0) registrations_->release(ended.lease);
    if (ended.task == Task::message && ended.buffer != kNoBuffer) give_buffer(ended.buffer);
    return;
  }
  switch (ended.task) {
    case Task::put:
    case Task::get:
      if (ended.lease != 0) registrations_->release(ended.lease);
      if (ended.has(Operation::kOwesSource)) out.source_free(ended.token);
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
      if (ended.buffer != kNoBuffer) give_buffer(ended.buffer);
      if (code != UTOFU_SUCCESS) break_off(*channels_[ended.channel], HEDDLE_ERR_PEER_FAILED);
      out.done(ended.token, code == UTOFU_SUCCESS ? HEDDLE_DONE : HEDDLE_ERR_PEER_FAILED);
      return;
    case Task::read_entry:
    case Task::claim:
    case Task::hello: {
      Channel& channel = *channels_[ended.channel];
      if (code != UTOFU_SUCCESS) {
        break_off(channel, HEDDLE_ERR_PEER_FAILED);
      } else if (ended.task == Task::read_entry) {
        entry_read(channel);
      } else if (ended.task == Task::claim) {
        claimed(channel, notice.rmt_value);
      }
      return;
    }
    case Task::none:
      return;
  }
}

// ---- what peers put -----------------------------------------------------------------------------

void Worker::arrived(const utofu_mrq_notice& notice) {
  // wraps around if it is outside our block
  const std::uint64_t end = notice.rmt_stadd - station_->stadd;
  if (end > sizes_.rings_at() && end <= sizes_.pool_at()) {
    message_arrived(end, notice.vcq_id);
    return;
  }
  const std::uint64_t word = end - sizes_.credits_at() - sizeof(std::uint64_t);
  const std::uint64_t index = word / sizeof(std::uint64_t);
  if (word % sizeof(std::uint64_t) != 0 || index >= channels_.size()) {
    ++malformed_;
    return;
  }
  Channel& channel = *channels_[index];
  if (notice.vcq_id != channel.vcq) {
    ++malformed_;
    return;
  }
  const auto given = static_cast<std::uint32_t>(notice.edata);
  if (given == 0 || given > channel.slots || channel.credits > channel.slots - given) {
    ++malformed_;
    return;
  }
  channel.credits += given;
  channel.starved = 0;
}

// `end`: offset of the message's end in the block.
void Worker::message_arrived(std::uint64_t end, utofu_vcq_id_t from) {
  const std::uint64_t slot = (end - sizes_.rings_at() - 1) / kSlotBytes;
  const auto number = static_cast<std::uint32_t>(slot / sizes_.slots);
  const auto in_ring = static_cast<std::uint32_t>(slot % sizes_.slots);
  Ring& ring = rings_[number];
  if (ring.vcq == 0) ring.vcq = from;  // the owner of the ring; the hello must name the same VCQ
  if (ring.vcq != from || (ring.arrived >> in_ring & 1U) != 0) {
    ++malformed_;  // another sender's ring, or a second message in one slot
    return;
  }
  ring.arrived |= 1U << in_ring;
  ring.length[in_ring] = static_cast<std::uint16_t>(end - sizes_.rings_at() - slot * kSlotBytes);
  if (!ring.queued && ring.next % sizes_.slots == in_ring) {
    ring.queued = true;
    ready_.push_back(number);
  }
}

void Worker::hand_out(Out& out) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    const std::uint32_t number = ready_[i];
    Ring& ring = rings_[number];
    hand_out_ring(number, out);
    if ((ring.arrived >> ring.next % sizes_.slots & 1U) != 0) {
      ready_[kept++] = number;  // no room for its next message now
    } else {
      ring.queued = false;
    }
  }
  ready_.resize(kept);
  if (kept > 1) std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
}

void Worker::hand_out_ring(std::uint32_t number, Out& out) {
  Ring& ring = rings_[number];
  while (out.room()) {
    const auto in_ring = static_cast<std::uint32_t>(ring.next % sizes_.slots);
    if ((ring.arrived >> in_ring & 1U) == 0) return;
    const std::byte* slot =
        station_->block.data() + sizes_.rings_at() + (std::uint64_t{number} * sizes_.slots + in_ring) * kSlotBytes;
    ring.arrived &= ~(1U << in_ring);
    ++ring.next;
    if (ring.lent++ == 0) lending_.push_back(number);
    if (!ring.greeted) {
      if (!accept_hello(ring, slot, ring.length[in_ring])) ++malformed_;
      continue;
    }
    SlotHead head;
    std::memcpy(&head, slot, sizeof head);
    if (head.bytes > kMostMessage || head.bytes + sizeof head != ring.length[in_ring]) {
      ++malformed_;
      continue;
    }
    Completion completion;
    completion.event = Event::message;
    completion.data = slot + sizeof head;
    completion.bytes = head.bytes;
    completion.immediate = head.immediate;
    completion.rank = ring.rank;
    completion.worker = ring.worker;
    out.add(completion);
  }
}

bool Worker::accept_hello(Ring& ring, const std::byte* slot, std::uint32_t length) {
  Hello hello;
  std::memcpy(&hello, slot, sizeof hello);
  if (length != sizeof hello || hello.magic != Hello::kMagic || !sealed(hello, device_.secret()) ||
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
void Worker::release_lent() {
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

void Worker::return_credits() {
  std::size_t kept = 0;
  for (const std::uint32_t number : owing_) {
    Ring& ring = rings_[number];
    if (failed_[ring.rank] != 0) continue;
    const int code = calls_.put_piggyback8(handle_, ring.vcq, ring.next, ring.credit_stadd, sizeof(std::uint64_t),
                                           ring.owed, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr);
    tcq_due_ = true;
    if (code == UTOFU_ERR_BUSY) {
      owing_[kept++] = number;
    } else {
      ring.owed = 0;
    }
  }
  owing_.resize(kept);
}

}  // namespace heddle::transport::utofu
