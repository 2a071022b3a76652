// The worker's receiving side: it finds new rings and scans the known ones.
#include <algorithm>
#include <new>

#include "transport/shm/port.hpp"

namespace heddle::transport::shm {

// While a ring streams, what a look costs decides how long it rests.
[[gnu::noinline]] queue::Take Port::timed_look(IncomingRing& from) {
  if (from.ring.knows()) return queue::Take::record;  // the line is here already
  base::Clock& clock = *device_.environment().clock;
  const std::uint64_t begin = clock.now_ns();
  const queue::Take found = from.ring.look();
  if (found == queue::Take::record) from.looked(clock.now_ns() - begin);
  return found;
}

[[gnu::always_inline]] inline queue::Take Port::look(IncomingRing& from) {
  return from.streams() ? timed_look(from) : from.ring.look();
}

// Nothing is to be taken from it now. Most looks of a thread that waits end here.
[[gnu::always_inline]] inline bool Port::rests(IncomingRing& from) {
  if (from.rest != 0) {
    --from.rest;
    return true;
  }
  if (look(from) != queue::Take::none || (any_failed_ && failed_[from.peer->rank] != 0)) return false;
  from.pace(0);
  return true;
}

// Most workers hear from one other, and most polls of a thread that waits find nothing. That path
// calls nothing, so that no registers are saved, and a message that it finds is taken at once.
std::size_t Port::poll(std::span<Completion> completions) {
  polled_ = true;
  if (only_ == nullptr || entry_.attention.wanted() || !backlog_.empty() || !transfers_.idle()) [[unlikely]]
    return poll_all(completions);
  if (!lent_.empty()) return poll_after_lending(completions);
  IncomingRing& from = *only_;
  if (from.rest != 0) {
    --from.rest;
    return 0;
  }
  if (look(from) != queue::Take::none || (any_failed_ && failed_[from.peer->rank] != 0)) return take_only(completions);
  from.pace(0);
  return 0;
}

[[gnu::noinline]] std::size_t Port::poll_after_lending(std::span<Completion> completions) {
  release_lent();
  return poll(completions);
}

// The only ring is known to have something, or is to be dropped; nothing is lent. One message that
// is found by a thread that waits for it takes the short way.
[[gnu::noinline]] std::size_t Port::take_only(std::span<Completion> completions) {
  IncomingRing& from = *only_;
  queue::Record record;
  if (completions.empty() || !from.ring.knows() ||
      !from.ring.take_copy(kMessageType, max_message_, from.copy, &record)) {
    return take_rest(completions, 0);
  }
  completions.front() = {Event::message,   HEDDLE_DONE,     0,          record.data, record.bytes,
                         record.immediate, from.peer->rank, from.worker};
  from.lent = true;
  lent_.push_back(&from);
  if (from.ring.knows()) [[unlikely]]
    return take_rest(completions, 1);
  from.pace(1);
  return 1;
}

// `n`: so many completions are there already.
[[gnu::noinline]] std::size_t Port::take_rest(std::span<Completion> completions, std::size_t n) {
  n += drain(0, completions.subspan(n));
  return moved_ ? note_moved(completions, n) : n;
}

[[gnu::noinline]] std::size_t Port::poll_all(std::span<Completion> completions) {
  if (!lent_.empty()) release_lent();
  if (entry_.attention.wanted()) [[unlikely]]
    discover();
  if (!transfers_.idle()) [[unlikely]]
    moved_ |= transfers_.advance();
  std::size_t n = backlog_.empty() ? 0 : backlog_.drain(completions);
  const std::size_t hot = std::min(incoming_.size(), kHot);
  if (++turn_ >= hot) turn_ = 0;
  // drop() may remove a ring from the list during this loop; the next poll then scans the ring that
  // was moved to its position.
  for (std::size_t i = 0; i < hot && n < completions.size(); ++i) {
    const std::size_t position = turn_ + i < hot ? turn_ + i : turn_ + i - hot;
    if (position < incoming_.size() && !rests(*incoming_[position])) n += drain(position, completions.subspan(n));
  }
  if (incoming_.size() > kHot) n += drain_cold(completions.subspan(n));
  if (moved_) [[unlikely]]
    return note_moved(completions, n);
  return n;
}

// A waiting thread should go on looking. If it slept, the peers that it serves would find it
// asleep, and its own transfers would stand still.
[[gnu::cold]] std::size_t Port::note_moved(std::span<Completion> completions, std::size_t n) {
  moved_ = false;
  if (n != 0 || completions.empty()) return n;
  completions.front() = Completion{};
  return 1;
}

// Our own transfers advance only in poll(): the target's part of a transfer does not ring.
bool Port::arm() {
  if (!lent_.empty() || !backlog_.empty() || !transfers_.idle()) return false;
  entry_.attention.ignore();
  if (!device_.membarrier()) {
    entry_.armed.store(queue::kArmed, std::memory_order_relaxed);
  } else if (arming_.arm(device_.environment().clock->now_ns(), [] { return Device::heavy_fence(); })) {
    Device::want_heavy_fence();
  }
  return true;
}

bool Port::has_arrivals() {
  return entry_.attention.has_rings() || std::any_of(incoming_.begin(), incoming_.end(),
                                                     [](const IncomingRing* from) { return from->ring.has_more(); });
}

void Port::release_lent() {
  for (IncomingRing* from : lent_) {
    if (!from->took_cells) {
      from->ring.release();
    } else {
      from->took_cells = false;
      const bool now = from->cell_bytes >= kCellPortion;
      from->ring.release_soon(now);
      if (now) from->cell_bytes = 0;
    }
    from->lent = false;
  }
  lent_.clear();
}

// A message that lies in a cell of its sender.
Served Port::look_in_cell(IncomingRing& from, const queue::Record& record, Completion* out) {
  *out = {Event::message, HEDDLE_DONE, 0, nullptr, 0, record.immediate, from.peer->rank, from.worker};
  const Served outcome = locate(device_.layout(), from, record, &out->data, &out->bytes);
  if (outcome != Served::done) return outcome;
  from.took_cells = true;
  from.cell_bytes += out->bytes;
  return outcome;
}

// A request of the peer. If the peer is known to have died, its requests do not touch memory any
// more: the program may have given the memory another use. `*served` is raised by the work that it
// was.
Served Port::serve(IncomingRing& from, const queue::Record& record, std::size_t* served) {
  const bool small = record.type == kSmallPutType || record.type == kSmallGetType;
  if (!small && record.type != kPutType && record.type != kGetType) return Served::malformed;
  const Served outcome = device_.failed(from.peer->rank) ? Served::done
                         : small                         ? transfers_.serve_small(*from.peer, from.worker, record)
                                                         : transfers_.serve(*from.peer, record);
  if (outcome == Served::done) *served += small ? 1 : weight(from.peer->agreement.bounce_chunk_bytes);
  return outcome;
}

std::size_t Port::drain(std::size_t position, std::span<Completion> out) {
  IncomingRing& from = *incoming_[position];
  std::size_t n = 0;
  std::size_t served = 0;
  queue::Take taken = queue::Take::record;
  const std::uint32_t rank = from.peer->rank;
  const std::uint32_t number = from.worker;
  const auto arrived = [rank, number](Completion& completion, const std::byte* data, std::uint32_t bytes,
                                      std::uint32_t immediate) {
    completion = {Event::message, HEDDLE_DONE, 0, data, bytes, immediate, rank, number};
  };
  while (n < out.size() && served < kServed) {
    taken = from.ring.look();
    if (taken != queue::Take::record) break;
    queue::Record record;
    // Takes at most one copy until that is released: the next one would lie in the same memory. A
    // poll may come here twice for one ring (drain_cold()).
    if (n == 0 && !from.lent && from.ring.take_copy(kMessageType, max_message_, from.copy, &record))
      arrived(out[n++], record.data, record.bytes, record.immediate);
    n += from.ring.take_known(kMessageType, max_message_, out.size() - n,
                              [&](std::size_t i, const std::byte* data, std::uint32_t bytes, std::uint32_t immediate) {
                                arrived(out[n + i], data, bytes, immediate);
                              });
    if (n == out.size()) break;
    // What comes now is for the next poll: a look costs as much as a message, and where a ring
    // streams it is worth that. The ring of a peer that has failed is read to its end.
    if (n != 0 && !from.ring.knows() && !from.streams() && failed_[rank] == 0) {
      taken = queue::Take::none;
      break;
    }
    if (n + served != 0 && from.ring.taken() >= from.ring.portion()) break;
    // Not a message in the ring, the end of the ring, or nothing more.
    taken = from.ring.take(&record);
    if (taken != queue::Take::record) break;
    if (record.type == kMessageType && record.bytes <= max_message_) {
      arrived(out[n++], record.data, record.bytes, record.immediate);
      continue;
    }
    const bool in_cell = record.type == kCellType;
    const Served outcome = in_cell ? look_in_cell(from, record, &out[n]) : serve(from, record, &served);
    if (outcome == Served::done) {
      if (in_cell) served += weight(out[n++].bytes);
      continue;
    }
    // the next poll takes it again
    if (outcome == Served::no_memory) from.ring.put_back(record);
    taken = outcome == Served::no_memory ? queue::Take::none : queue::Take::malformed;
    break;
  }
  if (served != 0) [[unlikely]]
    moved_ = true;
  if (n + served != 0 && !from.lent) {
    from.lent = true;
    lent_.push_back(&from);
  }
  if (taken == queue::Take::none) from.pace(n);
  if (taken == queue::Take::malformed) [[unlikely]] {
    malformed(from.peer->rank, "a message ring");
    // otherwise the sender, which may not know of the fault, would wait for room and answers for
    // ever
    from.ring.reject();
    drop(position);
  } else if (taken == queue::Take::none && failed_[from.peer->rank] != 0) [[unlikely]] {
    drop(position);
  }
  return n;
}

std::size_t Port::drain_cold(std::span<Completion> out) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < kColdPortion && n < out.size() && incoming_.size() > kHot; ++i) {
    if (cold_ < kHot || cold_ >= incoming_.size()) cold_ = kHot;
    const IncomingRing* from = incoming_[cold_];
    const std::size_t got = rests(*incoming_[cold_]) ? 0 : drain(cold_, out.subspan(n));
    n += got;
    if (got != 0 && cold_ < incoming_.size() && incoming_[cold_] == from) {
      std::swap(incoming_[cold_], incoming_[victim_]);
      victim_ = (victim_ + 1) % kHot;
    }
    ++cold_;
  }
  return n;
}

// The ring is not scanned again. Its object stays: records of it may be lent.
void Port::drop(std::size_t position) {
  incoming_[position] = incoming_.back();
  incoming_.pop_back();
  note_only();
}

[[gnu::cold]] void Port::malformed(std::uint32_t rank, const char* what) {
  ++counters_.malformed;
  device_.environment().log.line(base::Level::error, "%s from rank %u is malformed and was closed; worker %u goes on",
                                 what, rank, index_);
}

[[gnu::cold]] void Port::not_met(std::uint32_t rank, base::Status status) {
  // it died before we set it up; the messages that it had sent are lost
  if (status == HEDDLE_ERR_PEER_FAILED) return;
  if (status == HEDDLE_ERR_PROTOCOL) return malformed(rank, "the card");
  if (status == HEDDLE_ERR_VERSION) {
    ++counters_.malformed;
    device_.environment().log.line(base::Level::error, "messages of rank %u are refused: %s", rank,
                                   base::last_message());
    return;
  }
  // Its card is under way, or we lack descriptors or memory for it now: the next poll tries again.
  if (status != HEDDLE_AGAIN && unmet_told_[rank] == 0) {
    unmet_told_[rank] = 1;
    device_.environment().log.line(base::Level::error, "messages of rank %u wait until it can be met: %s", rank,
                                   base::last_message());
  }
  device_.control().senders(index_, rank / 64).fetch_or(std::uint64_t{1} << (rank % 64), std::memory_order_relaxed);
  entry_.attention.announce();
}

[[gnu::cold]] void Port::discover() {
  // An announcement after this sets it again.
  if (!entry_.attention.take()) return;
  for (std::uint32_t word = 0; word < device_.layout().sender_words; ++word) {
    std::uint64_t bits = device_.control().senders(index_, word).exchange(0, std::memory_order_acquire);
    while (bits != 0) {
      const auto rank = word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
      bits &= bits - 1;
      if (rank < device_.size()) {
        try {
          read_ring_list(rank);
        } catch (const std::bad_alloc&) {
          not_met(rank, HEDDLE_AGAIN);  // announces it again, so that the next poll tries again
        }
      } else {
        malformed(rank, "an announcement");
      }
    }
  }
}

void Port::read_ring_list(std::uint32_t rank) {
  const auto peer = device_.peer(rank);
  if (!peer) return not_met(rank, peer.status());
  const ControlView& control = (*peer)->control;
  const std::uint64_t count = control.header().ring_count.load(std::memory_order_acquire);
  if (count > device_.layout().max_rings) return malformed(rank, "a ring list");
  for (std::uint64_t& i = cursors_[rank]; i < count; ++i) {
    const RingEntry entry = control.ring(i);
    if (entry.target_rank == device_.rank() && entry.target_worker == index_) accept(**peer, entry);
  }
}

void Port::accept(PeerProcess& peer, const RingEntry& entry) {
  const Layout& layout = device_.layout();
  if (entry.source_worker >= layout.max_workers || entry.offset < layout.control_bytes) {
    return malformed(peer.rank, "a ring");
  }
  const std::uint64_t page = page_bytes();
  const auto memory = peer.mapping->map(entry.offset, (layout.ring_bytes + page - 1) / page * page);
  if (!memory) return malformed(peer.rank, "a ring");
  auto* control = reinterpret_cast<queue::RingControl<>*>(*memory);
  // Everything that may throw comes before any change: then the next poll finds the ring again.
  auto made = std::make_unique<IncomingRing>();
  incoming_.reserve(incoming_.size() + 1);
  owned_incoming_.reserve(owned_incoming_.size() + 1);
  lent_.reserve(owned_incoming_.size() + 1);
  made->ring = queue::RecordConsumer<>(control, *memory + sizeof *control, layout.ring_capacity);
  made->peer = &peer;
  made->worker = entry.source_worker;
  // A new ring is hot: its first message is there already, or comes soon.
  incoming_.push_back(made.get());
  if (incoming_.size() > kHot) {
    std::swap(incoming_.back(), incoming_[victim_]);
    victim_ = (victim_ + 1) % kHot;
  }
  owned_incoming_.push_back(std::move(made));
  note_only();
}

}  // namespace heddle::transport::shm
