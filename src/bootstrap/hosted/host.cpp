#include "bootstrap/hosted/host.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/clock.hpp"
#include "base/threads.hpp"
#include "bootstrap/common.hpp"
#include "bootstrap/hosted/connect.hpp"

namespace heddle::bootstrap::hosted {
namespace {

// The addresses of this machine that another may reach, as far as can be seen from here.
std::vector<HostAddress> own_addresses(std::uint16_t port) {
  std::vector<HostAddress> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof address);
    if (::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size()) == nullptr) continue;
    found.push_back({text.data(), port});
  }
  ::freeifaddrs(all);
  if (found.empty()) found.push_back({"127.0.0.1", port});  // a machine without a network
  return found;
}

// Raises the limit of descriptors: for each rank's connection; if possible also for its process,
// for its card's descriptor and for those that the transports open for a peer; and for those of the
// program, whose number is not known.
base::Status allow_descriptors(std::uint32_t ranks) {
  constexpr rlim_t kOthers = 256;
  constexpr rlim_t kFewest = 32;
  const rlim_t wanted = 4 * rlim_t{ranks} + kOthers;
  const rlim_t needed = ranks + kFewest;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "getrlimit");
  if (limit.rlim_cur >= wanted) return HEDDLE_DONE;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (limit.rlim_cur < needed || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return base::fail(HEDDLE_ERR_SYSTEM,
                      "rank 0 keeps the connections of %u ranks and needs %llu descriptors at least, %llu are allowed; "
                      "raise the hard limit (ulimit -Hn) or start fewer ranks",
                      ranks, static_cast<unsigned long long>(needed), static_cast<unsigned long long>(limit.rlim_max));
  }
  return HEDDLE_DONE;
}

// A pidfd. Not valid: the process is in another pid namespace, or gone, or the kernel is older than
// 5.3.
base::Fd watch_process(int socket) {
  const pid_t process = process_of(socket);
  return base::Fd(process > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, process, 0)) : -1);
}

}  // namespace

Host::Host(const Options& options)
    // A rank knows the secret before it connects; the broker's welcome, which is not encrypted,
    // does not repeat it.
    : options_(options),
      broker_(options.size, JobSecret{}),
      watchdog_(broker_, options.size, {options.hang_seconds, "rank"},
                [this](const local::Watchdog::Lines& report) {
                  for (const std::string& line : report) options_.log.say("%s", line.c_str());
                }),
      seated_(options.size),
      processes_(options.size) {}

base::Result<std::unique_ptr<Host>> Host::open(const Options& options) {
  if (const base::Status status = allow_descriptors(options.size); status != HEDDLE_DONE) return status;
  std::unique_ptr<Host> host(new Host(options));
  const auto secret = make_secret();
  const auto socket = make_secret();
  const auto machine = this_machine();
  if (!secret || !socket) return HEDDLE_ERR_SYSTEM;
  if (!machine) return machine.status();
  host->contact_.secret = *secret;
  host->contact_.socket = *socket;
  host->contact_.machine = *machine;
  host->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!host->wake_.valid()) return base::fail_errno(HEDDLE_ERR_SYSTEM, "rank 0 cannot make an eventfd");
  auto ends = ProcessFd::make_pair();
  if (!ends[0].valid()) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "rank 0 cannot make the sockets that keep the job together");
  }
  host->own_end_ = std::move(ends[0]);
  host->broker_.attach(0, std::move(ends[1]));
  host->seated_[0] = true;
  if (const base::Status status = host->listen_locally(); status != HEDDLE_DONE) return status;
  // Without a door the job is watched all the same.
  static_cast<void>(host->watchdog_.open_door());
  if (options.other_machines) {
    if (const base::Status status = host->listen_to_machines(); status != HEDDLE_DONE) return status;
  }
  try {
    host->thread_ = base::start_quiet_thread([raw = host.get()] { raw->serve(); });
  } catch (const std::system_error& error) {
    return base::fail(HEDDLE_ERR_SYSTEM, "cannot start the thread that keeps the job together: %s", error.what());
  }
  pthread_setname_np(host->thread_.native_handle(), "heddle-host");
  return host;
}

Host::~Host() {
  if (!thread_.joinable()) return;
  state_.store(left_ ? State::draining : State::ending, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

base::Status Host::listen_locally() {
  // not blocking: a process that connects may be gone before accept4()
  local_listener_ = make_socket(AF_UNIX, SOCK_NONBLOCK);
  const LocalName name(contact_.socket_name());
  if (!local_listener_.valid() || ::bind(local_listener_.get(), name.address(), name.length()) != 0 ||
      ::listen(local_listener_.get(), SOMAXCONN) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "rank 0 cannot listen on a local socket");
  }
  return HEDDLE_DONE;
}

base::Status Host::listen_to_machines() {
  machines_listener_ = make_socket(AF_INET, SOCK_NONBLOCK);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof any;
  auto* address = reinterpret_cast<sockaddr*>(&any);
  if (!machines_listener_.valid() || ::bind(machines_listener_.get(), address, length) != 0 ||
      ::listen(machines_listener_.get(), SOMAXCONN) != 0 ||
      ::getsockname(machines_listener_.get(), address, &length) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "rank 0 cannot listen for the ranks of other machines");
  }
  contact_.addresses = own_addresses(ntohs(any.sin_port));
  return HEDDLE_DONE;
}

bool Host::finished() {
  const State state = state_.load(std::memory_order_acquire);
  if (state != State::draining) return state == State::ending;
  if (!broker_.anybody_joined()) return true;
  if (!all_leave_) return false;
  if (!for_leavers_) for_leavers_.emplace(options_.leave_ns, clock_);
  return for_leavers_->over();
}

void Host::name_who_stayed() const {
  constexpr std::uint32_t kNamed = 16;
  std::string ranks;
  std::uint32_t count = 0;
  for (std::uint32_t rank = 0; rank < options_.size; ++rank) {
    if (broker_.membership(rank) != local::Membership::joined || ++count > kNamed) continue;
    ranks += (count > 1 ? ", " : "") + std::to_string(rank);
  }
  if (count == 0) return;
  if (count > kNamed) ranks += " and " + std::to_string(count - kNamed) + " more";
  options_.log.line(base::Level::warn,
                    "heddle_context_leave: all ranks have met to leave, and %.3g s later rank %s has not left (is it "
                    "stopped?); rank 0 waits no longer",
                    static_cast<double>(options_.leave_ns) / 1e9, ranks.c_str());
}

int Host::poll_timeout(std::int64_t now) const {
  if (broker_.congested()) return 1;
  if (pausing_) return 100;
  int timeout = for_leavers_ ? for_leavers_->slice_ms() : -1;
  const auto at_most = [&](std::int64_t deadline_ns) {
    const auto wait = static_cast<int>(std::max<std::int64_t>(deadline_ns - now, 0) / 1'000'000 + 1);
    timeout = timeout < 0 ? wait : std::min(wait, timeout);
  };
  if (!guests_.empty()) at_most(guests_.front().deadline_ns);
  if (const std::uint64_t due = watchdog_.due_ns(); due != 0) at_most(static_cast<std::int64_t>(due));
  return timeout;
}

void Host::choose_descriptors() {
  polled_.clear();
  watched_.clear();
  const auto watch = [this](int fd, short events, Watched::Kind kind, std::size_t index = 0) {
    if (fd < 0) return;
    polled_.push_back({fd, events, 0});
    watched_.push_back({kind, index});
  };
  watch(wake_.get(), POLLIN, Watched::Kind::wake);
  watch(watchdog_.door_fd(), POLLIN, Watched::Kind::door);
  if (!pausing_) {
    watch(local_listener_.get(), POLLIN, Watched::Kind::local_listener);
    watch(machines_listener_.get(), POLLIN, Watched::Kind::machines_listener);
  }
  for (std::uint32_t rank = 0; rank < options_.size; ++rank) {
    watch(broker_.socket(rank), broker_.events(rank), Watched::Kind::seat, rank);
    watch(processes_[rank].get(), POLLIN, Watched::Kind::process, rank);
  }
  for (std::size_t i = 0; i < guests_.size(); ++i) watch(guests_[i].socket.get(), POLLIN, Watched::Kind::guest, i);
}

void Host::serve_seats() {
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    const auto rank = static_cast<std::uint32_t>(watched_[i].index);
    const bool ready = polled_[i].revents != 0;
    if (watched_[i].kind == Watched::Kind::process && ready) {
      processes_[rank].reset();
      broker_.ended(rank);
    }
    if (watched_[i].kind != Watched::Kind::seat || (!ready && !broker_.congested())) continue;
    broker_.serve(rank);
    // The rank had proved itself, but its connection ended before it joined. No other process may
    // take its place, so the others must not wait for it.
    if (broker_.socket(rank) < 0 && broker_.membership(rank) == local::Membership::outside) broker_.ended(rank);
  }
}

void Host::serve_guests(std::int64_t now) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < guests_.size(); ++i) {
    Guest& guest = guests_[i];
    bool stays = !std::exchange(guest.heard, false) || hear(guest);
    if (stays && now >= guest.deadline_ns) {
      reject("it said nothing for long");
      stays = false;
    }
    if (stays && kept != i) guests_[kept] = std::move(guest);
    if (stays) ++kept;
  }
  guests_.resize(kept);
}

void Host::serve() {
  while (!finished()) {
    choose_descriptors();
    const int ready = ::poll(polled_.data(), polled_.size(), poll_timeout(static_cast<std::int64_t>(clock_.now_ns())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) {
      options_.log.line(base::Level::error, "rank 0 cannot keep the job together any longer: poll: %s",
                        std::strerror(errno));
      break;
    }
    const auto now = static_cast<std::int64_t>(clock_.now_ns());
    serve_seats();
    watchdog_.tick(clock_.now_ns());
    pausing_ = false;
    bool local = false;
    bool machines = false;
    for (std::size_t i = 0; i < polled_.size(); ++i) {
      if (polled_[i].revents == 0) continue;
      const Watched& watched = watched_[i];
      if (watched.kind == Watched::Kind::guest) guests_[watched.index].heard = true;
      if (watched.kind == Watched::Kind::door) watchdog_.serve_door();
      if (watched.kind == Watched::Kind::local_listener) local = true;
      if (watched.kind == Watched::Kind::machines_listener) machines = true;
      if (watched.kind != Watched::Kind::wake) continue;
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    }
    serve_guests(now);
    if (local) accept_guest(local_listener_.get(), true, now);
    if (machines) accept_guest(machines_listener_.get(), false, now);
  }
  if (for_leavers_) name_who_stayed();
  // No process may wait for an answer of this thread.
  local_listener_.reset();
  machines_listener_.reset();
  guests_.clear();
  watchdog_.close_door();
  broker_.hang_up();
}

void Host::reject(const char* why) {
  if (rejected_.fetch_add(1, std::memory_order_relaxed) == 0) {
    options_.log.line(base::Level::warn, "a connection to this job was refused: %s (said once; the others are counted)",
                      why);
  }
}

void Host::accept_guest(int listener, bool local, std::int64_t now) {
  Guest guest;
  guest.socket = ProcessFd::make([=] { return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); });
  if (!guest.socket.valid()) {
    // The connection has ended again, or there is no free descriptor, or there is a worse error. In
    // the last two cases poll would report the listener again at once.
    pausing_ = errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED && errno != EINTR;
    return;
  }
  if (local && !same_user(guest.socket.get())) return reject("it came from another user");
  if (!local) prepare_stream(guest.socket.get());
  guest.local = local;
  guest.deadline_ns = now + kGuestTimeoutNs;
  if (guests_.size() == options_.size + kMaxStrangers) {
    reject("too many came that proved nothing");
    guests_.erase(guests_.begin());
  }
  guests_.push_back(std::move(guest));
}

// Reads no byte beyond the guest's proof: the bytes after it are for the broker.
bool Host::hear(Guest& guest) {
  std::byte* to =
      guest.answered ? reinterpret_cast<std::byte*>(guest.code.data()) : reinterpret_cast<std::byte*>(&guest.knock);
  const std::size_t wanted = guest.answered ? sizeof guest.code : sizeof guest.knock;
  const ssize_t got = ::recv(guest.socket.get(), to + guest.got, wanted - guest.got, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (got <= 0) {
    reject("it ended before it had proved anything");
    return false;
  }
  guest.got += static_cast<std::size_t>(got);
  if (guest.got < wanted) return true;
  guest.got = 0;
  return guest.answered ? admit(guest) : answer(guest);
}

bool Host::answer(Guest& guest) {
  if (guest.knock.magic != kKnockMagic) {
    reject("it is not a process of Heddle");
    return false;
  }
  Answer answer;
  const bool alike = guest.knock.version == kKnockVersion;
  if (alike) {
    const auto nonce = make_secret();
    if (!nonce) return false;
    guest.host_nonce = answer.nonce = *nonce;
    answer.code = proof(contact_.secret, Side::host, guest.knock, guest.host_nonce);
  }
  // A new connection takes so few bytes at once.
  const bool sent = ::send(guest.socket.get(), &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof answer;
  if (!alike) reject("it is of another version of Heddle");
  guest.answered = true;
  return alike && sent;
}

bool Host::admit(Guest& guest) {
  const std::uint32_t rank = guest.knock.rank;
  if (!equal(guest.code, proof(contact_.secret, Side::rank, guest.knock, guest.host_nonce))) {
    reject("it does not know the job's secret");
  } else if (rank >= options_.size) {
    reject("its rank is not one of the job");
  } else if (seated_[rank]) {
    reject("its rank has been joined before");
  } else {
    seated_[rank] = true;
    if (guest.local) processes_[rank] = watch_process(guest.socket.get());
    broker_.attach(rank, std::move(guest.socket), guest.local);
  }
  return false;
}

}  // namespace heddle::bootstrap::hosted
