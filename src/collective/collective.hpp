// One collective operation of this rank: made ready with the other members, then run, once or again
// and again.
//
// Stages: setting_up, until all members have told what they call and where they are reached; then
// ready, or refused with the reason. Runs are the Runner's. test(), wait(), start() and close() are
// for one thread at a time; move_on() for any, helpers among them, who count themselves in by
// visit() under the lock of the list they found it in.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collective/exchange.hpp"
#include "collective/places.hpp"
#include "collective/runner.hpp"
#include "collective/team.hpp"
#include "queue/helper_claim.hpp"

namespace heddle::collective {

class Collective final : public Setup {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::collective;
  // With its handle, and announced to the team.
  static base::Result<Collective*> open(Team& team, const Call& call, Use use);
  // Not announced yet. What goes wrong at this member alone will be told to the others, and is no
  // error here.
  static base::Result<std::unique_ptr<Collective>> make(Team& team, const Call& call, Use use);
  ~Collective() override;

  [[nodiscard]] std::uint64_t handle() const { return team_.commons().collectives().handle(this); }
  [[nodiscard]] bool persistent() const { return use_ == Use::persistent; }
  // OPERATION.gates where barrier gates run it.
  [[nodiscard]] const char* algorithm() const;
  // Ready, and the network's interface runs it.
  [[nodiscard]] bool offloaded() const { return stage() == Stage::ready && by_interface(); }
  // The interface runs it, or was to do so before it was refused. Not while it is set up.
  [[nodiscard]] bool by_interface() const { return runner_->offloaded(); }
  [[nodiscard]] Team& team() { return team_; }
  // For reports: members that the run which is under way waits for. Empty: none, or it is not
  // known. May throw.
  [[nodiscard]] std::vector<Rank> awaited();

  // Until it is ready: DONE, or why it is not.
  base::Status wait_ready();
  // Begins a run. STATE: one is under way, or not persistent; PEER_FAILED.
  base::Status start();
  // Makes progress. DONE: no run is under way (any more); AGAIN; or how the run failed. After DONE
  // or an error an operation that is not persistent is gone.
  base::Status test();
  base::Status wait(std::int64_t timeout_ns);  // TIMEOUT: it goes on
  // Of a persistent one. STATE: a run is under way.
  base::Status close();
  // Of a kept one: one run with these buffers, start and wait.
  base::Status run_with(const Call& call);

  // ---- for who moves things on
  engine::Attachment::Found move_on();
  // Something is under way.
  [[nodiscard]] bool active() const;
  // Something is under way that needs a processor.
  [[nodiscard]] bool wants_help() const { return !offloaded() && active(); }
  // For Commons: as move_on(), by a thread that may be a helper. Between visit() and leave().
  engine::Attachment::Found move_on_as_anybody();
  // Another thread that waits for this one fetches the helper that is at it, if one is; false:
  // none.
  bool fetch(std::int64_t sleep_ns) { return helper_.fetch(sleep_ns); }
  void visit() { visitors_.fetch_add(1, std::memory_order_acquire); }
  void leave() { visitors_.fetch_sub(1, std::memory_order_release); }
  [[nodiscard]] bool visited() const { return visitors_.load(std::memory_order_acquire) > 0; }

  // ---- Setup
  [[nodiscard]] const Record& record() const override { return record_; }
  void told() override { told_ = true; }
  void tell(std::uint32_t round, std::span<Record> members) override;
  void heard(std::uint32_t round, std::span<const Record> records) override;
  base::Status assembled(std::span<const Record> records, bool* doubtful) override;
  void settled(base::Status status) override;

 private:
  enum class Stage : std::uint8_t { setting_up, ready, refused };
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
  void look_for_failures();
  void describe(std::span<char> text);
  void retire();

  Team& team_;
  Call call_;
  const Use use_;
  const Algorithm* algorithm_ = nullptr;
  bool named_ = false;  // the algorithm, by the program
  Request request_;
  Exchange lists_;  // where members list their blocks; request_ has it
  Schedule schedule_;
  Record record_;
  bool told_ = false;    // others know of it, and may put to its memory if
  bool agreed_ = false;  // their calls and this one agree
  Places places_;
  // as this member would have it; when it is ready, as all do
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Runner> by_software_;  // until it is known whether members agree about another

  // release when it is ready or refused; acquire by stage()
  std::atomic<Stage> stage_{Stage::setting_up};
  Refusal refusal_;
  bool heard_all_ = false;  // the records of all members have come
  // lists do not fit each other, here or at others: nobody runs it
  bool unlike_ = false;
  std::atomic<bool> begun_{false};  // once: the run has been started
  bool running_ = false;            // as the program sees it
  bool opened_ = false;
  bool listed_ = false;
  // of failures. Relaxed: who looks twice finds the same
  std::atomic<std::uint64_t> seen_epoch_{0};
  // who moves it on, for as long as a helper may hold a lock of it
  queue::HelperClaim<> helper_;
  // acquire by visit() and visited(), release by leave()
  std::atomic<std::uint32_t> visitors_{0};
};

}  // namespace heddle::collective
