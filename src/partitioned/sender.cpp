#include "partitioned/sender.hpp"

#include <algorithm>
#include <cstring>

#include "base/copy.hpp"
#include "base/fence.hpp"
#include "partitioned/switchboard.hpp"
#include "wire/packet.hpp"

namespace heddle::partitioned {

Sender::Sender(engine::Worker& worker, Switchboard& board, const Shape& shape, const void* data)
    : Partitioned(worker, board, shape, true),
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
  return refuse_mark(partition);
}

base::Status Sender::refuse_mark(std::uint32_t partition) const {
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
  worker_.counts().add_operation(&engine::Tally::puts, bytes);
  return true;
}

engine::PutSignalStart Sender::command(std::uint32_t partition, std::uint64_t run) {
  const std::uint64_t bytes = shape_.bytes;
  const std::uint64_t from = partition * bytes;
  engine::Completion completion;
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
  const base::Status status = engine::start(worker_, command(partition, run));
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
    worker_.counts().add_command(&engine::Tally::puts, shape_.bytes);
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
    refuse(trouble());  // otherwise the receiver would wait for the part that did not arrive
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
  engine::awaits(wait,
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
    return refuse(status);
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

}  // namespace heddle::partitioned
