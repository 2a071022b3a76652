#include "collective/session_offload.hpp"

#include <algorithm>
#include <vector>

#include "collective/assembly.hpp"
#include "collective/team.hpp"

namespace heddle::collective {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

bool in_receive(const Block& block) {
  return block.bytes == 0 || block.place == Place::receive;
}

// True: each counter that has credits has exactly one queue, with one command for each credit.
bool counters_are_queues(const Schedule& schedule, std::uint32_t most_commands) {
  std::vector<std::uint32_t> queue_of(schedule.counters.size(), kNone);
  std::vector<std::uint32_t> commands(schedule.counters.size());
  for (const ScheduleCommand& command : schedule.commands) {
    if (command.waits[0].count == 0) continue;
    const std::uint32_t counter = command.waits[0].counter;
    if (queue_of[counter] != kNone && queue_of[counter] != command.queue) return false;
    queue_of[counter] = command.queue;
    ++commands[counter];
  }
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const ScheduleCounter& counter = schedule.counters[i];
    if (counter.initial != 0 || counter.per_run != commands[i] || commands[i] > most_commands) return false;
  }
  return true;
}

bool fits(const Schedule& schedule, const transport::SessionQueues::Limits& limits) {
  if (schedule.commands.empty() || schedule.counters.size() > SessionOffload::kMostCounters ||
      !runs_on_session_queues(schedule).fits) {
    return false;
  }
  const auto alone = [&](const ScheduleCommand& command) {
    const bool told = command.counter < SessionKeys::kMost || command.target == schedule.rank;
    return told && in_receive(command.source) && in_receive(command.destination) &&
           command.source.bytes <= limits.bytes && command.credits <= limits.credits;
  };
  return std::ranges::all_of(schedule.commands, alone) && counters_are_queues(schedule, limits.commands);
}

// Null: session queues are not for this operation, or the interface has none.
transport::SessionQueues* sessions_of(const Plan& plan) {
  if (plan.use != Use::persistent || !plan.algorithm.session) return nullptr;
  return plan.team.context().transport().sessions();
}

// For each queue of the interface, the link of the schedule's queue that waits for its counter.
std::vector<std::uint32_t> links_of(const Schedule& schedule, std::span<const std::uint32_t> queue_of,
                                    std::uint32_t queues) {
  static_assert(kAnyLink == transport::SessionQueues::kAnyLink);
  std::vector<std::uint32_t> links(queues, kAnyLink);
  for (const ScheduleCommand& command : schedule.commands)
    if (command.waits[0].count > 0) links[queue_of[command.waits[0].counter]] = schedule.link_of(command.queue);
  return links;
}

}  // namespace

// Makes segments so long that the commands of a run fit the interface's queues, with up to three
// children. The queue at which segments arrive has a command per segment and child, which either
// puts to the child or releases a queue that does.
void SessionOffload::suit(const Plan& plan) {
  plan.request.spread = false;
  transport::SessionQueues* sessions = sessions_of(plan);
  if (sessions == nullptr) return;
  constexpr std::uint64_t kChildren = 3;
  AlgorithmRequest& request = plan.request;
  const auto limits = sessions->limits();
  const std::uint64_t segments = std::max<std::uint64_t>(limits.commands / kChildren, 1);
  request.segment_bytes = std::max(request.segment_bytes, ((request.bytes + segments - 1) / segments + 63) / 64 * 64);
  request.spread = request.bytes >= limits.spread_bytes;
}

// The interface puts into the caller's buffer, whatever memory that is. If there are too few queues
// for all links, one queue per tree serves all children; other members are not affected.
std::unique_ptr<Runner> SessionOffload::open(const Plan& plan, const Places&) {
  transport::SessionQueues* sessions = sessions_of(plan);
  if (sessions == nullptr) return nullptr;
  AlgorithmRequest& request = plan.request;
  const std::span<std::byte> receive(static_cast<std::byte*>(plan.call.receive), receive_bytes(request, request.rank));
  auto offload = open(sessions, plan.schedule, receive);
  if (offload != nullptr || plan.schedule.counters.size() <= SessionKeys::kMost) return offload;
  request.spread = false;
  plan.schedule = plan.algorithm.schedule(request);
  return open(sessions, plan.schedule, receive);
}

std::unique_ptr<SessionOffload> SessionOffload::open(transport::SessionQueues* sessions, const Schedule& schedule,
                                                     std::span<std::byte> receive) {
  if (sessions == nullptr || !fits(schedule, sessions->limits())) return nullptr;
  std::array<std::uint32_t, kMostCounters> queue_of{};
  std::uint32_t queues = 0;
  for (std::size_t i = 0; i < schedule.counters.size(); ++i)
    queue_of[i] = schedule.counters[i].per_run > 0 ? queues++ : kNone;
  if (queues == 0) return nullptr;
  auto session = sessions->open(links_of(schedule, queue_of, queues), receive);
  if (!session) return nullptr;
  std::unique_ptr<SessionOffload> offload(new SessionOffload(std::move(*session)));
  offload->queue_of_counter_ = queue_of;
  offload->keys_.queues = queues;
  const std::size_t told = std::min(schedule.counters.size(), SessionKeys::kMost);
  for (std::size_t i = 0; i < told; ++i)
    if (queue_of[i] != kNone) offload->keys_.by_counter[i] = offload->session_->key(queue_of[i]);
  return offload;
}

void SessionOffload::tell(Rank, SetupRecord* record) const {
  record->keys.set(keys_);
}

base::Status SessionOffload::bind(const Schedule& schedule, std::span<const SetupRecord> records) {
  std::array<transport::SessionKey, kMostCounters> own{};
  for (std::size_t i = 0; i < schedule.counters.size(); ++i)
    if (queue_of_counter_[i] != kNone) own[i] = session_->key(queue_of_counter_[i]);
  std::vector<SessionKeys> members;
  for (const SetupRecord& record : records) members.push_back(record.keys.get<SessionKeys>());
  std::vector<transport::SessionCommand> commands;
  commands.reserve(schedule.commands.size());
  for (const ScheduleCommand& command : schedule.commands) {
    transport::SessionCommand& bound = commands.emplace_back();
    const CreditWait& wait = command.waits[0];
    bound.queue = wait.count == 0 ? transport::SessionCommand::kFreeQueue : queue_of_counter_[wait.counter];
    if (command.action != Action::put) continue;
    bound.target = command.target == schedule.rank ? &own.at(command.counter)
                                                   : &members[command.target].by_counter.at(command.counter);
    bound.source = command.source.offset;
    bound.destination = command.destination.offset;
    bound.bytes = command.source.bytes;
    bound.credits = command.credits;
  }
  return session_->bind(commands);
}

}  // namespace heddle::collective
