// This rank's part of the job: what it opens, and communication in the forms that programs use.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/heddle.h"
#include "script.hpp"

namespace hangs {

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

}  // namespace hangs
