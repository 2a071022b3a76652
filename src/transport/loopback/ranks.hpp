// How a loopback rank finds the others: through the object in their cards.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "transport/agreed.hpp"
#include "transport/loopback/node.hpp"

namespace heddle::transport::loopback {

// The nodes of the job whose cards this rank has read. Any thread.
class Ranks {
 public:
  Ranks(bootstrap::Bootstrap& bootstrap, std::shared_ptr<Node> self, const Agreed& agreed);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Valid as long as this object. AGAIN: the peer has not published its card yet. RANK,
  // PEER_FAILED, CONFIG, VERSION.
  [[nodiscard]] base::Result<Node*> get(std::uint32_t rank);
  // Null: its card is not read yet, or no such rank.
  [[nodiscard]] Node* find(std::uint32_t rank) const {
    return rank < known_.size() ? known_[rank].load(std::memory_order_acquire) : nullptr;
  }
  // Shows this rank's own node to the others.
  [[nodiscard]] base::Status publish();
  [[nodiscard]] std::size_t size() const { return known_.size(); }
  // Known to have died or left.
  [[nodiscard]] bool failed(std::uint32_t rank) const { return bootstrap_.failed(rank); }

 private:
  base::Result<Node*> meet(std::uint32_t rank);

  bootstrap::Bootstrap& bootstrap_;
  const Agreed agreed_;
  // release in meet(); partner: the acquire loads in get() and find()
  std::vector<std::atomic<Node*>> known_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<Node>> owned_;
};

}  // namespace heddle::transport::loopback
