#include "bootstrap/inproc/inproc.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "bootstrap/board.hpp"
#include "bootstrap/common.hpp"

namespace heddle::bootstrap::inproc {

class Member;

// The seats of all ranks, their cards and the exchange under way. It implements the Bootstrap
// functions of each member, which it identifies by its rank.
class Table {
 public:
  explicit Table(std::uint32_t size);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] const JobSecret& secret() const { return secret_; }
  [[nodiscard]] std::span<std::byte> board() const { return board_.bytes(); }
  [[nodiscard]] bool in_use();
  // Dead or left.
  [[nodiscard]] bool failed(std::uint32_t rank) const {
    return rank < size_ && gone_[rank].load(std::memory_order_acquire);
  }

  // The member of the seat that it takes.
  [[nodiscard]] base::Result<std::unique_ptr<Member>> join(std::uint32_t rank);
  [[nodiscard]] base::Status publish(std::uint32_t rank, const Card& card);
  // For the member of rank `mine`.
  [[nodiscard]] base::Result<Card> fetch(std::uint32_t mine, std::uint32_t rank);
  [[nodiscard]] base::Status exchange_start(std::uint32_t rank, std::span<const std::byte> mine);
  [[nodiscard]] base::Status exchange_test(std::uint32_t rank, std::vector<std::vector<std::byte>>* all);
  [[nodiscard]] std::vector<std::uint32_t> awaited(std::uint32_t rank);
  // It died or left.
  void remove(std::uint32_t rank);
  // The same; its member ends.
  void end(std::uint32_t rank);

 private:
  struct Seat {
    Member* member = nullptr;  // while a bootstrap is open on it
    bool taken = false;        // each rank joins once
    bool published = false;
    base::Fd card_fd;
    Card card;                               // card.fd unused
    std::shared_ptr<const Gathered> result;  // of the exchange that this rank has yet to take
  };

  // With mutex_ held.
  void remove_locked(std::uint32_t rank);
  void finish_round();

  const std::uint32_t size_;
  base::Status status_ = HEDDLE_DONE;
  std::string why_;  // of status_
  JobSecret secret_{};
  NodeBoard board_;
  // Release when raised, once, before the members' epochs; partner: the acquire load in failed().
  std::unique_ptr<std::atomic<bool>[]> gone_;
  std::mutex mutex_;  // guards what follows
  std::vector<Seat> seats_;
  Gather gather_;
};

// One rank's bootstrap.
class Member final : public Bootstrap {
 public:
  Member(Table& table, std::uint32_t rank) : table_(table), rank_(rank) {}
  // A rank whose bootstrap is destroyed without leave() counts as dead.
  ~Member() override { table_.end(rank_); }

  [[nodiscard]] const char* name() const override { return "inproc"; }
  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return table_.size(); }
  [[nodiscard]] const JobSecret& secret() const override { return table_.secret(); }
  [[nodiscard]] std::span<std::byte> board() override { return table_.board(); }
  [[nodiscard]] base::Status publish(const Card& card) override { return table_.publish(rank_, card); }
  [[nodiscard]] base::Result<Card> fetch(std::uint32_t rank) override { return table_.fetch(rank_, rank); }
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte> mine) override {
    return table_.exchange_start(rank_, mine);
  }
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>* all) override {
    return table_.exchange_test(rank_, all);
  }
  [[nodiscard]] std::vector<std::uint32_t> awaited() override { return table_.awaited(rank_); }
  [[nodiscard]] bool failed(std::uint32_t rank) const override { return table_.failed(rank); }
  void leave() override { table_.remove(rank_); }
  [[noreturn]] void abort(int code, const char* message) override;

  void note_gone() { raise_failure_epoch(); }
  void note_result() { ring_bell(); }

 private:
  Table& table_;
  const std::uint32_t rank_;
};

Table::Table(std::uint32_t size)
    : size_(size),
      gone_(std::make_unique<std::atomic<bool>[]>(std::min(size, kMaxRanks))),
      seats_(std::min(size, kMaxRanks)),
      gather_(std::min(size, kMaxRanks)) {
  if (size == 0 || size > kMaxRanks) {
    status_ = HEDDLE_ERR_ARGUMENT;
    why_ = "a job of " + std::to_string(size) + " ranks; 1 to " + std::to_string(kMaxRanks) + " are possible";
    return;
  }
  if (size > 1) board_ = NodeBoard::of_process();
  const auto secret = make_secret();
  if (secret) {
    secret_ = *secret;
  } else {
    status_ = secret.status();
    why_ = base::last_message();
  }
}

bool Table::in_use() {
  const std::lock_guard lock(mutex_);
  return std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.member != nullptr; });
}

base::Result<std::unique_ptr<Member>> Table::join(std::uint32_t rank) {
  if (status_ != HEDDLE_DONE) return base::fail(status_, "%s", why_.c_str());
  if (const base::Status status = check_rank(rank, size_); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  Seat& seat = seats_[rank];
  if (seat.taken) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "rank %u of this inproc job has been joined before; each rank joins once",
                      rank);
  }
  auto member = std::make_unique<Member>(*this, rank);
  for (std::uint32_t other = 0; other < size_; ++other) {
    if (other != rank && gather_.is_gone(other)) member->note_gone();
  }
  seat.taken = true;
  seat.member = member.get();
  return member;
}

void Table::remove(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  remove_locked(rank);
}

void Table::end(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  remove_locked(rank);
  seats_[rank].member = nullptr;
}

void Table::remove_locked(std::uint32_t rank) {
  if (gather_.is_gone(rank)) return;
  gather_.gone(rank);
  gone_[rank].store(true, std::memory_order_release);
  Seat& seat = seats_[rank];
  seat.card_fd.reset();
  seat.card = {};
  for (std::uint32_t other = 0; other < size_; ++other) {
    Member* member = seats_[other].member;
    if (member != nullptr && other != rank) member->note_gone();
  }
  finish_round();
}

void Table::finish_round() {
  if (!gather_.complete()) return;
  std::vector<std::uint32_t> waiting;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (gather_.has_arrived(rank)) waiting.push_back(rank);
  }
  const auto result = std::make_shared<const Gathered>(gather_.take());
  for (const std::uint32_t rank : waiting) {
    seats_[rank].result = result;
    if (seats_[rank].member != nullptr) seats_[rank].member->note_result();
  }
}

base::Status Table::publish(std::uint32_t rank, const Card& card) {
  if (const base::Status status = check_card(card); status != HEDDLE_DONE) return status;
  auto copy = duplicate(card.fd);
  if (!copy) return copy.status();
  const std::lock_guard lock(mutex_);
  Seat& seat = seats_[rank];
  if (seat.published) return base::fail(HEDDLE_ERR_STATE, "rank %u has published its card already", rank);
  seat.published = true;
  if (gather_.is_gone(rank)) return fail_gone(rank);
  seat.card = {-1, card.pid, card.bytes, card.object};
  seat.card_fd = std::move(*copy);
  return HEDDLE_DONE;
}

base::Result<Card> Table::fetch(std::uint32_t mine, std::uint32_t rank) {
  if (const base::Status status = check_rank(rank, size_); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  const Seat& seat = seats_[rank];
  if (gather_.is_gone(mine)) return fail_gone(mine);
  if (gather_.is_gone(rank)) return fail_gone(rank);
  if (!seat.published) return HEDDLE_AGAIN;
  auto copy = duplicate(seat.card_fd.get());
  if (!copy) return copy.status();
  return Card{copy->release(), seat.card.pid, seat.card.bytes, seat.card.object};
}

base::Status Table::exchange_start(std::uint32_t rank, std::span<const std::byte> mine) {
  if (const base::Status status = check_exchange(mine.size()); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  if (gather_.is_gone(rank)) return fail_gone(rank);
  if (seats_[rank].result != nullptr || !gather_.arrive(rank, {mine.begin(), mine.end()})) {
    return base::fail(HEDDLE_ERR_STATE, "rank %u is in an exchange already; one at a time", rank);
  }
  finish_round();
  return HEDDLE_DONE;
}

base::Status Table::exchange_test(std::uint32_t rank, std::vector<std::vector<std::byte>>* all) {
  std::unique_lock lock(mutex_);
  std::shared_ptr<const Gathered> result = std::move(seats_[rank].result);
  seats_[rank].result = nullptr;
  if (result == nullptr) {
    if (gather_.is_gone(rank)) return fail_gone(rank);
    if (gather_.has_arrived(rank)) return HEDDLE_AGAIN;
    return base::fail(HEDDLE_ERR_STATE, "rank %u tests an exchange that it has not started", rank);
  }
  lock.unlock();
  const std::uint32_t missing = result->missing;
  if (missing == Gathered::kNobody) *all = result->all;
  // The last thread that drops its reference deletes the result. It does so under the lock, which a
  // ThreadSanitizer in the user's program sees, unlike the reference count.
  lock.lock();
  result = nullptr;
  return missing == Gathered::kNobody ? HEDDLE_DONE : fail_missing(missing);
}

std::vector<std::uint32_t> Table::awaited(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  return gather_.awaited_by(rank);
}

// All ranks live in this process, so its end is the end of the job.
void Member::abort(int code, const char* message) {
  for (std::uint32_t rank = 0; rank < size(); ++rank) table_.remove(rank);
  print_abort(rank_, code, message);
  std::abort();
}

ThreadJob::ThreadJob(std::uint32_t size) : table_(std::make_unique<Table>(size)) {}

ThreadJob::~ThreadJob() = default;

std::uint32_t ThreadJob::size() const {
  return table_->size();
}

base::Status ThreadJob::fail(std::uint32_t rank) {
  if (const base::Status status = check_rank(rank, size()); status != HEDDLE_DONE) return status;
  table_->remove(rank);
  return HEDDLE_DONE;
}

bool ThreadJob::in_use() {
  return table_->in_use();
}

bool ThreadJob::failed(std::uint32_t rank) const {
  return table_->failed(rank);
}

base::Result<std::unique_ptr<Bootstrap>> open(ThreadJob& job, std::uint32_t rank) {
  auto member = job.table().join(rank);
  if (!member) return member.status();
  return std::unique_ptr<Bootstrap>(std::move(*member));
}

}  // namespace heddle::bootstrap::inproc

namespace heddle::bootstrap::single {

namespace {

// An inproc job of one rank that belongs to its only member.
class Single final : public Bootstrap {
 public:
  Single(std::unique_ptr<inproc::ThreadJob> job, std::unique_ptr<Bootstrap> member)
      : job_(std::move(job)), member_(std::move(member)) {}

  [[nodiscard]] const char* name() const override { return "single"; }
  [[nodiscard]] std::uint32_t rank() const override { return 0; }
  [[nodiscard]] std::uint32_t size() const override { return 1; }
  [[nodiscard]] const JobSecret& secret() const override { return member_->secret(); }
  [[nodiscard]] base::Status publish(const Card& card) override { return member_->publish(card); }
  [[nodiscard]] base::Result<Card> fetch(std::uint32_t rank) override { return member_->fetch(rank); }
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte> mine) override {
    return member_->exchange_start(mine);
  }
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>* all) override {
    return member_->exchange_test(all);
  }
  [[nodiscard]] bool failed(std::uint32_t rank) const override { return member_->failed(rank); }
  void leave() override { member_->leave(); }
  [[noreturn]] void abort(int code, const char* message) override {
    print_abort(0, code, message);
    std::_Exit(code);
  }

 private:
  std::unique_ptr<inproc::ThreadJob> job_;
  std::unique_ptr<Bootstrap> member_;  // after job_: it is destroyed first
};

}  // namespace

base::Result<std::unique_ptr<Bootstrap>> open() {
  auto job = std::make_unique<inproc::ThreadJob>(1);
  auto member = inproc::open(*job, 0);
  if (!member) return member.status();
  return std::unique_ptr<Bootstrap>(std::make_unique<Single>(std::move(job), std::move(*member)));
}

}  // namespace heddle::bootstrap::single
