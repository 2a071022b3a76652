#include "tools/run/interests.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <array>

namespace heddle::tools::run {

static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLHUP == EPOLLHUP && POLLERR == EPOLLERR);

base::Status Interests::open(std::size_t count) {
  entries_.resize(count);
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  return epoll_.valid() ? HEDDLE_DONE : base::fail_errno(HEDDLE_ERR_SYSTEM, "epoll_create1");
}

base::Status Interests::set(std::uint32_t number, int fd, short events) {
  Entry& entry = entries_[number];
  const Entry wanted{events != 0 ? fd : -1, events};
  if (entry.fd == wanted.fd && (wanted.fd < 0 || entry.events == events)) return HEDDLE_DONE;
  // the kernel has forgotten a closed one by itself, and its number may be another's
  if (fd >= 0) {
    const int change = wanted.fd < 0 ? EPOLL_CTL_DEL : entry.fd < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    epoll_event event{};
    event.events = static_cast<std::uint32_t>(events);
    event.data.u32 = number;
    if (::epoll_ctl(epoll_.get(), change, fd, &event) != 0) {
      return base::fail_errno(HEDDLE_ERR_SYSTEM, "the system refuses to watch one more descriptor (epoll_ctl)");
    }
  }
  entry = wanted;
  return HEDDLE_DONE;
}

std::span<const std::uint32_t> Interests::ready() {
  std::array<epoll_event, 256> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  ready_.clear();
  for (int i = 0; i < count; ++i) ready_.push_back(events[static_cast<std::size_t>(i)].data.u32);
  return ready_;
}

}  // namespace heddle::tools::run
