// One collective operation of this rank: made ready with the other members, then run, once or again and again.
//
// Stages: setting_up, until all members have told what they call and where they are reached; then ready, or refused with the reason.
// A run is the SessionQueue's. test(), wait(), start() and close() are for one thread at a time; move_on() for any, helpers
// among them, who count themselves in by visit() under the lock of the list they found it in.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collective/team.hpp"
#include "queue/helper_claim.hpp"

namespace heddle::collective {

class Collective final : public Setup {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::collective;
  enum class Use {
    persistent,  // started by the program as often as it likes
    once,        // starts when it is ready, gone when its end was told
    kept         // of blocking calls of one kind: the team's, with other buffers each time
  };

  // With its handle, and announced to the team.
  static base::Result<Collective*> open(Team& team, const Call& call, Use use);
  // Not announced yet. What goes wrong at this member alone will be told to the others, and is no error here.
  static base::Result<std::unique_ptr<Collective>> make(Team& team, const Call& call, Use use);
  ~Collective() override;

  [[nodiscard]] std::uint64_t handle() const { return team_.commons().collectives().handle(this); }
  [[nodiscard]] bool persistent() const { return use_ == Use::persistent; }
  // OPERATION.gates where barrier gates run it.
  [[nodiscard]] const char* algorithm() const;
  // Ready, and the network's interface runs it.
  [[nodiscard]] bool offloaded() const { return stage() == Stage::ready && offload_ != nullptr; }
  [[nodiscard]] Team& team() { return team_; }
  // Null: gates do not run it.
  [[nodiscard]] std::shared_ptr<TeamGates> gates() const { return by_gates_ != nullptr ? by_gates_->gates() : nullptr; }

  // Until it is ready: DONE, or why it is not.
  base::Status wait_ready();
  // Begins a run. STATE: one is under way, or not persistent; PEER_FAILED.
  base::Status start();
  // Makes progress. DONE: no run is under way (any more); AGAIN; or how the run failed. After DONE or an error an operation that
  // is not persistent is gone.
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
  // Another thread that waits for this one fetches the helper that is at it, if one is; false: none.
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
  Collective(Team& team, const Call& call, Use use) : team_(team), call_(call), use_(use) {}

  [[nodiscard]] Stage stage() const { return stage_.load(std::memory_order_acquire); }
  base::Status choose();
  void prepare_lists(bool reached);
  base::Status compare(std::uint32_t round, std::uint32_t member, const Record& record);
  base::Status prepare_places();
  [[nodiscard]] std::uint64_t segment_for_queues() const;
  [[nodiscard]] bool spreads() const;
  void open_offload();
  void open_queues();
  void open_gates();
  void drop_offload();
  base::Status bind(std::span<const Record> records);
  base::Status bind_member(std::uint32_t member, const Record& record, RankMemory* memory);
  base::Result<engine::RemoteRegion*> region_of(std::uint32_t member, const Record& record, Record::Where where);
  [[nodiscard]] base::Status judge(std::span<const Record> records) const;
  base::Status keep(base::Status status);
  base::Status refused() const;
  [[nodiscard]] base::Status ended();
  base::Status end_of(base::Status status);
  // Of the runs, whoever executes them.
  [[nodiscard]] bool run_over() const { return offload_ != nullptr ? offload_->done() : queue_->done(); }
  [[nodiscard]] base::Status run_status() const { return offload_ != nullptr ? offload_->status() : queue_->status(); }
  void set_buffers(const Call& call);
  void look_for_failures();
  void describe(std::span<char> text);
  std::string awaited_members();
  void retire();

  Team& team_;
  Call call_;
  const Use use_;
  Selection::Choice choice_;
  Request request_;
  Exchange lists_;  // where members list their blocks; request_ has it
  Schedule schedule_;
  Record record_;
  bool has_piece_ = false;
  bool told_ = false;                         // others know of it, and may put to its memory if
  bool agreed_ = false;                       // their calls and this one agree
  engine::Region* scratch_region_ = nullptr;  // own; null: in the arena
  std::byte* scratch_ = nullptr;
  std::byte* staged_ =
      nullptr;  // where peers put what belongs into call_.receive; null: they put it there, or nobody does
  std::vector<engine::RemoteRegion*> imported_;
  std::vector<std::unique_ptr<Carrier>> carriers_;
  // Who executes: one of them when it is ready.
  std::unique_ptr<SessionQueue> queue_;
  std::unique_ptr<Offload> offload_;
  GateOffload* by_gates_ = nullptr;  // offload_, if it is that

  std::atomic<Stage> stage_{Stage::setting_up};  // release when it is ready or refused; acquire by stage()
  base::Status refusal_ = HEDDLE_DONE;
  std::string refusal_text_;
  bool heard_all_ = false;          // the records of all members have come
  bool unlike_ = false;             // lists do not fit each other, here or at others: nobody runs it
  std::atomic<bool> begun_{false};  // once: the run has been started
  bool running_ = false;            // as the program sees it
  bool opened_ = false;
  bool listed_ = false;
  std::atomic<std::uint64_t> seen_epoch_{0};  // of failures. Relaxed: who looks twice finds the same
  queue::HelperClaim<> helper_;               // who moves it on, for as long as a helper may hold a lock of it
  std::atomic<std::uint32_t> visitors_{0};    // acquire by visit() and visited(), release by leave()
};

}  // namespace heddle::collective
