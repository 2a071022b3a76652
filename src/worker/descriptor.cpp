#include "worker/descriptor.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fence.hpp"
#include "base/threads.hpp"
#include "worker/worker.hpp"

namespace heddle::worker {

Descriptor::~Descriptor() {
  const int descriptor = descriptor_.load(std::memory_order_relaxed);
  if (descriptor < 0) return;
  disarm();
  wakeup_.stop();
  thread_.join();
  ::close(descriptor);
}

base::Result<int> Descriptor::open() {
  if (const int open = descriptor_.load(std::memory_order_acquire); open >= 0) return open;
  const std::lock_guard lock(opens_);
  if (const int open = descriptor_.load(std::memory_order_relaxed); open >= 0) return open;
  // without it nothing is slept over: arm_notifier()
  static_cast<void>(base::membarrier_private_ready());
  const int descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0) {
    return base::fail(HEDDLE_ERR_SYSTEM, "eventfd of worker %u: %s", worker_.index(), std::strerror(errno));
  }
  try {
    thread_ = base::start_quiet_thread([this] { wakeup_.run(); });
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  pthread_setname_np(thread_.native_handle(), "heddle-wakeup");
  worker_.core().notifier.open({descriptor});
  descriptor_.store(descriptor, std::memory_order_release);
  return descriptor;
}

base::Status Descriptor::arm() {
  if (descriptor_.load(std::memory_order_acquire) < 0) {
    return base::fail(HEDDLE_ERR_STATE, "worker %u has no descriptor: call heddle_worker_descriptor first",
                      worker_.index());
  }
  const std::lock_guard lock(arms_);
  return wakeup_.arm();
}

// ---- for Wakeup ---------------------------------------------------------------------------------

void Descriptor::disarm() {
  worker_.core().notifier.disarm();
  eventfd_t ignored = 0;
  static_cast<void>(::eventfd_read(descriptor_.load(std::memory_order_relaxed), &ignored));
}

std::uint64_t Descriptor::moved() const {
  return worker_.moved();
}

bool Descriptor::arm_notifier() {
  failure_epoch_.store(worker_.core().failure_epoch.load(std::memory_order_acquire), std::memory_order_relaxed);
  worker_.core().notifier.arm();
  base::full_fence();
  return base::membarrier_private();
}

Quiet Descriptor::lie_down() {
  bool armed = false;
  const Worker::Rest rest = worker_.lie_down(&armed);
  return {.work = rest == Worker::Rest::none, .armed = armed, .polls = rest != Worker::Rest::whole};
}

void Descriptor::remind() const {
  static_cast<void>(::eventfd_write(descriptor_.load(std::memory_order_relaxed), 1));
}

bool Descriptor::telling() const {
  return worker_.core().notifier.armed();
}

void Descriptor::tell() {
  worker_.core().notifier.tell();
}

bool Descriptor::arrived() const {
  const engine::Core& core = worker_.core();
  return !core.transport.armed() ||
         core.failure_epoch.load(std::memory_order_acquire) != failure_epoch_.load(std::memory_order_relaxed);
}

bool Descriptor::can_ring() const {
  return worker_.core().can_ring();
}

std::uint32_t Descriptor::bell() const {
  return worker_.context().transport().bell();
}

void Descriptor::ring() const {
  worker_.context().transport().ring();
}

void Descriptor::wait(std::uint32_t seen, std::int64_t timeout_ns) const {
  worker_.context().transport().wait(seen, timeout_ns, queue::place(worker_.index()));
}

}  // namespace heddle::worker
