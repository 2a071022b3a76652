// How the members of a team prepare something together: puts to members whose memory is not mapped
// (RegionCarrier), rounds of records (Assembly), and setups, one after the other (Setups).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collective/commons.hpp"
#include "collective/runner.hpp"
#include "collective/session_queue.hpp"
#include "engine/objects.hpp"
#include "queue/locks.hpp"

namespace heddle::worker {

class Worker;

}  // namespace heddle::worker

namespace heddle::collective {

// Brings bytes and credits into regions of another rank by operations of the context's internal
// worker.
class RegionCarrier final : public Carrier {
 public:
  struct Base {
    engine::RemoteRegion* region = nullptr;
    std::uint64_t offset = 0;
  };
  // `places`: by Place; nothing is put to send. All regions must stay until no put of this is under
  // way.
  RegionCarrier(worker::Worker& port, const Base& counters, const std::array<Base, 3>& places)
      : port_(port), counters_(counters), places_(places) {}

  bool put(const std::byte* source, std::uint64_t bytes, Place place, std::uint64_t offset,
           std::atomic<std::int32_t>* ended) override;
  base::Status give(std::uint32_t counter, std::uint64_t credits) override;

 private:
  worker::Worker& port_;
  const Base counters_;
  const std::array<Base, 3> places_;
};

// One member's record for another member, about an operation that all of them prepare, or about a
// team that they make. All ranks of a job run the same library on the same kind of machine; the
// arenas require this, too.
struct SetupRecord {
  enum class Kind : std::uint32_t { operation = 1, split, subset, verdict };
  Kind kind = Kind::operation;
  std::int32_t status = HEDDLE_DONE;  // an error that keeps the member from taking part
  // These must be the same at all members.
  std::uint32_t operation = 0;
  std::uint32_t root = 0;
  std::uint64_t bytes = 0;
  std::uint64_t whole = 0;
  std::uint64_t element_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::uint32_t reduction = 0;
  std::uint32_t algorithm = 0;  // row of the table
  std::uint64_t list = 0;       // subset: digest of the ranks that were named
  // The position of this member's memory: its piece of the arena, with its counters at the
  // beginning, and its places.
  std::uint64_t counters = 0;
  enum class Where : std::uint32_t { nowhere, arena, scratch_region, receive_region };
  Where scratch_in = Where::arena;
  Where receive_in = Where::nowhere;
  std::uint64_t scratch = 0;  // offsets in that memory
  std::uint64_t receive = 0;
  [[nodiscard]] bool names_regions() const {
    return scratch_in == Where::scratch_region || receive_in == Where::receive_region ||
           receive_in == Where::scratch_region;
  }
  // split, subset
  std::int64_t key = 0;
  std::uint32_t colour = 0;
  std::uint32_t coloured = 0;
  std::uint64_t assembly = 0;  // the new team's piece of the arena
  std::uint32_t apart = 0;     // the whole record follows, and not the same to all members
  std::uint32_t crowded = 0;   // this member keeps much for the blocking calls of its teams
  // the way by which this member would run the operation, and the data that the receiver of the
  // record needs for it
  WayKeys keys;
  // A common round (Assembly) ends here, behind the number of the way.
  PackedRegion scratch_region{};
  PackedRegion receive_region{};
  // For operations whose members list their blocks. First, the same to all members: the number of
  // rounds of this setup's records. Then the values for the member that gets the record.
  std::uint32_t rounds = 1;
  std::uint32_t keeps = 0;  // blocks for this member arrive in its scratch
  std::uint32_t gives = 0;  // number of blocks to that member
  std::uint32_t takes = 0;  // number of blocks from that member
  std::uint32_t slot = 0;   // that member's number among those that this one gives to
  struct Listed {
    std::uint64_t given = 0;  // bytes of a block to that member
    std::uint64_t taken = 0;  // bytes of a block from that member
    std::uint64_t at = 0;     // offset in receive or in scratch where the latter is put
  };
  std::array<Listed, 2> listed{};  // of this round
};

// How the members of a team exchange information outside of operations: each member sends each
// other member a record, in rounds that all members make in the same order. Nobody waits until a
// peer begins, and a member may be one round ahead.
//
// In a common round each member says one thing to all, the first part of its record: an allgather
// in log2 n steps, so that a member meets 2 log2 n others, those that a barrier and a tree need,
// too. In a round apart, it has a whole record for each: an alltoall in two steps over a grid. Its
// peers, about twice the root of n, are met before the first such round. In a small team, where
// each member meets all others, rounds of both kinds are an alltoall in one step.
class Assembly {
 public:
  // Bytes of the piece of the arena that a member of a team of that size needs.
  static std::uint64_t bytes(std::uint32_t members);
  // For tests: the member's schedules fit into these bytes, and prepare() gives their counters the
  // credits that they begin with.
  [[nodiscard]] static bool fits(std::uint32_t members, std::uint32_t member);

  // `ranks`: the members' ranks in the job. `pieces`: the offsets of their pieces, each in its own
  // arena. This member's piece must be prepared before any other member learns of it.
  static void prepare(Arena& arena, std::uint64_t piece, std::uint32_t members);
  static base::Result<std::unique_ptr<Assembly>> make(Commons& commons, std::span<const std::uint32_t> ranks,
                                                      std::uint32_t member, std::span<const std::uint64_t> pieces);

  // Common rounds cost less than rounds apart. The same at all members.
  [[nodiscard]] bool prefers_common() const { return common_.queue != nullptr; }
  // Rounds apart can be made; else open_apart() first, and only if it succeeds at all members.
  [[nodiscard]] bool is_open_apart() const { return apart_.queue != nullptr; }
  base::Status open_apart();
  void close_apart() { apart_ = {}; }  // no such round has been made

  // One round at a time, by one thread at a time. told(): the records to be sent in a round apart,
  // by member; fill them before start_apart().
  [[nodiscard]] std::span<SetupRecord> told() { return told_; }
  void start_apart() { start(apart_); }
  void start_common(const SetupRecord& record);
  bool advance();
  [[nodiscard]] std::uint64_t executed() const;  // see Runner
  void fail(base::Status status);
  [[nodiscard]] base::Status status() const;
  [[nodiscard]] std::span<const SetupRecord> records() const { return records_; }
  // The values of its counters when all that peers owe has arrived.
  [[nodiscard]] std::vector<std::uint64_t> final_counters() const;

 private:
  // What rounds of one kind need.
  struct Way {
    Schedule schedule;
    std::vector<std::unique_ptr<Carrier>> carriers;
    std::unique_ptr<SessionQueue> queue;
  };
  // Where it lies in each member's piece.
  struct Layout {
    std::uint64_t counters;
    std::uint64_t scratch;
  };
  Assembly(Commons& commons, std::span<const std::uint32_t> ranks, std::uint32_t member,
           std::span<const std::uint64_t> pieces);
  base::Status open(const Layout& layout, std::byte* send, Way& way);
  base::Status reach(const Layout& layout, std::uint32_t other, Way& way, RankMemory* at);
  void start(Way& way);
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }

  Commons& commons_;
  const std::vector<std::uint32_t> ranks_;
  const std::uint32_t member_;
  const std::vector<std::uint64_t> pieces_;
  SetupRecord said_;              // to all, in a common round
  std::vector<std::byte> heard_;  // the first parts of the members' records
  std::vector<SetupRecord> told_;
  std::vector<SetupRecord> records_;
  Way common_;  // no queue: all rounds are apart
  Way apart_;
  Way* round_ = nullptr;  // of the last round
};

// The values of the counters after `runs` successful runs.
std::vector<std::uint64_t> final_counters(const Schedule& schedule, std::uint64_t runs);

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
  // different members, or records in several rounds, or more of them than their first part: then
  // tells_apart() must be true.
  [[nodiscard]] virtual const SetupRecord& record() const = 0;
  [[nodiscard]] virtual bool tells_apart() const { return false; }
  virtual void tell(std::uint32_t round, std::span<SetupRecord> members);
  // The records of all members in this round; those of the last round are also given to
  // assembled().
  virtual void heard(std::uint32_t round, std::span<const SetupRecord> records);
  // Called when this member's record is being sent.
  virtual void told() {}
  // All records are here: does this member's part and returns the result. *doubtful: members'
  // results may differ (all members set it alike).
  virtual base::Status assembled(std::span<const SetupRecord> records, bool* doubtful) = 0;
  // The setup has ended; the text of an error is the thread's last message. The object may be
  // destroyed in this call.
  virtual void decided(base::Status status) = 0;
};

// The first error of a setup, with its text. The thread that reports it may not be the one that
// found it.
class Rejection {
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

// How the members of a team prepare something together, through the team's assembly: setups, one
// after the other, in the order of the calls. mutex_ guards everything; a thread that advances
// setups takes it only if it is free.
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
  void fail(base::Status status) {
    const std::lock_guard lock(mutex_);
    assembly_->fail(status);
  }
  [[nodiscard]] const Assembly& assembly() const { return *assembly_; }

 private:
  [[nodiscard]] base::Status judge_verdicts() const;
  void start_round(Setup& first);
  bool heard_round(Setup& first);
  // The round has ended well. AGAIN: another one follows for the same setup.
  base::Status end_round(Setup& first);

  Team& team_;
  queue::FetchingMutex mutex_;
  const std::unique_ptr<Assembly> assembly_;
  std::deque<Setup*> setups_;
  // What members tell each other in the next round, or in the one that is under way, about the
  // first setup.
  enum class Phase : std::uint8_t {
    common,     // records; in a small team those for each member
    opening,    // whether they can make rounds apart
    apart,      // records for each member
    confirming  // the results of their parts
  };
  Phase phase_ = Phase::common;
  std::uint32_t round_ = 0;  // of the first setup's records
  bool assembling_ = false;  // the round is under way
  base::Status verdict_ = HEDDLE_DONE;
  std::uint64_t whole_epoch_ = 0;  // at this failure epoch no member had failed
};

}  // namespace heddle::collective
