#include "partitioned/receiver.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "partitioned/switchboard.hpp"

namespace heddle::partitioned {

using wire::PartitionedKind;

Receiver::Receiver(engine::Worker& worker, Switchboard& board, const Shape& shape, void* data)
    : Partitioned(worker, board, shape, false), data_(data) {}

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
  engine::awaits(wait, "a partitioned receive from worker %u of rank %u, tag %llu: %s", shape_.peer.worker,
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
    return refuse(status);
  }
  places_.words = objects.pack_for(shape_.peer.rank, *words_region_);
  senders_ = partitions;
  sent_ = sent;
  words_.store(static_cast<std::uint64_t*>(words_region_->memory.address), std::memory_order_release);
  owe(PartitionedKind::accept);
}

}  // namespace heddle::partitioned
