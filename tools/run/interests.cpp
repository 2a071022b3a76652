#include "tools/run/interests.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <array>
#include <utility>

namespace heddle::tools::run {

static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLHUP == EPOLLHUP && POLLERR == EPOLLERR);

base::Status Interests::open(std::size_t count) {
  entries_.resize(count);
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  return epoll_.valid() ? HEDDLE_DONE : base::fail_errno(HEDDLE_ERR_SYSTEM, "epoll_create1");
}

base::Status Interests::tell(const base::Fd& epoll, int change, std::uint32_t number, const Entry& entry) {
  epoll_event event{};
  event.events = static_cast<std::uint32_t>(entry.events);
  event.data.u32 = number;
  if (::epoll_ctl(epoll.get(), change, entry.fd, &event) == 0) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_SYSTEM, "the system refuses to watch one more descriptor (epoll_ctl)");
}

// False: nothing has changed.
bool Interests::begin_anew() {
  base::Fd fresh(::epoll_create1(EPOLL_CLOEXEC));
  if (!fresh.valid()) return false;
  for (std::uint32_t number = 0; number < entries_.size(); ++number) {
    if (entries_[number].fd < 0) continue;
    if (tell(fresh, EPOLL_CTL_ADD, number, entries_[number]) != HEDDLE_DONE) return false;
  }
  epoll_ = std::move(fresh);
  return true;
}

base::Status Interests::set(std::uint32_t number, int fd, short events) {
  Entry& entry = entries_[number];
  const Entry wanted{events != 0 ? fd : -1, events};
  if (entry.fd == wanted.fd && (wanted.fd < 0 || entry.events == events)) return HEDDLE_DONE;
  // mostly the kernel has forgotten a closed one by itself (else see ready()), and its number may
  // be another's
  if (fd >= 0) {
    const int change = wanted.fd < 0 ? EPOLL_CTL_DEL : entry.fd < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    const base::Status status = tell(epoll_, change, number, {fd, events});
    if (status != HEDDLE_DONE) return status;
  }
  entry = wanted;
  return HEDDLE_DONE;
}

std::span<const std::uint32_t> Interests::ready() {
  std::array<epoll_event, 256> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  ready_.clear();
  bool forgotten = true;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t number = events[static_cast<std::size_t>(i)].data.u32;
    forgotten &= entries_[number].fd >= 0;
    ready_.push_back(number);
  }
  if (forgotten) return ready_;
  // A descriptor was closed, but another process has a copy: a child between fork and exec, which
  // may take any time. The kernel reports it again and again, and its registration can no longer be
  // changed.
  static_cast<void>(begin_anew());
  std::erase_if(ready_, [&](std::uint32_t number) { return entries_[number].fd < 0; });
  return ready_;
}

}  // namespace heddle::tools::run
