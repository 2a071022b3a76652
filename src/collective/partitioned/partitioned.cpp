#include "collective/partitioned/partitioned.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/copy.hpp"
#include "base/fence.hpp"
#include "collective/partitioned/switchboard.hpp"
#include "wire/packet.hpp"

namespace heddle::collective::partitioned {

namespace {

using wire::PartitionedKind;

// Ignores the completion of a notice: if a notice is lost, its peer has failed, which is reported
// anyway.
void forget(void* /*arg*/, heddle_status /*status*/) {}

}  // namespace

// ---- the program's thread -----------------------------------------------------------------------

base::Status PartitionedSide::start() {
  if (active_) {
    return base::fail(HEDDLE_ERR_STATE,
                      "a run of this partitioned operation is under way: call heddle_partitioned_wait or _test first");
  }
  if (trouble() != HEDDLE_DONE) return explain();
  const base::Status status = begin_run(run() + 1);
  active_ = status == HEDDLE_DONE;
  return status;
}

base::Status PartitionedSide::try_complete() {
  const base::Status status = look();
  if (status != HEDDLE_AGAIN) active_ = false;
  return status < 0 ? explain() : status;
}

base::Status PartitionedSide::test() {
  if (!active_) return HEDDLE_DONE;
  if (const base::Status status = try_complete(); status != HEDDLE_AGAIN) return status;
  if (const int events = worker_.progress(); events < 0) return static_cast<base::Status>(events);
  return try_complete();
}

base::Status PartitionedSide::wait(std::int64_t timeout_ns) {
  if (!active_) return HEDDLE_DONE;
  const base::Status status = worker_.until(
      {"heddle_partitioned_wait", timeout_ns}, [this] { return try_complete(); },
      [this](tap::Wait& wait) { describe(wait); });
  if (status != HEDDLE_ERR_TIMEOUT || !active_) return status;
  tap::Wait wait;
  describe(wait);
  return base::fail(HEDDLE_ERR_TIMEOUT, "after %lld ns: %s; it goes on, and can be waited for again",
                    static_cast<long long>(timeout_ns), wait.awaited.c_str());
}

base::Status PartitionedSide::close() {
  if (active_) {
    return base::fail(HEDDLE_ERR_STATE,
                      "a run of this partitioned operation is under way: wait for its end before it is freed");
  }
  Switchboard& board = board_;
  visit(worker_, [&] { board.bury(*this); });
  return HEDDLE_DONE;
}

base::Status PartitionedSide::explain() const {
  const char* what = sends_ ? "send to" : "receive from";
  const auto tag = static_cast<unsigned long long>(shape_.tag);
  const heddle_peer peer = shape_.peer;
  switch (const base::Status status = trouble()) {
    case HEDDLE_ERR_PEER_FAILED:
      return base::fail(status, "a partitioned %s worker %u of rank %u, tag %llu: rank %u has failed", what,
                        peer.worker, peer.rank, tag, peer.rank);
    case HEDDLE_ERR_CANCELLED:
      return base::fail(status, "a partitioned %s worker %u of rank %u, tag %llu: %s", what, peer.worker, peer.rank,
                        tag, "the other side was freed, or a worker was closed");
    case HEDDLE_ERR_ARGUMENT:
      return base::fail(
          status,
          "a partitioned %s worker %u of rank %u, tag %llu: this side has %u partitions, %llu bytes in all, "
          "the other %u partitions, %llu bytes; the bytes must agree",
          what, peer.worker, peer.rank, tag, shape_.partitions, static_cast<unsigned long long>(shape_.total()),
          other_partitions_, static_cast<unsigned long long>(other_bytes_));
    default:
      return base::fail(status, "a partitioned %s worker %u of rank %u, tag %llu, has failed with %s; free it", what,
                        peer.worker, peer.rank, tag, heddle_status_name(status));
  }
}

// ---- inside -------------------------------------------------------------------------------------

void PartitionedSide::fail(base::Status status) {
  base::Status none = HEDDLE_DONE;
  trouble_.compare_exchange_strong(none, status, std::memory_order_release, std::memory_order_relaxed);
}

void PartitionedSide::fail_totals(std::uint32_t partitions, std::uint64_t bytes) {
  if (failed()) return;
  other_partitions_ = partitions;
  other_bytes_ = bytes;
  fail(HEDDLE_ERR_ARGUMENT);
}

bool PartitionedSide::send_owed() {
  for (const PartitionedKind kind : {PartitionedKind::offer, PartitionedKind::accept, PartitionedKind::begun,
                                     PartitionedKind::rejected, PartitionedKind::freed}) {
    if ((owed_ & bit(kind)) == 0) continue;
    const base::Status status = send(kind);
    // Memory may be free later; and offers must reach the peer in order.
    if (status == HEDDLE_AGAIN || status == HEDDLE_ERR_NO_MEMORY) return false;
    owed_ &= ~bit(kind);
    if (status < 0) fail(status);
  }
  return true;
}

base::Status PartitionedSide::send(PartitionedKind kind) {
  wire::PartitionedHeader head{};
  head.kind = kind;
  head.status = kind == PartitionedKind::rejected ? rejection_ : HEDDLE_DONE;
  head.to = kind == PartitionedKind::offer ? 0 : peer_number_;
  head.from = number_;
  head.tag = shape_.tag;
  head.number = notice_number(kind);
  head.bytes = shape_.total();
  head.partitions = shape_.partitions;
  std::span<const std::byte> payload;
  engine::CallersCompletion completion;
  completion.fn = forget;  // without a callback, flush would report the loss
  if (kind == PartitionedKind::accept) {
    payload = std::as_bytes(std::span(places(), 1));
    completion.arg = this;
    completion.fn = [](void* arg, heddle_status) {
      auto* own = static_cast<PartitionedSide*>(arg);
      --own->notices_;
      own->board_.want(*own);  // a caller may have waited for this
    };
  }
  const base::Status status = worker_.core().requester.try_message(
      shape_.peer, wire::kExtension, std::as_bytes(std::span(&head, 1)), payload, completion);
  if (kind == PartitionedKind::accept && status == HEDDLE_POSTED) ++notices_;
  return status;
}

Sender::Sender(worker::Worker& worker, Switchboard& board, const Shape& shape, const void* data)
    : PartitionedSide(worker, board, shape, true),
      source_(static_cast<std::byte*>(const_cast<void*>(data))),
      parts_(std::make_unique<Part[]>(shape.partitions)),
      marks_(shape.partitions, worker.gate() == nullptr) {
  for (std::uint32_t i = 0; i < shape.partitions; ++i) parts_[i] = {this, i};
  queue_.reserve(shape.partitions);
}

Sender::~Sender() {
  if (data_ != nullptr) worker_.context().objects().close_remote(data_);
  if (words_ != nullptr) worker_.context().objects().close_remote(words_);
}

// ---- threads that mark parts --------------------------------------------------------------------

base::Status Sender::ready(std::uint32_t partition) {
  const std::uint64_t now = run();
  if (trouble() != HEDDLE_DONE) [[unlikely]]
    return explain();
  switch (marks_.mark(partition, now)) {
    case queue::PartMarks<>::Marked::claimed:
      return post(partition, now);
    case queue::PartMarks<>::Marked::waiting:
      return HEDDLE_DONE;
    case queue::PartMarks<>::Marked::twice:
      break;
  }
  return reject_mark(partition);
}

base::Status Sender::reject_mark(std::uint32_t partition) const {
  if (run() == 0) {
    return base::fail(HEDDLE_ERR_STATE, "heddle_pready: no run is under way; call heddle_partitioned_start first");
  }
  return base::fail(HEDDLE_ERR_STATE,
                    "heddle_pready: partition %u is marked ready in this run already; each is marked once between "
                    "heddle_partitioned_start and the end of the run",
                    partition);
}

// False: the part is not in direct memory, or the peer is known to be dead.
bool Sender::put_directly(std::uint32_t partition, std::uint64_t run) {
  const std::uint64_t bytes = shape_.bytes;
  const std::uint64_t from = partition * bytes;
  const std::uint64_t at = partition * sizeof(std::uint64_t);
  if (!words_->direct_range(at, sizeof(std::uint64_t))) return false;
  if (bytes > 0) {
    if (!data_->direct_range(offset_ + from, bytes)) return false;
    base::copy_data(data_->direct + offset_ + from, source_ + from, bytes);
  }
  base::show_release(words_->direct + at);
  // Release: the data is written first. Partner: the acquire load in Receiver::has().
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(words_->direct + at)).store(run, std::memory_order_release);
  worker_.counts().add_operation(&worker::Tally::puts, bytes);
  return true;
}

worker::PutSignalStart Sender::command(std::uint32_t partition, std::uint64_t run) {
  const std::uint64_t bytes = shape_.bytes;
  const std::uint64_t from = partition * bytes;
  engine::CallersCompletion completion;
  completion.fn = end_put;
  completion.arg = &parts_[partition];
  heddle_signal signal{};
  signal.value = run;
  signal.op = HEDDLE_SIGNAL_SET;
  engine::RemoteRegion* data = bytes > 0 ? data_ : words_;
  const engine::Pieces pieces(bytes > 0 ? source_ + from : nullptr, data, offset_ + from, {bytes, 1, 0, 0});
  return {pieces, words_->rank, words_, partition * sizeof(std::uint64_t), signal, completion};
}

// Any thread; it has claimed the part.
base::Status Sender::post(std::uint32_t partition, std::uint64_t run) {
  if (put_directly(partition, run)) {
    end(partition, HEDDLE_DONE);
    return HEDDLE_DONE;
  }
  const base::Status status = worker::start(worker_, command(partition, run));
  if (status == HEDDLE_AGAIN) return post_later(partition);
  return posted(partition, status) ? HEDDLE_DONE : explain();
}

base::Status Sender::post_later(std::uint32_t partition) {
  if (must_not_visit(worker_)) {
    marks_.unclaim(partition);
    stray_.store(true, std::memory_order_release);
    return HEDDLE_DONE;
  }
  visit(worker_, [&] {
    queue_.push_back(partition);
    if (!post_queued()) board_.want(*this);
  });
  return HEDDLE_DONE;
}

// status: what posting the part returned. False: an error.
bool Sender::posted(std::uint32_t partition, base::Status status) {
  if (status == HEDDLE_POSTED || status == HEDDLE_DONE)
    worker_.counts().add_command(&worker::Tally::puts, shape_.bytes);
  if (status != HEDDLE_POSTED) end(partition, status);
  return status >= 0;
}

void Sender::end_put(void* arg, heddle_status status) {
  const Part& part = *static_cast<Part*>(arg);
  part.owner->end(part.number, status);
}

void Sender::end(std::uint32_t partition, base::Status status) {
  if (status != HEDDLE_DONE) [[unlikely]] {
    fail(status);
    put_failed_.store(true, std::memory_order_relaxed);
  }
  marks_.end(partition);  // nothing is touched after this: the run may be over now
}

// ---- the program's thread -----------------------------------------------------------------------

base::Status Sender::begin_run(std::uint64_t run) {
  ended_ = 0;
  set_run(run);
  return HEDDLE_DONE;
}

base::Status Sender::look() {
  const base::Status seen = trouble();
  if (stray_.load(std::memory_order_relaxed) && stray_.exchange(false, std::memory_order_acquire)) [[unlikely]] {
    visit(worker_, [this] {
      collect();
      if (!post_queued()) board_.want(*this);
    });
  }
  while (ended_ < shape_.partitions && marks_.has_ended(ended_, run())) ++ended_;
  if (ended_ == shape_.partitions && !put_failed_.load(std::memory_order_relaxed)) return HEDDLE_DONE;
  if (seen == HEDDLE_DONE && ended_ < shape_.partitions) return HEDDLE_AGAIN;
  // Parts that have not been put will not be. Parts under way are waited for, since their puts read
  // the program's memory.
  visit(worker_, [this] {
    static_cast<void>(post_queued());
    if (!put_failed_.load(std::memory_order_relaxed) || !bound_ || told_) return;
    told_ = true;
    reject(trouble());  // otherwise the receiver would wait for the part that did not arrive
    if (!send_owed()) board_.want(*this);
  });
  for (std::uint32_t i = ended_; i < shape_.partitions; ++i) {
    if (marks_.is_claimed(i, run())) return HEDDLE_AGAIN;
  }
  return trouble();
}

void Sender::describe(tap::Wait& wait) {
  std::uint32_t unmarked = 0;
  for (std::uint32_t i = ended_; i < shape_.partitions; ++i) {
    if (marks_.is_idle(i, run())) ++unmarked;
  }
  const char* peer =
      marks_.opened() >= run() ? "its receiver has begun this run" : "its receiver has not begun this run";
  wait.things.push_back(
      {tap::Cause::partition, shape_.peer.rank, shape_.peer.worker, shape_.bytes, "partitioned message", ""});
  worker::awaits(wait,
                 "a partitioned send to worker %u of rank %u, tag %llu: %u of %u partitions are not marked ready; %s",
                 shape_.peer.worker, shape_.peer.rank, static_cast<unsigned long long>(shape_.tag), unmarked,
                 shape_.partitions, peer);
}

// ---- inside -------------------------------------------------------------------------------------

base::Result<engine::RemoteRegion*> Sender::import(std::span<const std::byte> packed, std::uint64_t offset,
                                                   std::uint64_t bytes) {
  // The peer's card is here, since the offer went to the peer. This thread makes progress, so it
  // must not wait for the card of another rank.
  const auto name = wire::decode_region(packed);
  if (!name || name->rank != shape_.peer.rank) return HEDDLE_ERR_PROTOCOL;
  auto remote = worker_.context().objects().import(packed);
  if (!remote) return remote;
  if ((*remote)->range(offset, bytes)) {
    (*remote)->server = shape_.peer.worker;  // this worker makes progress; another one need not
    return remote;
  }
  worker_.context().objects().close_remote(*remote);
  return HEDDLE_ERR_PROTOCOL;
}

void Sender::accepted(std::uint64_t peer_number, const wire::PartitionedPlaces& places, std::uint64_t run) {
  match(peer_number);
  const auto bind = [&](engine::RemoteRegion** region, std::span<const std::byte> packed, std::uint64_t offset,
                        std::uint64_t bytes) -> base::Status {
    const auto imported = import(packed, offset, bytes);
    if (!imported) return imported.status();
    *region = *imported;
    return HEDDLE_DONE;
  };
  offset_ = places.offset;
  base::Status status = bind(&words_, places.words, 0, shape_.partitions * sizeof(std::uint64_t));
  if (status == HEDDLE_DONE && shape_.total() > 0) status = bind(&data_, places.data, places.offset, shape_.total());
  if (status != HEDDLE_DONE) {
    fail(status);
    return reject(status);
  }
  bound_ = true;
  begun(run);
}

void Sender::begun(std::uint64_t run) {
  begun_ = std::max(begun_, run);
  if (!bound_ || begun_ <= marks_.opened()) return;
  marks_.open(begun_);
  collect();
  if (!post_queued()) board_.want(*this);
}

void Sender::collect() {
  marks_.collect([this](std::uint32_t partition) { queue_.push_back(partition); });
}

// False: the transport takes nothing more now.
bool Sender::post_queued() {
  for (; head_ < queue_.size(); ++head_) {
    const std::uint32_t partition = queue_[head_];
    if (failed()) {
      end(partition, HEDDLE_ERR_CANCELLED);  // the first error stays
      continue;
    }
    const std::uint64_t run = marks_.run_of(partition);
    if (put_directly(partition, run)) {
      end(partition, HEDDLE_DONE);
      continue;
    }
    const base::Status status = command(partition, run).start(worker_);
    if (status == HEDDLE_AGAIN) return false;
    posted(partition, status);
  }
  queue_.clear();
  head_ = 0;
  return true;
}

bool Sender::advance() {
  const bool told = send_owed();
  return post_queued() && told;
}

using wire::PartitionedKind;

Receiver::Receiver(worker::Worker& worker, Switchboard& board, const Shape& shape, void* data)
    : PartitionedSide(worker, board, shape, false), data_(data) {}

Receiver::~Receiver() {
  release();
}

// If a run has failed or was left under way, the sender may still put to this memory. The library
// then keeps it until the context ends.
void Receiver::release() {
  std::uint64_t* const words = words_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; words != nullptr && i < senders_; ++i) {
    if (!has(words, i, run())) return;
  }
  engine::Objects& objects = worker_.core().objects;
  if (lent_.number != 0) objects.take_back(std::exchange(lent_, {}));
  words_.store(nullptr, std::memory_order_relaxed);
  if (words_region_ != nullptr) objects.close_region(std::exchange(words_region_, nullptr));
}

base::Status Receiver::prepare() {
  if (shape_.total() == 0) return HEDDLE_DONE;
  engine::Objects& objects = worker_.core().objects;
  if (const engine::Region* around = objects.region_around(data_, shape_.total()); around != nullptr) {
    places_.data = objects.pack_for(shape_.peer.rank, *around);
    places_.offset =
        static_cast<std::uint64_t>(static_cast<std::byte*>(data_) - static_cast<std::byte*>(around->memory.address));
    return HEDDLE_DONE;
  }
  auto lent = objects.lend(shape_.peer.rank, data_, shape_.total());
  if (!lent) {
    return base::fail(lent.status(), "heddle_precv_init: data %p, %llu bytes, cannot be registered", data_,
                      static_cast<unsigned long long>(shape_.total()));
  }
  lent_ = *lent;
  places_.data = objects.pack_for(shape_.peer.rank, {&objects, lent_.memory, lent_.number, false});
  return HEDDLE_DONE;
}

// ---- the program's threads ----------------------------------------------------------------------

base::Status Receiver::begin_run(std::uint64_t run) {
  if (must_not_visit(worker_)) {
    return base::fail(
        HEDDLE_ERR_STATE,
        "heddle_partitioned_start of a receive inside a handler or callback of another worker; start it in "
        "one of its own worker, or outside");
  }
  come_ = 0;
  set_run(run);
  base::show_told();  // what the program has done with the data of the run before
  visit(worker_, [this] {
    if (!matched() || failed()) return;  // accept() will tell the sender
    owe(PartitionedKind::begun);
    if (!send_owed()) board_.want(*this);
  });
  return HEDDLE_DONE;
}

base::Status Receiver::look() {
  const base::Status seen = trouble();  // read first: parts that arrived before the error count
  std::uint64_t* const words = words_.load(std::memory_order_acquire);
  if (words != nullptr) {
    while (come_ < senders_ && has(words, come_, run())) ++come_;
    if (come_ == senders_) return HEDDLE_DONE;
  }
  return seen == HEDDLE_DONE ? HEDDLE_AGAIN : seen;
}

// Returns the range of the sender's parts that have bytes of this part. If both sides cut the same
// number of bytes (also 0) into equal parts, part i of n here is parts [i·m / n, (i + 1)·m / n) of
// m there, rounded outwards. If the sender sends fewer bytes, the range follows from the offsets in
// bytes; a part that gets no bytes arrives when all of the sender's parts have arrived.
Receiver::Range Receiver::covering(std::uint32_t partition) const {
  const std::uint64_t theirs = senders_;
  if (sent_ == shape_.total()) {
    const std::uint64_t own = shape_.partitions;
    return {partition * theirs / own, ((partition + std::uint64_t{1}) * theirs + own - 1) / own};
  }
  const std::uint64_t begin = partition * shape_.bytes;
  if (begin >= sent_) return {0, theirs};
  const std::uint64_t bytes = sent_ / theirs;
  return {begin / bytes, std::min(theirs, (begin + shape_.bytes + bytes - 1) / bytes)};
}

bool Receiver::covered(std::uint32_t partition) const {
  std::uint64_t* const words = words_.load(std::memory_order_acquire);
  if (words == nullptr) return false;
  const Range range = covering(partition);
  for (std::uint64_t part = range.begin; part < range.end; ++part) {
    if (!has(words, part, run())) return false;
  }
  return true;
}

base::Status Receiver::arrived(std::uint32_t partition) {
  if (run() == 0) return HEDDLE_DONE;
  const auto look_once = [&]() -> base::Status {
    const base::Status seen = trouble();
    if (covered(partition)) return HEDDLE_DONE;
    return seen == HEDDLE_DONE ? HEDDLE_AGAIN : explain();
  };
  const base::Status status = look_once();
  if (status != HEDDLE_AGAIN || engine::inside_of() != nullptr) return status;
  if (const int events = worker_.progress(); events < 0) return static_cast<base::Status>(events);
  return look_once();
}

void Receiver::describe(tap::Wait& wait) {
  std::uint64_t* const words = words_.load(std::memory_order_acquire);
  std::uint32_t missing = 0;
  for (std::uint32_t i = come_; words != nullptr && i < senders_; ++i) missing += has(words, i, run()) ? 0 : 1;
  std::array<char, 96> state{};
  if (words == nullptr) {
    std::snprintf(state.data(), state.size(), "no heddle_psend_init of it has come");
  } else {
    std::snprintf(state.data(), state.size(), "%u of the sender's %u partitions have not come", missing, senders_);
  }
  wait.things.push_back(
      {tap::Cause::partition, shape_.peer.rank, shape_.peer.worker, shape_.bytes, "partitioned message", ""});
  worker::awaits(wait, "a partitioned receive from worker %u of rank %u, tag %llu: %s", shape_.peer.worker,
                 shape_.peer.rank, static_cast<unsigned long long>(shape_.tag), state.data());
}

// ---- inside -------------------------------------------------------------------------------------

void Receiver::accept(std::uint64_t peer_number, std::uint32_t partitions, std::uint64_t sent) {
  match(peer_number);
  engine::Objects& objects = worker_.core().objects;
  base::Status status = HEDDLE_ERR_NO_MEMORY;
  try {
    auto opened = objects.open_region(nullptr, partitions * sizeof(std::uint64_t));
    status = opened.status();
    if (opened) words_region_ = *opened;
  } catch (const std::bad_alloc&) {
    status = HEDDLE_ERR_NO_MEMORY;
  }
  if (status != HEDDLE_DONE) {
    fail(status);
    return reject(status);
  }
  places_.words = objects.pack_for(shape_.peer.rank, *words_region_);
  senders_ = partitions;
  sent_ = sent;
  words_.store(static_cast<std::uint64_t*>(words_region_->memory.address), std::memory_order_release);
  owe(PartitionedKind::accept);
}

}  // namespace heddle::collective::partitioned
