// Blocks as the ranks list them, for all ranks or for neighbours: each rank puts to every rank that
// it gives to.
//
// A rank that does not keep signals its givers that it has begun, and they put directly into the
// caller's memory. A rank that keeps has slots, initially free. It copies from them when all blocks
// have arrived, and gives them back. Each rank decides this for itself; so every rank has both
// kinds of counters, one pair for each rank that it gives to.
//   counter 0           blocks that have arrived; a rank that is a run ahead cannot add to it: it
//                       has not been signalled to put
//   counter 1 + 2 slot  the peer has begun
//   counter 2 + 2 slot  my slots at the peer are free; initially free
//   queue 0: the blocks, beginning with the next rank, so that ranks do not all put to the same one
//   queue 1: the signals, and the copies of what was taken
#include "collective/algorithms/algorithms.hpp"
#include "collective/schedule.hpp"

namespace heddle::collective {
namespace {

constexpr std::uint32_t kBlocks = 0;

constexpr std::uint32_t peer_begun_counter(std::uint32_t slot) {
  return 1 + 2 * slot;
}
constexpr std::uint32_t slots_free_counter(std::uint32_t slot) {
  return 2 + 2 * slot;
}

class Maker {
 public:
  Maker(const AlgorithmRequest& request, bool kept)
      : rank_(request.rank), mine_(exchange_of(request, request.rank, kept)), builder_(request) {}

  Schedule make() {
    for (const ListedBlock& message : mine_.taken) blocks_ += moves(message) ? 1 : 0;
    builder_.scratch(kept_bytes(rank_, mine_));
    builder_.counter(kBlocks, blocks_);
    if (!mine_.kept) tell_peers(peer_begun_counter);
    for (const ListedBlock& message : of_peer(mine_.given, rank_)) {
      if (message.bytes > 0)
        builder_.copy(1, {Place::send, message.here, message.bytes}, {Place::receive, message.there, message.bytes});
    }
    give_all();
    if (blocks_ == 0) return builder_.take();
    if (!mine_.kept) {
      wait(builder_.nop(1), kBlocks, blocks_);
      return builder_.take();
    }
    for (const ListedBlock& message : mine_.taken) {
      if (!moves(message)) continue;
      wait(builder_.copy(1, {Place::scratch, message.there, message.bytes},
                         {Place::receive, message.here, message.bytes}),
           kBlocks, blocks_);
    }
    tell_peers(slots_free_counter);
    return builder_.take();
  }

 private:
  [[nodiscard]] bool moves(const ListedBlock& message) const { return message.peer != rank_ && message.bytes > 0; }

  // Signals each giver once.
  void tell_peers(std::uint32_t (*counter)(std::uint32_t slot)) {
    Rank last = rank_;
    for (const ListedBlock& message : mine_.taken) {
      if (!moves(message) || message.peer == last) continue;
      last = message.peer;
      builder_.signal(1, message.peer, counter(message.slot));
    }
  }

  void give(const ListedBlock& message) {
    if (!moves(message)) return;
    builder_.counter(peer_begun_counter(message.slot), message.kept ? 0 : 1);
    builder_.counter(slots_free_counter(message.slot), message.kept ? 1 : 0, 1);
    const Place place = message.kept ? Place::scratch : Place::receive;
    wait(give_shared(builder_.put(0, {Place::send, message.here, message.bytes}, message.peer,
                                  {place, message.there, message.bytes}),
                     kBlocks),
         message.kept ? slots_free_counter(message.slot) : peer_begun_counter(message.slot), 1);
  }

  void give_all() {
    for (const ListedBlock& message : mine_.given)
      if (message.peer > rank_) give(message);
    for (const ListedBlock& message : mine_.given)
      if (message.peer < rank_) give(message);
  }

  const Rank rank_;
  const Exchange mine_;
  Builder builder_;
  std::uint32_t blocks_ = 0;
};

Schedule direct(AlgorithmRequest request, Operation operation) {
  request.operation = operation;
  return Maker(request, false).make();
}

}  // namespace

Schedule exchange_direct(const AlgorithmRequest& request) {
  return direct(request, request.operation);
}

Schedule exchange_kept(const AlgorithmRequest& request) {
  return Maker(request, true).make();
}

// Equal blocks are lists that every rank knows.
Schedule gather_linear(const AlgorithmRequest& request) {
  return direct(request, Operation::gatherv);
}

Schedule scatter_linear(const AlgorithmRequest& request) {
  return direct(request, Operation::scatterv);
}

Schedule alltoall_pairwise(const AlgorithmRequest& request) {
  return direct(request, Operation::alltoallv);
}

}  // namespace heddle::collective
