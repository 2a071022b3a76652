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
#include <algorithm>
#include <vector>

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
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
