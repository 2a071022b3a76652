#include "collective/partitioned/switchboard.hpp"

#include <algorithm>
#include <new>

#include "collective/partitioned/partitioned.hpp"

namespace heddle::collective::partitioned {

using wire::PartitionedKind;

std::unique_ptr<engine::Protocol> Switchboard::open(worker::Worker& worker) {
  return std::make_unique<Switchboard>(worker);
}

Switchboard& Switchboard::of(worker::Worker& worker) {
  return *static_cast<Switchboard*>(worker.extension());
}

Switchboard::~Switchboard() = default;

// ---- the program's threads ----------------------------------------------------------------------

base::Result<std::uint64_t> Switchboard::add_send(const Shape& shape, const void* data) {
  return add(std::make_unique<Sender>(worker_, *this, shape, data));
}

base::Result<std::uint64_t> Switchboard::add_receive(const Shape& shape, void* data) {
  auto made = std::make_unique<Receiver>(worker_, *this, shape, data);
  if (const base::Status status = made->prepare(); status != HEDDLE_DONE) return status;
  return add(std::move(made));
}

base::Result<std::uint64_t> Switchboard::add(std::unique_ptr<PartitionedSide> made) {
  auto added = operations_.add(std::move(made));
  if (!added) return added.status();
  base::Status status = HEDDLE_DONE;
  visit(worker_, [&] {
    // If one thread makes all calls, this runs on that thread: no exception may pass through its
    // loop.
    try {
      status = enter(**added);
    } catch (const std::bad_alloc&) {
      status = base::fail(HEDDLE_ERR_NO_MEMORY, "memory is exhausted; the partitioned operation was not made");
    }
    if (status == HEDDLE_DONE) return;
    numbered_.erase((*added)->number());
    operations_.remove(*added);
  });
  if (status != HEDDLE_DONE) return status;
  return operations_.handle(*added);
}

// ---- making and freeing -------------------------------------------------------------------------

base::Status Switchboard::enter(PartitionedSide& operation) {
  const heddle_peer peer = operation.shape().peer;
  operation.set_number(next_number_++);
  numbered_.emplace(operation.number(), &operation);
  wanting_.reserve(numbered_.size());
  turn_.reserve(numbered_.size());
  buried_.reserve(numbered_.size());
  // Checked after the operation is in the list that note_failures() looks at.
  if (worker_.context().failed(peer.rank)) {
    return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u, the peer of a partitioned operation, has failed", peer.rank);
  }
  if (operation.sends()) return offer(static_cast<Sender&>(operation));
  expect(static_cast<Receiver&>(operation));
  return HEDDLE_DONE;
}

base::Status Switchboard::offer(Sender& send) {
  const heddle_peer peer = send.shape().peer;
  Target& target = targets_[peer_of(peer)];
  if (target.waiting >= HEDDLE_MOST_UNMATCHED) {
    return base::fail(
        HEDDLE_ERR_NO_MEMORY,
        "heddle_psend_init: %u sends of this worker wait for a heddle_precv_init of worker %u of rank %u; "
        "let that make some, and make progress here",
        HEDDLE_MOST_UNMATCHED, peer.worker, peer.rank);
  }
  ++target.waiting;
  send.set_sequence(target.next++);
  send.owe(PartitionedKind::offer);
  if (!send.advance()) want(send);
  return HEDDLE_DONE;
}

void Switchboard::expect(Receiver& receive) {
  const Shape& shape = receive.shape();
  Queue& queue = queues_[{shape.peer.rank, shape.peer.worker, shape.tag}];
  if (queue.offers.empty()) return queue.receives.push_back(&receive);
  const Offer offer = queue.offers.front();
  queue.offers.pop_front();
  --sources_[peer_of(shape.peer)].kept;
  match(receive, offer);
}

void Switchboard::match(Receiver& receive, const Offer& offer) {
  const Shape& shape = receive.shape();
  forget(receive);
  if (offer.bytes <= shape.total()) {
    receive.accept(offer.number, offer.partitions, offer.bytes);
  } else {
    receive.match(offer.number);
    receive.fail_totals(offer.partitions, offer.bytes);
    receive.reject(HEDDLE_ERR_ARGUMENT);
  }
  if (!receive.advance()) want(receive);
}

void Switchboard::forget(const Receiver& receive) {
  const Shape& shape = receive.shape();
  const auto found = queues_.find({shape.peer.rank, shape.peer.worker, shape.tag});
  if (found == queues_.end()) return;
  std::erase(found->second.receives, &receive);
  if (found->second.receives.empty() && found->second.offers.empty()) queues_.erase(found);
}

void Switchboard::bury(PartitionedSide& operation) {
  std::unique_ptr<PartitionedSide> own = operations_.remove(&operation);
  if (own == nullptr) return;
  if (!operation.sends() && !operation.matched()) forget(static_cast<Receiver&>(operation));
  operation.release();
  operation.bury();
  if (!operation.advance()) want(operation);
  buried_.push_back(std::move(own));  // capacity is reserved, see enter()
  sweep();
}

// True: a freed operation that is needed no longer. An offered send is kept until its receiver
// answers, since the receiver must be told that the send is gone.
bool Switchboard::is_over(const PartitionedSide& operation) {
  return !operation.owes() && (!operation.sends() || !static_cast<const Sender&>(operation).waits());
}

void Switchboard::sweep() {
  std::erase_if(buried_, [this](const auto& operation) {
    if (!is_over(*operation)) return false;
    numbered_.erase(operation->number());
    return true;
  });
}

void Switchboard::want(PartitionedSide& operation) {
  if (ended_ || std::ranges::find(wanting_, operation.number()) != wanting_.end()) return;
  wanting_.push_back(operation.number());
  worker_.core().want_advance();
}

// ---- progress -----------------------------------------------------------------------------------

bool Switchboard::advance(bool* more) {
  if (wanting_.empty()) return false;
  turn_.swap(wanting_);
  bool moved = false;
  for (const std::uint64_t number : turn_) {
    const auto found = numbered_.find(number);
    if (found == numbered_.end()) continue;
    if (found->second->advance()) {
      moved = true;
    } else {
      wanting_.push_back(number);
    }
  }
  turn_.clear();
  if (!buried_.empty()) sweep();
  *more = *more || !wanting_.empty();
  return moved;
}

bool Switchboard::arrived(heddle_peer source, std::uint32_t /*immediate*/, std::span<const std::byte> packet) {
  const auto message = wire::decode_partitioned(packet);
  if (!message) return false;
  try {
    return message->head.kind == PartitionedKind::offer ? arrived_offer(source, message->head)
                                                        : arrived_for(source, *message);
  } catch (const std::bad_alloc&) {
    // the message is dropped, counted and reported; its operation waits until its worker or the
    // peer's worker is closed
    return false;
  }
}

bool Switchboard::arrived_offer(heddle_peer source, const wire::PartitionedHeader& head) {
  // otherwise the offer would wait here for ever
  if (worker_.context().failed(source.rank)) return true;
  Source& from = sources_[peer_of(source)];
  if (head.number < from.next || from.early.size() + from.kept >= HEDDLE_MOST_UNMATCHED) return false;
  if (head.number != from.next) return from.early.emplace(head.number, head).second;
  take_offer(source, from, head);
  for (auto first = from.early.begin(); first != from.early.end() && first->first == from.next;) {
    take_offer(source, from, first->second);
    first = from.early.erase(first);
  }
  return true;
}

void Switchboard::take_offer(heddle_peer source, Source& from, const wire::PartitionedHeader& head) {
  Queue& queue = queues_[{source.rank, source.worker, head.tag}];
  const Offer offer{head.from, head.bytes, head.partitions};
  if (queue.receives.empty()) {
    queue.offers.push_back(offer);
    ++from.kept;
    ++from.next;
    return;
  }
  ++from.next;
  Receiver* receive = queue.receives.front();
  queue.receives.pop_front();
  match(*receive, offer);
}

void Switchboard::answered(const PartitionedSide& send) {
  if (!static_cast<const Sender&>(send).waits()) return;
  const auto target = targets_.find(peer_of(send.shape().peer));
  if (target != targets_.end() && target->second.waiting > 0) --target->second.waiting;
}

bool Switchboard::arrived_for(heddle_peer source, const wire::PartitionedMessage& message) {
  const wire::PartitionedHeader& head = message.head;
  const auto found = numbered_.find(head.to);
  // The operation was freed while this message was on its way.
  if (found == numbered_.end()) return head.to < next_number_;
  PartitionedSide& operation = *found->second;
  if (peer_of(operation.shape().peer) != peer_of(source)) return false;
  if (operation.matched() && operation.peer_number() != head.from) return false;
  const bool waits = operation.sends() && static_cast<Sender&>(operation).waits();
  switch (head.kind) {
    case PartitionedKind::accept:
      if (!waits) return false;
      answered(operation);
      static_cast<Sender&>(operation).accepted(head.from, message.places, head.number);
      break;
    case PartitionedKind::begun:
      if (!operation.sends()) return false;
      static_cast<Sender&>(operation).begun(head.number);
      break;
    case PartitionedKind::rejected:
      if (waits) answered(operation);
      if (!operation.matched()) operation.match(head.from);
      if (head.status == HEDDLE_ERR_ARGUMENT) operation.fail_totals(head.partitions, head.bytes);
      operation.fail(static_cast<base::Status>(head.status));
      break;
    case PartitionedKind::freed:
      operation.fail(HEDDLE_ERR_CANCELLED);
      break;
    case PartitionedKind::offer:
      return false;
  }
  if (operation.buried()) {
    operation.bury();  // the peer that must be told is known now
    if (!operation.advance()) want(operation);
    sweep();
  } else if (operation.owes()) {
    if (!operation.advance()) want(operation);
  }
  return true;
}

void Switchboard::note_failures() {
  const worker::Context& context = worker_.context();
  for (const auto& [number, operation] : numbered_) {
    if (!context.failed(operation->shape().peer.rank)) continue;
    operation->fail(HEDDLE_ERR_PEER_FAILED);
    operation->owe_nothing();
    if (operation->sends()) static_cast<void>(operation->advance());  // completes what is queued
  }
  std::erase_if(queues_, [&](const auto& entry) { return context.failed(std::get<0>(entry.first)); });
  std::erase_if(sources_, [&](const auto& entry) { return context.failed(entry.first.first); });
  sweep();
}

// Tells the peers that wait for this side, if the transport takes the message now.
void Switchboard::begin_cancel() {
  if (ended_) return;
  ended_ = true;
  for (const auto& [number, operation] : numbered_) {
    operation->fail(HEDDLE_ERR_CANCELLED);
    if (!operation->buried()) operation->bury();
    static_cast<void>(operation->advance());
  }
}

}  // namespace heddle::collective::partitioned
