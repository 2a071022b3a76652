// One collective operation of this rank: its memory (Places), and the operation (Collective).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/assembly.hpp"
#include "collective/runner.hpp"
#include "collective/schedule.hpp"
#include "collective/team.hpp"
#include "queue/locks.hpp"

namespace heddle::collective {

// This member's memory for one operation, to which the others put: counters and slots, in the arena
// or in a region of their own, and the caller's buffer, if the others can reach it.
class Places {
 public:
  explicit Places(Team& team) : team_(team) {}

  // Decides whether members access the caller's buffer directly, or this member copies (see
  // staged()). Call it before there is a schedule.
  void look(const Plan& plan);
  // True: the members reach the caller's buffer.
  [[nodiscard]] bool reached() const { return around_ != nullptr; }
  // True: members put to, or get from, memory here instead of the caller's buffer; this member
  // copies between the two.
  [[nodiscard]] bool staged() const { return stages_; }

  // Allocates memory for the schedule, initializes its counters, and writes their position into the
  // record. NO_MEMORY.
  base::Status take(const Plan& plan, SetupRecord* record);
  [[nodiscard]] bool taken() const { return taken_; }
  // `counters`: the final values for the schedule that ran; for Memory::late.
  void give_back(Runner::Memory memory, std::vector<std::uint64_t> counters);

  [[nodiscard]] CounterWord* counters() const;
  [[nodiscard]] std::byte* scratch() const { return scratch_; }
  // Null: staged() is false.
  [[nodiscard]] std::byte* stage() const { return stage_; }

 private:
  base::Status take_pieces(Use use, std::uint64_t counters, std::uint64_t slots, SetupRecord* record);

  Team& team_;
  engine::Region* around_ = nullptr;
  bool stages_ = false;
  bool taken_ = false;
  std::uint64_t piece_ = 0;           // offset in the arena, with the counters at its beginning
  engine::Region* region_ = nullptr;  // for the slots; null: they are in the arena
  std::byte* scratch_ = nullptr;
  std::byte* stage_ = nullptr;
};

// One collective operation of this rank: prepared together with the other members, then run once or
// many times.
//
// Stages: setting_up, until all members have told what they call and where their memory is; then
// ready, or rejected with a reason. The Runner does the runs. One thread at a time calls test(),
// wait(), start() and close(). Any thread may call move_on(). Among them are helpers, which call
// visit() first, under the lock of the list in which they found the operation.
class Collective final : public Setup {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::collective;
  // Creates the operation with its handle, and announces it to the team.
  static base::Result<Collective*> open(Team& team, const Call& call, Use use);
  // Creates the operation without announcing it. An error at this member only is not returned here:
  // the other members are told of it.
  static base::Result<std::unique_ptr<Collective>> make(Team& team, const Call& call, Use use);
  ~Collective() override;

  [[nodiscard]] std::uint64_t handle() const { return team_.commons().collectives().handle(this); }
  [[nodiscard]] bool persistent() const { return use_ == Use::persistent; }
  // The algorithm's name; OPERATION.gates if barrier gates run the operation.
  [[nodiscard]] const char* algorithm() const;
  // True: the operation is ready, and the network's interface runs it.
  [[nodiscard]] bool offloaded() const { return stage() == Stage::ready && by_interface(); }
  // True: the interface runs the operation, or was to run it before the operation was rejected. Not
  // during the set-up.
  [[nodiscard]] bool by_interface() const { return runner_->offloaded(); }
  [[nodiscard]] Team& team() { return team_; }
  // For reports: the members that the current run waits for. Empty: none, or unknown. May throw.
  [[nodiscard]] std::vector<Rank> awaited();

  // The team's call that it is under way for; for reports. Any thread.
  [[nodiscard]] tap::Step step() const;
  // Sets the number of the team's call that it now runs for.
  void set_number(std::uint64_t number) { number_.store(number, std::memory_order_relaxed); }

  // After the set-up: the error that all members know of, and therefore know alike; DONE: none.
  [[nodiscard]] base::Status shared_error() const { return shared_error_; }
  // After the set-up: a member keeps much for its teams. The same at all members.
  [[nodiscard]] bool crowded() const { return crowded_; }

  // Waits until the set-up has ended: DONE, or why the operation is rejected.
  base::Status wait_ready();
  // Begins a run. STATE: a run is under way, or the operation is not persistent; PEER_FAILED.
  base::Status start();
  // Makes progress. DONE: no run is under way (any more); AGAIN; or the error of the run. After
  // DONE or an error a `once` operation is destroyed.
  base::Status test();
  // TIMEOUT: the run continues.
  base::Status wait(std::int64_t timeout_ns);
  // For a persistent operation. STATE: a run is under way.
  base::Status close();
  // For a kept operation: starts one run with these buffers and waits for it.
  base::Status run_with(const Call& call);

  // ---- for threads that advance operations
  worker::Attachment::Found move_on();
  // True: something is under way.
  [[nodiscard]] bool active() const;
  // True: something is under way that needs a processor.
  [[nodiscard]] bool wants_help() const { return !offloaded() && active(); }
  // For Commons: as move_on(), by a thread that may be a helper. Call it between visit() and
  // leave().
  worker::Attachment::Found move_on_as_anybody();
  // For a thread that waits for this operation: brings the helper that advances it here. False:
  // there is none.
  bool fetch(std::int64_t sleep_ns) { return helper_.fetch(sleep_ns); }
  void visit() { visitors_.fetch_add(1, std::memory_order_acquire); }
  void leave() { visitors_.fetch_sub(1, std::memory_order_release); }
  [[nodiscard]] bool visited() const { return visitors_.load(std::memory_order_acquire) > 0; }

  // ---- Setup
  [[nodiscard]] const SetupRecord& record() const override { return record_; }
  void told() override { told_ = true; }
  [[nodiscard]] bool tells_apart() const override {
    return lists_blocks(call_.operation) || by_interface() || record_.names_regions();
  }
  void tell(std::uint32_t round, std::span<SetupRecord> members) override;
  void heard(std::uint32_t round, std::span<const SetupRecord> records) override;
  base::Status assembled(std::span<const SetupRecord> records, bool* doubtful) override;
  void decided(base::Status status) override;

 private:
  enum class Stage : std::uint8_t { setting_up, ready, rejected };
  Collective(Team& team, const Call& call, Use use) : team_(team), call_(call), use_(use), places_(team) {}

  [[nodiscard]] Stage stage() const { return stage_.load(std::memory_order_acquire); }
  base::Status choose();
  void prepare_lists(bool reached);
  base::Status prepare_places();
  [[nodiscard]] Plan plan();
  void open_runner();
  void go_by_software();
  [[nodiscard]] base::Status ended();
  base::Status end_of(base::Status status);
  // True: a member has failed, which the next move_on() ends the run by.
  bool look_for_failures();
  void note(tap::TraceEvent event);
  void describe(tap::Wait& wait);
  void retire();

  Team& team_;
  Call call_;
  const Use use_;
  const Algorithm* algorithm_ = nullptr;
  bool named_ = false;  // the program named the algorithm
  AlgorithmRequest request_;
  Exchange lists_;  // where members list their blocks; request_ refers to it
  Schedule schedule_;
  SetupRecord record_;
  bool told_ = false;    // others know of the operation, and may put to its memory if agreed_
  bool agreed_ = false;  // the calls of all members agree
  Places places_;
  // before the operation is ready: the way that this member prefers; then the way that all use
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Runner> by_software_;  // until the members have agreed on a way or not

  // release when the stage becomes ready or rejected; acquire in stage()
  std::atomic<Stage> stage_{Stage::setting_up};
  Rejection rejection_;
  base::Status shared_error_ = HEDDLE_DONE;
  bool has_verdict_ = false;  // all members tell each other how they fared
  bool crowded_ = false;
  bool heard_all_ = false;  // the records of all members have arrived
  // the lists do not fit each other, here or at other members: nobody runs the operation
  bool unlike_ = false;
  std::atomic<bool> begun_{false};  // for `once`: the run has been started
  bool running_ = false;            // from the program's point of view
  Commons::Waited waited_;          // of the thread in wait()
  bool opened_ = false;
  bool listed_ = false;
  std::atomic<std::uint64_t> number_{0};  // relaxed: for reports
  // of failures. Relaxed: a thread that looks twice finds the same
  std::atomic<std::uint64_t> seen_epoch_{0};
  // the helper that advances the operation, for as long as it may hold a lock of it
  queue::HelperClaim<> helper_;
  // acquire in visit() and visited(), release in leave()
  std::atomic<std::uint32_t> visitors_{0};
};

}  // namespace heddle::collective
