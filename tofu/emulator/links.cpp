#include "tofu/emulator/links.hpp"

#include <sched.h>

#include <algorithm>

#include "tofu/emulator/model_parameters.hpp"
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

}  // namespace tofu_emulator
