#include "bootstrap/local/door.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tap/ask.hpp"

namespace heddle::bootstrap::local {

base::Result<std::unique_ptr<Door>> Door::open(Ask ask) {
  std::unique_ptr<Door> door(new Door(std::move(ask)));
  door->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  door->listener_ = ProcessFd::make([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  const tap::DoorName name(::getpid());
  // Edge-triggered: epoll reports each new connection once. If no descriptor is free for it, epoll
  // must not report it again and again.
  epoll_event wanted{EPOLLIN | EPOLLET, {}};
  if (!door->epoll_.valid() || !door->listener_.valid() ||
      ::bind(door->listener_.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0 ||
      ::listen(door->listener_.get(), 16) != 0 ||
      ::epoll_ctl(door->epoll_.get(), EPOLL_CTL_ADD, door->listener_.get(), &wanted) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot open the socket by which the job is asked about itself");
  }
  return door;
}

// Accepts at most as many guests at once as may stay: a guest that connects again and again must
// not keep the others waiting. The oldest guests make room, also if this process may have no more
// descriptors. Connections that are left are accepted when the next one comes.
void Door::accept_guests() {
  pollfd waiting{listener_.get(), POLLIN, 0};
  for (std::size_t accepted = 0; accepted < kMostGuests && ::poll(&waiting, 1, 0) > 0; ++accepted) {
    int error = 0;
    ProcessFd connection = ProcessFd::make([&] {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      error = errno;
      return fd;
    });
    if (!connection.valid()) {
      if ((error != EMFILE && error != ENFILE) || guests_.empty()) return;
      guests_.erase(guests_.begin());
      continue;
    }
    epoll_event wanted{EPOLLIN, {}};
    if (!tap::is_of_this_user(connection.get()) ||
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.get(), &wanted) != 0) {
      continue;
    }
    if (guests_.size() == kMostGuests) guests_.erase(guests_.begin());
    guests_.push_back(std::make_shared<Guest>(std::move(connection)));
  }
}

void Door::serve() {
  // Takes all events, so that epoll does not report them again.
  std::array<epoll_event, kMostGuests + 1> seen{};
  static_cast<void>(::epoll_wait(epoll_.get(), seen.data(), static_cast<int>(seen.size()), 0));
  accept_guests();
  std::erase_if(guests_, [this](const std::shared_ptr<Guest>& guest) { return !hear(guest) || !send(*guest); });
}

bool Door::hear(const std::shared_ptr<Guest>& guest) {
  std::array<char, kMostRequest> bytes{};
  const ssize_t got = ::recv(guest->socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  guest->request.append(bytes.data(), static_cast<std::size_t>(got));
  const std::size_t end = guest->request.find('\n');
  if (end == std::string::npos) return guest->request.size() < kMostRequest;
  if (std::exchange(guest->asked, true)) return false;  // one connection, one request
  ask_(std::string_view(guest->request).substr(0, end), [this, weak = std::weak_ptr(guest)](std::string text) {
    const auto still = weak.lock();
    if (still == nullptr) return;
    still->answer = std::move(text);
    still->answered = true;
    wait_to_send(*still);
  });
  return true;
}

// Its socket takes bytes: serve() sends, and ends it.
void Door::wait_to_send(Guest& guest) const {
  epoll_event wanted{EPOLLIN | EPOLLOUT, {}};
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, guest.socket.get(), &wanted));
}

bool Door::send(Guest& guest) {
  if (!guest.answered) return true;
  while (guest.sent < guest.answer.size()) {
    const ssize_t sent = ::send(guest.socket.get(), guest.answer.data() + guest.sent, guest.answer.size() - guest.sent,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    guest.sent += static_cast<std::size_t>(sent);
  }
  return false;
}

void CountRounds::ask(Answer told, std::uint64_t now) {
  next_.push_back(std::move(told));
  if (until_ns_ == 0) begin(now);
}

void CountRounds::begin(std::uint64_t now) {
  ++number_;
  until_ns_ = now + kRoundNs;
  now_ = std::exchange(next_, {});
  for (std::uint32_t rank = 0; rank < texts_.size(); ++rank) {
    texts_[rank] = {};
    static_cast<void>(broker_.ask(rank, FrameType::ask_counters, number_));
  }
}

bool CountRounds::all_have_answered() const {
  for (std::uint32_t rank = 0; rank < texts_.size(); ++rank) {
    if (broker_.membership(rank) == Membership::joined && !texts_[rank].here) return false;
  }
  return true;
}

void CountRounds::tick(std::uint64_t now) {
  if (until_ns_ == 0 || (!all_have_answered() && now < until_ns_)) return;
  std::string text;
  for (const Text& each : texts_) text += each.text;
  until_ns_ = 0;
  // A callback may ask again.
  for (const Answer& told : std::exchange(now_, {})) told(text);
  if (until_ns_ == 0 && !next_.empty()) begin(now);
}

void CountRounds::answered(std::uint32_t rank, std::int32_t number, std::span<const std::byte> text) {
  if (number != number_ || until_ns_ == 0) return;
  texts_[rank] = {true, std::string(reinterpret_cast<const char*>(text.data()), text.size())};
}

}  // namespace heddle::bootstrap::local
