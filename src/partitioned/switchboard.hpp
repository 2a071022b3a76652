// What brings the two sides of partitioned operations together: one for each worker. It matches the
// sends that peers offer with the receives that were made here, keeps what has no match yet, hands
// on what the other side tells, and sends what could not be sent.
//
// Everything but open(), the two that make an operation, and `operations()` is for the thread
// inside the worker, so nothing is locked.
//
// Offers of one worker are numbered, and taken in that order, since messages may overtake each
// other. How many there may be without a receive is bounded by who sends them
// (HEDDLE_MOST_UNMATCHED); more are forged.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/context.hpp"
#include "engine/extension.hpp"
#include "partitioned/partitioned.hpp"

namespace heddle::partitioned {

class Sender;
class Receiver;

class Switchboard final : public engine::Protocol {
 public:
  static std::unique_ptr<engine::Protocol> open(engine::Worker& worker);
  static Switchboard& of(engine::Worker& worker);
  explicit Switchboard(engine::Worker& worker) : worker_(worker) {}
  ~Switchboard() override;

  // The handle of a new operation. Arguments are checked. Not inside a handler.
  base::Result<std::uint64_t> add_send(const Shape& shape, const void* data);
  base::Result<std::uint64_t> add_receive(const Shape& shape, void* data);

  // ---- inside -----------------------------------------------------------------------------------
  // advance() of it is to be called by progress.
  void want(Partitioned& operation);
  // The program has freed it.
  void bury(Partitioned& operation);

  [[nodiscard]] bool arrived(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet) override;
  bool advance(bool* more) override;
  void note_failures() override;
  void begin_cancel() override;

 private:
  // rank and worker of the sender, tag
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  struct Offer {
    std::uint64_t number;  // the sender's, of the operation
    std::uint64_t bytes;
    std::uint32_t partitions;
  };
  // Sends and receives that wait for each other; one of the two is empty.
  struct Queue {
    std::deque<Offer> offers;
    std::deque<Receiver*> receives;
  };
  // A worker of a peer that sends here.
  struct Source {
    std::uint64_t next = 0;                                  // the number of its next offer
    std::map<std::uint64_t, wire::PartitionedHeader> early;  // have overtaken that
    std::uint64_t kept = 0;                                  // of its offers, without a receive
  };
  // A worker of a peer that is sent to.
  struct Target {
    std::uint64_t next = 0;
    std::uint64_t waiting = 0;  // offers that were not answered
  };
  using Peer = std::pair<std::uint32_t, std::uint32_t>;
  static Peer peer_of(heddle_peer peer) { return {peer.rank, peer.worker}; }

  base::Result<std::uint64_t> add(std::unique_ptr<Partitioned> made);
  base::Status enter(Partitioned& operation);
  base::Status offer(Sender& send);
  void expect(Receiver& receive);
  bool arrived_offer(heddle_peer source, const wire::PartitionedHeader& head);
  void take_offer(heddle_peer source, Source& from, const wire::PartitionedHeader& head);
  void match(Receiver& receive, const Offer& offer);
  bool arrived_for(heddle_peer source, const wire::PartitionedMessage& message);
  void answered(const Partitioned& send);
  void forget(const Receiver& receive);
  [[nodiscard]] static bool is_over(const Partitioned& operation);
  void sweep();

  engine::Worker& worker_;
  engine::Owned<Partitioned> operations_;  // with handles
  // without: until the peer knows. Room for all
  std::vector<std::unique_ptr<Partitioned>> buried_;
  std::unordered_map<std::uint64_t, Partitioned*> numbered_;  // all of them
  std::uint64_t next_number_ = 1;
  std::map<Key, Queue> queues_;
  std::map<Peer, Source> sources_;
  std::map<Peer, Target> targets_;
  std::vector<std::uint64_t> wanting_;  // numbers; room for all that there are
  std::vector<std::uint64_t> turn_;     // the same, while they are looked at
  bool ended_ = false;
};

}  // namespace heddle::partitioned
