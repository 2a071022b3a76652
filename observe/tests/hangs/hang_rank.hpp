// The program hang_rank: its plan, how it communicates, and the classes of faults.
//
// The plan of all ranks is drawn from class and seed: correct steps, then the fault, then the steps
// after it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "hang_common.h"
#include "heddle/heddle.h"

namespace hangs {

enum class Kind : std::uint8_t { put, get, atomic, signal, ask, task, ring, pair, barrier, collective };
// How the end of an operation is waited for: in the blocking calls, by a counter, by a callback and
// heddle_worker_wait, or by the try_ forms and heddle_worker_progress.
enum class Form : std::uint8_t { plain, counted, called, tried };
enum class Op : std::uint8_t { barrier, allreduce, allgather, alltoall, broadcast, reduce };
enum class Way : std::uint8_t { blocking, nonblocking, persistent };
enum class Group : std::uint8_t { world, again, half };  // `again`: a second team of all ranks

constexpr std::uint32_t kFullOps = 4;  // the first ones: nobody completes them without all members

struct Call {
  Op op = Op::barrier;
  Group group = Group::world;
  Way way = Way::blocking;
  std::uint32_t count = 1;  // words of 8 bytes
  std::uint32_t root = 0;
};

struct Step {
  Kind kind = Kind::barrier;
  Form form = Form::plain;
  std::uint32_t worker = 0;
  std::uint32_t distance = 1;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t bytes = 0;
  std::uint64_t tag = 0;
  bool registered = false;  // memory that peers cannot map
  Call call;
};

// Each class uses some of these.
struct Fault {
  std::uint32_t culprit = 0;
  std::uint32_t victim = 0;  // waits because of the culprit
  std::uint32_t third = 0;
  std::uint32_t variant = 0;
  Form form = Form::plain;
  Form receive_form = Form::plain;
  std::uint32_t worker = 0;
  std::uint32_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint64_t other_tag = 0;
  bool matched = false;  // sends with HEDDLE_WHEN_MATCHED
  bool burns = false;    // its own work is a computation
  Call call;
  Call other_call;
  std::vector<std::uint32_t> members;
};

enum class Meet : std::uint8_t { context, context_alone, team };  // context_alone: without a worker

struct Script {
  std::uint32_t ranks = 0;
  std::uint32_t workers = 1;
  heddle_sharing sharing = HEDDLE_SHARING_DEFAULT;
  bool by_parity = false;  // how the half teams are made
  std::vector<Step> steps;
  Fault fault;
  // each waits for a message from the one before; begins with the victim
  std::vector<std::uint32_t> chain;
  Step relay;
  Meet meet = Meet::context;  // where the ranks that get so far wait for the others
  Call meeting;
  hang_truth truth = {};
};

struct Job;
struct Class {
  hang_class listed;
  void (*plan)(Script& script, hang_random& random);
  // Plays the step that may be at fault: all ranks call it.
  void (*play)(Job& job, const Script& script, bool faulty);
};
extern const Class kClasses[];
extern const std::uint32_t kClassCount;

Script draw(const Class& chosen, const hang_options& options, std::uint32_t ranks);

// For the plans of classes.
std::uint32_t colour_of(const Script& script, std::uint32_t rank);
std::vector<std::uint32_t> members_of(const Script& script, Group group, std::uint32_t rank);
std::uint32_t other_rank(const Script& script, hang_random& random, std::vector<std::uint32_t> taken);
Form draw_form(hang_random& random);
std::uint64_t draw_tag(hang_random& random);
std::uint32_t draw_bytes(hang_random& random);       // short or long
std::uint32_t draw_long_bytes(hang_random& random);  // a message that its receiver fetches
Call draw_full_call(const Script& script, hang_random& random);
// The call takes place before the fault, too: blocking calls compare arguments only at the first.
void warm(Script& script, hang_random& random, const Call& call);
// Ranks other than the culprits and the victim wait for the victim.
void draw_chain(Script& script, hang_random& random);
const char* name_of(Op op);
// The sentence must name the place where the culprit, which went on, waits.
void words_of_meet(Script& script);
void words_of_call(Script& script, const Call& call);

// This rank's part of the job: what it opens, and communication in the forms that programs use.

constexpr std::uint32_t kMostSteps = 96;
constexpr std::uint32_t kSlotBytes = 1024;  // of each step, in each rank's memory
constexpr std::uint32_t kSignalAt = 512;    // the words of a slot
constexpr std::uint32_t kCounterAt = 520;
constexpr std::uint32_t kPatternBytes = 256;  // slot 0 has the owner's pattern

// Handlers of active messages.
constexpr std::uint32_t kQuestion = 1;
constexpr std::uint32_t kAnswer = 2;
constexpr std::uint32_t kTask = HEDDLE_AM_USER + 3;
constexpr std::uint32_t kSlowQuestion = 4;
constexpr std::uint32_t kSlowTask = HEDDLE_AM_USER + 5;

struct Header {
  std::uint32_t step;
  std::uint32_t rank;
};

// How many messages of each step have come.
using Arrivals = std::array<std::atomic<std::uint32_t>, kMostSteps>;

struct Job {
  const Script* script = nullptr;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::uint32_t step = 0;
  heddle_context context{};
  std::vector<heddle_worker> workers;
  std::array<heddle_team, 3> teams{};  // by Group
  heddle_region heap{};                // allocated
  heddle_region own{};                 // registered
  std::vector<std::byte> own_memory;
  std::vector<heddle_remote_region> heaps;
  std::vector<heddle_remote_region> owns;
  Arrivals questions{};
  Arrivals answers{};
  Arrivals tasks{};
  // A handler that asks another rank waits for this; set in the control.
  std::atomic<bool> may_answer{false};
};

// Errors end the process with 99.
heddle_status must(heddle_status status, const char* what);

std::unique_ptr<Job> open_job(const Script& script, heddle_context context);
void make_teams(Job& job);

std::byte* slot_of(Job& job, std::uint32_t slot);
heddle_remote at(heddle_remote_region region, std::uint32_t slot, std::uint32_t offset);

// A tagged send, and the wait until its memory is free and it is complete at the target.
struct Letter {
  std::uint32_t worker = 0;
  heddle_peer peer{};  // the other side
  std::uint64_t tag = 0;
  std::uint32_t bytes = 0;
  Form form = Form::plain;
  bool matched = false;
};
void send(Job& job, const Letter& letter);
// Waits until it is here, and checks the contents.
void receive(Job& job, const Letter& letter);
// The receive is posted first, so that all ranks of a ring may do this at once.
void send_and_receive(Job& job, const Letter& out, const Letter& in);

class Receiving {
 public:
  Receiving(Job& job, const Letter& letter);
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;
  ~Receiving();
  void wait();
  // With progress on another of this rank's workers than the one it was posted on.
  void wait_on(heddle_worker worker);

 private:
  Job& job_;
  Letter letter_;
  std::vector<std::byte> data_;
  heddle_receive receive_{};
  heddle_counter counter_{};
};

// The blocking form or try_ until it is accepted.
void message(Job& job, std::uint32_t worker, heddle_peer target, std::uint32_t handler, std::uint32_t bytes, Form form);
// Until `count` messages of this step have come.
void await(Job& job, const Arrivals& arrivals, std::uint32_t count, heddle_worker worker, Form form);
void run_tasks_until(Job& job, std::uint32_t count, heddle_worker worker, Form form);
void quiet(heddle_worker worker, Form form);

// The collective operation, to its end; the members' data depend on their ranks only.
void collective(Job& job, const Call& call);
void context_barrier(Job& job, bool with_worker);

void play_step(Job& job, const Step& step);
// The steps after the fault.
void play_relay(Job& job);
void play_meeting(Job& job);

// The classes of faults. Each has a plan, which draws the culprits and states the expected report,
// and a play, which all ranks call: in the control it is correct.

void plan_skipped_collective(Script& script, hang_random& random);
void play_skipped_collective(Job& job, const Script& script, bool faulty);
void plan_wrong_collective(Script& script, hang_random& random);
void play_wrong_collective(Job& job, const Script& script, bool faulty);
void plan_swapped_teams(Script& script, hang_random& random);
void play_swapped_teams(Job& job, const Script& script, bool faulty);
void plan_lost_leave(Script& script, hang_random& random);
void play_lost_leave(Job& job, const Script& script, bool faulty);

void plan_wrong_tag(Script& script, hang_random& random);
void play_wrong_tag(Job& job, const Script& script, bool faulty);
void plan_wrong_source(Script& script, hang_random& random);
void play_wrong_source(Job& job, const Script& script, bool faulty);
void plan_missing_send(Script& script, hang_random& random);
void play_missing_send(Job& job, const Script& script, bool faulty);
void plan_send_cycle(Script& script, hang_random& random);
void play_send_cycle(Job& job, const Script& script, bool faulty);
void plan_recv_cycle(Script& script, hang_random& random);
void play_recv_cycle(Job& job, const Script& script, bool faulty);
void plan_credit(Script& script, hang_random& random);
void play_credit(Job& job, const Script& script, bool faulty);
void plan_missing_part(Script& script, hang_random& random);
void play_missing_part(Job& job, const Script& script, bool faulty);

void plan_computes(Script& script, hang_random& random);
void play_computes(Job& job, const Script& script, bool faulty);
void plan_stopped(Script& script, hang_random& random);
void play_stopped(Job& job, const Script& script, bool faulty);
void plan_no_tasks(Script& script, hang_random& random);
void play_no_tasks(Job& job, const Script& script, bool faulty);
void plan_unattended_worker(Script& script, hang_random& random);
void play_unattended_worker(Job& job, const Script& script, bool faulty);
void plan_unopened_worker(Script& script, hang_random& random);
void play_unopened_worker(Job& job, const Script& script, bool faulty);
void plan_missing_signal(Script& script, hang_random& random);
void play_missing_signal(Job& job, const Script& script, bool faulty);
void plan_stuck_handler(Script& script, hang_random& random);
void play_stuck_handler(Job& job, const Script& script, bool faulty);

}  // namespace hangs
