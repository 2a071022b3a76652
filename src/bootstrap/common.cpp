#include "bootstrap/common.hpp"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/wait.hpp"

namespace heddle::bootstrap {

base::Result<Card> Bootstrap::fetch_wait(std::uint32_t rank) {
  base::Nap nap;
  for (;;) {
    auto card = fetch(rank);
    if (card.status() != HEDDLE_AGAIN) return card;
    nap.take();
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
  // Nothing can be done about a standard error that cannot be written.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), static_cast<std::size_t>(used) + 1);
}

}  // namespace heddle::bootstrap
