// The queues of a CQ (TOQ, TCQ, MRQ), and a handle's part of them.
#pragma once

#include <utofu.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/cache_line.hpp"
#include "tofu/emulator/descriptor.hpp"
#include "tofu/emulator/doorbell.hpp"
#include "tofu/emulator/machine.hpp"
#include "tofu/emulator/memory.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {

class EmulatedCq;

// A VCQ: the part of a CQ that one handle uses.
struct EmulatedVcq {
  EmulatedCq* cq = nullptr;
  utofu_vcq_id_t id = 0;  // raw
  unsigned long flags = 0;
  std::uint16_t slot = 0;  // in the CQ
  // Not used: InCall (api.hpp) records the thread in CqUser::thread.
  std::atomic<std::uint32_t> owner{0};
  // 1 + the index of this handle's clock in the timing model; 0: none yet
  std::uint64_t model_clock = 0;
};

class Engine;
class Process;

enum class CqMode : std::uint8_t { shared = 1, exclusive, session };

// The engine's progress in the command that it executes.
struct CommandProgress {
  bool begun = false;
  CqCommand command;
  std::uint16_t slot = 0;  // of the VCQ
  VcqPlace target;
  std::uint32_t process = 0;
  std::uint32_t generation = 0;
  std::uint32_t sequence = 0;
  std::uint32_t offset = 0;   // sent so far
  std::uint64_t message = 0;  // 0: no answer is expected
  std::uint64_t left_ns = 0;  // timing model
  std::uint64_t arrives_ns = 0;
};

// A CQ of this process: the queues of commands (TOQ), of local completions (TCQ), and of notices
// (MRQ).
//
// Threads: "caller" is a thread of the application. One caller at a time is in a call on a CQ; this
// is the program's duty (for thread-safe VCQs, CqUser::lock ensures it). "engine" is the thread
// that runs the rounds.
//
// Invariants (indices count slots and only grow)
//   reaped (caller) <= executed (engine) <= posted (caller), posted + held - reaped <= depth. A
//   slot is free again when poll_tcq has passed it, not before.
//   held (caller): slots behind posted whose commands have DELAY_START. The next command without it
//   posts them too.
//   In session mode also executed <= scheduled. Only credits of arrived messages advance scheduled;
//   credits that arrive before their commands are kept.
//   read (caller) <= written (engine), written - read <= the MRQ's depth: one more ends the job.
class EmulatedCq {
 public:
  EmulatedCq(Process& process, std::uint16_t tni, std::uint16_t number, CqMode mode, std::uint32_t generation);
  EmulatedCq(const EmulatedCq&) = delete;
  EmulatedCq& operator=(const EmulatedCq&) = delete;

  // Caller.

  // Posts all slots of these whole commands (see whole_commands()), or returns BUSY. More slots
  // than the TOQ has are posted as it gets room, while the caller waits; INVALID_DESC if that is
  // impossible, see too_long().
  [[nodiscard]] int post(EmulatedVcq& vcq, const Slot* slots, std::size_t count, void* cbdata);
  // The same for one slot that is a whole command, which encode(Slot*) writes. If encode does not
  // return SUCCESS, its result is returned, and nothing is posted.
  template <class Encode>
  [[nodiscard]] int post_one(EmulatedVcq& vcq, void* cbdata, Encode&& encode);
  // This many slots can never be posted together: they exceed the hardware's largest TOQ, or this
  // TOQ, which makes no room by itself (session mode, DELAY_START).
  [[nodiscard]] bool too_long(std::size_t count, bool delayed) const {
    return count > kMostDepth || (count > depth_ && (delayed || mode_ == CqMode::session));
  }
  // Starts the commands that DELAY_START holds back.
  void start_held();
  // SUCCESS, NOT_FOUND or ERR_TCQ_*. Makes room in the TOQ.
  [[nodiscard]] int poll_tcq(EmulatedVcq& vcq, void** cbdata);
  // SUCCESS, NOT_FOUND or ERR_MRQ_*; an error comes with a notice as far as it is known.
  [[nodiscard]] int poll_mrq(EmulatedVcq& vcq, utofu_mrq_notice* notice);
  [[nodiscard]] std::size_t unread_tcq(EmulatedVcq& vcq);
  [[nodiscard]] std::size_t unread_mrq(EmulatedVcq& vcq);

  // The number of commands of this slot that were posted or held and not executed; 0 in session
  // mode, since close_cq() counts those. With Engine::Pause held.
  [[nodiscard]] std::size_t waiting_of(std::uint16_t slot) const;
  // Visits commands that were posted and not begun, for dumps. With Engine::Pause held.
  void for_each_waiting(void (*visit)(void* context, const CqCommand& command), void* context);
  // Visits held commands too: for dereg's check in strict mode. Requires also that no other caller
  // is in a call.
  void for_each_waiting_or_held(void (*visit)(void* context, const CqCommand& command), void* context);

  [[nodiscard]] std::uint16_t tni() const { return tni_; }
  [[nodiscard]] std::uint16_t number() const { return number_; }
  [[nodiscard]] CqMode mode() const { return mode_; }
  [[nodiscard]] Stags& stags() { return stags_; }
  [[nodiscard]] std::uint32_t generation() const { return generation_; }

  // Sets the VCQ in a slot; null: none. With Engine::Pause held, and no caller in a call.
  void set_vcq(std::uint16_t slot, EmulatedVcq* vcq);

  // Engine.

  [[nodiscard]] EmulatedVcq* vcq(std::uint16_t slot) const { return slot < kVcqsOfCq ? vcqs_[slot] : nullptr; }
  // For messages to the user; 0: there is no VCQ.
  [[nodiscard]] utofu_vcq_id_t id_of(std::uint16_t slot) const { return vcq(slot) != nullptr ? vcq(slot)->id : 0; }
  [[nodiscard]] CommandProgress& outgoing() { return outgoing_; }
  [[nodiscard]] const CommandProgress& outgoing() const { return outgoing_; }
  [[nodiscard]] bool begun() const { return outgoing_.begun; }
  [[nodiscard]] std::uint32_t next_sequence() { return ++sequence_; }
  // Takes the next command into outgoing(), with the time from which it may run. False: there is no
  // command, or no credit for it.
  [[nodiscard]] bool take(std::uint64_t* ready_ns);
  // Completes the command in outgoing().
  void executed(int status, std::uint64_t model_ns);
  // Writes a notice for the VCQ in a slot. Ends the job if there is no room.
  void notify(std::uint16_t slot, const utofu_mrq_notice& notice, int status, std::uint64_t model_ns);
  // Adds credits, in session mode; in another mode reports a broken rule and does nothing.
  void credit(std::uint32_t slots, std::uint64_t model_ns);
  // Whether a round would find a command. Sequentially consistent: see Doorbell.
  [[nodiscard]] bool has_command() const;
  std::size_t open_messages = 0;

  // For dumps, with Engine::Pause held or on the engine.
  struct Pointers {
    std::uint64_t posted, executed, reaped, scheduled, written, read, held;
  };
  [[nodiscard]] Pointers pointers() const;

 private:
  // Whether poll_tcq reports the command's completion.
  enum class Told : std::uint8_t { no, done, failed };
  // Of a command, at its first slot.
  struct Record {
    void* cbdata;
    std::uint64_t model_ns;  // caller: from when it may run; engine: when it was done
    std::int32_t status;     // engine
    std::uint8_t vcq;        // slot
    std::uint8_t slots;
    Told told;
  };
  struct Notice {
    utofu_mrq_notice notice;
    std::uint64_t model_ns;
    std::int32_t status;
    std::uint16_t vcq;
  };
  struct Done {
    void* cbdata;
    std::uint64_t model_ns;
    int status;
  };
  struct Credits {
    std::uint64_t model_ns;
    std::uint32_t slots;
  };
  static constexpr std::uint16_t kNobodys = 0xFFFF;  // Notice::vcq: its VCQ was freed
  // What a poll on another VCQ of this CQ has found.
  struct Kept {
    std::deque<Done> done;
    std::deque<Notice> notices;
  };

  // Timing model: uses the earliest credits for `slots` slots, and returns the time at which they
  // sufficed.
  [[nodiscard]] std::uint64_t use_credits(std::uint32_t slots);
  [[nodiscard]] bool has_room(std::size_t count) const {
    return posted_.load(std::memory_order_relaxed) + held_.load(std::memory_order_relaxed) + count -
               reaped_.load(std::memory_order_relaxed) <=
           depth_;
  }
  void put(const EmulatedVcq& vcq, const Slot* slots, std::size_t count, void* cbdata, std::uint64_t ready_ns);
  [[nodiscard]] int post_as_room_comes(EmulatedVcq& vcq, const Slot* slots, std::size_t count, void* cbdata);
  // Moves completions into kept_, to make room. False: there were none.
  bool reap_all();
  void visit_commands(std::uint64_t end, void (*visit)(void* context, const CqCommand& command), void* context);
  [[nodiscard]] int busy();
  [[nodiscard]] int fruitless();
  [[nodiscard]] int poll_shared_tcq(EmulatedVcq& vcq, void** cbdata);
  [[nodiscard]] int poll_shared_mrq(EmulatedVcq& vcq, utofu_mrq_notice* notice);
  [[nodiscard]] int give(const Done& done, EmulatedVcq& vcq, void** cbdata);
  [[nodiscard]] int give(const Notice& found, EmulatedVcq& vcq, utofu_mrq_notice* notice);

  Process& process_;
  const bool quick_;  // no timing model and no step mode
  bool alone_;        // quick_, no other VCQ on this CQ, and kept_ is empty; the caller's
  const Doorbell<> engine_bell_;
  const std::uint16_t tni_;
  const std::uint16_t number_;
  const CqMode mode_;
  const std::uint32_t generation_;
  const std::uint32_t depth_;
  const std::uint32_t mrq_depth_;
  const std::unique_ptr<Slot[]> toq_;
  const std::unique_ptr<Record[]> records_;
  const std::unique_ptr<Notice[]> mrq_;
  Stags stags_;
  std::array<EmulatedVcq*, kVcqsOfCq> vcqs_{};

  // Caller's line.
  alignas(heddle::base::kCacheLine) std::atomic<std::uint64_t> posted_{
      0};                                 // seq_cst, acquire by the engine; see Doorbell
  std::atomic<std::uint64_t> reaped_{0};  // relaxed: others read it only for dumps
  std::atomic<std::uint64_t> read_{
      0};  // release: the notice has been copied; acquire by the engine, which reuses its slot
  std::atomic<std::uint64_t> held_{0};  // relaxed: others read it only for dumps
  // post_one() does not handle a command that has one of these bits in word 0
  std::uint64_t slow_;
  std::uint32_t fruitless_ = 0;
  // for shared CQs, and where room had to be made
  std::unique_ptr<std::array<Kept, kVcqsOfCq>> kept_;

  // Engine's line.
  alignas(heddle::base::kCacheLine) std::atomic<std::uint64_t> executed_{
      0};                                  // release: the records; acquire by the caller
  std::atomic<std::uint64_t> written_{0};  // release: the notice; acquire by the caller
  std::uint64_t scheduled_ = 0;
  // Timing model: unused credits by their times, and the time of the last used one. A late engine
  // finds many credits at once; each command may still run from the time of its own.
  std::deque<Credits> credits_;
  std::uint64_t credit_ns_ = 0;
  std::uint32_t sequence_ = 0;
  CommandProgress outgoing_;
};

template <class Encode>
[[gnu::always_inline]] inline int EmulatedCq::post_one(EmulatedVcq& vcq, void* cbdata, Encode&& encode) {
  // in registers first: their contents are not needed when the slot's place is computed
  Slot slot;
  if (const int status = encode(&slot); status != UTOFU_SUCCESS) [[unlikely]]
    return failed(status);
  if ((slot.words[0] & slow_) != 0) [[unlikely]] {
    const Slot in_memory = slot;
    return post(vcq, &in_memory, 1, cbdata);
  }
  const std::uint64_t posted = posted_.load(std::memory_order_relaxed);
  const std::uint64_t depth = depth_;
  if (posted - reaped_.load(std::memory_order_relaxed) >= depth) [[unlikely]]
    return busy();
  const std::uint64_t place = posted & (depth - 1);
  std::uint64_t* const words = toq_[place].words.data();
  words[0] = slot.words[0];
  words[1] = slot.words[1];
  words[2] = slot.words[2];
  words[3] = slot.words[3];
  Record& record = records_[place];  // the engine writes the other members
  record.cbdata = cbdata;
  record.vcq = static_cast<std::uint8_t>(vcq.slot);
  record.slots = 1;
  posted_.store(posted + 1, std::memory_order_seq_cst);
  engine_bell_.ring();
  return UTOFU_SUCCESS;
}

inline int EmulatedCq::poll_tcq(EmulatedVcq& vcq, void** cbdata) {
  if (!alone_) [[unlikely]]
    return poll_shared_tcq(vcq, cbdata);
  const std::uint64_t executed = executed_.load(std::memory_order_acquire);
  std::uint64_t reaped = reaped_.load(std::memory_order_relaxed);
  while (reaped != executed) {
    const Record& record = records_[reaped & (depth_ - 1)];
    reaped += record.slots;
    reaped_.store(reaped, std::memory_order_relaxed);
    if (record.told == Told::no) continue;
    fruitless_ = 0;
    *cbdata = record.cbdata;
    if (record.told == Told::failed) [[unlikely]]
      return failed(record.status);
    return UTOFU_SUCCESS;
  }
  return fruitless();
}

inline int EmulatedCq::poll_mrq(EmulatedVcq& vcq, utofu_mrq_notice* notice) {
  if (!alone_) [[unlikely]]
    return poll_shared_mrq(vcq, notice);
  const std::uint64_t read = read_.load(std::memory_order_relaxed);
  if (read == written_.load(std::memory_order_acquire)) return fruitless();
  const Notice& found = mrq_[read & (mrq_depth_ - 1)];
  fruitless_ = 0;
  *notice = found.notice;
  const int status = found.status;
  read_.store(read + 1, std::memory_order_release);
  if (status != UTOFU_SUCCESS) [[unlikely]]
    return failed(status);
  return UTOFU_SUCCESS;
}

}  // namespace tofu_emulator
