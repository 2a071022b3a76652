#include "bootstrap/local/local.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/quiet_thread.hpp"
#include "bootstrap/common.hpp"
#include "bootstrap/local/channel.hpp"

namespace heddle::bootstrap::local {
namespace {

constexpr int kWelcomeTimeoutMs = 30'000;

// What the launcher has put into the environment.
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

// Several processes may have inherited the descriptor (a rank's child that was started before the rank joined), and the
// connection takes one. The mark is a record lock: the kernel keeps it for a process, not for a descriptor, and drops it
// when the process ends. Nothing is written to the socket before it is had.
base::Status claim_among_processes(int fd) {
  struct flock mark{};
  mark.l_type = F_WRLCK;
  mark.l_whence = SEEK_SET;
  if (::fcntl(fd, F_SETLK, &mark) == 0) return HEDDLE_DONE;
  // A kernel without locks on sockets: then the launcher cuts off who says hello twice.
  if (errno != EAGAIN && errno != EACCES) return HEDDLE_DONE;
  struct flock holder = mark;
  const bool known = ::fcntl(fd, F_GETLK, &holder) == 0 && holder.l_type != F_UNLCK;
  return base::fail(HEDDLE_ERR_STATE,
                    "process %d has joined the launcher's job with the same %s; a rank is one process (was this one "
                    "started by the rank? then unset HEDDLE_LOCAL_* for it)",
                    known ? static_cast<int>(holder.l_pid) : 0, kFdVariable);
}

// Makes the inherited descriptor this process's own. It survived the exec that started this process, so it is not
// close-on-exec unless the process has claimed it before; claiming sets the flag, and the descriptor is never closed, so
// that its number cannot come to mean something else.
base::Status claim(int fd) {
  // The descriptor belongs to the process, so does the lock between looking and claiming.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  struct stat about{};
  if (::fstat(fd, &about) != 0) {
    return base::fail_errno(HEDDLE_ERR_BOOTSTRAP,
                            "%s=%d is not open in this process (was it started by a rank instead of the launcher? then "
                            "unset HEDDLE_LOCAL_* for it)",
                            kFdVariable, fd);
  }
  int domain = 0;
  int type = 0;
  socklen_t length = sizeof domain;
  if (!S_ISSOCK(about.st_mode) || ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 ||
      ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || domain != AF_UNIX || type != SOCK_STREAM) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP,
                      "%s=%d is not the launcher's socket (was this process started by a rank instead of the launcher? "
                      "then unset HEDDLE_LOCAL_* for it)",
                      kFdVariable, fd);
  }
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags < 0 || (flags & FD_CLOEXEC) != 0) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP,
                      "this process has joined the launcher's job before; a process joins once (keep the context, or "
                      "open further ones with bootstrap \"single\")");
  }
  if (const base::Status status = claim_among_processes(fd); status != HEDDLE_DONE) return status;
  if (::fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot mark descriptor %d close-on-exec", fd);
  }
  return HEDDLE_DONE;
}

base::Result<Welcome> greet(const Given& given, Reader& reader) {
  Hello hello;
  hello.pid = ::getpid();
  if (const auto status = send_frame(given.fd, {FrameType::hello}, encode(hello)); status != HEDDLE_DONE) return status;
  Frame frame;
  base::Status status{};
  while ((status = reader.next(&frame)) == HEDDLE_AGAIN) {
    pollfd readable{given.fd, POLLIN, 0};
    const int ready = ::poll(&readable, 1, kWelcomeTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher has not answered for %d s", kWelcomeTimeoutMs / 1000);
    }
    if (reader.fill(given.fd, 0) != Reader::Fill::data) {
      return base::fail(HEDDLE_ERR_BOOTSTRAP,
                        "the launcher has closed the connection (rank %u has been joined before, by this or another "
                        "process?)",
                        given.rank);
    }
  }
  if (status != HEDDLE_DONE) return status;
  if (frame.header.type != FrameType::welcome) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the launcher's first frame is of type %u",
                      static_cast<unsigned>(frame.header.type));
  }
  const auto welcome = decode_welcome(frame.payload);
  if (!welcome) return welcome.status();
  if (welcome->rank != given.rank || welcome->size != given.size) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher says rank %u of %u, the environment says rank %u of %u",
                      welcome->rank, welcome->size, given.rank, given.size);
  }
  return welcome;
}

class Local final : public Bootstrap {
 public:
  Local(const Given& given, const JobSecret& secret, Reader reader);
  ~Local() override;

  // Starts the thread that reads what the launcher sends.
  base::Status start();

  [[nodiscard]] const char* name() const override { return "local"; }
  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  [[nodiscard]] const JobSecret& secret() const override { return secret_; }
  [[nodiscard]] base::Status publish(const Card& card) override;
  [[nodiscard]] base::Result<Card> fetch(std::uint32_t rank) override;
  [[nodiscard]] base::Status exchange_start(std::span<const std::byte> mine) override;
  [[nodiscard]] base::Status exchange_test(std::vector<std::vector<std::byte>>* all) override;
  [[nodiscard]] bool failed(std::uint32_t rank) const override {
    return rank < size_ && gone_[rank].load(std::memory_order_acquire);
  }
  void leave() override;
  [[noreturn]] void abort(int code, const char* message) override;

 private:
  enum class Exchange { none, waiting, arrived };
  struct CardBox {
    enum class State { idle, asked, arrived };
    State state = State::idle;
    // Once arrived.
    base::Fd fd;
    bool fd_lost = false;
    std::int32_t pid = 0;
    std::vector<std::byte> bytes;
  };

  base::Status send(Header header, std::span<const std::byte> payload, int fd = -1);
  base::Status ask(std::uint32_t rank);
  void serve();
  base::Status handle(Frame& frame);
  base::Status take_card(Frame& frame);
  base::Status take_result(const Frame& frame);
  base::Status take_gone(std::uint32_t rank);
  [[noreturn]] void broken(const char* what, const char* why);

  const int socket_;  // the inherited descriptor; never closed, see claim()
  const pid_t pid_;   // of the process that joined: a forked child must leave socket and thread alone
  const std::uint32_t rank_;
  const std::uint32_t size_;
  const JobSecret secret_;
  Reader reader_;  // the service thread's
  std::thread thread_;
  // Release when raised, before failure_epoch_; partner: the acquire load in failed().
  std::unique_ptr<std::atomic<bool>[]> gone_;
  // Release when set, before the socket is shut down; partner: the acquire load of the service thread at its end.
  std::atomic<bool> closing_{false};

  std::mutex send_mutex_;  // one frame at a time; held while the socket takes a long one, so fetch() only tries it
  std::mutex mutex_;       // guards what follows; never held for longer than a few instructions. May be held when
                           // send_mutex_ is tried, not the other way round
  std::vector<CardBox> boxes_;
  Exchange exchange_ = Exchange::none;
  std::uint32_t missing_ = Gathered::kNobody;
  std::vector<std::vector<std::byte>> parts_;
  bool published_ = false;
};

Local::Local(const Given& given, const JobSecret& secret, Reader reader)
    : socket_(given.fd),
      pid_(::getpid()),
      rank_(given.rank),
      size_(given.size),
      secret_(secret),
      reader_(std::move(reader)),
      gone_(std::make_unique<std::atomic<bool>[]>(given.size)),
      boxes_(given.size) {}

base::Status Local::start() {
  try {
    thread_ = base::start_quiet_thread([this] { serve(); });
  } catch (const std::system_error& error) {
    return base::fail(HEDDLE_ERR_SYSTEM, "cannot start the thread that listens to the launcher: %s", error.what());
  }
  pthread_setname_np(thread_.native_handle(), "heddle-boot");
  return HEDDLE_DONE;
}

Local::~Local() {
  if (::getpid() != pid_) {
    if (thread_.joinable()) thread_.detach();  // it lives in the parent only
    return;
  }
  closing_.store(true, std::memory_order_release);
  ::shutdown(socket_, SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

base::Status Local::send(Header header, std::span<const std::byte> payload, int fd) {
  const std::lock_guard lock(send_mutex_);
  return send_frame(socket_, header, payload, fd);
}

base::Status Local::publish(const Card& card) {
  if (const base::Status status = check_card(card); status != HEDDLE_DONE) return status;
  if (card.fd >= 0 && ::fcntl(card.fd, F_GETFD) < 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot publish descriptor %d", card.fd);
  }
  {
    const std::lock_guard lock(mutex_);
    if (published_) return base::fail(HEDDLE_ERR_STATE, "rank %u has published its card already", rank_);
    published_ = true;
  }
  return send({FrameType::publish, 0, 0, card.pid}, card.bytes, card.fd);
}

// With mutex_ held, so that the answer is not looked at before the box says that it was asked for.
base::Status Local::ask(std::uint32_t rank) {
  const std::unique_lock sending(send_mutex_, std::try_to_lock);
  if (!sending) return HEDDLE_AGAIN;  // another thread sends; the next call asks
  const base::Status status = try_send_header(socket_, {FrameType::fetch, 0, rank});
  if (status == HEDDLE_DONE) boxes_[rank].state = CardBox::State::asked;
  return status == HEDDLE_DONE ? HEDDLE_AGAIN : status;
}

base::Result<Card> Local::fetch(std::uint32_t rank) {
  if (const base::Status status = check_rank(rank, size_); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  if (failed(rank)) return fail_gone(rank);
  CardBox& box = boxes_[rank];
  if (box.state == CardBox::State::idle) return ask(rank);
  if (box.state == CardBox::State::asked) return HEDDLE_AGAIN;
  CardBox arrived = std::exchange(box, {});
  if (arrived.fd_lost) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "the descriptor of rank %u's card was lost: this process has too many descriptors open; raise "
                      "the limit (ulimit -n) or close some",
                      rank);
  }
  return Card{arrived.fd.release(), arrived.pid, std::move(arrived.bytes), nullptr};
}

base::Status Local::exchange_start(std::span<const std::byte> mine) {
  if (const base::Status status = check_exchange(mine.size()); status != HEDDLE_DONE) return status;
  {
    const std::lock_guard lock(mutex_);
    if (exchange_ != Exchange::none) {
      return base::fail(HEDDLE_ERR_STATE, "rank %u is in an exchange already; one at a time", rank_);
    }
    exchange_ = Exchange::waiting;
  }
  return send({FrameType::exchange}, mine);
}

base::Status Local::exchange_test(std::vector<std::vector<std::byte>>* all) {
  const std::lock_guard lock(mutex_);
  if (exchange_ == Exchange::waiting) return HEDDLE_AGAIN;
  if (exchange_ == Exchange::none) {
    return base::fail(HEDDLE_ERR_STATE, "rank %u tests an exchange that it has not started", rank_);
  }
  exchange_ = Exchange::none;
  if (missing_ != Gathered::kNobody) return fail_missing(missing_);
  *all = std::move(parts_);
  return HEDDLE_DONE;
}

void Local::leave() {
  closing_.store(true, std::memory_order_release);
  // If the launcher is gone there is nobody left to tell.
  static_cast<void>(send({FrameType::leave}, {}));
}

void Local::abort(int code, const char* message) {
  const std::string_view text = std::string_view(message != nullptr ? message : "").substr(0, kMaxAbortMessage);
  const base::Status told = send({FrameType::abort, 0, 0, code}, std::as_bytes(std::span(text.data(), text.size())));
  if (told != HEDDLE_DONE) print_abort(rank_, code, message);  // else the launcher does
  std::_Exit(code);
}

void Local::serve() {
  Frame frame;
  for (;;) {
    base::Status status = reader_.next(&frame);
    if (status == HEDDLE_DONE) status = handle(frame);
    if (status == HEDDLE_AGAIN && reader_.fill(socket_, 0) != Reader::Fill::data) {
      if (!closing_.load(std::memory_order_acquire)) broken("the launcher has gone", "");
      return;
    }
    if (status != HEDDLE_DONE && status != HEDDLE_AGAIN) {
      broken("the launcher broke the protocol: ", base::last_message());
    }
  }
}

// Without its launcher a rank cannot learn of failures any more and would be an orphan.
void Local::broken(const char* what, const char* why) {
  std::array<char, 640> line;
  const int used =
      std::snprintf(line.data(), line.size(), "heddle[%u] error: %s%s; this process ends\n", rank_, what, why);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), static_cast<std::size_t>(used));
  std::_Exit(1);
}

base::Status Local::handle(Frame& frame) {
  switch (frame.header.type) {
    case FrameType::card:
      return take_card(frame);
    case FrameType::result:
      return take_result(frame);
    case FrameType::gone:
      return take_gone(frame.header.rank);
    default:
      return base::fail(HEDDLE_ERR_PROTOCOL, "sent a frame of type %u", static_cast<unsigned>(frame.header.type));
  }
}

base::Status Local::take_card(Frame& frame) {
  const std::lock_guard lock(mutex_);
  CardBox& box = boxes_[frame.header.rank];
  if (box.state != CardBox::State::asked) return base::fail(HEDDLE_ERR_PROTOCOL, "sent a card that nobody asked for");
  if (failed(frame.header.rank)) return base::fail(HEDDLE_ERR_PROTOCOL, "sent the card of a rank that is gone");
  box = {CardBox::State::arrived, std::move(frame.fd), frame.fd_lost, frame.header.value, std::move(frame.payload)};
  return HEDDLE_DONE;
}

base::Status Local::take_result(const Frame& frame) {
  const std::uint32_t missing = frame.header.rank;
  std::vector<std::vector<std::byte>> all;
  if (missing == Gathered::kNobody) {
    auto parts = decode_parts(frame.payload, size_);  // may be long: without the lock
    if (!parts) return parts.status();
    all = std::move(*parts);
  } else if (missing >= size_ || !frame.payload.empty()) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "sent a result of an exchange that rank %u was missing from", missing);
  }
  {
    const std::lock_guard lock(mutex_);
    if (exchange_ != Exchange::waiting) {
      return base::fail(HEDDLE_ERR_PROTOCOL, "sent the result of an exchange that was not started");
    }
    missing_ = missing;
    parts_ = std::move(all);
    exchange_ = Exchange::arrived;
  }
  ring_bell();
  return HEDDLE_DONE;
}

base::Status Local::take_gone(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  if (rank == rank_ || failed(rank)) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "said that rank %u is gone, which cannot be", rank);
  }
  gone_[rank].store(true, std::memory_order_release);
  raise_failure_epoch();
  boxes_[rank] = {};
  return HEDDLE_DONE;
}

}  // namespace

bool started_by_launcher() {
  return std::getenv(kFdVariable) != nullptr || std::getenv(kRankVariable) != nullptr ||
         std::getenv(kSizeVariable) != nullptr;
}

base::Result<std::unique_ptr<Bootstrap>> open() {
  const auto given = read_variables();
  if (!given) return given.status();
  if (const base::Status status = claim(given->fd); status != HEDDLE_DONE) return status;
  Reader reader(Direction::to_rank, given->size);
  const auto welcome = greet(*given, reader);
  if (!welcome) {
    ::shutdown(given->fd, SHUT_RDWR);  // the launcher must not take this process for a rank
    return welcome.status();
  }
  auto local = std::make_unique<Local>(*given, welcome->secret, std::move(reader));
  if (const base::Status status = local->start(); status != HEDDLE_DONE) return status;
  return std::unique_ptr<Bootstrap>(std::move(local));
}

}  // namespace heddle::bootstrap::local
