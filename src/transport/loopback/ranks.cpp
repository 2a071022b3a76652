#include "transport/loopback/ranks.hpp"

#include <unistd.h>

#include <cstring>
#include <string_view>

#include "base/fd.hpp"
#include "base/tsan_order.hpp"

namespace heddle::transport::loopback {
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

}  // namespace heddle::transport::loopback
