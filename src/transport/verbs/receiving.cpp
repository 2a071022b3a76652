#include "transport/verbs/port.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace heddle::transport::verbs {

Receiving::Receiving(Port& port) : port_(port), window_(port.device().window()), by_pair_(16) {}

base::Status Receiving::open(const CompletionChannel& channel) {
  const Adapter& adapter = port_.adapter();
  const auto most = static_cast<std::uint32_t>(adapter.limits().max_srq_wr);
  const std::uint32_t entries = std::min(kEntries, most) / kRefill * kRefill;
  if (entries == 0)
    return base::fail(HEDDLE_ERR_SYSTEM, "%s has shared receive queues of %u entries; at least %u are needed",
                      adapter.name().c_str(), most, kRefill);
  if (const base::Status status = queue_.open(adapter, channel, entries, &port_); status != HEDDLE_DONE) return status;
  ibv_srq_init_attr make{};
  make.srq_context = &port_;
  make.attr.max_wr = entries;
  make.attr.max_sge = 1;
  shared_ = adapter.call().create_srq(adapter.domain(), &make);
  if (shared_ == nullptr)
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no shared receive queue of %u entries", adapter.name().c_str(),
                            entries);
  for (std::uint32_t i = 0; i < kRefill; ++i) {
    entries_[i] = {};
    entries_[i].next = i + 1 < kRefill ? &entries_[i + 1] : nullptr;
  }
  for (missing_ = entries; missing_ != 0;) refill();
  more_.reserve(entries + read_.size());
  return HEDDLE_DONE;
}

void Receiving::close() {
  if (shared_ != nullptr) port_.adapter().call().destroy_srq(std::exchange(shared_, nullptr));
  queue_.close();
}

void Receiving::refill() {
  ibv_recv_wr* bad = nullptr;
  static_cast<void>(ibv_post_srq_recv(shared_, entries_.data(), &bad));  // it has room
  missing_ -= kRefill;
}

void Receiving::make_room_for(std::size_t peers) {
  network::make_room(&lending_, peers);
  network::make_room(&owing_, peers);
  if (by_pair_.size() >= 2 * peers) return;
  std::vector<PeerState*> larger(std::bit_ceil(4 * peers));
  larger.swap(by_pair_);
  for (PeerState* peer : larger) {
    if (peer != nullptr) enter(*peer);
  }
}

void Receiving::enter(PeerState& peer) {
  std::size_t at = slot_of(peer.pair_number);
  while (by_pair_[at] != nullptr && by_pair_[at] != &peer) at = slot_of(at + 1);
  by_pair_[at] = &peer;
}

// Entries behind it, up to the next free one, might not be found any more, so they are entered
// anew. The next pair may get the number of this one, so completions of this one that were read are
// dropped.
void Receiving::leave(const PeerState& peer) {
  for (ibv_wc* entry = begin_; entry != end_; ++entry) {
    if (entry->qp_num == peer.pair_number) entry->qp_num = 0;
  }
  read_all();
  missing_ += static_cast<std::uint32_t>(
      std::erase_if(more_, [&peer](const ibv_wc& entry) { return entry.qp_num == peer.pair_number; }));
  while (missing_ >= kRefill) refill();
  std::size_t at = slot_of(peer.pair_number);
  while (by_pair_[at] != &peer) {
    if (by_pair_[at] == nullptr) return;
    at = slot_of(at + 1);
  }
  by_pair_[at] = nullptr;
  for (at = slot_of(at + 1); by_pair_[at] != nullptr; at = slot_of(at + 1))
    enter(*std::exchange(by_pair_[at], nullptr));
}

inline PeerState* Receiving::find(std::uint32_t pair) const {
  for (std::size_t at = slot_of(pair); by_pair_[at] != nullptr; at = slot_of(at + 1)) {
    if (by_pair_[at]->pair_number == pair) return by_pair_[at];
  }
  return nullptr;
}

bool Receiving::look() {
  if (has_some()) return false;
  std::size_t count = std::min(more_.size(), read_.size());
  if (count == 0) {
    count = queue_.poll(read_);
  } else {
    std::copy_n(more_.begin(), count, read_.begin());
    more_.erase(more_.begin(), more_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  begin_ = read_.data();
  end_ = begin_ + count;
  missing_ += static_cast<std::uint32_t>(count);
  while (missing_ >= kRefill) refill();
  return has_some();
}

// Completions that are kept still have their entries of the shared queue, so there are never more
// completions than entries.
void Receiving::read_all() {
  std::array<ibv_wc, 16> some;
  while (more_.size() + some.size() <= more_.capacity()) {
    const std::size_t count = queue_.poll(some);
    if (count == 0) return;
    more_.insert(more_.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
  }
}

// Nothing more is taken from the peer: the completions behind this one would seem to be its next
// messages.
[[gnu::cold]] void Receiving::wrong(PeerState& peer, const ibv_wc& entry) {
  if (entry.status != IBV_WC_SUCCESS) {
    port_.note_lost(peer, port_.adapter().call().wc_status_str(entry.status));
  } else {
    const bool message = entry.opcode == IBV_WC_RECV_RDMA_WITH_IMM && entry.byte_len <= kMostMessage;
    port_.note_malformed(peer, message ? "it has sent more than it has credit for" : "it has sent what is no message");
  }
  leave(peer);
}

// A message has arrived. The caller counts it: the stream has then arrived up to `end`. Null: it
// was no message.
inline PeerState* Receiving::arrived(const ibv_wc& entry, std::byte** data, std::uint32_t* end) {
  PeerState* peer = find(entry.qp_num);
  if (peer == nullptr) return nullptr;  // of a pair that was destroyed
  const std::uint32_t cost = cost_of(entry.byte_len);
  *end = peer->arrived + cost;
  if (entry.status != IBV_WC_SUCCESS || entry.opcode != IBV_WC_RECV_RDMA_WITH_IMM || entry.byte_len > kMostMessage ||
      *end - peer->told_consumed > window_) [[unlikely]] {
    wrong(*peer, entry);
    return nullptr;
  }
  peer->is_up = true;
  *data = peer->mine.mailbox->ring() + peer->read_at;
  const std::uint32_t behind = peer->read_at + cost;
  peer->read_at = behind < window_ ? behind : 0;
  return peer;
}

void Receiving::hand_out() {
  network::Completions& completions = port_.completions();
  while (completions.has_room()) {
    if (!has_some() && !look()) return;
    const ibv_wc& entry = *begin_++;
    std::byte* data = nullptr;
    std::uint32_t end = 0;
    PeerState* peer = arrived(entry, &data, &end);
    if (peer == nullptr) [[unlikely]]
      continue;
    if (peer->arrived == peer->consumed) lending_.push_back(peer);
    peer->arrived = end;
    Completion* to = completions.slot();
    to->event = Event::message;
    to->status = HEDDLE_DONE;
    to->token = 0;
    to->data = data;
    to->bytes = entry.byte_len;
    to->immediate = entry.imm_data;
    static_assert(offsetof(Completion, worker) == offsetof(Completion, rank) + sizeof(std::uint32_t));
    std::memcpy(&to->rank, &peer->rank, 2 * sizeof to->rank);  // and the worker, which follows
  }
}

void Receiving::drop_all() {
  release_lent();
  while (has_some() || look()) {
    std::byte* data = nullptr;
    std::uint32_t end = 0;
    PeerState* peer = arrived(*begin_++, &data, &end);
    if (peer == nullptr) continue;
    peer->consumed = peer->arrived = end;
    owe(*peer);
  }
  send_owed();
}

// ---- credit -------------------------------------------------------------------------------------

void Receiving::owe(PeerState& peer) {
  if (peer.consumed - peer.told_consumed < window_ / 2 || std::exchange(peer.owing, true)) return;
  owing_.push_back(&peer);
}

void Receiving::release_all_lent() {
  for (PeerState* peer : lending_) {
    peer->consumed = peer->arrived;
    owe(*peer);
  }
  lending_.clear();
  if (!owing_.empty()) send_owed();
}

void Receiving::send_owed() {
  std::erase_if(owing_, [this](PeerState* peer) {
    if (peer->pair != nullptr && !peer->told_end) {  // else it needs no credit
      const std::uint32_t consumed = peer->consumed;
      if (!port_.sending().send_credit(*peer)) return false;
      peer->told_consumed = consumed;
    }
    peer->owing = false;
    return true;
  });
}

}  // namespace heddle::transport::verbs
