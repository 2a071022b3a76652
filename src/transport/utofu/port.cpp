#include "transport/utofu/port.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "transport/utofu/library.hpp"
#include "transport/utofu/out.hpp"

namespace heddle::transport::utofu {
namespace {

// How long we wait for a NIC's answer after its process was found dead. A worker that is being
// closed also waits so long, even if no process was found dead. A NIC that works needs far less.
// Some NICs do not answer though their process lives: the emulator's NIC is a thread of its process
// and stops with it.
constexpr std::uint64_t kGraceNs = 10'000'000'000;

// A message waits in this connection, and its next step needs no action of the peer.
bool may_go_on(const PeerState* peer_state) {
  if (peer_state->waiting == 0) return false;
  // the entry was not read yet
  if (peer_state->stage == PeerState::Stage::unopened) return peer_state->pause == 0;
  return peer_state->stage != PeerState::Stage::ready || peer_state->credits != 0;
}

}  // namespace

Port::Port(Device& device, std::unique_ptr<OwnVcq> own_vcq, const Sizes& sizes, std::uint32_t index)
    : handle_(own_vcq->vcq.handle),
      lock_(own_vcq->vcq.lock),
      way_((device.library().tni_index(own_vcq->vcq) + device.rank()) % kWays * sizeof(Way)),
      calls_(device.library().call()),
      operations_(sizes.operations),
      device_(device),
      own_vcq_(std::move(own_vcq)),
      sizes_(sizes),
      index_(index),
      registrar_(device.library(), own_vcq_->vcq),
      peer_state_of_(device.size()),
      buffers_(sizes.buffers),
      rings_(sizes.rings),
      failed_(device.size()) {
  set_careful(lock_ != nullptr);
  const auto options = memory::RegistrationCache::Options::from(device.environment().config);
  registrations_.emplace(registrar_, memory::RegistrationCache::watch_for(options, device.environment().log), options);
  for (std::uint32_t i = sizes.buffers; i > 0; --i) give_buffer(i - 1);
  peer_states_.reserve(sizes.peer_states);
  connecting_.reserve(sizes.peer_states);
  ready_.reserve(sizes.rings);
  lending_.reserve(sizes.rings);
  owing_.reserve(sizes.rings);
  dooms_.reserve(device.size());
  backlog_.reserve(kMostBacklog + sizes.buffers + 2 * std::size_t{sizes.operations});
}

base::Status Port::announce() {
  DirectoryEntry entry;
  entry.vcq = own_vcq_->vcq.id;
  entry.block_stadd = own_vcq_->stadd;
  entry.state = State::open;
  entry.slots = static_cast<std::uint8_t>(sizes_.slots);
  entry.rings = static_cast<std::uint16_t>(sizes_.rings);
  return device_.announce(index_, entry);
}

// Operations under way end whatever the peers do: the NICs complete them or report errors. Until
// then the caller's memory is in use. Accepted messages are still sent, as long as that needs no
// peer's processor: the caller may not poll for them any more. Operations that have not ended after
// kGraceNs are abandoned, with the memory that they use. The VCQ stays: peers that do not know of
// the closing may write to it, at most as much as they were promised.
Port::~Port() {
  std::vector<Completion> nobody;
  std::array<Completion, 64> ends;
  base::Nap nap;
  bool over = false;
  base::Timeout grace(static_cast<std::int64_t>(kGraceNs), *device_.environment().clock);
  while (!over) {
    std::size_t came = 0;
    {
      const CqGuard guard(own_vcq_->vcq);
      ++polls_;
      Out out(ends, &nobody);
      drain_tcq(out);
      drain_mrq(out);
      advance_peer_states(out);
      came = out.count();
      over = operations_.under_way() == 0 && std::ranges::none_of(connecting_, may_go_on);
      if (!over && came == 0) note_dead();
    }
    over = grace.over() || over;
    nobody.clear();
    if (!over && came == 0) nap.take();
  }
  leave_unfinished();
  if (const std::string said = registrations_->describe();
      device_.environment().config.flag(base::Var::stats) && !said.empty()) {
    device_.environment().log.say("worker %u: registrations: %s", index_, said.c_str());
  }
  {
    const CqGuard guard(own_vcq_->vcq);
    registrations_.reset();
    registrar_.finish();
  }
  DirectoryEntry entry;
  entry.vcq = own_vcq_->vcq.id;
  entry.state = State::closed;
  // on an error peers notice only when the rank ends
  static_cast<void>(device_.announce(index_, entry));
  if (operations_.under_way() == 0) {
    device_.keep(std::move(own_vcq_));
  } else {
    keep_to_the_end(std::move(own_vcq_));  // a VCQ with commands under way must not be freed
  }
}

std::size_t Port::poll(std::span<Completion> completions) {
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
  // first, so that a stream of other notices does not take all the room
  if (!ready_.empty()) hand_out(out);
  if (tcq_due_ || operations_.under_way() != 0) drain_tcq(out);
  if (out.room()) drain_mrq(out);
  if (!ready_.empty()) hand_out(out);
  if (!connecting_.empty()) advance_peer_states(out);
  if (careful_ || !backlog_.empty()) [[unlikely]] {
    set_careful(lock_ != nullptr || any_failed_ || !backlog_.empty());
  }
  return out.count();
}

void Port::peer_failed(std::uint32_t rank) {
  if (rank >= failed_.size() || failed_[rank] != 0) return;
  failed_[rank] = 1;
  any_failed_ = true;
  set_careful(true);
  for (auto& peer_state : peer_states_) {
    if (peer_state->rank == rank) break_off(*peer_state, HEDDLE_ERR_PEER_FAILED);
  }
  // An operation that arrived before the peer died, or left, has succeeded: the NIC gets time to
  // report that.
  bool any = false;
  operations_.for_each_under_way([&](const TofuOperation& operation) { any = any || operation.rank == rank; });
  if (any) dooms_.push_back({rank, device_.environment().clock->now_ns() + kGraceNs});
}

// Its lease or buffer is not reused before a notice says that the NIC has finished with it. Nor is
// its index, so that the notice finds this operation.
void Port::orphan(TofuOperation& operation) {
  if (operation.has(TofuOperation::kOrphan)) return;
  const bool owed_source = operation.has(TofuOperation::kOwesSource);
  operation.set(TofuOperation::kOrphan);
  operation.clear(TofuOperation::kOwesSource);
  const bool callers = operation.task == Task::put || operation.task == Task::get || operation.task == Task::atomic ||
                       operation.task == Task::message || operation.task == Task::short_message;
  if (!callers) return;
  set_careful(true);
  Completion end;
  end.token = operation.token;
  if (owed_source) {
    end.event = Event::source_free;
    backlog_.push_back(end);
    end.event = Event::done;
  }
  end.status = HEDDLE_ERR_PEER_FAILED;
  backlog_.push_back(end);
}

[[gnu::cold]] void Port::end_doomed() {
  const std::uint64_t now = device_.environment().clock->now_ns();
  std::erase_if(dooms_, [&](const Doom& doom) {
    if (now < doom.at_ns) return false;
    operations_.for_each_under_way([&](TofuOperation& operation) {
      if (operation.rank == doom.rank) orphan(operation);
    });
    return true;
  });
}

// For the destructor: does not wait for operations to dead ranks.
[[gnu::cold]] void Port::note_dead() {
  operations_.for_each_under_way([&](TofuOperation& operation) {
    if (device_.failed(operation.rank)) peer_failed(operation.rank);
  });
}

// For the destructor.
[[gnu::cold]] void Port::leave_unfinished() {
  std::uint64_t messages = 0;
  for (const PeerState* peer_state : connecting_) messages += may_go_on(peer_state) ? peer_state->waiting : 0;
  if (messages != 0) {
    device_.environment().log.line(
        base::Level::warn, "worker %u is closed with %llu messages that have not left in %llu s; they are lost", index_,
        static_cast<unsigned long long>(messages), static_cast<unsigned long long>(kGraceNs / 1'000'000'000));
  }
  if (operations_.under_way() == 0) return;
  std::uint32_t rank = device_.size();  // the lowest rank of them
  operations_.for_each_under_way([&](const TofuOperation& operation) { rank = std::min(rank, operation.rank); });
  device_.environment().log.line(
      base::Level::warn,
      "worker %u is closed with %zu operations under way that have not ended in %llu s (the lowest rank that they are "
      "for: %u); they may still write to the memory that they name, and all memory that the worker has registered "
      "stays so until this process ends",
      index_, operations_.under_way(), static_cast<unsigned long long>(kGraceNs / 1'000'000'000), rank);
  registrar_.leave();
  operations_.for_each_under_way([this](TofuOperation& operation) {
    if (operation.lease != 0) registrations_->release(operation.lease);
  });
}

// A caller that asks often has waited long: look_again() checks whether the worker is still open.
bool Port::closed(Target target) {
  if (target.rank >= peer_state_of_.size() || target.worker >= peer_state_of_[target.rank].size()) return false;
  PeerState* const peer_state = peer_state_of_[target.rank][target.worker];
  if (peer_state == nullptr) return false;
  if (peer_state->stage == PeerState::Stage::ready) {
    const HeldCq held(lock_);
    if (held) look_again(*peer_state);
  }
  return peer_state->stage == PeerState::Stage::closed;
}

std::size_t Port::unopened(std::span<Unopened> found) {
  std::size_t count = 0;
  for (const PeerState* peer_state : connecting_) {
    const bool has_no_entry =
        peer_state->stage == PeerState::Stage::unopened || peer_state->stage == PeerState::Stage::reading;
    if (!has_no_entry || peer_state->waiting == 0 || failed_[peer_state->rank] != 0) continue;
    if (count == found.size()) break;
    found[count++] = {{peer_state->rank, peer_state->worker}, peer_state->waiting};
  }
  return count;
}

}  // namespace heddle::transport::utofu
