// What the members of a team tell each other to make something ready together, through the team's
// assembly: setups, one after the other, in the order of the calls. mutex_ guards all; who moves
// things on takes it if it is free.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "collective/assembly.hpp"
#include "queue/fetching_mutex.hpp"

namespace heddle::collective {

class Team;

// Something that all members make ready together: each tells its record; then each does its part;
// and where a part may go wrong at some members alone, each tells how it went, so that it is ready
// for all or for none. All within the team's Setups.
class Setup {
 public:
  Setup() = default;
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;
  virtual ~Setup() = default;
  // What this member tells all others, or, where they are told different things or in several
  // rounds, each of them.
  [[nodiscard]] virtual const Record& record() const = 0;
  virtual void tell(std::uint32_t round, std::span<Record> members);
  // What they have told in this round; the last round's records are those of assembled(), too.
  virtual void heard(std::uint32_t round, std::span<const Record> records);
  // They are being told.
  virtual void told() {}
  // What all have told: does this member's part, and says how that went. *doubtful: members may
  // differ in it (all set it alike).
  virtual base::Status assembled(std::span<const Record> records, bool* doubtful) = 0;
  // How it ends; the text of an error is the thread's last message. The object may be gone when it
  // returns.
  virtual void settled(base::Status status) = 0;
};

// Why a setup has failed: what was found first, with its text, which another thread than the one
// that found it may report.
class Refusal {
 public:
  // With the thread's last message. Returns what was first.
  base::Status keep(base::Status status) {
    if (status_ != HEDDLE_DONE) return status_;
    text_ = base::last_message();
    return status_ = status;
  }
  void forget() { status_ = HEDDLE_DONE; }
  [[nodiscard]] base::Status status() const { return status_; }
  // The same, and its text is this thread's last message.
  [[nodiscard]] base::Status report() const {
    return status_ == HEDDLE_DONE ? HEDDLE_DONE : base::fail(status_, "%s", text_.c_str());
  }

 private:
  base::Status status_ = HEDDLE_DONE;
  std::string text_;
};

class Setups {
 public:
  Setups(Team& team, std::unique_ptr<Assembly> assembly) : team_(team), assembly_(std::move(assembly)) {}

  void submit(Setup& setup);
  void withdraw(Setup& setup);  // it will never be assembled
  // Moves on what members have to tell each other. Any thread.
  void advance();
  // For who waits for that: brings the helper here that is at it. False: none is.
  bool fetch(std::int64_t sleep_ns) { return mutex_.fetch(sleep_ns); }
  // All that are under way, and all that follow, end with this error.
  void fail(base::Status status) { assembly_->fail(status); }
  [[nodiscard]] const Assembly& assembly() const { return *assembly_; }

 private:
  [[nodiscard]] base::Status judge_verdicts() const;
  void start_round(Setup& first);
  bool heard_round(Setup& first);

  Team& team_;
  queue::FetchingMutex mutex_;
  const std::unique_ptr<Assembly> assembly_;
  std::deque<Setup*> setups_;
  std::uint32_t round_ = 0;  // of the first one's records
  bool assembling_ = false;  // the first one's record is on its way, or
  bool confirming_ = false;  // how its part went is
  base::Status verdict_ = HEDDLE_DONE;
};

}  // namespace heddle::collective
