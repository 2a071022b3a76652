#include "job.hpp"

#include <cstring>

namespace hangs {
namespace {

Header header_of(const heddle_am_arrival* message) {
  Header header{};
  if (message->header_bytes != sizeof header) hang_fail("a header", "of another length");
  std::memcpy(&header, message->header, sizeof header);
  if (header.step >= kMostSteps) hang_fail("a header", "of no step");
  return header;
}

void count(const heddle_am_arrival* message, void* arrivals) {
  ++(*static_cast<Arrivals*>(arrivals))[header_of(message).step];
}

// Asks its own program first whether it may go on.
void count_slowly(const heddle_am_arrival* message, void* arg) {
  auto& job = *static_cast<Job*>(arg);
  while (!job.may_answer) usleep(1000);
  count(message, message->handler == kSlowTask ? &job.tasks : &job.questions);
}

void open_workers(Job& job) {
  heddle_worker_options options{};
  options.size = sizeof options;
  options.sharing = job.script->sharing;
  job.workers.resize(job.script->workers);
  for (auto& worker : job.workers) must(heddle_worker_open(job.context, &options, &worker), "open a worker");
}

void register_handlers(Job& job) {
  must(heddle_am_register(job.context, kQuestion, count, &job.questions), "register");
  must(heddle_am_register(job.context, kAnswer, count, &job.answers), "register");
  must(heddle_am_register(job.context, kTask, count, &job.tasks), "register");
  must(heddle_am_register(job.context, kSlowQuestion, count_slowly, &job), "register");
  must(heddle_am_register(job.context, kSlowTask, count_slowly, &job), "register");
}

void open_memory(Job& job) {
  const std::size_t bytes = std::size_t{kMostSteps} * kSlotBytes;
  must(heddle_region_alloc(job.context, bytes, &job.heap), "allocate");
  job.own_memory.resize(bytes);
  must(heddle_region_register(job.context, job.own_memory.data(), bytes, &job.own), "register memory");
  std::memset(slot_of(job, 0), static_cast<int>('a' + job.rank), kPatternBytes);
  std::memset(job.own_memory.data(), static_cast<int>('a' + job.rank), kPatternBytes);
  job.heaps.resize(job.ranks);
  job.owns.resize(job.ranks);
  must(heddle_region_exchange(job.context, job.heap, job.heaps.data()), "exchange");
  must(heddle_region_exchange(job.context, job.own, job.owns.data()), "exchange");
}

}  // namespace

heddle_status must(heddle_status status, const char* what) {
  if (status < 0) {
    std::fprintf(stderr, "wrong: %s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
    _exit(99);
  }
  return status;
}

std::unique_ptr<Job> open_job(const Script& script, heddle_context context) {
  auto job = std::make_unique<Job>();
  job->script = &script;
  job->context = context;
  must(heddle_context_rank(context, &job->rank), "rank");
  must(heddle_context_size(context, &job->ranks), "size");
  register_handlers(*job);
  open_workers(*job);
  open_memory(*job);
  make_teams(*job);
  must(heddle_context_barrier(context, job->workers[0], HEDDLE_FOREVER), "barrier");
  return job;
}

void make_teams(Job& job) {
  auto& [world, again, half] = job.teams;
  must(heddle_team_world(job.context, &world), "team");
  must(heddle_team_world(job.context, &again), "team");
  must(heddle_team_split(world, colour_of(*job.script, job.rank), job.rank, &half), "split");
}

std::byte* slot_of(Job& job, std::uint32_t slot) {
  void* address = nullptr;
  must(heddle_region_address(job.heap, &address, nullptr), "address");
  return static_cast<std::byte*>(address) + std::size_t{slot} * kSlotBytes;
}

heddle_remote at(heddle_remote_region region, std::uint32_t slot, std::uint32_t offset) {
  return {region, std::uint64_t{slot} * kSlotBytes + offset};
}

}  // namespace hangs
