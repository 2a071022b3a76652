#include "tofu/emulator/process.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "tofu/emulator/api.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {
namespace {

// For signal handlers, which cannot call get(). Release in the constructor, acquire in the handler.
std::atomic<const Process*> this_process{nullptr};

std::string text_of(const Coords& coords) {
  std::string text;
  for (const std::uint8_t coordinate : coords) text += (text.empty() ? "" : " ") + std::to_string(coordinate);
  return text;
}

// Each process has an application thread and an engine thread; a launcher may have bound the
// process to one core.
bool more_threads_than_cores(const EmulatorSettings& settings) {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (::sched_getaffinity(0, sizeof own, &own) == 0 && CPU_COUNT(&own) < 2) return true;
  return 2 * settings.processes > std::max(1U, std::thread::hardware_concurrency());
}

std::unique_ptr<Process> start() {
  EmulatorSettings settings;
  std::string problem;
  if (!read_settings(&settings, &problem)) {
    warn("%s", problem.c_str());
    return nullptr;
  }
  const Machine machine(settings);
  std::unique_ptr<World> world = World::join(settings, machine, &problem);
  if (world == nullptr) {
    warn("%s", problem.c_str());
    return nullptr;
  }
  Callers::watch(settings);
  return std::make_unique<Process>(settings, std::move(world));
}

// The object of this process. A forked child has a copy without an engine and does not destroy it.
struct Holder {
  Holder() : process(start()), pid(::getpid()) {}
  ~Holder() {
    if (pid != ::getpid()) (void)process.release();
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  std::unique_ptr<Process> process;
  pid_t pid;
};

}  // namespace

Process* Process::get() {
  static Holder holder;
  Callers::check();
  return holder.process.get();
}

Process::Process(const EmulatorSettings& settings, std::unique_ptr<World> world)
    : settings_(settings),
      machine_(settings),
      world_(std::move(world)),
      crowded_(more_threads_than_cores(settings)),
      place_(text_of(machine_.coords_of(machine_.node_of(settings.process)))),
      links_(world_->link_memory(), machine_, world_.get()),
      model_({settings.model, settings.spinners}, &links_),
      engine_(*this) {
  set_reporter(settings_, place_.c_str(), &world_->ended());
  this_process.store(this, std::memory_order_release);
  Memory::watch_faults([](utofu_vcq_id_t vcq, char* text, std::size_t bytes) {
    const Process* process = this_process.load(std::memory_order_acquire);
    if (process != nullptr) std::snprintf(text, bytes, "%s", process->machine().name_of(vcq).text);
  });
}

// At exit. Posted commands that can run are executed before the process ends.
Process::~Process() {
  for (EmulatedCq* cq : std::vector<EmulatedCq*>(list_)) engine_.drain(*cq);
  say_counts();
  this_process.store(nullptr, std::memory_order_release);
  set_reporter(settings_, "", nullptr);
}

EmulatedCq* Process::cq(std::uint16_t tni, std::uint16_t cq) {
  return tni < kTnis && cq < kCqs ? cqs_[tni][cq].get() : nullptr;
}

EmulatedCq* Process::open_cq(std::uint16_t tni, std::uint16_t cq, CqMode mode) {
  auto made = std::make_unique<EmulatedCq>(*this, tni, cq, mode, world_->cq_owner(node(), tni, cq).generation);
  EmulatedCq* opened = made.get();
  {
    const Engine::Pause pause(engine_);
    cqs_[tni][cq] = std::move(made);
    list_.push_back(opened);
  }
  engine_.add_user();
  return opened;
}

void Process::close_cq(EmulatedCq* cq) {
  engine_.drain(*cq);
  {
    const Engine::Pause pause(engine_);
    const EmulatedCq::Pointers at = cq->pointers();
    if (at.posted != at.executed)
      broken_rule("TNI %u CQ %u is freed with %llu slots of commands that have not run", cq->tni(), cq->number(),
                  static_cast<unsigned long long>(at.posted - at.executed));
    if (at.held != 0)
      broken_rule("TNI %u CQ %u is freed with %llu slots of commands that DELAY_START holds back", cq->tni(),
                  cq->number(), static_cast<unsigned long long>(at.held));
    if (cq->mode() == CqMode::session && at.scheduled > at.executed)
      broken_rule("TNI %u CQ %u is freed with %llu credits (SPS) that no command has used", cq->tni(), cq->number(),
                  static_cast<unsigned long long>(at.scheduled - at.executed));
    engine_.forget(*cq);
    std::erase(list_, cq);
    world_->release_cq(node(), cq->tni(), cq->number());
    cqs_[cq->tni()][cq->number()].reset();
  }
  engine_.remove_user();
}

void Process::attach(EmulatedVcq& vcq) {
  const Engine::Pause pause(engine_);
  vcq.cq->set_vcq(vcq.slot, &vcq);
}

void Process::detach(EmulatedVcq& vcq) {
  engine_.drain(*vcq.cq);
  const Engine::Pause pause(engine_);
  engine_.forget(*vcq.cq, vcq.slot);
  vcq.cq->set_vcq(vcq.slot, nullptr);
}

}  // namespace tofu_emulator
