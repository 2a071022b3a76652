// Functions to observe the emulator: dumps of queues, the watchdog that makes them, and the
// functions of utofu_emulator.h.

#include <unistd.h>
#include <utofu_emulator.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "tofu/emulator/engine.hpp"
#include "tofu/emulator/process.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {

namespace {

constexpr int kCommandsShown = 8;

const char* name_of(Opcode opcode) {
  constexpr std::array kNames{"nop", "put", "piggyback", "get", "armw", "cswap"};
  return kNames[static_cast<std::size_t>(opcode)];
}

const char* name_of(CqMode mode) {
  return mode == CqMode::session ? "session" : mode == CqMode::exclusive ? "exclusive" : "shared";
}

struct Shown {
  int fd;
  int count;
};

void show_command(void* context, const CqCommand& command) {
  auto* shown = static_cast<Shown*>(context);
  if (shown->count++ >= kCommandsShown) return;
  ::dprintf(shown->fd, "    waits: %s, %u bytes to VCQ %016llx at %016llx, SPS %u\n", name_of(command.opcode),
            command.length, static_cast<unsigned long long>(command.remote),
            static_cast<unsigned long long>(command.remote_stadd), command.sps);
}

void dump_cq(EmulatedCq& cq, int fd) {
  const EmulatedCq::Pointers at = cq.pointers();
  ::dprintf(fd, "  TNI %u CQ %u (%s): TOQ posted %llu executed %llu reaped %llu", cq.tni(), cq.number(),
            name_of(cq.mode()), static_cast<unsigned long long>(at.posted),
            static_cast<unsigned long long>(at.executed), static_cast<unsigned long long>(at.reaped));
  if (at.held != 0)
    ::dprintf(fd, " held back by DELAY_START %llu, for a command without it", static_cast<unsigned long long>(at.held));
  if (cq.mode() == CqMode::session) ::dprintf(fd, " scheduled %llu", static_cast<unsigned long long>(at.scheduled));
  ::dprintf(fd, "; MRQ written %llu read %llu; %zu answers are waited for\n",
            static_cast<unsigned long long>(at.written), static_cast<unsigned long long>(at.read), cq.open_messages);
  if (cq.begun()) {
    const CommandProgress& out = cq.outgoing();
    ::dprintf(fd, "    sending: %s, %u of %u bytes to process %u, whose ring has no room\n",
              name_of(out.command.opcode), out.offset, out.command.length, out.process);
  }
  Shown shown{fd, 0};
  cq.for_each_waiting(show_command, &shown);
  if (shown.count > kCommandsShown) ::dprintf(fd, "    and %d more\n", shown.count - kCommandsShown);
}

// How long a thread has been ready without a core, by the kernel's count; 0: it keeps none.
std::uint64_t kept_out_ns(pid_t thread) {
  std::uint64_t ran_ns = 0;
  std::uint64_t waited_ns = 0;
  std::ifstream("/proc/self/task/" + std::to_string(thread) + "/schedstat") >> ran_ns >> waited_ns;
  return waited_ns;
}

std::uint64_t used_ns() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(used.tv_nsec);
}

}  // namespace

void Engine::dump(int fd) {
  for (EmulatedCq* cq : process_.cqs()) dump_cq(*cq, fd);
}

// Reports a CQ that has had commands for a long time and runs none of them: in session mode it
// lacks credits, most probably for ever.
void Engine::look_at_stalls(std::uint64_t now_ns) {
  const std::uint64_t limit_ns = process_.settings().watchdog_s * std::uint64_t{1'000'000'000};
  if (limit_ns == 0) return;
  for (EmulatedCq* cq : process_.cqs()) {
    const EmulatedCq::Pointers at = cq->pointers();
    Stall& stall = stalls_[cq];
    if (at.executed == at.posted || at.executed != stall.executed || stall.since_ns == 0) {
      stall = {at.executed, now_ns, false};
    } else if (!stall.told && now_ns - stall.since_ns > limit_ns) {
      stall.told = true;
      warn("the commands of TNI %u CQ %u have not gone on for %u s", cq->tni(), cq->number(),
           process_.settings().watchdog_s);
      dump(STDERR_FILENO);
    }
  }
}

void Engine::publish_moved() {
  std::uint64_t moved = moved_;
  for (const EmulatedCq* cq : process_.cqs()) {
    const EmulatedCq::Pointers at = cq->pointers();
    moved += at.posted + at.held + at.reaped + at.read;
  }
  world_.entry(process_.number()).moved.store(moved, std::memory_order_relaxed);
}

// Every process judges by the same counts, and speaks for itself.
void Engine::look_at_job(std::uint64_t now_ns) {
  if (process_.settings().watchdog_s == 0) return;
  JobWatch::Seen seen{now_ns, 0, used_ns(), thread_id_ == 0 ? 0 : kept_out_ns(thread_id_)};
  for (std::uint32_t process = 0; process < world_.processes(); ++process)
    seen.moved += world_.entry(process).moved.load(std::memory_order_relaxed);
  constexpr std::uint64_t kMs = 1'000'000;
  switch (job_watch_.look(seen)) {
    case JobWatch::Finding::nothing:
      return;
    case JobWatch::Finding::starved:
      warn(
          "the job goes on, but slowly: in %llu of the last %llu ms the network interfaces of this process were ready "
          "and got none of the %u cores, which threads that compute or poll keep busy. Give the job more cores, or "
          "start fewer processes or threads",
          static_cast<unsigned long long>(job_watch_.last_kept_out_ns() / kMs),
          static_cast<unsigned long long>(job_watch_.last_window_ns() / kMs), std::thread::hardware_concurrency());
      return;
    case JobWatch::Finding::stands_still:
      warn(
          "for %u s no process of the job has posted, received or read anything, while this one computes or polls. "
          "If it polls, for a notice or a word in memory, then nobody has posted what it waits for. Its queues:",
          process_.settings().watchdog_s);
      dump(STDERR_FILENO);
  }
}

}  // namespace tofu_emulator

using tofu_emulator::Process;

extern "C" {

int utofu_emu_process(void) {
  const Process* process = Process::get();
  return process != nullptr ? static_cast<int>(process->number()) : UTOFU_ERR_FATAL;
}

int utofu_emu_processes(void) {
  const Process* process = Process::get();
  return process != nullptr ? static_cast<int>(process->settings().processes) : UTOFU_ERR_FATAL;
}

int utofu_emu_step(void) {
  Process* process = Process::get();
  if (process == nullptr) return UTOFU_ERR_FATAL;
  return process->settings().step ? static_cast<int>(process->engine().step()) : UTOFU_ERR_NOT_SUPPORTED;
}

uint64_t utofu_emu_seed(void) {
  const Process* process = Process::get();
  return process != nullptr ? process->settings().seed : 0;
}

void utofu_emu_reseed(uint64_t seed) {
  if (Process* process = Process::get(); process != nullptr) process->engine().reseed(seed);
}

uint64_t utofu_emu_put_bytes(unsigned tni) {
  Process* process = Process::get();
  return process != nullptr && tni < tofu_emulator::kTnis ? process->engine().put_bytes(static_cast<std::uint16_t>(tni))
                                                          : 0;
}

void utofu_emu_dump(int fd) {
  Process* process = Process::get();
  if (process == nullptr) return;
  const tofu_emulator::Engine::Pause pause(process->engine());
  process->engine().dump(fd);
}

}  // extern "C"

// Functions by which programs query the timing model.

using tofu_emulator::Model;
using tofu_emulator::Process;

extern "C" {

uint64_t utofu_emu_model_now_ns(void) {
  return Model::now_ns();
}

void utofu_emu_model_saw(const volatile void* address) {
  if (Process* process = Process::get()) process->model().saw(const_cast<const void*>(address));
}

void utofu_emu_model_spend(uint64_t ns) {
  if (Process* process = Process::get()) process->model().learned(Model::now_ns() + ns);
}

}  // extern "C"
