#include "bootstrap/local/broker.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "bootstrap/board.hpp"

namespace heddle::bootstrap::local {

Broker::Broker(std::uint32_t size, const JobSecret& secret)
    : size_(size),
      secret_(secret),
      board_(std::make_shared<const base::Fd>(size > 1 ? make_board_file() : base::Fd())),
      gather_(size) {
  seats_.reserve(size);
  for (std::uint32_t rank = 0; rank < size; ++rank) seats_.emplace_back(size);
}

short Broker::events(std::uint32_t rank) const {
  const Seat& seat = seats_[rank];
  int events = 0;
  if (seat.outbox.waiting() < kMaxWaiting) events |= POLLIN;
  if (seat.outbox.waiting() > 0 && !seat.outbox.congested()) events |= POLLOUT;
  return static_cast<short>(events);
}

std::vector<std::uint32_t> Broker::take_touched() {
  for (const std::uint32_t rank : touched_) seats_[rank].touched = false;
  return std::exchange(touched_, {});
}

void Broker::touch(std::uint32_t rank) {
  if (std::exchange(seats_[rank].touched, true)) return;
  touched_.push_back(rank);
}

bool Broker::anybody_joined() const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [](const Seat& seat) { return seat.membership == Membership::joined; });
}

void Broker::hang_up() {
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    seats_[rank].socket.reset();
    touch(rank);
  }
}

void Broker::serve(std::uint32_t rank) {
  Seat& seat = seats_[rank];
  flush(rank);
  // Bounded, so that one busy rank does not hold up the others.
  for (int reads = 0; reads < 16 && seat.socket.valid() && seat.outbox.waiting() < kMaxWaiting; ++reads) {
    const Reader::Fill filled = seat.reader.fill(seat.socket.get(), MSG_DONTWAIT);
    if (filled == Reader::Fill::nothing) return;
    if (filled == Reader::Fill::closed) {
      seat.socket.reset();
      if (seat.membership == Membership::joined) gone(rank, Membership::lost);
      return;
    }
    Frame frame;
    base::Status status{};
    while ((status = seat.reader.next(&frame)) == HEDDLE_DONE) {
      status = handle(rank, frame);
      if (status != HEDDLE_DONE) break;
    }
    if (status == HEDDLE_AGAIN) continue;
    seat.problem = base::last_message();
    seat.socket.reset();
    // Frames that come after the rank has left in good order (another process tries to join) do not
    // change that.
    if (seat.membership != Membership::left) gone(rank, Membership::lost);
    return;
  }
}

void Broker::ended(std::uint32_t rank) {
  Seat& seat = seats_[rank];
  // The bytes that a dead process has sent are finite; this waits for nothing.
  while (seat.socket.valid()) {
    drop_outbox(rank);
    pollfd readable{seat.socket.get(), POLLIN, 0};
    if (::poll(&readable, 1, 0) <= 0) break;
    serve(rank);
  }
  seat.socket.reset();
  drop_outbox(rank);
  if (seat.membership != Membership::left) gone(rank, Membership::lost);
}

base::Status Broker::handle(std::uint32_t rank, Frame& frame) {
  Seat& seat = seats_[rank];
  const FrameType type = frame.header.type;
  if (type == FrameType::hello) return hello(rank, frame);
  if (seat.membership != Membership::joined) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a frame of type %u from outside the job", static_cast<unsigned>(type));
  }
  switch (type) {
    case FrameType::publish:
      return publish(rank, frame);
    case FrameType::fetch:
      if (seats_[frame.header.rank].card) {
        send_card(rank, frame.header.rank);
      } else {
        std::vector<std::uint32_t>& wanted_by = seats_[frame.header.rank].wanted_by;
        if (wanted_by.size() >= kMaxWanted) return base::fail(HEDDLE_ERR_PROTOCOL, "too many fetches of one card");
        wanted_by.push_back(rank);
      }
      return HEDDLE_DONE;
    case FrameType::exchange:
      return exchange(rank, frame);
    case FrameType::leave:
      gone(rank, Membership::left);
      return HEDDLE_DONE;
    case FrameType::abort:
      abort(rank, frame);
      return HEDDLE_DONE;
    case FrameType::waiting:
      if (watcher_ != nullptr) watcher_->waiting(rank);
      return HEDDLE_DONE;
    case FrameType::pulse:
    case FrameType::snapshot:
    case FrameType::counters:
      if (watcher_ != nullptr) watcher_->answered(rank, type, frame.header.value, frame.payload);
      return HEDDLE_DONE;
    default:
      return base::fail(HEDDLE_ERR_PROTOCOL, "a frame of type %u", static_cast<unsigned>(type));
  }
}

base::Status Broker::hello(std::uint32_t rank, const Frame& frame) {
  Seat& seat = seats_[rank];
  if (seat.membership != Membership::outside || seat.rejected) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a second hello; a rank joins once");
  }
  const auto hello = decode_hello(frame.payload);
  if (!hello && hello.status() != HEDDLE_ERR_VERSION) return hello.status();
  // The answer is sent in any case: it tells a rank of another version what it is connected to.
  // Such a rank may know no welcome with a descriptor.
  Welcome welcome;
  welcome.rank = rank;
  welcome.size = size_;
  if (hello) welcome.secret = secret_;
  welcome.watch_seconds = watch_seconds_;
  seat.outbox.add({FrameType::welcome}, std::make_shared<const std::vector<std::byte>>(encode(welcome)),
                  hello && seat.passes_descriptors ? board_ : nullptr);
  if (hello) {
    seat.membership = Membership::joined;
    seat.pid = seat.reader.sender() >= 0 ? seat.reader.sender() : hello->pid;
    seat.has_joined = true;
    if (watcher_ != nullptr) watcher_->moved();
    if (joined_) joined_(rank);
    for (std::uint32_t other = 0; other < size_; ++other) {
      if (gather_.is_gone(other)) seat.outbox.add({FrameType::gone, 0, other});
    }
  } else {
    seat.rejected = true;
  }
  flush(rank);
  return HEDDLE_DONE;
}

base::Status Broker::publish(std::uint32_t rank, Frame& frame) {
  Seat& seat = seats_[rank];
  if (seat.card) return base::fail(HEDDLE_ERR_PROTOCOL, "a second card");
  if (frame.fd_lost) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "the launcher has no descriptor left for the card; raise its limit (ulimit -n)");
  }
  seat.card = CardEntry{frame.header.value, std::make_shared<const std::vector<std::byte>>(std::move(frame.payload)),
                        std::make_shared<const base::Fd>(std::move(frame.fd))};
  for (const std::uint32_t other : std::exchange(seat.wanted_by, {})) send_card(other, rank);
  return HEDDLE_DONE;
}

void Broker::send_card(std::uint32_t to, std::uint32_t whose) {
  const CardEntry& card = *seats_[whose].card;
  const auto fd = seats_[to].passes_descriptors ? card.fd : nullptr;
  seats_[to].outbox.add({FrameType::card, 0, whose, card.pid}, card.bytes, fd);
  flush(to);
}

base::Status Broker::exchange(std::uint32_t rank, Frame& frame) {
  if (!gather_.arrive(rank, std::move(frame.payload))) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a second part of one exchange");
  }
  if (watcher_ != nullptr) watcher_->moved();
  finish_round();
  return HEDDLE_DONE;
}

bool Broker::ask(std::uint32_t rank, FrameType question, std::int32_t number) {
  Seat& seat = seats_[rank];
  if (seat.membership != Membership::joined || !seat.socket.valid() || seat.outbox.waiting() >= kMaxWaiting)
    return false;
  seat.outbox.add({question, 0, 0, number});
  flush(rank);
  return true;
}

void Broker::finish_round() {
  if (!gather_.complete()) return;
  std::vector<std::uint32_t> waiting;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (gather_.has_arrived(rank)) waiting.push_back(rank);
  }
  const Gathered gathered = gather_.take();
  const bool whole = gathered.missing == Gathered::kNobody;
  const auto payload = whole ? std::make_shared<const std::vector<std::byte>>(encode_parts(gathered.all)) : nullptr;
  // Rank 0 last: where it hosts this broker, it may exit, and the broker with it, as soon as it has
  // its own.
  for (auto rank = waiting.rbegin(); rank != waiting.rend(); ++rank) {
    seats_[*rank].outbox.add({FrameType::result, 0, gathered.missing}, payload);
    flush(*rank);
  }
}

void Broker::abort(std::uint32_t rank, const Frame& frame) {
  seats_[rank].has_aborted = true;
  if (abort_) return;
  const int code = frame.header.value;
  std::string message(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
  // It is printed on a terminal: one line, nothing that moves the cursor.
  std::replace_if(
      message.begin(), message.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, ' ');
  abort_ = Abort{rank, code >= 0 && code <= 255 ? code : 1, std::move(message)};
}

void Broker::gone(std::uint32_t rank, Membership how) {
  Seat& seat = seats_[rank];
  seat.membership = how;
  seat.card.reset();
  seat.wanted_by.clear();
  if (gather_.is_gone(rank)) return;
  if (watcher_ != nullptr) watcher_->moved();
  if (seat.has_joined) departures_.push_back(rank);
  gather_.gone(rank);
  for (std::uint32_t other = 0; other < size_; ++other) {
    if (other == rank || seats_[other].membership != Membership::joined) continue;
    seats_[other].outbox.add({FrameType::gone, 0, rank});
    flush(other);
  }
  finish_round();
}

void Broker::flush(std::uint32_t rank) {
  Seat& seat = seats_[rank];
  touch(rank);
  const bool before = seat.outbox.congested();
  // If a socket cannot be written to, it is left to serve(), which reads the bytes that came before
  // its end.
  if (seat.socket.valid()) static_cast<void>(seat.outbox.flush(seat.socket.get()));
  congested_ = congested_ - (before ? 1 : 0) + (seat.outbox.congested() ? 1 : 0);
}

void Broker::drop_outbox(std::uint32_t rank) {
  touch(rank);
  const Outbox dropped = std::exchange(seats_[rank].outbox, {});
  if (dropped.congested()) --congested_;
}

}  // namespace heddle::bootstrap::local
