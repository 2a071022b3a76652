#include "collective/setups.hpp"

#include <algorithm>
#include <mutex>

#include "collective/team.hpp"

namespace heddle::collective {
namespace {

// More than any operation needs. This bounds the number of rounds that members may ask for.
constexpr std::uint32_t kMostRounds = std::uint32_t{1} << 20;

// Replaces a setup that was cancelled.
class Gone final : public Setup {
 public:
  [[nodiscard]] const Record& record() const override { return none_; }
  base::Status assembled(std::span<const Record>, bool*) override { return HEDDLE_DONE; }
  void settled(base::Status) override {}

 private:
  const Record none_{};
};

}  // namespace

void Setup::tell(std::uint32_t, std::span<Record> members) {
  std::ranges::fill(members, record());
}

void Setup::heard(std::uint32_t, std::span<const Record>) {}

void Setups::submit(Setup& setup) {
  {
    const std::lock_guard lock(mutex_);
    setups_.push_back(&setup);
  }
  static_cast<void>(advance());
}

void Setups::cancel(Setup& setup) {
  static Gone gone;
  const std::lock_guard lock(mutex_);
  // It keeps its turn in the order of setups.
  std::ranges::replace(setups_, &setup, static_cast<Setup*>(&gone));
}

// The error of the first member, by rank, whose part failed; DONE: none.
base::Status Setups::judge_verdicts() const {
  const std::span<const Record> records = assembly_->records();
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].status == HEDDLE_DONE) continue;
    const auto status = static_cast<base::Status>(records[i].status);
    return base::fail(status, "rank %zu of the team could not do its part (%s), so nobody does", i,
                      heddle_status_name(status));
  }
  return HEDDLE_DONE;
}

// Starts the next round: the first setup's records, or the results of the parts.
void Setups::start_round(Setup& first) {
  if (confirming_) {
    Record verdict;
    verdict.kind = Record::Kind::verdict;
    verdict.status = verdict_;
    std::ranges::fill(assembly_->told(), verdict);
  } else {
    if (round_ == 0) first.told();
    first.tell(round_, assembly_->told());
  }
  assembly_->start();
  assembling_ = true;
}

// True: another round follows. All members decide alike, from the same records.
bool Setups::heard_round(Setup& first) {
  const std::span<const Record> records = assembly_->records();
  first.heard(round_, records);
  std::uint32_t rounds = 0;
  for (const Record& record : records) rounds = std::max(rounds, record.rounds);
  return ++round_ < std::min(rounds, kMostRounds);
}

bool Setups::advance() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool moved = false;
  while (!setups_.empty()) {
    Setup& first = *setups_.front();
    const std::uint64_t before = assembly_->executed();
    if (assembly_->status() == HEDDLE_DONE && !assembling_) start_round(first);
    if (assembling_ && !assembly_->advance()) {
      moved = moved || assembly_->executed() != before;
      if (!team_.failed_member()) return moved;
      assembly_->fail(HEDDLE_ERR_PEER_FAILED);
      if (!assembly_->advance()) return moved;  // puts to members that live are still under way
    }
    assembling_ = false;
    moved = true;
    base::Status status = assembly_->status();
    if (status != HEDDLE_DONE) {
      status = team_.report_dead();
    } else if (!confirming_) {
      if (heard_round(first)) continue;
      bool doubtful = false;
      status = verdict_ = first.assembled(assembly_->records(), &doubtful);
      confirming_ = doubtful;
      if (doubtful) continue;
    } else {
      status = judge_verdicts();
    }
    confirming_ = false;
    round_ = 0;
    setups_.pop_front();
    first.settled(status);
  }
  return moved;
}

}  // namespace heddle::collective
