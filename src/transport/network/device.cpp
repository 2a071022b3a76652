#include "transport/network/device.hpp"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/threads.hpp"
#include "queue/handover.hpp"
#include "transport/network/port.hpp"

namespace heddle::transport::network {

namespace {

constexpr std::uint64_t kMs = 1'000'000;
// Longest pause between looks at a port whose descriptor does not report all, or whose owner polls.
constexpr std::uint64_t kLongestNapNs = 5 * kMs;
constexpr std::size_t kConnectionsATurn = 16;  // checked: about 50 µs
constexpr std::uint32_t kDevice = 0;
constexpr std::uint32_t kWaker = UINT32_MAX;

}  // namespace

Helper::Helper(Device& device)
    : device_(device),
      clock_(*device.environment().clock),
      silence_(device.timeout_ns(), device.log()),
      bell_(device.bootstrap().common_bell() != nullptr ? *device.bootstrap().common_bell() : queue::Bell<>(&words_)) {}

base::Status Helper::enter(const Watch& watch, std::uint32_t number) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.u32 = number;
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, watch.descriptor, &event) == 0) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_SYSTEM, "the descriptor %d of %s cannot be watched", watch.descriptor,
                          device_.names().library);
}

base::Status Helper::start(int device_descriptor) {
  events_.reset(::epoll_create1(EPOLL_CLOEXEC));
  waker_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!events_.valid() || !waker_.valid()) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "no descriptors for the thread that answers for %s",
                            device_.names().transport);
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = kWaker;
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, waker_.get(), &event) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "a descriptor of one's own cannot be watched");
  }
  Watch device;
  device.descriptor = device_descriptor;
  if (const base::Status status = enter(device, kDevice); status != HEDDLE_DONE) return status;
  stir_now(device);  // it arms the device worker
  watches_.push_back(device);
  pid_ = ::getpid();
  try {
    thread_ = base::start_quiet_thread([this] { run(); });
  } catch (const std::system_error& error) {
    return base::fail(HEDDLE_ERR_SYSTEM, "cannot start the thread that answers for %s: %s", device_.names().transport,
                      error.what());
  }
  pthread_setname_np(thread_.native_handle(), (std::string("heddle-") + device_.names().transport).c_str());
  return HEDDLE_DONE;
}

void Helper::stop() {
  if (!thread_.joinable()) return;
  if (::getpid() != pid_) {
    thread_.detach();  // the thread lives in the parent only
    return;
  }
  stop_.store(true, std::memory_order_relaxed);
  wake();
  thread_.join();
}

base::Result<std::uint32_t> Helper::watch(Port& port, int descriptor) {
  const std::lock_guard lock(mutex_);
  Watch watch;
  watch.port = &port;
  watch.descriptor = descriptor;
  const auto number = static_cast<std::uint32_t>(watches_.size());
  try {
    watches_.push_back(watch);
  } catch (const std::bad_alloc&) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for one worker more");
  }
  if (const base::Status status = enter(watch, number); status != HEDDLE_DONE) {
    watches_.pop_back();
    return status;
  }
  wake();
  return number;
}

void Helper::unwatch(std::uint32_t number, int descriptor) {
  const std::lock_guard lock(mutex_);
  static_cast<void>(::epoll_ctl(events_.get(), EPOLL_CTL_DEL, descriptor, nullptr));
  Watch& watch = watches_[number];
  watch.port = nullptr;
  watch.gone = true;
  watch.stirs = false;
}

void Helper::watch_again(std::uint32_t number, int descriptor) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.u32 = number;
  static_cast<void>(::epoll_ctl(events_.get(), EPOLL_CTL_MOD, descriptor, &event));
}

void Helper::wake() const {
  const std::uint64_t one = 1;
  static_cast<void>(::write(waker_.get(), &one, sizeof one));
}

void Helper::stir(Watch& watch, std::uint64_t nap) {
  watch.stirs = true;
  watch.nap = nap;
  watch.look_at = clock_.now_ns() + nap;
}

void Helper::stir_now(Watch& watch) {
  stir(watch, 0);
}

void Helper::stir_later(Watch& watch) {
  stir(watch, std::clamp(2 * watch.nap, kMs, kLongestNapNs));
}

void Helper::make_quiet(Watch& watch, std::uint32_t number) {
  watch.stirs = false;
  watch.nap = 0;
  watch_again(number, watch.descriptor);
}

// ms until something must be looked at; -1: until there is an event.
int Helper::pause() {
  if (looking_) return 0;
  std::uint64_t next = silence_.limit() != 0 ? look_for_silence_at_ : UINT64_MAX;
  for (const Watch& watch : watches_) {
    if (watch.stirs) next = std::min(next, watch.look_at);
  }
  if (next == UINT64_MAX) return -1;
  const std::uint64_t now = clock_.now_ns();
  return next <= now ? 0 : static_cast<int>((next - now + kMs - 1) / kMs);
}

void Helper::run() {
  number_ = queue::SystemHandover::kStays | static_cast<std::uint32_t>(::syscall(SYS_gettid));
  std::array<epoll_event, 32> events;
  int ms = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), ms);
    std::uint64_t times = 0;
    const bool woken = ::read(waker_.get(), &times, sizeof times) ==
                       static_cast<ssize_t>(sizeof times);  // whether or not it is among the events
    const std::lock_guard lock(mutex_);
    if (woken) note(kWaker);
    for (int i = 0; i < count; ++i) {
      const std::uint32_t number = events[static_cast<std::size_t>(i)].data.u32;
      if (number != kWaker) note(number);
    }
    for (std::uint32_t number = 0; number < watches_.size(); ++number) {
      Watch& watch = watches_[number];
      if (!watch.stirs || watch.look_at > clock_.now_ns()) continue;
      number == kDevice ? look_at_device(watch) : look(watch, number);
    }
    end_silent();
    ms = pause();
  }
}

// The library does not report new and closed connections: each check finds them anew.
void Helper::end_silent() {
  if (silence_.limit() == 0) return;
  if (!looking_) {
    const std::uint64_t now = clock_.now_ns();
    if (now < look_for_silence_at_) return;
    look_for_silence_at_ = now + silence_.limit() / 4;
    looked_behind_ = 0;
    looking_ = true;
    device_.losses().disconnect_lost(device_.log());
    begin_round();
  }
  if (silence_.done() && looked_behind_ < watches_.size()) {
    const Watch& watch = watches_[looked_behind_++];
    if (!watch.gone) silence_.gather(watch.descriptor);
  }
  // All of these are behind one descriptor.
  if (silence_.look(kConnectionsATurn) != 0) {
    Watch& watch = watches_[looked_behind_ - 1];
    if (!watch.gone && watch.port != nullptr) watch.port->ask_all();
  }
  looking_ = !silence_.done() || looked_behind_ < watches_.size();
}

// Ports and the device ask peers again for everything that they wait for. So a port that nobody
// polls is looked at, and so is the device.
void Helper::begin_round() {
  device_.begin_round();
  stir_now(watches_[kDevice]);
  for (std::uint32_t number = 1; number < watches_.size(); ++number) {
    Watch& watch = watches_[number];
    if (watch.gone || watch.port->retired()) continue;
    watch.port->begin_round();
    if (watch.port->has_questions() && watch.port->disarm()) bell_.ring();
    if (!watch.stirs && !watch.port->armed()) stir_now(watch);
  }
}

void Helper::note(std::uint32_t number) {
  if (number == kWaker) {
    stir_now(watches_[kDevice]);
    for (Watch& watch : watches_) {
      if (watch.port != nullptr && !watch.stirs && !watch.port->quiet() && !watch.port->retired()) stir_now(watch);
    }
    return;
  }
  Watch& watch = watches_[number];
  if (watch.gone) return;
  if (watch.port == nullptr || watch.port->retired()) return stir_now(watches_[kDevice]);
  if (watch.port->disarm()) bell_.ring();
  stir_now(watch);
}

void Helper::look(Watch& watch, std::uint32_t number) {
  Port& port = *watch.port;
  // A peer calls a worker whose owner has armed it, and perhaps does not sleep.
  if (!port.retired() && port.waits_for_device() && port.disarm()) bell_.ring();
  if (port.retired() || port.armed()) {  // the device has it from now on; or its owner has armed it
    watch.stirs = false;
    return;
  }
  if (const std::uint64_t polls = port.polls(); polls != watch.polls) {
    watch.polls = polls;
    return stir_later(watch);
  }
  const Port::Served served = port.serve(number_);
  // it has asked for an address: the question has to leave
  if (port.waits_for_device()) stir_now(watches_[kDevice]);
  switch (served) {
    case Port::Served::quiet:
      return make_quiet(watch, number);
    case Port::Served::not_ours:
      watch.stirs = false;
      return;
    case Port::Served::waiting:
      watch_again(number, watch.descriptor);
      [[fallthrough]];
    case Port::Served::stuck:
      return stir_later(watch);
    case Port::Served::more:
      return stir_now(watch);
  }
}

void Helper::look_at_device(Watch& watch) {
  const Device::Served served = device_.serve();
  if (served.learned) {  // looks at ports that wait for an address: perhaps nobody polls them
    for (std::uint32_t number = 1; number < watches_.size(); ++number) {
      Watch& other = watches_[number];
      if (!other.gone && !other.stirs && !other.port->retired() && other.port->waits_for_device()) stir_now(other);
    }
    bell_.ring();
  }
  if (served.moving) return stir_later(watch);
  make_quiet(watch, kDevice);
  for (std::uint32_t number = 1; number < watches_.size(); ++number) {
    const Watch& other = watches_[number];
    if (!other.gone && other.port->retired()) watch_again(number, watches_[number].descriptor);
  }
}

namespace {

// Rounds of progress in one visit of the helper.
constexpr int kEmptyingRounds = 64;
// How long accepted messages may take to leave when their worker or rank ends, if their peers do
// nothing.
constexpr std::uint64_t kLeaveNs = 200'000'000;

}  // namespace

namespace {

std::uint32_t window_of(const base::Config& config, const Device::Names& names) {
  const auto wanted = static_cast<std::uint32_t>(config.number(base::Var::network_window_bytes));
  return wanted != 0 ? wanted : names.usual_window;
}

}  // namespace

base::Status Device::check_settings(const base::Config& config, const Names& names) {
  if (const std::uint32_t window = window_of(config, names); window < names.least_window) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_NETWORK_WINDOW_BYTES is %u; %s needs at least %u", window,
                      names.transport, names.least_window);
  }
  const std::uint64_t ns = config.number(base::Var::network_timeout);
  if (ns == 0 || ns >= kLeastSilence) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_NETWORK_TIMEOUT is %llu ns; 0, or from 1s to 240s",
                    static_cast<unsigned long long>(ns));
}

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Names& names,
               Courier& courier, KeyShelf* keys)
    : bootstrap_(bootstrap),
      rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      environment_(environment),
      names_(names),
      window_(window_of(environment.config, names)),
      timeout_ns_(environment.config.number(base::Var::network_timeout)),
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
  head.window = window_;
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

bool Device::only_worker_ended(std::uint32_t rank, std::uint32_t worker) {
  const std::lock_guard lock(mutex_);
  return !failed(rank) && directory_.known_closed(rank, worker);
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
  for (int round = 0; round < kEmptyingRounds && some; ++round) {
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
