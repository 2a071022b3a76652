// Blocks from ranks to ranks: gather, scatter, allgather and alltoall.
#include <algorithm>
#include <bit>
#include <vector>

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {

// ---- lists --------------------------------------------------------------------------------------

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

// ---- through kept memory ------------------------------------------------------------------------

// Few bytes from every rank to every rank through memory of the schedule's own: nobody waits until
// a peer begins. Each rank puts a block into its own slot at each other rank. That rank copies the
// block to the caller's memory and gives the slot back.
//   counter 0      blocks that have arrived; a rank that is a run ahead cannot add to it, since its
//                  slot is not free yet
//   counter 1 + r  my slot at rank r is free; initially free

namespace {

// `given(r)`: the block for rank r.
Schedule exchange(const AlgorithmRequest& request, auto&& given) {
  constexpr std::uint32_t kFull = 0;
  constexpr std::uint32_t kFree = 1;
  const Rank n = request.ranks;
  const auto result = [&](Rank rank) { return Block{Place::receive, rank * request.bytes, request.bytes}; };
  const auto slot = [&](Rank rank) { return Block{Place::scratch, rank * request.bytes, request.bytes}; };
  Builder builder(request);
  builder.scratch(n * request.bytes);
  builder.counter(kFull, n - 1);
  for (Rank step = 1; step < n; ++step) {
    const Rank other = (request.rank + step) % n;
    builder.counter(kFree + other, 1, 1);
    wait(give_shared(builder.put(0, given(other), other, slot(request.rank)), kFull), kFree + other, 1);
  }
  builder.copy(0, given(request.rank), result(request.rank));
  for (Rank step = 1; step < n; ++step) {
    const Rank other = (request.rank + n - step) % n;
    wait(builder.copy(0, slot(other), result(other)), kFull, n - 1);
    builder.signal(0, other, kFree + request.rank);
  }
  return builder.take();
}

}  // namespace

Schedule allgather_kept(const AlgorithmRequest& request) {
  return exchange(request, [&](Rank) { return Block{Place::send, 0, request.bytes}; });
}

Schedule alltoall_kept(const AlgorithmRequest& request) {
  return exchange(request, [&](Rank rank) { return Block{Place::send, rank * request.bytes, request.bytes}; });
}

// ---- in log2 n steps ----------------------------------------------------------------------------

// Few bytes between many ranks, in log2 n steps instead of n - 1 [Bruck et al. 1997]. All data goes
// through memory of the schedule's own, so no rank waits until a peer begins.
//   counter 2k      the data of step k has arrived
//   counter 2k + 1  the memory for step k at this rank's target is free; initially free

namespace {

// Steps until each of n ranks has data from all.
std::uint32_t steps_for(Rank n) {
  return n <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(n - 1));
}

}  // namespace

// Block i of the scratch is that of rank (this + i) mod n. In step k a rank sends its first 2^k
// blocks, or as many as are missing, to the rank 2^k before it, where they follow the blocks
// already there.
Schedule allgather_bruck(const AlgorithmRequest& request) {
  const Rank n = request.ranks;
  const Rank rank = request.rank;
  const std::uint64_t bytes = request.bytes;
  const std::uint32_t steps = steps_for(n);
  Builder builder(request);
  builder.scratch(n * bytes);
  const auto blocks = [&](Rank first, Rank count) { return Block{Place::scratch, first * bytes, count * bytes}; };
  builder.copy(0, {Place::send, 0, bytes}, blocks(0, 1));
  for (std::uint32_t step = 0; step < steps; ++step) {
    const Rank distance = Rank{1} << step;
    const Rank count = std::min(distance, n - distance);
    builder.counter(full_counter(step), 1).counter(free_counter(step), 1, 1);
    const Rank target = (rank + n - distance) % n;
    wait(give(builder.put(0, blocks(0, count), target, blocks(distance, count)), full_counter(step)),
         free_counter(step), 1);
    wait(builder.nop(0), full_counter(step), 1);
  }
  builder.copy(0, blocks(0, n - rank), {Place::receive, rank * bytes, (n - rank) * bytes});
  if (rank > 0) builder.copy(0, blocks(n - rank, rank), {Place::receive, 0, rank * bytes});
  for (std::uint32_t step = 0; step < steps; ++step)
    builder.signal(0, (rank + (Rank{1} << step)) % n, free_counter(step));
  return builder.take();
}

// Block i goes to the rank i after this one. In step k the blocks whose i has bit k go 2^k ranks
// further: packed together, then sent.
Schedule alltoall_bruck(const AlgorithmRequest& request) {
  const Rank n = request.ranks;
  const Rank rank = request.rank;
  const std::uint64_t bytes = request.bytes;
  const std::uint32_t steps = steps_for(n);
  Builder builder(request);
  std::vector<Block> at(n);  // where block i is now
  for (Rank i = 0; i < n; ++i) at[i] = {Place::send, (rank + i) % n * bytes, bytes};
  for (std::uint32_t step = 0; step < steps; ++step) {
    const Rank distance = Rank{1} << step;
    std::vector<Rank> going;
    for (Rank i = distance; i < n; ++i)
      if ((i & distance) != 0) going.push_back(i);
    const std::uint64_t all = going.size() * bytes;
    const std::uint64_t packed = builder.scratch(all);
    const std::uint64_t slot = builder.scratch(all);
    for (std::size_t j = 0; j < going.size(); ++j)
      builder.copy(0, at[going[j]], {Place::scratch, packed + j * bytes, bytes});
    builder.counter(full_counter(step), 1).counter(free_counter(step), 1, 1);
    wait(give(builder.put(0, {Place::scratch, packed, all}, (rank + distance) % n, {Place::scratch, slot, all}),
              full_counter(step)),
         free_counter(step), 1);
    wait(builder.nop(0), full_counter(step), 1);
    for (std::size_t j = 0; j < going.size(); ++j) at[going[j]] = {Place::scratch, slot + j * bytes, bytes};
  }
  // Block i has come from the rank i before this one.
  for (Rank i = 0; i < n; ++i) builder.copy(0, at[i], {Place::receive, (rank + n - i) % n * bytes, bytes});
  for (std::uint32_t step = 0; step < steps; ++step)
    builder.signal(0, (rank + n - (Rank{1} << step) % n) % n, free_counter(step));
  return builder.take();
}

// ---- over a grid --------------------------------------------------------------------------------

// Few bytes from every rank to every rank through one other rank. The ranks form a square, row by
// row. A block goes along the row to the column of its target, then along that column. So a rank
// meets about twice the root of the number of ranks instead of all ranks, and each still copies a
// block twice at most. All data goes through memory of the schedule's own: nobody waits until a
// peer begins.
//
// The last row may be short. If one of its ranks sends to a column that the row lacks, the block
// goes through another row; not all of these ranks use the same one.
//   counter 0          relays: ranks that have put what this one is to pass on
//   counter 1          blocks for this rank have come from so many ranks of its column
//   counter 2 + c      my slots at my relay to column c are free; initially free
//   counter 2 + C + r  my slots at the rank of row r of my column are free; initially free

namespace {

class Grid {
 public:
  explicit Grid(Rank ranks) : ranks_(ranks), columns_(1) {
    while (columns_ * columns_ < ranks_) ++columns_;
    rows_ = (ranks_ + columns_ - 1) / columns_;
    last_ = ranks_ - (rows_ - 1) * columns_;
  }
  [[nodiscard]] Rank columns() const { return columns_; }
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): there is one at least
  [[nodiscard]] Rank row(Rank rank) const { return rank / columns_; }
  [[nodiscard]] Rank column(Rank rank) const { return rank % columns_; }
  [[nodiscard]] Rank at(Rank row, Rank column) const { return row * columns_ + column; }
  // Of a column.
  [[nodiscard]] Rank height(Rank column) const { return column < last_ ? rows_ : rows_ - 1; }
  // Of a row.
  [[nodiscard]] Rank width(Rank row) const { return row + 1 < rows_ ? columns_ : last_; }

  // The rank that passes on the blocks of `source` for that column; it may be `source`.
  [[nodiscard]] Rank relay(Rank source, Rank column) const {
    return at(column < width(row(source)) ? row(source) : deputy(source), column);
  }
  // The ranks whose blocks `relay` passes on, itself among them: those of its row and, if the last
  // row lacks its column, the ranks of the last row that its row stands in for.
  [[nodiscard]] std::vector<Rank> senders(Rank relay) const {
    std::vector<Rank> all;
    for (Rank i = 0; i < width(row(relay)); ++i) all.push_back(at(row(relay), i));
    if (column(relay) < last_) return all;
    for (Rank source = at(rows_ - 1, 0); source < ranks_; ++source)
      if (deputy(source) == row(relay)) all.push_back(source);
    return all;
  }

 private:
  // The row that stands in for this rank of the last row, if the last row is short.
  [[nodiscard]] Rank deputy(Rank source) const { return column(source) % (rows_ - 1); }

  const Rank ranks_;
  Rank columns_;
  Rank rows_ = 0;
  Rank last_ = 0;  // width of the last row
};

constexpr std::uint32_t kPassed = 0;
constexpr std::uint32_t kCame = 1;
constexpr std::uint32_t kGridFree = 2;

// One rank's part. Its scratch holds the blocks that it passes on, row by row of its column and
// within a row by sender; then the blocks that have come for it, from each rank of its column but
// itself.
class Part {
 public:
  explicit Part(const AlgorithmRequest& request)
      : request_(request),
        grid_(request.ranks),
        builder_(request),
        rank_(request.rank),
        column_(grid_.column(rank_)),
        height_(grid_.height(column_)),
        senders_(grid_.senders(rank_)) {}

  Schedule make() {
    builder_.scratch((height_ * senders_.size() + came_before(rank_, height_)) * request_.bytes);
    if (senders_.size() > 1) builder_.counter(kPassed, static_cast<std::uint32_t>(senders_.size()) - 1);
    if (height_ > 1) builder_.counter(kCame, height_ - 1);
    for (Rank step = 0; step < grid_.columns(); ++step) to_relay((column_ + step) % grid_.columns());
    if (senders_.size() > 1) wait(builder_.nop(0), kPassed, static_cast<std::uint32_t>(senders_.size()) - 1);
    for (Rank step = 1; step < height_; ++step) pass_on((grid_.row(rank_) + step) % height_);
    take_own();
    for (const Rank sender : senders_)
      if (sender != rank_) builder_.signal(0, sender, kGridFree + column_);
    if (height_ > 1) wait(builder_.nop(0), kCame, height_ - 1);
    for (Rank row = 0; row < height_; ++row)
      if (row != grid_.row(rank_)) take(row);
    return builder_.take();
  }

 private:
  [[nodiscard]] Block block(Place place, std::uint64_t first, std::uint64_t count = 1) const {
    return {place, first * request_.bytes, count * request_.bytes};
  }
  // The number of blocks for `target` that come from the ranks of its column in the rows before
  // this one.
  [[nodiscard]] std::uint64_t came_before(Rank target, Rank row) const {
    std::uint64_t blocks = 0;
    for (Rank i = 0; i < row; ++i) {
      const Rank relay = grid_.at(i, grid_.column(target));
      if (relay != target) blocks += grid_.senders(relay).size();
    }
    return blocks;
  }
  [[nodiscard]] std::uint64_t came_at(Rank target, Rank row) const {
    return grid_.height(grid_.column(target)) * grid_.senders(target).size() + came_before(target, row);
  }

  void to_relay(Rank column) {
    const Rank relay = grid_.relay(rank_, column);
    const std::vector<Rank> senders = relay == rank_ ? senders_ : grid_.senders(relay);
    const auto own = static_cast<std::uint64_t>(std::ranges::find(senders, rank_) - senders.begin());
    const Rank height = grid_.height(column);
    if (relay != rank_) builder_.counter(kGridFree + column, 1, 1);
    for (Rank row = 0; row < height; ++row) {
      const Block from = block(Place::send, grid_.at(row, column));
      const Block to = block(Place::scratch, row * senders.size() + own);
      if (relay == rank_) {
        builder_.copy(0, from, to);
        continue;
      }
      ScheduleCommand& put = builder_.put(0, from, relay, to);
      if (row == 0) wait(put, kGridFree + column, 1);
      if (row + 1 == height) give_shared(put, kPassed);
    }
  }
  void pass_on(Rank row) {
    const Rank target = grid_.at(row, column_);
    const std::uint32_t free = kGridFree + grid_.columns() + row;
    builder_.counter(free, 1, 1);
    ScheduleCommand& put = builder_.put(0, block(Place::scratch, row * senders_.size(), senders_.size()), target,
                                        block(Place::scratch, came_at(target, grid_.row(rank_)), senders_.size()));
    wait(give_shared(put, kCame), free, 1);
  }
  // Copies the blocks of these senders, which lie in this order in scratch from `at` on.
  void copy_out(std::uint64_t at, std::span<const Rank> senders) {
    for (std::size_t i = 0; i < senders.size();) {
      std::size_t end = i + 1;
      while (end < senders.size() && senders[end] == senders[end - 1] + 1) ++end;
      builder_.copy(0, block(Place::scratch, at + i, end - i), block(Place::receive, senders[i], end - i));
      i = end;
    }
  }
  void take_own() { copy_out(grid_.row(rank_) * senders_.size(), senders_); }
  void take(Rank row) {
    const Rank relay = grid_.at(row, column_);
    copy_out(came_at(rank_, row), grid_.senders(relay));
    builder_.signal(0, relay, kGridFree + grid_.columns() + grid_.row(rank_));
  }

  const AlgorithmRequest& request_;
  const Grid grid_;
  Builder builder_;
  const Rank rank_;
  const Rank column_;
  const Rank height_;
  const std::vector<Rank> senders_;
};

}  // namespace

Schedule alltoall_grid(const AlgorithmRequest& request) {
  return Part(request).make();
}

}  // namespace heddle::collective
