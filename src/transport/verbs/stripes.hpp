// Large puts and gets over both adapters of a rank: a transfer is split into two halves. The first
// half goes by the queue pair of the worker's own adapter (see Sending). The second half goes by a
// second queue pair to the same worker, between the other adapters of both ranks. A transfer is
// complete when both halves are.
//
// Second pairs carry nothing else. Each request is signalled, and its wr_id is the number of its
// transfer. Their completion queue has no channel: nobody sleeps while a transfer is under way.
#pragma once

#include <cstdint>

#include "transport/network/completions.hpp"
#include "transport/network/lists.hpp"
#include "transport/verbs/callers_memory.hpp"
#include "transport/verbs/peer_state.hpp"
#include "transport/verbs/queue.hpp"

namespace heddle::transport::verbs {

class Port;

class Stripes {
 public:
  explicit Stripes(Port& port);
  ~Stripes() { close(); }
  Stripes(const Stripes&) = delete;
  Stripes& operator=(const Stripes&) = delete;

  // `adapter`: the rank's other one. SYSTEM.
  base::Status open(const Adapter& adapter);
  void close();
  // Null: nothing is split: there is one adapter, or the other one has failed before.
  [[nodiscard]] const Adapter* adapter() const { return adapter_; }

  // ---- the second pair of a peer
  // If it cannot be made, the peer has none: transfers to it are not split.
  void make_pair(PeerState& peer);
  // Once the peer's handshake has come. AGAIN: not now. If the pair cannot be connected, or the
  // peer has none, neither has this end.
  base::Status connect(PeerState& peer);
  void stop_pair(const PeerState& peer);
  void destroy_pair(PeerState& peer);

  // ---- transfers
  // A transfer to the peer can be split now.
  [[nodiscard]] bool has_room(const PeerState& peer) const {
    return split_.front() != nullptr && peer.stripes_under_way < kDepth;
  }
  // Posts the second half, which begins at byte `from`; there is room for it. The source is not
  // free yet. `number`: the transfer's, from 1, for end_half(). NO_MEMORY, ARGUMENT: nothing
  // happened.
  base::Status begin(PeerState& peer, const Command& command, std::uint64_t from, std::uint16_t* number);
  // A half of the transfer with that number is complete, or has failed.
  void end_half(std::uint16_t number, base::Status status);

  [[nodiscard]] bool under_way() const { return under_way_ != 0; }
  // By polls, while something is under way. True: there were completions.
  bool progress();
  // Fails all second halves to the peer, whose pairs do not exist any more.
  void fail(PeerState& peer, base::Status status);

 private:
  static constexpr std::uint32_t kDepth = 16;   // second halves under way to one peer
  static constexpr std::uint32_t kSplit = 128;  // transfers that are split, to all peers

  // A transfer that is split, of which one half or both are under way.
  struct Split {
    Split* next = nullptr;
    PeerState* peer = nullptr;  // while the second half is under way; then null
    Token token = 0;
    std::uint32_t lease = 0;  // of the second half's memory
    base::Status status = HEDDLE_DONE;
    std::uint8_t halves = 0;   // under way
    bool owes_source = false;  // as in Request::Shape
  };
  void take(const ibv_wc& entry);
  void end_second(Split& split, base::Status status);
  [[nodiscard]] std::uint16_t number_of(const Split& split) const {
    return static_cast<std::uint16_t>(&split - split_.all().data() + 1);
  }

  Port& port_;
  const Adapter* adapter_ = nullptr;
  CompletionQueue queue_;
  CallersMemory memory_;
  network::Pool<Split> split_;
  std::uint32_t under_way_ = 0;
};

}  // namespace heddle::transport::verbs
