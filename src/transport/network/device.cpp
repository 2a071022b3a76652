#include "transport/network/device.hpp"

#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "transport/network/port.hpp"

namespace heddle::transport::network {
namespace {

// Rounds of progress in one visit of the helper.
constexpr int kRounds = 64;
// How long accepted messages may take to leave when their worker or rank ends, if their peers do
// nothing.
constexpr std::uint64_t kLeaveNs = 200'000'000;

}  // namespace

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Names& names,
               Courier& courier, KeyShelf* keys)
    : bootstrap_(bootstrap),
      rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      environment_(environment),
      names_(names),
      max_workers_(static_cast<std::uint32_t>(environment.config.number(base::Var::max_workers))),
      secret_(bootstrap.secret()),
      agreed_(agreed_of(environment.config)),
      courier_(courier),
      losses_(bootstrap),
      directory_(*this, courier, keys),
      helper_(*this) {
  retired_.reserve(max_workers_);  // so that closing needs no memory
}

base::Status Device::publish(const std::string& version, const std::string& provider,
                             std::span<const std::byte> address) {
  CardHead head;
  std::strncpy(head.transport, names_.transport, sizeof head.transport - 1);
  version.copy(head.version, sizeof head.version - 1);
  provider.copy(head.provider, sizeof head.provider - 1);
  head.agreed = agreed_;
  head.max_workers = max_workers_;
  head.window = names_.window;
  head.address_bytes = address.size();
  bootstrap::Card card;
  card.pid = static_cast<std::int32_t>(::getpid());
  card.bytes.resize(sizeof head + address.size());
  std::memcpy(card.bytes.data(), &head, sizeof head);
  std::memcpy(card.bytes.data() + sizeof head, address.data(), address.size());
  if (card.bytes.size() <= bootstrap::kMaxCardBytes) return bootstrap_.publish(card);
  return base::fail(HEDDLE_ERR_SYSTEM,
                    "an address of %s has %zu bytes, and a card takes %zu; let the job use fewer networks",
                    names_.library, address.size(), bootstrap::kMaxCardBytes - sizeof head);
}

void Device::take_over(std::unique_ptr<Port> port) {
  const std::lock_guard lock(mutex_);
  retired_.push_back(std::move(port));
  linger();
  directory_.work();
  helper_.wake();
}

bool Device::linger() {
  bool moving = false;
  for (const auto& port : retired_) {
    const bool lingers = port->linger();
    moving |= lingers;
    if (port->told_closed) continue;
    const bool over = environment_.clock->now_ns() - port->retired_at_ns() > kLeaveNs;
    if (over || (!lingers && port->all_arrived())) announce_closed(*port);
    moving |= !port->told_closed;
  }
  return moving;
}

void Device::announce_closed(Port& port) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(port.told_closed, true)) directory_.close(port.index());
}

void Device::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  const bool some = directory_.work();
  linger();
  // The helper learns only here that something was read, and that the library may have begun
  // something because of it that its descriptor does not report.
  if (some || directory_.learned() || directory_.talks()) helper_.wake();
}

void Device::begin_round() {
  const std::lock_guard lock(mutex_);
  directory_.forget_questions();
  for (const auto& port : retired_) port->begin_round();
}

Device::Served Device::serve() {
  const std::lock_guard lock(mutex_);
  courier_.look();
  Served served;
  bool some = true;
  for (int round = 0; round < kRounds && some; ++round) {
    some = directory_.work();
    some = linger() || some;
  }
  served.learned = directory_.take_learned();
  served.moving = some || directory_.talks() || courier_.closes() || !arm_all();
  return served;
}

// False: something is there.
bool Device::arm_all() {
  if (!courier_.arm()) return false;
  for (const auto& port : retired_) {
    if (!port->arm_retired()) return false;
  }
  return true;
}

void Device::leave() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t until = environment_.clock->now_ns() + kLeaveNs;
  for (;;) {
    directory_.work();
    const bool moving = linger();
    if (!moving && !directory_.has_unsent()) return;
    if (environment_.clock->now_ns() > until) break;
    sched_yield();
  }
  for (const auto& port : retired_) announce_closed(*port);
  directory_.work();
}

}  // namespace heddle::transport::network
