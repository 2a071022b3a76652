#include "tofu/emulator/model.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>

#include "tofu/emulator/world.hpp"

namespace tofu_emulator {

namespace {

constexpr std::uint32_t kDirections = 12;
// the TNIs' ledgers come after those of the directions
constexpr std::uint32_t kOfNode = kDirections + kTnis;

std::size_t ledgers_of(const Machine& machine) {
  return std::min(Links::kMost, std::size_t{machine.nodes()} * kOfNode);
}

constexpr unsigned kSpinsToYield = 64;
constexpr unsigned kSpinsToLook = 65'536;

}  // namespace

// Zeroed: not in use.
struct Links::Link {
  // LinkPlace as a number, + 1. relaxed: the lock orders the ledger
  std::atomic<std::uint32_t> place;
  // the process that holds the lock, + 1. acquire/release: the ledger
  std::atomic<std::uint32_t> holder;
  Ledger ledger;
};

std::size_t Links::bytes(const Machine& machine) {
  return ledgers_of(machine) * sizeof(Link);
}

Links::Links(std::byte* memory, const Machine& machine, const World* world)
    : machine_(machine),
      world_(world),
      ledgers_(ledgers_of(machine)),
      self_(world != nullptr ? world->self() + 1 : 1),
      links_(reinterpret_cast<Link*>(memory)) {}

// Null: all ledgers belong to other links.
Links::Link* Links::find(const LinkPlace& place) {
  const std::uint32_t number = place.node * kOfNode + place.direction + 1;
  for (std::size_t probe = 0; probe < ledgers_; ++probe) {
    Link& link = links_[(number * std::size_t{0x9E3779B1U} + probe) % ledgers_];
    std::uint32_t known = link.place.load(std::memory_order_relaxed);
    if (known == 0 && link.place.compare_exchange_strong(known, number, std::memory_order_relaxed)) return &link;
    if (known == number) return &link;
  }
  return nullptr;
}

// If a process dies while it holds the lock, the ledger is wrong by a few nanoseconds at most.
void Links::lock(Link& link) const {
  std::uint32_t holder = 0;
  for (unsigned spins = 1; !link.holder.compare_exchange_weak(holder, self_, std::memory_order_acquire); ++spins) {
    if (spins % kSpinsToYield == 0) ::sched_yield();
    const bool look = spins % kSpinsToLook == 0 && world_ != nullptr && holder != 0 && holder != self_;
    if (!look || !world_->died(holder - 1)) holder = 0;
  }
}

Ledger::Grant Links::take(const LinkPlace& place, std::uint64_t earliest, std::uint64_t length) {
  Link* link = find(place);
  if (link == nullptr) return {earliest, earliest + length};
  lock(*link);
  const Ledger::Grant grant = link->ledger.take(earliest, length);
  link->holder.store(0, std::memory_order_release);
  return grant;
}

std::uint64_t Links::serve(std::uint32_t node, std::uint16_t tni, std::uint64_t ready_ns, std::uint64_t length) {
  return take({node, kDirections + tni % kTnis}, ready_ns, length).end;
}

Links::Passage Links::pass(const Route& route, std::uint64_t head_ns, std::uint64_t length) {
  Passage passage{head_ns + length, head_ns + length};
  bool first = true;
  for_each(machine_, route, [&](const LinkPlace& place) {
    const Ledger::Grant grant = take(place, head_ns, length);
    // The last byte cannot be on a link before it has arrived there.
    const std::uint64_t on_link = std::max(grant.end, first ? 0 : passage.arrives_ns);
    if (first) passage.left_ns = on_link;
    first = false;
    passage.arrives_ns = on_link + model_parameters::kLink;
    head_ns = grant.begin + model_parameters::kLink;
  });
  return passage;
}

namespace {

namespace p = model_parameters;

struct ThreadClock {
  std::uint64_t now_ns = 0;
  std::uint64_t number = 0;  // from 1
};

ThreadClock& this_thread() {
  static std::atomic<std::uint64_t> threads{0};
  thread_local ThreadClock clock{0, threads.fetch_add(1, std::memory_order_relaxed) + 1};
  return clock;
}

std::uint64_t time_of(std::uint64_t wire_bytes) {
  return static_cast<std::uint64_t>(static_cast<double>(wire_bytes) / p::kBytesPerNs);
}

}  // namespace

Model::Model(Extent extent, Links* links)
    : on_(extent.on),
      spinners_(extent.on && extent.spinners),
      links_(links),
      registry_(extent.on ? 1 : 0),
      lines_(extent.on ? kLines : 0) {}

std::uint64_t Model::now_ns() {
  return this_thread().now_ns;
}

void Model::learned(std::uint64_t when_ns) const {
  if (on_) this_thread().now_ns = std::max(this_thread().now_ns, when_ns);
}

Model::VcqClock& Model::clock_of(EmulatedVcq& vcq) {
  if (vcq.model_clock == 0) {
    vcqs_.emplace_back();
    vcq.model_clock = vcqs_.size();
  }
  return vcqs_[vcq.model_clock - 1];
}

std::size_t Model::index_of(VcqClock& clock, std::uint64_t thread) {
  const auto found = std::find_if(clock.users.begin(), clock.users.end(),
                                  [thread](const User& user) { return user.thread == thread; });
  if (found != clock.users.end()) return static_cast<std::size_t>(found - clock.users.begin());
  clock.users.push_back({thread, 0, false});
  return clock.users.size() - 1;
}

// A thread that has not polled in vain during the last few useful calls of each user is not
// spinning (any more).
std::uint64_t Model::turns(const VcqClock& clock, std::size_t me) {
  const std::uint64_t recent = p::kRecentCalls * clock.users.size();
  std::uint64_t spinners = 0;
  std::uint64_t moves = 0;
  for (std::size_t other = 0; other < clock.users.size(); ++other) {
    const User& user = clock.users[other];
    if (other == me || user.in_vain_at == 0 || clock.useful + 1 - user.in_vain_at > recent) continue;
    ++spinners;
    moves += other / p::kCoresOfGroup == me / p::kCoresOfGroup ? p::kLineNear : p::kLineFar;
  }
  return moves * p::kLinesOfTurn + spinners * (p::kPollInVain + spinners * p::kSpinnerRead / 2);
}

void Model::found_nothing(EmulatedVcq& vcq) {
  if (!spinners_) return;
  const std::lock_guard lock(mutex_);
  VcqClock& clock = clock_of(vcq);
  User& user = clock.users[index_of(clock, this_thread().number)];
  user.in_vain_at = clock.useful + 1;
  user.looked = true;
}

void Model::use(EmulatedVcq& vcq, std::uint64_t cost, Call call) {
  ThreadClock& thread = this_thread();
  const std::lock_guard lock(mutex_);
  VcqClock& clock = clock_of(vcq);
  const bool from_another = clock.last_thread != 0 && clock.last_thread != thread.number;
  if (from_another) cost += p::kHandOver;
  clock.last_thread = thread.number;
  if (spinners_) {
    ++clock.useful;
    const std::size_t me = index_of(clock, thread.number);
    // Several polls in a row that find something take one turn.
    const bool new_turn = call == Call::post || from_another || clock.users[me].looked;
    if (new_turn) thread.now_ns += turns(clock, me) / (call == Call::post ? 1 : 2);
    clock.users[me].looked = false;
  }
  thread.now_ns = clock.calendar.reserve(thread.now_ns, cost) + cost;
}

std::uint64_t Model::posted(EmulatedVcq& vcq, unsigned commands) {
  if (!on_ || commands == 0) return 0;
  use(vcq, p::kPost + (commands - 1) * p::kPostMore, Call::post);
  return this_thread().now_ns;
}

void Model::polled(EmulatedVcq& vcq, std::uint64_t when_ns) {
  if (!on_) return;
  learned(when_ns);
  use(vcq, p::kPoll, Call::poll);
}

// The registry serves one thread of the process at a time.
void Model::use_registry(std::uint64_t cost) {
  if (!on_) return;
  ThreadClock& thread = this_thread();
  const std::lock_guard lock(mutex_);
  thread.now_ns = registry_.front().take(thread.now_ns, cost).end;
}

std::uint64_t Model::wire_bytes(std::uint64_t bytes, std::uint32_t mtu) {
  const auto frame = [](std::uint64_t payload) {
    const std::uint64_t units = (payload + p::kPacketHead + p::kFrameUnit - 1) / p::kFrameUnit;
    return std::max(p::kLeastFrame, p::kFrameHead + units * p::kFrameUnit);
  };
  const std::uint64_t rest = bytes % mtu;
  return bytes / mtu * frame(mtu) + (rest != 0 || bytes == 0 ? frame(rest) : 0);
}

Model::Sent Model::sent(const CqCommand& command, const Route& route, std::uint64_t ready_ns) {
  if (!on_) return {};
  const bool is_put = command.opcode == Opcode::put || command.opcode == Opcode::piggyback;
  const std::uint64_t wire = time_of(wire_bytes(is_put ? command.length : 0, command.mtu));
  const std::uint64_t occupied = std::max(command.opcode == Opcode::get ? p::kTniGet : p::kTniPut, wire);
  const std::uint64_t begin = links_->serve(route.from_node, route.tni, ready_ns, occupied) - occupied;
  if (command.opcode == Opcode::nop) return {begin + p::kStart, begin + p::kStart};
  const std::uint64_t head = begin + p::kStart + (command.opcode == Opcode::put ? p::kReadSource : 0);
  const Links::Passage passage = links_->pass(route, head, wire);
  return {passage.left_ns, passage.arrives_ns + p::kFlight};
}

std::uint64_t Model::answered(Opcode opcode, Piece piece, const Route& route, std::uint64_t arrived_ns) {
  if (!on_) return 0;
  std::uint64_t made = arrived_ns;
  if (opcode == Opcode::armw || opcode == Opcode::cswap) made += p::kExecute;
  if (opcode != Opcode::get) return links_->pass(route, made, time_of(wire_bytes(0, kMtu))).arrives_ns + p::kReturn;
  // The data is read at the speed of a link.
  const std::uint64_t before = piece.offset == 0 ? 0 : time_of(wire_bytes(piece.offset, kMtu));
  const std::uint64_t after = time_of(wire_bytes(std::uint64_t{piece.offset} + piece.bytes, kMtu));
  made += p::kReadTarget + before;
  return links_->pass(route, made, after - before).arrives_ns + p::kReturn;
}

std::uint64_t Model::released(std::uint64_t arrived_ns) const {
  return on_ ? arrived_ns + p::kRelease : 0;
}

std::uint64_t Model::signalled(const Route& route, std::uint64_t ready_ns) {
  return on_ ? links_->pass(route, ready_ns + p::kGate, 0).arrives_ns + p::kFlight : 0;
}

void Model::stored(const void* address, std::size_t bytes, std::uint64_t arrived_ns) {
  if (!on_ || bytes == 0) return;
  const auto first = reinterpret_cast<std::uintptr_t>(address) / kLineBytes;
  const auto last = (reinterpret_cast<std::uintptr_t>(address) + bytes - 1) / kLineBytes;
  const std::lock_guard lock(mutex_);
  for (std::uintptr_t line = first; line <= last; line++) line_of(line) = {line, arrived_ns};
}

void Model::saw(const void* address) {
  if (!on_) return;
  const auto address_line = reinterpret_cast<std::uintptr_t>(address) / kLineBytes;
  std::uint64_t arrived_ns = 0;
  {
    const std::lock_guard lock(mutex_);
    const Line& line = line_of(address_line);
    if (line.address == address_line) arrived_ns = line.arrived_ns;
  }
  learned(arrived_ns);
}

}  // namespace tofu_emulator
