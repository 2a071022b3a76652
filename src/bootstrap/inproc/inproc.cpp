#include "bootstrap/inproc/inproc.hpp"

#include <algorithm>
#include <cstdlib>

#include "bootstrap/common.hpp"

namespace heddle::bootstrap::inproc {

// One rank's bootstrap.
class Member final : public Bootstrap {
 public:
  Member(Job& job, std::uint32_t rank) : job_(job), rank_(rank) {}
  // A rank whose bootstrap is destroyed without leave() counts as dead.
  ~Member() override {
    const std::lock_guard lock(job_.mutex_);
    job_.remove(rank_);
    job_.seats_[rank_].member = nullptr;
  }

  [[nodiscard]] const char* name() const override { return "inproc"; }
  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return job_.size_; }
  [[nodiscard]] const JobSecret& secret() const override { return job_.secret_; }
  [[nodiscard]] base::Status publish(const Card& card) override;
  [[nodiscard]] base::Result<Card> fetch(std::uint32_t rank) override;
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte> mine) override;
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>* all) override;
  [[nodiscard]] std::vector<std::uint32_t> awaited() override;
  [[nodiscard]] bool failed(std::uint32_t rank) const override { return job_.failed(rank); }
  void leave() override {
    const std::lock_guard lock(job_.mutex_);
    job_.remove(rank_);
  }
  [[noreturn]] void abort(int code, const char* message) override;

  void note_gone() { raise_failure_epoch(); }
  void note_result() { ring_bell(); }

 private:
  Job& job_;
  const std::uint32_t rank_;
};

Job::Job(std::uint32_t size)
    : size_(size),
      gone_(std::make_unique<std::atomic<bool>[]>(std::min(size, kMaxRanks))),
      seats_(std::min(size, kMaxRanks)),
      gather_(std::min(size, kMaxRanks)) {
  if (size == 0 || size > kMaxRanks) {
    status_ = HEDDLE_ERR_ARGUMENT;
    why_ = "a job of " + std::to_string(size) + " ranks; 1 to " + std::to_string(kMaxRanks) + " are possible";
    return;
  }
  const auto secret = make_secret();
  if (secret) {
    secret_ = *secret;
  } else {
    status_ = secret.status();
    why_ = base::last_message();
  }
}

Job::~Job() = default;

bool Job::failed(std::uint32_t rank) const {
  return rank < size_ && gone_[rank].load(std::memory_order_acquire);
}

bool Job::in_use() {
  const std::lock_guard lock(mutex_);
  return std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.member != nullptr; });
}

base::Status Job::fail(std::uint32_t rank) {
  if (const base::Status status = check_rank(rank, size_); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  remove(rank);
  return HEDDLE_DONE;
}

void Job::remove(std::uint32_t rank) {
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

void Job::finish_round() {
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

base::Status Member::publish(const Card& card) {
  if (const base::Status status = check_card(card); status != HEDDLE_DONE) return status;
  auto copy = duplicate(card.fd);
  if (!copy) return copy.status();
  const std::lock_guard lock(job_.mutex_);
  Job::Seat& seat = job_.seats_[rank_];
  if (seat.published) return base::fail(HEDDLE_ERR_STATE, "rank %u has published its card already", rank_);
  seat.published = true;
  if (job_.gather_.is_gone(rank_)) return fail_gone(rank_);
  seat.card = {-1, card.pid, card.bytes, card.object};
  seat.card_fd = std::move(*copy);
  return HEDDLE_DONE;
}

base::Result<Card> Member::fetch(std::uint32_t rank) {
  if (const base::Status status = check_rank(rank, size()); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(job_.mutex_);
  const Job::Seat& seat = job_.seats_[rank];
  if (job_.gather_.is_gone(rank_)) return fail_gone(rank_);
  if (job_.gather_.is_gone(rank)) return fail_gone(rank);
  if (!seat.published) return HEDDLE_AGAIN;
  auto copy = duplicate(seat.card_fd.get());
  if (!copy) return copy.status();
  return Card{copy->release(), seat.card.pid, seat.card.bytes, seat.card.object};
}

base::Status Member::exchange_start(std::span<const std::byte> mine) {
  if (const base::Status status = check_exchange(mine.size()); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(job_.mutex_);
  if (job_.gather_.is_gone(rank_)) return fail_gone(rank_);
  if (job_.seats_[rank_].result != nullptr || !job_.gather_.arrive(rank_, {mine.begin(), mine.end()})) {
    return base::fail(HEDDLE_ERR_STATE, "rank %u is in an exchange already; one at a time", rank_);
  }
  job_.finish_round();
  return HEDDLE_DONE;
}

base::Status Member::exchange_test(std::vector<std::vector<std::byte>>* all) {
  std::unique_lock lock(job_.mutex_);
  std::shared_ptr<const Gathered> result = std::move(job_.seats_[rank_].result);
  job_.seats_[rank_].result = nullptr;
  if (result == nullptr) {
    if (job_.gather_.is_gone(rank_)) return fail_gone(rank_);
    if (job_.gather_.has_arrived(rank_)) return HEDDLE_AGAIN;
    return base::fail(HEDDLE_ERR_STATE, "rank %u tests an exchange that it has not started", rank_);
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

std::vector<std::uint32_t> Member::awaited() {
  const std::lock_guard lock(job_.mutex_);
  std::vector<std::uint32_t> ranks;
  if (!job_.gather_.has_arrived(rank_)) return ranks;
  for (std::uint32_t rank = 0; rank < job_.size_; ++rank) {
    if (!job_.gather_.has_arrived(rank) && !job_.gather_.is_gone(rank)) ranks.push_back(rank);
  }
  return ranks;
}

// All ranks live in this process, so its end is the end of the job.
void Member::abort(int code, const char* message) {
  for (std::uint32_t rank = 0; rank < size(); ++rank) static_cast<void>(job_.fail(rank));
  print_abort(rank_, code, message);
  std::abort();
}

base::Result<std::unique_ptr<Bootstrap>> open(Job& job, std::uint32_t rank) {
  if (job.status_ != HEDDLE_DONE) return base::fail(job.status_, "%s", job.why_.c_str());
  if (const base::Status status = check_rank(rank, job.size_); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(job.mutex_);
  Job::Seat& seat = job.seats_[rank];
  if (seat.taken) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "rank %u of this inproc job has been joined before; each rank joins once",
                      rank);
  }
  auto member = std::make_unique<Member>(job, rank);
  for (std::uint32_t other = 0; other < job.size_; ++other) {
    if (other != rank && job.gather_.is_gone(other)) member->note_gone();
  }
  seat.taken = true;
  seat.member = member.get();
  return std::unique_ptr<Bootstrap>(std::move(member));
}

}  // namespace heddle::bootstrap::inproc
