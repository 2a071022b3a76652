#include "bootstrap/local/local.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
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

#include "base/threads.hpp"
#include "bootstrap/common.hpp"

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
  auto greeting = greet(seat, reader);
  if (!greeting && (greeting.status() == HEDDLE_ERR_STATE || joined_before(given->fd))) {
    return base::fail(HEDDLE_ERR_STATE,
                      "another process has joined the launcher's job with the same %s before, and has left or ended; a "
                      "rank is one process (do two programs run one after the other in a rank? then start each by a "
                      "`heddle run` of its own, or unset HEDDLE_LOCAL_* for one)",
                      kFdVariable);
  }
  if (!greeting) {
    ::shutdown(given->fd, SHUT_RDWR);  // the launcher must not take this process for a rank
    return greeting.status();
  }
  const JobSecret secret = greeting->welcome.secret;
  auto local = std::make_unique<Local>(seat, std::move(*greeting), secret, std::move(reader));
  if (const base::Status status = local->start(); status != HEDDLE_DONE) return status;
  return std::unique_ptr<Bootstrap>(std::move(local));
}

namespace {

constexpr int kWelcomeTimeoutMs = 30'000;

}  // namespace

base::Result<Greeting> greet(const Seat& seat, Reader& reader) {
  Hello hello;
  hello.pid = ::getpid();
  if (const auto status = send_frame(seat.socket, {FrameType::hello}, encode(hello)); status != HEDDLE_DONE)
    return status;
  Frame frame;
  base::Status status{};
  while ((status = reader.next(&frame)) == HEDDLE_AGAIN) {
    pollfd readable{seat.socket, POLLIN, 0};
    const int ready = ::poll(&readable, 1, kWelcomeTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher has not answered for %d s", kWelcomeTimeoutMs / 1000);
    }
    if (reader.fill(seat.socket, 0) != Reader::Fill::data) {
      return base::fail(HEDDLE_ERR_BOOTSTRAP,
                        "the launcher has closed the connection (rank %u has been joined before, by this or another "
                        "process?)",
                        seat.rank);
    }
  }
  if (status != HEDDLE_DONE) return status;
  // It was for the process before, which has ended without reading it.
  if (frame.header.type > FrameType::welcome && frame.header.type <= FrameType::ask_counters) {
    return base::fail(HEDDLE_ERR_STATE, "the launcher has greeted another process of rank %u before", seat.rank);
  }
  if (frame.header.type != FrameType::welcome) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the launcher's first frame is of type %u",
                      static_cast<unsigned>(frame.header.type));
  }
  const auto welcome = decode_welcome(frame.payload);
  if (!welcome) return welcome.status();
  if (welcome->rank != seat.rank || welcome->size != seat.size) {
    return base::fail(HEDDLE_ERR_BOOTSTRAP, "the launcher says rank %u of %u, the environment says rank %u of %u",
                      welcome->rank, welcome->size, seat.rank, seat.size);
  }
  return Greeting{*welcome, NodeBoard::map(frame.fd)};
}

Member::Member(const Seat& seat, Greeting greeting, const JobSecret& secret, Reader reader)
    : socket_(seat.socket),
      passes_descriptors_(seat.passes_descriptors),
      send_timeout_ns_(seat.send_timeout_ns),
      pid_(::getpid()),
      rank_(seat.rank),
      size_(seat.size),
      secret_(secret),
      watch_seconds_(greeting.welcome.watch_seconds),
      board_(std::move(greeting.board)),
      reader_(std::move(reader)),
      gone_(std::make_unique<std::atomic<bool>[]>(seat.size)),
      boxes_(seat.size) {}

base::Status Member::start() {
  try {
    thread_ = base::start_quiet_thread([this] { serve(); });
  } catch (const std::system_error& error) {
    return base::fail(HEDDLE_ERR_SYSTEM, "cannot start the thread that listens to the launcher: %s", error.what());
  }
  pthread_setname_np(thread_.native_handle(), "heddle-boot");
  return HEDDLE_DONE;
}

bool Member::is_own_process() const {
  return ::getpid() == pid_;
}

void Member::end() {
  if (!is_own_process()) {
    if (thread_.joinable()) thread_.detach();  // it exists in the parent only
    return;
  }
  closing_.store(true, std::memory_order_release);
  ::shutdown(socket_, SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

base::Status Member::send(Header header, std::span<const std::byte> payload, int fd) {
  const std::lock_guard lock(send_mutex_);
  const base::Status status = send_frame(socket_, header, payload, fd, send_timeout_ns_);
  if (status != HEDDLE_DONE) disconnect();
  return status;
}

// Ends the connection, which is of no use any more. The listening thread may not have seen that
// yet: a broker that is stopped sends it nothing.
void Member::disconnect() {
  ::shutdown(socket_, SHUT_RDWR);
}

base::Status Member::publish(const Card& card) {
  if (const base::Status status = check_card(card); status != HEDDLE_DONE) return status;
  return publish_checked(card);
}

base::Status Member::publish_checked(const Card& card) {
  if (card.fd >= 0 && ::fcntl(card.fd, F_GETFD) < 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot publish descriptor %d", card.fd);
  }
  {
    const std::lock_guard lock(mutex_);
    if (published_) return base::fail(HEDDLE_ERR_STATE, "rank %u has published its card already", rank_);
    published_ = true;
  }
  return send({FrameType::publish, 0, 0, card.pid}, card.bytes, passes_descriptors_ ? card.fd : -1);
}

// Call it with mutex_ held, so that the answer is not handled before the box says that the card was
// asked for.
base::Status Member::ask(std::uint32_t rank) {
  const std::unique_lock sending(send_mutex_, std::try_to_lock);
  if (!sending) return HEDDLE_AGAIN;  // another thread sends; the next call asks
  const base::Status status = try_send_header(socket_, {FrameType::fetch, 0, rank}, send_timeout_ns_);
  if (status == HEDDLE_DONE) boxes_[rank].state = CardBox::State::asked;
  // the result of the next call depends on lost()
  if (status != HEDDLE_DONE && status != HEDDLE_AGAIN) disconnect();
  return HEDDLE_AGAIN;
}

base::Result<Card> Member::fetch(std::uint32_t rank) {
  if (const base::Status status = check_rank(rank, size_); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  if (failed(rank)) return fail_gone(rank);
  if (keeper_ != Gathered::kNobody) return fail_gone(keeper_);  // it kept this rank's own card too
  CardBox& box = boxes_[rank];
  if (box.state != CardBox::State::arrived) {
    box.awaited = true;
    return box.state == CardBox::State::idle ? ask(rank) : HEDDLE_AGAIN;
  }
  CardBox arrived = std::exchange(box, {});
  if (arrived.fd_lost) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "the descriptor of rank %u's card was lost: this process has too many descriptors open; raise "
                      "the limit (ulimit -n) or close some",
                      rank);
  }
  return Card{arrived.fd.release(), arrived.pid, std::move(arrived.bytes), nullptr};
}

void Member::ask_ahead(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  if (rank >= size_ || failed(rank) || keeper_ != Gathered::kNobody) return;
  CardBox& box = boxes_[rank];
  // a descriptor that was lost earlier: there may be room now
  if (box.state == CardBox::State::arrived && box.fd_lost) box = {};
  if (box.state == CardBox::State::idle) static_cast<void>(ask(rank));
}

base::Status Member::exchange_start(std::span<const std::byte> mine) {
  if (const base::Status status = check_exchange(mine.size()); status != HEDDLE_DONE) return status;
  {
    const std::lock_guard lock(mutex_);
    if (exchange_ != Exchange::none) {
      return base::fail(HEDDLE_ERR_STATE, "rank %u is in an exchange already; one at a time", rank_);
    }
    exchange_ = Exchange::waiting;
    if (keeper_ != Gathered::kNobody) {
      exchange_ = Exchange::arrived;
      missing_ = keeper_;
      return HEDDLE_DONE;  // exchange_test() returns the error
    }
  }
  static_cast<void>(send({FrameType::exchange}, mine));  // if it fails, lost() ends the exchange
  return HEDDLE_DONE;
}

base::Status Member::exchange_test(std::vector<std::vector<std::byte>>* all) {
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

void Member::leave() {
  closing_.store(true, std::memory_order_release);
  // If the launcher is gone, nobody is left to tell.
  static_cast<void>(send({FrameType::leave}, {}));
}

void Member::serve() {
  Frame frame;
  for (;;) {
    base::Status status = reader_.next(&frame);
    if (status == HEDDLE_DONE) status = handle(frame);
    if (status == HEDDLE_AGAIN && reader_.fill(socket_, 0) != Reader::Fill::data) {
      if (!closing_.load(std::memory_order_acquire)) lost("has gone", "");
      return;
    }
    if (status != HEDDLE_DONE && status != HEDDLE_AGAIN) {
      if (!closing_.load(std::memory_order_acquire)) lost("broke the protocol: ", base::last_message());
      return;
    }
  }
}

void Member::count_all_gone(std::uint32_t missing) {
  bool told = false;
  {
    const std::lock_guard lock(mutex_);
    keeper_ = missing;
    told = exchange_ == Exchange::waiting;  // a result that has arrived stays
    if (told) {
      exchange_ = Exchange::arrived;
      missing_ = keeper_;
    }
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      if (rank == rank_ || failed(rank)) continue;
      gone_[rank].store(true, std::memory_order_release);
      boxes_[rank] = {};
      raise_failure_epoch();
    }
  }
  card_bell_.ring();
  if (told) ring_bell();
}

base::Status Member::handle(Frame& frame) {
  switch (frame.header.type) {
    case FrameType::card:
      return take_card(frame);
    case FrameType::result:
      return take_result(frame);
    case FrameType::gone:
      return take_gone(frame.header.rank);
    case FrameType::ask_pulse:
      tell_pulse(frame.header.value);
      return HEDDLE_DONE;
    case FrameType::ask_snapshot:
      tell_snapshot(frame.header.value);
      return HEDDLE_DONE;
    case FrameType::ask_counters:
      tell_counters(frame.header.value);
      return HEDDLE_DONE;
    default:
      return base::fail(HEDDLE_ERR_PROTOCOL, "sent a frame of type %u", static_cast<unsigned>(frame.header.type));
  }
}

// The listening thread sends the answers. A failed send needs no action: if the connection has
// broken, this thread ends because of that.
void Member::tell_pulse(std::int32_t number) {
  tap::Pulse pulse;
  ask_observed([&](Observed& observed) { pulse = observed.pulse(); });
  static_cast<void>(send({FrameType::pulse, 0, 0, number}, std::as_bytes(std::span(&pulse, 1))));
}

void Member::tell_snapshot(std::int32_t number) {
  std::vector<std::byte> snapshot;
  try {
    ask_observed([&](Observed& observed) { snapshot = observed.snapshot(); });
  } catch (const std::bad_alloc&) {
    snapshot.clear();  // there is no memory: it tells nothing
  }
  static_cast<void>(send({FrameType::snapshot, 0, 0, number}, snapshot));
}

void Member::tell_counters(std::int32_t number) {
  std::string text;
  try {
    ask_observed([&](Observed& observed) { text = observed.counters(); });
  } catch (const std::bad_alloc&) {
    text.clear();
  }
  if (text.size() > kMostCounters) text.clear();
  static_cast<void>(send({FrameType::counters, 0, 0, number}, std::as_bytes(std::span(text))));
}

// A thread that waits sends it, so it does not wait for a launcher that takes nothing.
bool Member::note_waiting() {
  const std::unique_lock sending(send_mutex_, std::try_to_lock);
  return sending && try_send_header(socket_, {FrameType::waiting}, send_timeout_ns_) != HEDDLE_AGAIN;
}

base::Status Member::take_card(Frame& frame) {
  const std::lock_guard lock(mutex_);
  CardBox& box = boxes_[frame.header.rank];
  const bool awaited = box.awaited;
  if (box.state != CardBox::State::asked) return base::fail(HEDDLE_ERR_PROTOCOL, "sent a card that nobody asked for");
  if (failed(frame.header.rank)) return base::fail(HEDDLE_ERR_PROTOCOL, "sent the card of a rank that is gone");
  box = {CardBox::State::arrived, false, std::move(frame.fd), frame.fd_lost, frame.header.value,
         std::move(frame.payload)};
  card_bell_.ring();
  if (awaited) ring_bell();
  return HEDDLE_DONE;
}

base::Status Member::take_result(const Frame& frame) {
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

base::Status Member::take_gone(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  if (rank == rank_ || failed(rank)) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "said that rank %u is gone, which cannot be", rank);
  }
  gone_[rank].store(true, std::memory_order_release);
  raise_failure_epoch();
  boxes_[rank] = {};
  card_bell_.ring();
  return HEDDLE_DONE;
}

}  // namespace heddle::bootstrap::local
