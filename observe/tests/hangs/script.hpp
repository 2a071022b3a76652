// The plan of all ranks of hang_rank, drawn from class and seed: correct steps, then the fault,
// then the steps after it.
#pragma once

#include <cstdint>
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

}  // namespace hangs
