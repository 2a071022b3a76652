// How the members of a team prepare something together, through the team's assembly: setups, one
// after the other, in the order of the calls. mutex_ guards everything; a thread that advances
// setups takes it only if it is free.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "collective/assembly.hpp"
#include "queue/locks.hpp"

namespace heddle::collective {

class Team;

// Something that all members prepare together. Each member sends its record; then each does its
// part. If a part may fail at some members only, each member then sends its result, so that the
// thing is ready at all members or at none. All functions run within the team's Setups.
class Setup {
 public:
  Setup() = default;
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;
  virtual ~Setup() = default;
  // This member's record for all others. tell() is for setups that send different records to
  // different members, or records in several rounds.
  [[nodiscard]] virtual const Record& record() const = 0;
  virtual void tell(std::uint32_t round, std::span<Record> members);
  // The records of all members in this round; those of the last round are also given to
  // assembled().
  virtual void heard(std::uint32_t round, std::span<const Record> records);
  // Called when this member's record is being sent.
  virtual void told() {}
  // All records are here: does this member's part and returns the result. *doubtful: members'
  // results may differ (all members set it alike).
  virtual base::Status assembled(std::span<const Record> records, bool* doubtful) = 0;
  // The setup has ended; the text of an error is the thread's last message. The object may be
  // destroyed in this call.
  virtual void settled(base::Status status) = 0;
};

// The first error of a setup, with its text. The thread that reports it may not be the one that
// found it.
class Refusal {
 public:
  // Keeps the error with the thread's last message, unless there is one already. Returns the first
  // error.
  base::Status keep(base::Status status) {
    if (status_ != HEDDLE_DONE) return status_;
    text_ = base::last_message();
    return status_ = status;
  }
  void forget() { status_ = HEDDLE_DONE; }
  [[nodiscard]] base::Status status() const { return status_; }
  // Returns the error, and makes its text this thread's last message.
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
  void cancel(Setup& setup);  // the setup will never be assembled
  // Advances the exchange of records. Any thread. True: something has moved.
  bool advance();
  // For a thread that waits for this: brings the helper that holds it here. False: there is none.
  bool fetch(std::int64_t sleep_ns) { return mutex_.fetch(sleep_ns); }
  // All setups under way, and all that follow, end with this error.
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
  std::uint32_t round_ = 0;  // of the first setup's records
  bool assembling_ = false;  // the first setup's records are on their way
  bool confirming_ = false;  // the results of the first setup's parts are on their way
  base::Status verdict_ = HEDDLE_DONE;
};

}  // namespace heddle::collective
