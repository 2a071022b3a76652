// The port of the shm transport, which is what a worker has of it: the rings through which the
// worker sends, those from which it receives, and its transfers.
//
// One thread at a time. Everything that another process can write is read through RecordConsumer or
// validated here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "queue/record_ring.hpp"
#include "transport/common/rejections.hpp"
#include "transport/shm/cells.hpp"
#include "transport/shm/device.hpp"
#include "transport/shm/transfer.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::shm {

base::Result<std::unique_ptr<TransportWorker>> make_worker(Device& device, std::uint32_t index);

class Port final : public TransportWorker {
 public:
  Port(Device& device, std::uint32_t index);
  ~Port() override;

  [[nodiscard]] std::size_t post(std::span<Command> batch) override;
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override;
  void peer_failed(std::uint32_t rank) override;
  [[nodiscard]] bool closed(Target target) override;
  [[nodiscard]] bool ended(Target target) override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] bool armed() const override {
    return (entry_.armed.load(std::memory_order_relaxed) & queue::kArmed) != 0;
  }
  [[nodiscard]] bool has_arrivals() override;
  [[nodiscard]] bool has_untaken() override { return has_arrivals(); }
  [[nodiscard]] std::size_t unopened(std::span<Unopened> found) override;
  [[nodiscard]] PortCounters counters() const override { return counters_; }

 private:
  // Each poll checks all hot rings, which had records lately, and kColdPortion of the others.
  static constexpr std::size_t kHot = 8;
  static constexpr std::size_t kColdPortion = 8;
  static constexpr std::size_t kBacklog = 1024;
  // The most work for peers in one poll, per ring: small puts and gets, or chunks and cells of so
  // many bytes.
  static constexpr std::size_t kServed = 32;
  static constexpr std::uint64_t kServedBytes = std::uint64_t{64} << 10;
  static std::size_t weight(std::uint64_t bytes) { return std::max<std::uint64_t>(1, bytes * kServed / kServedBytes); }
  // The receiver gives cells back at once when it has read so much of them.
  static constexpr std::uint64_t kCellPortion = std::uint64_t{64} << 10;

  static std::size_t pull_bell(OutgoingRing& to);
  std::size_t post_all(std::span<Command> batch);
  std::size_t post_longer(Command& message);
  [[nodiscard]] OutgoingRing* ring_of(const Command& message) const;
  static std::size_t post_row(OutgoingRing& to, std::span<Command> batch);
  bool post_other(Command& command, std::size_t accepted, OutgoingRing*& begun);
  bool post_one(Command& command, OutgoingRing*& begun);
  bool post_message(Command& command, OutgoingRing*& begun);
  bool post_transfer(Command& command);
  OutgoingRing* outgoing(std::uint32_t rank, std::uint32_t worker, base::Status* why);
  OutgoingRing* connect(std::uint32_t rank, std::uint32_t worker, base::Status* why);
  bool full_ring(Command& command, const OutgoingRing& to);

  void release_lent();
  void discover();
  void read_ring_list(std::uint32_t rank);
  void not_met(std::uint32_t rank, base::Status status);
  void accept(PeerProcess& peer, const RingEntry& entry);
  bool rests(IncomingRing& from);
  queue::Take look(IncomingRing& from);
  queue::Take timed_look(IncomingRing& from);
  std::size_t poll_after_lending(std::span<Completion> completions);
  std::size_t take_only(std::span<Completion> completions);
  std::size_t take_rest(std::span<Completion> completions, std::size_t n);
  std::size_t note_moved(std::span<Completion> completions, std::size_t n);
  std::size_t poll_all(std::span<Completion> completions);
  std::size_t drain(std::size_t position, std::span<Completion> out);
  std::size_t drain_cold(std::span<Completion> out);
  Served look_in_cell(IncomingRing& from, const queue::Record& record, Completion* out);
  Served serve(IncomingRing& from, const queue::Record& record, std::size_t* served);
  void drop(std::size_t position);
  void note_only() { only_ = incoming_.size() == 1 ? incoming_.front() : nullptr; }
  void malformed(std::uint32_t rank, const char* what);

  Device& device_;
  std::uint32_t index_;
  std::uint32_t ranks_;
  std::uint32_t max_workers_;
  std::uint32_t max_message_;
  WorkerEntry& entry_;
  queue::Arming<std::atomic<std::uint32_t>> arming_{entry_.armed};
  PortCounters counters_;

  std::vector<OutgoingRing*> outgoing_;  // by rank * max_workers + worker; null: not connected yet
  std::vector<std::unique_ptr<OutgoingRing>> owned_outgoing_;
  std::vector<std::uint8_t> failed_;      // by rank
  bool any_failed_ = false;               // one of them is not 0
  std::vector<std::uint8_t> unmet_told_;  // by rank: it was logged that the peer cannot be set up

  std::vector<IncomingRing*> incoming_;  // the first kHot are the hot ones
  std::vector<std::unique_ptr<IncomingRing>> owned_incoming_;
  IncomingRing* only_ = nullptr;  // of incoming_; null: there are none, or several
  std::vector<IncomingRing*> lent_;
  std::vector<std::uint64_t> cursors_;  // by rank: how many entries of its ring list were read
  std::size_t turn_ = 0;                // hot ring at which the scan begins
  std::size_t cold_ = 0;                // cold ring at which the scan continues
  std::size_t victim_ = 0;              // hot ring that the next cold ring with records replaces
  Backlog backlog_;
  // This poll has done something for a peer, or a part of a transfer of ours.
  bool moved_ = false;
  // This port was polled after its last message was posted. Its next message may then be one that
  // its target waits for, so it is published with a copy (publish_with_copy()). Messages that
  // follow without a poll are published without: their target is still busy with the first one.
  bool polled_ = true;
  Transfers transfers_;
  Cells cells_;
};

}  // namespace heddle::transport::shm
