// Watches a job: when nothing of it has moved for long and somebody waits, says who is to blame.
// Also tells, on request, what every rank waits for. The launcher has one, or rank 0's host.
//
// Each rank is asked for its pulse, a few numbers, every quarter of a minute; once a second while
// somebody waits: a rank says by itself when a thread of it has waited in vain for a second. When
// the numbers of all ranks have stayed the same for `still_seconds`, each is asked for a snapshot,
// and those that have come within a second are judged (diagnosis/verdict.hpp). A report is never an
// end: the job goes on, and is reported again after twice the time, if it still does not move.
//
// No threads, never waits: its owner calls tick() when due_ns() says so, and serves the broker.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/local/broker.hpp"
#include "bootstrap/local/door.hpp"
#include "diagnosis/verdict.hpp"

namespace heddle::bootstrap::local {

class Watchdog final : public Watcher {
 public:
  struct Options {
    std::uint64_t still_seconds = 60;  // 0: it reports only on request
    const char* rank_word = "rank";
  };
  using Lines = std::vector<std::string>;
  using Say = std::function<void(const Lines& report)>;
  // Becomes the broker's watcher. `say`: for reports that nobody has asked for.
  Watchdog(Broker& broker, std::uint32_t size, const Options& options, Say say);

  // When tick() is to be called at the latest; 0: no time. All times here are of the system's
  // clock.
  [[nodiscard]] std::uint64_t due_ns() const;
  void tick(std::uint64_t now);
  // A thread of some rank has waited for a second, or polls in vain.
  [[nodiscard]] bool somebody_waits() const { return fast_; }
  // Asks all ranks for their state, and reports it within four seconds, whether the job moves or
  // not.
  void inquire(Say told, std::uint64_t now);

  // Reports the ranks' counters, soon (door.hpp).
  void ask_counters(CountRounds::Answer told, std::uint64_t now) { count_rounds_.ask(std::move(told), now); }

  // ---- `heddle hang` and `heddle top`. Opens the door (door.hpp) by which the job is asked:
  // "hang" is answered by an inquiry, "ranks" by the ranks' processes, "counters" by their
  // counters. Without it the job is watched all the same.
  base::Status open_door();
  // Readable: serve_door(). -1: there is none.
  [[nodiscard]] int door_fd() const { return door_ == nullptr ? -1 : door_->fd(); }
  void serve_door() { door_->serve(); }
  void close_door() { door_.reset(); }

  // ---- Watcher
  void waiting(std::uint32_t rank) override;
  void answered(std::uint32_t rank, FrameType type, std::int32_t number, std::span<const std::byte> payload) override;
  void moved() override;

 private:
  struct Rank {
    tap::Pulse pulse;
    bool answered = false;       // the question of this round
    bool known = false;          // `pulse` is of some answer
    bool looked_at = false;      // since the last pulse
    bool polls = false;          // it calls the library, and nothing of it moves
    std::uint64_t moved_ns = 0;  // when its numbers were seen to have changed last
    std::uint64_t called_ns = 0;
    // The values that will be judged. They are taken when the snapshot is asked for, since the
    // snapshot changes the numbers.
    std::uint64_t still_ns = 0;
    std::uint64_t silent_ns = 0;
    std::optional<tap::Snapshot> snapshot;
  };
  struct Inquiry {
    Say told;
    bool hang = false;  // the watchdog's own
  };

  void ask_pulses(std::uint64_t now);
  [[nodiscard]] bool all_wait_for_a_lock(std::uint64_t now, std::uint64_t period) const;
  void look(std::uint64_t now);
  void add(Inquiry&& inquiry, std::uint64_t now);
  void ask_snapshots(std::uint64_t now);
  void end_inquiries(std::uint64_t now);
  [[nodiscard]] bool all_have_answered() const;
  [[nodiscard]] bool can_hang(const std::vector<diagnosis::RankView>& all) const;
  [[nodiscard]] std::vector<diagnosis::RankView> take_views();
  [[nodiscard]] diagnosis::Presence presence(std::uint32_t rank) const;
  [[nodiscard]] std::string missing_of(std::uint32_t rank, const std::string& line) const;
  void tell_rank(std::uint32_t rank, const diagnosis::RankView& view, Lines& lines) const;
  void answer(std::string_view request, Door::Answer told);

  [[nodiscard]] std::uint64_t watch_due_ns() const;

  std::unique_ptr<Door> door_;
  Broker& broker_;
  CountRounds count_rounds_;
  const Options options_;
  const Say say_;
  std::vector<Rank> ranks_;
  bool moved_ = false;   // since the last look
  bool wanted_ = false;  // to look now
  bool fast_ = false;    // somebody waits
  std::uint64_t fast_since_ns_ = 0;
  std::uint64_t next_ns_ = 0;   // of pulses; 0: not yet
  std::uint64_t still_ns_ = 0;  // since when nothing has moved
  std::uint64_t reports_ = 0;   // since then
  std::int32_t number_ = 0;     // of the last round of pulses
  std::int32_t snapshots_ = 0;  // and of snapshots
  // Several share one round of snapshots, which is asked for at ask_ns_ (0: it has been), and ends
  // at until_ns_.
  std::vector<Inquiry> inquiries_;
  std::uint64_t ask_ns_ = 0;
  std::uint64_t until_ns_ = 0;
};

}  // namespace heddle::bootstrap::local
