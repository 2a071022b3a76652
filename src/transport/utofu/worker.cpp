#include "transport/utofu/worker.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/wait.hpp"
#include "transport/utofu/out.hpp"

namespace heddle::transport::utofu {
namespace {

// How long a NIC that lives has for its answer, many times over, after its process was found dead.
constexpr std::uint64_t kGraceNs = 2'000'000'000;
constexpr std::size_t kMostBacklog = 256;  // beyond it nothing is accepted

// A message waits for this channel, and what it needs next comes without the peer doing anything.
bool may_go_on(const Channel* channel) {
  if (channel->waiting == 0) return false;
  if (channel->stage == Channel::Stage::unopened) return channel->pause == 0;  // its entry was not looked at yet
  return channel->stage != Channel::Stage::ready || channel->credits != 0;
}

}  // namespace

Worker::Worker(Home& home, std::unique_ptr<Station> station, const Sizes& sizes, std::uint32_t index)
    : home_(home),
      call_(home.library().call()),
      station_(std::move(station)),
      handle_(station_->vcq.handle),
      lock_(station_->vcq.lock),
      sizes_(sizes),
      index_(index),
      operations_(sizes.operations),
      registrar_(home.library(), station_->vcq),
      channel_of_(home.size()),
      buffers_(sizes.buffers),
      rings_(sizes.rings),
      failed_(home.size()) {
  const auto options = memory::RegistrationCache::Options::from(home.environment().config);
  registrations_.emplace(registrar_, memory::RegistrationCache::watch_for(options, home.environment().log), options);
  for (std::uint32_t i = sizes.buffers; i > 0; --i) give_buffer(i - 1);
  channels_.reserve(sizes.channels);
  connecting_.reserve(sizes.channels);
  ready_.reserve(sizes.rings);
  lending_.reserve(sizes.rings);
  owing_.reserve(sizes.rings);
  dooms_.reserve(home.size());
  backlog_.reserve(kMostBacklog + sizes.buffers + 2 * std::size_t{sizes.operations});
}

base::Status Worker::announce() {
  Entry entry;
  entry.vcq = station_->vcq.id;
  entry.block_stadd = station_->stadd;
  entry.state = State::open;
  entry.slots = static_cast<std::uint8_t>(sizes_.slots);
  entry.rings = static_cast<std::uint16_t>(sizes_.rings);
  return home_.announce(index_, entry);
}

// What is under way ends by itself, whatever the peers do: the NICs do it, or say that they cannot. Until then the caller's memory
// is in use. What was accepted leaves, as long as that needs no peer's processor: who posted it may not look after it any more.
// Only of ranks that have died the NIC may say nothing: then it is left as it is, and so is what it uses.
// The VCQ stays: peers who do not know yet may write to it, at most what they were promised.
Worker::~Worker() {
  std::vector<Completion> nobody;
  std::array<Completion, 64> ends;
  base::Nap nap;
  bool over = false;
  std::uint64_t only_dead_since = 0;
  while (!over) {
    std::size_t came = 0;
    {
      const CqGuard guard(station_->vcq);
      ++polls_;
      Out out(ends, &nobody);
      drain_tcq(out);
      drain_mrq(out);
      advance_channels(out);
      came = out.count();
      over = operations_.under_way() == 0 && std::ranges::none_of(connecting_, may_go_on);
      if (!over && came == 0) over = gives_up(&only_dead_since);
    }
    nobody.clear();
    if (!over && came == 0) nap.take();
  }
  if (operations_.under_way() != 0) {
    home_.environment().log.line(
        base::Level::warn,
        "worker %u is closed with %zu operations under way to ranks that have died; memory that "
        "it has registered stays so until this rank ends",
        index_, operations_.under_way());
    registrar_.leave();
    operations_.for_each_under_way([this](Operation& operation) {
      if (operation.lease != 0) registrations_->release(operation.lease);
    });
  }
  if (const std::string said = registrations_->describe();
      home_.environment().config.flag(base::Var::stats) && !said.empty()) {
    home_.environment().log.say("worker %u: registrations: %s", index_, said.c_str());
  }
  {
    const CqGuard guard(station_->vcq);
    registrations_.reset();
  }
  Entry entry;
  entry.vcq = station_->vcq.id;
  entry.state = State::closed;
  static_cast<void>(home_.announce(index_, entry));  // who cannot be told notices when the rank ends
  home_.keep(std::move(station_));
}

std::size_t Worker::post(std::span<Command> batch) {
  if (batch.empty()) return 0;
  const HeldCq held(lock_);
  if (!held) return 0;
  std::size_t accepted = 0;
  for (Command& command : batch) {
    if (backlog_.size() >= kMostBacklog) break;
    const base::Status status = start(command);
    if (status == HEDDLE_AGAIN) break;
    ++accepted;
    if (status == HEDDLE_POSTED) continue;
    command.source_free = true;
    if (status == HEDDLE_DONE) {
      command.done = true;
    } else {
      Completion failure;
      failure.token = command.token;
      failure.status = status;
      backlog_.push_back(failure);
    }
  }
  return accepted;
}

std::size_t Worker::poll(std::span<Completion> completions) {
  if (completions.empty()) return 0;
  const HeldCq held(lock_);
  if (!held) return 0;
  ++polls_;
  Out out(completions, &backlog_);
  if (!lending_.empty() || !owing_.empty()) release_lent();
  if (!dooms_.empty()) [[unlikely]] {
    end_doomed();
  }
  if (!backlog_.empty()) out.flush();
  if (!ready_.empty()) hand_out(out);  // first, so that a stream of other notices does not leave them no room
  drain_tcq(out);
  if (out.room()) drain_mrq(out);
  if (!ready_.empty()) hand_out(out);
  if (!connecting_.empty()) advance_channels(out);
  return out.count();
}

void Worker::peer_failed(std::uint32_t rank) {
  if (rank >= failed_.size() || failed_[rank] != 0) return;
  failed_[rank] = 1;
  for (auto& channel : channels_) {
    if (channel->rank == rank) break_off(*channel, HEDDLE_ERR_PEER_FAILED);
  }
  // What had arrived before the peer died, or left, counts: the NIC has time to say so.
  bool any = false;
  operations_.for_each_under_way([&](const Operation& operation) { any = any || operation.rank == rank; });
  if (any) dooms_.push_back({rank, home_.environment().clock->now_ns() + kGraceNs});
}

// What it holds, a lease or a buffer, is not used again before a notice says that the NIC has done with it; and its index not
// either, so that there is room for that notice.
void Worker::orphan(Operation& operation) {
  if (operation.orphan) return;
  operation.orphan = true;
  const bool callers = operation.task == Task::put || operation.task == Task::get || operation.task == Task::atomic ||
                       operation.task == Task::message;
  if (!callers) return;
  Completion end;
  end.token = operation.token;
  if (std::exchange(operation.owes_source_free, false)) {
    end.event = Event::source_free;
    backlog_.push_back(end);
    end.event = Event::done;
  }
  end.status = HEDDLE_ERR_PEER_FAILED;
  backlog_.push_back(end);
}

[[gnu::cold]] void Worker::end_doomed() {
  const std::uint64_t now = home_.environment().clock->now_ns();
  std::erase_if(dooms_, [&](const Doom& doom) {
    if (now < doom.at_ns) return false;
    operations_.for_each_under_way([&](Operation& operation) {
      if (operation.rank == doom.rank) orphan(operation);
    });
    return true;
  });
}

// For the destructor. True: for long nothing has been under way but to ranks that have died.
[[gnu::cold]] bool Worker::gives_up(std::uint64_t* since) {
  std::size_t dead = 0;
  operations_.for_each_under_way([&](Operation& operation) {
    if (home_.failed(operation.rank)) peer_failed(operation.rank);
    if (failed_[operation.rank] != 0) ++dead;
  });
  if (dead != operations_.under_way() || std::ranges::any_of(connecting_, may_go_on)) {
    *since = 0;
    return false;
  }
  const std::uint64_t now = home_.environment().clock->now_ns();
  if (*since == 0) *since = now;
  return now - *since >= kGraceNs;
}

// Whoever asks often has waited for long: look again whether the worker is still there.
bool Worker::closed(Target target) {
  if (target.rank >= channel_of_.size() || target.worker >= channel_of_[target.rank].size()) return false;
  const std::uint32_t index = channel_of_[target.rank][target.worker];
  if (index == kNoChannel) return false;
  Channel& channel = *channels_[index];
  if (channel.stage == Channel::Stage::ready) {
    const HeldCq held(lock_);
    if (held) look_again(channel);
  }
  return channel.stage == Channel::Stage::closed;
}

// ---- commands ---------------------------------------------------------------------------------------------------------------

base::Status Worker::start(Command& command) {
  if (command.alone) return HEDDLE_AGAIN;  // nothing is done before post() returns
  if (command.rank >= failed_.size()) {
    return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %zu", command.rank, failed_.size() - 1);
  }
  if (failed_[command.rank] != 0) return HEDDLE_ERR_PEER_FAILED;
  switch (command.opcode) {
    case Opcode::message:
      return send(command);
    case Opcode::put:
    case Opcode::get:
      return transfer(command);
    case Opcode::atomic:
      return update(command);
    case Opcode::kCount:
      break;
  }
  return base::fail(HEDDLE_ERR_UNSUPPORTED, "this transport has no such command; see its capabilities");
}

}  // namespace heddle::transport::utofu
