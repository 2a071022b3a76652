#include "bootstrap/common.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/wait.hpp"
#include "bootstrap/process_fd.hpp"

namespace heddle::bootstrap {

namespace {

// Several processes may have inherited the descriptor (a rank's child that was started before the
// rank joined), but only one may use the connection. The mark is a record lock: the kernel keeps it
// for a process, not for a descriptor, and drops it when the process ends. Nothing is written to
// the socket before this process has the mark.
base::Status claim_among_processes(int fd, const Inherited& words) {
  struct flock mark{};
  mark.l_type = F_WRLCK;
  mark.l_whence = SEEK_SET;
  if (::fcntl(fd, F_SETLK, &mark) == 0) return HEDDLE_DONE;
  // This kernel has no locks on sockets. Then the launcher disconnects a rank that says hello
  // twice.
  if (errno != EAGAIN && errno != EACCES) return HEDDLE_DONE;
  struct flock holder = mark;
  const bool known = ::fcntl(fd, F_GETLK, &holder) == 0 && holder.l_type != F_UNLCK;
  return base::fail(HEDDLE_ERR_STATE,
                    "process %d has joined the launcher's job with the same %s; a rank is one process (was this one "
                    "started by the rank? then unset %s for it)",
                    known ? static_cast<int>(holder.l_pid) : 0, words.variable, words.all);
}

}  // namespace

base::Result<Card> Bootstrap::fetch_bytes(std::uint32_t rank) {
  auto card = fetch(rank);
  if (card) base::Fd(std::exchange(card->fd, -1)).reset();
  return card;
}

base::Result<Card> Bootstrap::fetch_wait(std::uint32_t rank) {
  CardWait wait(card_bell());
  for (;;) {
    auto card = fetch(rank);
    if (card.status() != HEDDLE_AGAIN) return card;
    wait.take();
  }
}

Bootstrap::Place Bootstrap::place(std::uint32_t rank) const {
  Place place{0, 0, 0};
  for (std::uint32_t other = 0; other < size(); ++other) {
    place.hosts = std::max(place.hosts, host(other) + 1);
    if (host(other) != host(rank)) continue;
    ++place.size;
    if (other < rank) ++place.rank;
  }
  return place;
}

// The lowest free number is the one that open(2) gives, so a closed one gets its own.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

base::Result<JobSecret> make_secret() {
  JobSecret secret{};
  ssize_t got = 0;
  do {
    got = ::getrandom(secret.data(), secret.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(secret.size())) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "getrandom gives no secret for the job");
  }
  return secret;
}

// Makes the inherited descriptor this process's own. It survived the exec that started this
// process, so it is close-on-exec only if the process has claimed it before. Claiming sets the
// flag. The descriptor is never closed, so that its number cannot come to mean something else.
base::Status claim_socket(int fd, const Inherited& words) {
  // The descriptor belongs to the process, and so does the lock around check and claim.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  struct stat about{};
  if (::fstat(fd, &about) != 0) {
    return base::fail_errno(HEDDLE_ERR_BOOTSTRAP,
                            "%s=%d is not open in this process (was it started by a rank instead of the launcher? then "
                            "unset %s for it)",
                            words.variable, fd, words.all);
  }
  int domain = 0;
  int type = 0;
  socklen_t length = sizeof domain;
  if (!S_ISSOCK(about.st_mode) || ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 ||
      ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || domain != AF_UNIX || type != SOCK_STREAM) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP,
                      "%s=%d is not the launcher's socket (was this process started by a rank instead of the launcher? "
                      "then unset %s for it)",
                      words.variable, fd, words.all);
  }
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags < 0 || (flags & FD_CLOEXEC) != 0) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP,
                      "this process has joined the launcher's job before; a process joins once (keep the context, or "
                      "open further ones with bootstrap \"single\")");
  }
  if (const base::Status status = claim_among_processes(fd, words); status != HEDDLE_DONE) return status;
  if (::fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot mark descriptor %d close-on-exec", fd);
  }
  ProcessFd::claim(fd);
  return HEDDLE_DONE;
}

base::Result<base::Fd> duplicate(int fd) {
  if (fd < 0) return base::Fd();
  base::Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    const base::Status status = errno == EMFILE || errno == ENFILE ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM;
    return base::fail_errno(status, "cannot duplicate descriptor %d of a card (too many are open? raise ulimit -n)",
                            fd);
  }
  return copy;
}

base::Status check_card(const Card& card) {
  if (card.bytes.size() <= kMaxCardBytes) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SIZE, "a card of %zu bytes; at most %zu", card.bytes.size(), kMaxCardBytes);
}

base::Status check_exchange(std::size_t bytes) {
  if (bytes <= kMaxExchangeBytes) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SIZE, "an exchange of %zu bytes; at most %zu", bytes, kMaxExchangeBytes);
}

base::Status check_rank(std::uint32_t rank, std::uint32_t size) {
  if (rank < size) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", rank, size - 1);
}

base::Status fail_missing(std::uint32_t rank) {
  return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u died or left before it arrived at this barrier or exchange", rank);
}

base::Status fail_gone(std::uint32_t rank) {
  return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
}

void print_abort(std::uint32_t rank, int code, const char* message) {
  std::array<char, 1024> line;
  const bool told = message != nullptr && *message != '\0';
  if (code == 0 && !told) return;
  int used = std::snprintf(line.data(), line.size() - 1, "heddle: rank %u aborts the job%s%s", rank, told ? ": " : "",
                           told ? message : "");
  used = std::clamp(used, 0, static_cast<int>(line.size()) - 2);
  line[static_cast<std::size_t>(used)] = '\n';
  // Nothing can be done when standard error cannot be written.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), static_cast<std::size_t>(used) + 1);
}

std::vector<std::uint32_t> nodes_of(const Bootstrap& bootstrap, std::uint64_t most) {
  struct Filling {
    std::uint32_t node = 0;
    std::uint64_t ranks = 0;
  };
  std::vector<Filling> of_host(bootstrap.size());  // node for the machine's next rank
  std::vector<std::uint32_t> nodes(bootstrap.size());
  std::uint32_t next = 0;
  for (std::uint32_t rank = 0; rank < nodes.size(); ++rank) {
    Filling& filling = of_host[bootstrap.host(rank)];
    if (filling.ranks == 0 || filling.ranks == most) filling = {next++, 0};
    ++filling.ranks;
    nodes[rank] = filling.node;
  }
  return nodes;
}

}  // namespace heddle::bootstrap
