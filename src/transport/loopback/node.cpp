#include "transport/loopback/node.hpp"

#include <algorithm>
#include <cstring>

namespace heddle::transport::loopback {

bool Mailbox::put(const Command& message, Sender from, const queue::Bell<>* bell) {
  const auto bytes = static_cast<std::uint32_t>(message.packet_bytes());
  const std::lock_guard lock(mutex_);
  if (state_ == State::closed) return true;
  if (count_ == kMailboxPackets) return false;
  Packet packet{std::unique_ptr<std::uint64_t[]>(new (std::nothrow) std::uint64_t[bytes / 8 + 1]), bytes,
                message.immediate, from.rank, from.worker};
  if (packet.words == nullptr) return false;  // no room now, as when it is full
  write_packet(message, reinterpret_cast<std::byte*>(packet.words.get()));
  ring_[(first_ + count_) % kMailboxPackets] = std::move(packet);
  ++count_;
  if (armed_ && bell != nullptr) bell->ring();
  armed_ = false;
  return true;
}

void Mailbox::take(std::size_t most, std::vector<Packet>* packets) {
  const std::lock_guard lock(mutex_);
  for (std::size_t n = std::min(most, count_); n > 0; --n) {
    packets->push_back(std::move(ring_[first_]));
    first_ = (first_ + 1) % kMailboxPackets;
    --count_;
  }
}

bool Mailbox::open() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::unopened) return false;
  state_ = State::open;
  return true;
}

std::uint64_t Mailbox::unopened(Sender from) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::unopened) return 0;
  std::uint64_t messages = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const Packet& packet = ring_[(first_ + i) % kMailboxPackets];
    if (packet.rank == from.rank && packet.worker == from.worker) ++messages;
  }
  return messages;
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  state_ = State::closed;
  for (Packet& packet : ring_) packet = {};
  count_ = 0;
}

void Node::close() {
  closed_.store(true, std::memory_order_release);
  for (Mailbox& mailbox : mailboxes_) mailbox.close();
  std::unordered_map<std::uint64_t, std::shared_ptr<Region>> regions;
  {
    const std::lock_guard lock(mutex_);
    regions.swap(regions_);
  }
  for (const auto& [number, region] : regions) {
    const LetGo let_go(region.get());
    const std::lock_guard lock(region->mutex);
    region->address = nullptr;
  }
}

std::uint64_t Node::add(std::byte* address, std::uint64_t bytes, Pages pages) {
  auto region = std::make_shared<Region>();
  region->address = address;
  region->bytes = bytes;
  region->pages = std::move(pages);
  const std::lock_guard lock(mutex_);
  regions_.emplace(++next_, std::move(region));
  return next_;
}

void Node::remove(std::uint64_t number) {
  std::shared_ptr<Region> region;
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(number);
    if (found == regions_.end()) return;
    region = std::move(found->second);
    regions_.erase(found);
  }
  const LetGo let_go(region.get());
  const std::lock_guard lock(region->mutex);
  region->address = nullptr;
  region->pages.reset();
}

std::uint64_t Node::bytes_of(std::uint64_t number) {
  const std::shared_ptr<Region> region = find(number);
  return region == nullptr ? 0 : region->bytes;
}

std::shared_ptr<Region> Node::find(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(number);
  return found == regions_.end() ? nullptr : found->second;
}

base::Status Node::fail_outside(std::uint64_t size, std::uint64_t offset, std::uint64_t bytes) const {
  return base::fail(HEDDLE_ERR_RANGE, "%llu bytes at offset %llu are not inside a region of %llu bytes of rank %u",
                    static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(offset),
                    static_cast<unsigned long long>(size), rank_);
}

base::Status Node::fail_gone() const {
  if (closed()) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has left the job", rank_);
  return base::fail(HEDDLE_ERR_RANGE, "rank %u has deregistered the region; release it after the peers' last operation",
                    rank_);
}

}  // namespace heddle::transport::loopback
