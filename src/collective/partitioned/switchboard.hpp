// Brings the two sides of partitioned operations together; one for each worker. It matches the
// sends that peers offer with the receives that were made here, keeps offers and receives that have
// no match yet, passes on the peer's notices, and sends what could not be sent at first.
//
// Everything but open(), add_send(), add_receive() and `operations()` is for the thread inside the
// worker, so nothing is locked.
//
// Messages may overtake each other, so the offers of one worker are numbered and taken in that
// order. The sender limits how many offers without a receive there are (HEDDLE_MOST_UNMATCHED); any
// above that are forged.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "collective/partitioned/partitioned.hpp"
#include "worker/context.hpp"
#include "worker/extension.hpp"

namespace heddle::collective::partitioned {

class Sender;
class Receiver;

class Switchboard final : public engine::Protocol {
 public:
  static std::unique_ptr<engine::Protocol> open(worker::Worker& worker);
  static Switchboard& of(worker::Worker& worker);
  explicit Switchboard(worker::Worker& worker) : worker_(worker) {}
  ~Switchboard() override;

  // Returns the handle of a new operation. The caller has checked the arguments. Not inside a
  // handler.
  base::Result<std::uint64_t> add_send(const Shape& shape, const void* data);
  base::Result<std::uint64_t> add_receive(const Shape& shape, void* data);

  // ---- inside -----------------------------------------------------------------------------------
  // Progress will call advance() of the operation.
  void want(PartitionedSide& operation);
  // The program has freed the operation.
  void bury(PartitionedSide& operation);

  [[nodiscard]] bool arrived(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet) override;
  bool advance(bool* more) override;
  void note_failures() override;
  void begin_cancel() override;

 private:
  // rank and worker of the sender, tag
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  struct Offer {
    std::uint64_t number;  // the sender's number of the operation
    std::uint64_t bytes;
    std::uint32_t partitions;
  };
  // Sends and receives that wait for each other; one of the two is empty.
  struct Queue {
    std::deque<Offer> offers;
    std::deque<Receiver*> receives;
  };
  // A worker of a peer that sends to this worker.
  struct Source {
    std::uint64_t next = 0;  // the number of its next offer
    // offers that have overtaken the next one
    std::map<std::uint64_t, wire::PartitionedHeader> early;
    std::uint64_t kept = 0;  // number of its offers without a receive
  };
  // A worker of a peer that this worker sends to.
  struct Target {
    std::uint64_t next = 0;
    std::uint64_t waiting = 0;  // offers that are not answered yet
  };
  using Peer = std::pair<std::uint32_t, std::uint32_t>;
  static Peer peer_of(heddle_peer peer) { return {peer.rank, peer.worker}; }

  base::Result<std::uint64_t> add(std::unique_ptr<PartitionedSide> made);
  base::Status enter(PartitionedSide& operation);
  base::Status offer(Sender& send);
  void expect(Receiver& receive);
  bool arrived_offer(heddle_peer source, const wire::PartitionedHeader& head);
  void take_offer(heddle_peer source, Source& from, const wire::PartitionedHeader& head);
  void match(Receiver& receive, const Offer& offer);
  bool arrived_for(heddle_peer source, const wire::PartitionedMessage& message);
  void answered(const PartitionedSide& send);
  void forget(const Receiver& receive);
  [[nodiscard]] static bool is_over(const PartitionedSide& operation);
  void sweep();

  worker::Worker& worker_;
  engine::Owned<PartitionedSide> operations_;  // those that have handles
  // those without handles, kept until the peer is told. Reserved for all
  std::vector<std::unique_ptr<PartitionedSide>> buried_;
  std::unordered_map<std::uint64_t, PartitionedSide*> numbered_;  // all operations
  std::uint64_t next_number_ = 1;
  std::map<Key, Queue> queues_;
  std::map<Peer, Source> sources_;
  std::map<Peer, Target> targets_;
  std::vector<std::uint64_t> wanting_;  // numbers; reserved for all operations
  std::vector<std::uint64_t> turn_;     // the same, while advance() looks at them
  bool ended_ = false;
};

}  // namespace heddle::collective::partitioned
