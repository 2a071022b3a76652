#include "transport/loopback/node.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/fd.hpp"
#include "base/fence.hpp"

namespace heddle::transport::loopback {

bool Mailbox::put(const Command& message, SenderId from, const queue::Bell<>* bell) {
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

std::uint64_t Mailbox::unopened(SenderId from) {
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
  std::unordered_map<std::uint64_t, std::shared_ptr<HeldRegion>> regions;
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
  auto region = std::make_shared<HeldRegion>();
  region->address = address;
  region->bytes = bytes;
  region->pages = std::move(pages);
  const std::lock_guard lock(mutex_);
  regions_.emplace(++next_, std::move(region));
  return next_;
}

void Node::remove(std::uint64_t number) {
  std::shared_ptr<HeldRegion> region;
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
  const std::shared_ptr<HeldRegion> region = find(number);
  return region == nullptr ? 0 : region->bytes;
}

std::shared_ptr<HeldRegion> Node::find(std::uint64_t number) {
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

namespace {

// The card of a loopback rank, which tells it from other transports' cards.
constexpr std::string_view kCardTag = "heddle loopback 2";
constexpr std::size_t kCardBytes = kCardTag.size() + sizeof(Agreed);

}  // namespace

Ranks::Ranks(bootstrap::Bootstrap& bootstrap, std::shared_ptr<Node> self, const Agreed& agreed)
    : bootstrap_(bootstrap), agreed_(agreed), known_(bootstrap.size()) {
  known_[self->rank()].store(self.get(), std::memory_order_release);
  owned_.push_back(std::move(self));
}

// Everything that this rank did with the nodes comes before their last holder frees them; see
// node.hpp.
Ranks::~Ranks() {
  for (const auto& node : owned_) base::show_release(node.get());
}

base::Status Ranks::publish() {
  bootstrap::Card card;
  card.pid = static_cast<std::int32_t>(::getpid());
  const auto* tag = reinterpret_cast<const std::byte*>(kCardTag.data());
  card.bytes.resize(kCardBytes);
  std::memcpy(card.bytes.data(), tag, kCardTag.size());
  std::memcpy(card.bytes.data() + kCardTag.size(), &agreed_, sizeof agreed_);
  card.object = owned_.front();
  return bootstrap_.publish(card);
}

base::Result<Node*> Ranks::get(std::uint32_t rank) {
  if (rank >= known_.size()) {
    return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %zu", rank, known_.size() - 1);
  }
  Node* node = known_[rank].load(std::memory_order_acquire);
  if (node != nullptr) return node;
  return meet(rank);
}

base::Result<Node*> Ranks::meet(std::uint32_t rank) {
  auto card = bootstrap_.fetch(rank);
  if (!card) return card.status();
  const base::Fd fd(card->fd);  // of a rank with another transport
  const std::string_view bytes(reinterpret_cast<const char*>(card->bytes.data()), card->bytes.size());
  if (bytes.size() != kCardBytes || !bytes.starts_with(kCardTag)) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "rank %u does not use the loopback transport; give all ranks the same "
                      "HEDDLE_TRANSPORT",
                      rank);
  }
  if (card->object == nullptr || card->pid != ::getpid()) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "the loopback transport joins ranks of one process, and rank %u is process %d; "
                      "use HEDDLE_TRANSPORT=shm",
                      rank, card->pid);
  }
  Agreed theirs;
  std::memcpy(&theirs, card->bytes.data() + kCardTag.size(), sizeof theirs);
  if (const base::Status status = check_agreed(theirs, agreed_, rank); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  owned_.push_back(std::static_pointer_cast<Node>(card->object));
  known_[rank].store(owned_.back().get(), std::memory_order_release);
  return owned_.back().get();
}

namespace {

struct KeyBytes {
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t seal = 0;

  static constexpr std::uint32_t kMagic = 0x4b504c48;  // "HLPK"
};
static_assert(sizeof(KeyBytes) == kRegionKeyBytes);

// A checksum that depends on the secret: against accident and confusion of jobs, not against an
// attacker who computes.
std::uint64_t seal(const KeyBytes& key, const bootstrap::JobSecret& secret) {
  std::array<std::uint64_t, sizeof key / 8> words;
  std::memcpy(words.data(), &key, sizeof key);
  std::array<std::uint64_t, 2> keys;
  static_assert(sizeof keys == sizeof secret);
  std::memcpy(keys.data(), secret.data(), sizeof keys);
  std::uint64_t sum = keys[0];
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    sum = (sum ^ words[i]) * 0xBF58476D1CE4E5B9ULL;
    sum ^= sum >> 29;
  }
  sum = (sum ^ keys[1]) * 0x94D049BB133111EBULL;
  return sum ^ sum >> 31;
}

}  // namespace

MemoryKey encode_key(const RegionName& name, const bootstrap::JobSecret& secret) {
  KeyBytes bytes;
  bytes.rank = name.rank;
  bytes.id = name.id;
  bytes.bytes = name.bytes;
  bytes.seal = seal(bytes, secret);
  MemoryKey key;
  std::memcpy(key.bytes.data(), &bytes, sizeof bytes);
  return key;
}

std::optional<RegionName> decode_key(const MemoryKey& key, const bootstrap::JobSecret& secret) {
  KeyBytes bytes;
  std::memcpy(&bytes, key.bytes.data(), sizeof bytes);
  const bool ends = std::all_of(key.bytes.begin() + sizeof bytes, key.bytes.end(),
                                [](std::byte byte) { return byte == std::byte{0}; });
  if (bytes.magic != KeyBytes::kMagic || bytes.seal != seal(bytes, secret) || !ends) return std::nullopt;
  return RegionName{bytes.rank, bytes.id, bytes.bytes};
}

}  // namespace heddle::transport::loopback
