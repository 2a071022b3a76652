#include "bootstrap/local/local.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "bootstrap/common.hpp"
#include "bootstrap/local/member.hpp"

namespace heddle::bootstrap::local {
namespace {

// The values that the launcher has put into the environment.
struct Given {
  int fd = -1;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
};

base::Result<std::uint32_t> read_number(const char* name, std::uint32_t most) {
  const char* text = std::getenv(name);
  if (text == nullptr) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "%s is not set although others of the launcher's variables are; start the "
                      "program with `heddle run`, or unset HEDDLE_LOCAL_* to start a job of one",
                      name);
  }
  const std::string_view all(text);
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
  if (error != std::errc{} || end != all.data() + all.size() || value > most) {
    return base::fail(HEDDLE_ERR_CONFIG,
                      "%s=\"%s\" is not a whole number from 0 to %u; the launcher sets it, nobody else "
                      "should",
                      name, text, most);
  }
  return value;
}

base::Result<Given> read_variables() {
  const auto fd = read_number(kFdVariable, 1U << 30);
  if (!fd) return fd.status();
  const auto rank = read_number(kRankVariable, kMaxRanks - 1);
  if (!rank) return rank.status();
  const auto size = read_number(kSizeVariable, kMaxRanks);
  if (!size) return size.status();
  if (*rank >= *size) {
    return base::fail(HEDDLE_ERR_CONFIG, "%s=%u and %s=%u do not go together", kRankVariable, *rank, kSizeVariable,
                      *size);
  }
  return Given{static_cast<int>(*fd), *rank, *size};
}

// The connection has ended although the launcher lives: an earlier process of this rank has left or
// died. The broker forgets nobody, so this process cannot be the rank as well.
bool joined_before(int fd) {
  pollfd end{fd, 0, 0};
  if (::poll(&end, 1, 0) != 1 || (end.revents & POLLHUP) == 0) return false;
  ucred launcher{};
  socklen_t length = sizeof launcher;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &launcher, &length) != 0) return false;
  // 0: in another pid namespace
  return launcher.pid == 0 || ::kill(launcher.pid, 0) == 0 || errno != ESRCH;
}

class Local final : public Member {
 public:
  using Member::Member;
  ~Local() override { end(); }

  [[nodiscard]] const char* name() const override { return "local"; }
  [[noreturn]] void abort(int code, const char* message) override;

 private:
  [[noreturn]] void lost(const char* what, const char* why) override;
};

void Local::abort(int code, const char* message) {
  const std::string_view text = std::string_view(message != nullptr ? message : "").substr(0, kMaxAbortMessage);
  const base::Status told = send({FrameType::abort, 0, 0, code}, std::as_bytes(std::span(text.data(), text.size())));
  if (told != HEDDLE_DONE) print_abort(rank(), code, message);  // else the launcher does
  std::_Exit(code);
}

// Without its launcher a rank no longer learns of failures, and would be an orphan.
void Local::lost(const char* what, const char* why) {
  std::array<char, 640> line;
  const int used = std::snprintf(line.data(), line.size(), "heddle[%u] error: the launcher %s%s; this process ends\n",
                                 rank(), what, why);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), static_cast<std::size_t>(used));
  std::_Exit(1);
}

}  // namespace

bool started_by_launcher() {
  return std::getenv(kFdVariable) != nullptr || std::getenv(kRankVariable) != nullptr ||
         std::getenv(kSizeVariable) != nullptr;
}

base::Result<std::unique_ptr<Bootstrap>> open() {
  const auto given = read_variables();
  if (!given) return given.status();
  if (const base::Status status = claim_socket(given->fd, {kFdVariable, "HEDDLE_LOCAL_*"}); status != HEDDLE_DONE) {
    return status;
  }
  Reader reader(Direction::to_rank, given->size);
  const Seat seat{given->fd, given->rank, given->size};
  const auto welcome = greet(seat, reader);
  if (!welcome && joined_before(given->fd)) {
    return base::fail(HEDDLE_ERR_STATE,
                      "another process has joined the launcher's job with the same %s before, and has left or ended; a "
                      "rank is one process (do two programs run one after the other in a rank? then start each by a "
                      "`heddle run` of its own, or unset HEDDLE_LOCAL_* for one)",
                      kFdVariable);
  }
  if (!welcome) {
    ::shutdown(given->fd, SHUT_RDWR);  // the launcher must not take this process for a rank
    return welcome.status();
  }
  auto local = std::make_unique<Local>(seat, *welcome, welcome->secret, std::move(reader));
  if (const base::Status status = local->start(); status != HEDDLE_DONE) return status;
  return std::unique_ptr<Bootstrap>(std::move(local));
}

}  // namespace heddle::bootstrap::local
