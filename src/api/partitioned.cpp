// Partitioned send and receive: from arguments to checked operations.
#include "collective/partitioned/partitioned.hpp"
#include "api/arguments.hpp"
#include "collective/partitioned/switchboard.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face
namespace base = heddle::base;
namespace engine = heddle::engine;
using heddle::collective::partitioned::PartitionedSide;
using heddle::collective::partitioned::Receiver;
using heddle::collective::partitioned::Sender;
using heddle::collective::partitioned::Shape;
using heddle::collective::partitioned::Switchboard;

namespace {

// A limit so small that no later product of counts and offsets exceeds 64 bits.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

// The checks for both sides. `what`: the name of the function without heddle_.
Status check(const char* what, const Worker& worker, const void* data, const Shape& shape) {
  if (engine::inside_of() != nullptr) return engine::reject_wait(what);
  if (shape.partitions == 0) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: no partitions; a message has 1 to %u", what, HEDDLE_MOST_PARTITIONS);
  }
  if (shape.partitions > HEDDLE_MOST_PARTITIONS || shape.bytes > kMostBytes / shape.partitions) {
    return base::fail(HEDDLE_ERR_SIZE, "%s: %u partitions of %llu bytes; at most %u, and 2^48 bytes in all", what,
                      shape.partitions, static_cast<unsigned long long>(shape.bytes), HEDDLE_MOST_PARTITIONS);
  }
  if (data == nullptr && shape.total() > 0) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: data is null; pass an address that is valid", what);
  }
  if (shape.peer.rank >= worker.size()) {
    return base::fail(HEDDLE_ERR_RANK, "%s: rank %u: the job has ranks 0-%u", what, shape.peer.rank, worker.size() - 1);
  }
  if (shape.peer.worker >= worker.max_workers()) {
    return base::fail(HEDDLE_ERR_RANK,
                      "%s: worker %u of rank %u: a process has at most %u workers (HEDDLE_MAX_WORKERS)", what,
                      shape.peer.worker, shape.peer.rank, worker.max_workers());
  }
  return HEDDLE_DONE;
}

template <class Make>
Status make(heddle_worker handle, const char* what, const void* data, const Shape& shape, heddle_partitioned* made,
            Make&& add) {
  if (made == nullptr) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: the operation's address is null; pass one that is valid", what);
  }
  *made = {};
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (const Status status = check(what, *worker, data, shape); status != HEDDLE_DONE) return status;
  return guarded([&]() -> Status {
    const auto added = add(Switchboard::of(*worker));
    if (!added) return added.status();
    made->id = *added;
    return HEDDLE_DONE;
  });
}

[[gnu::cold]] Status bad_partition(const char* what, const PartitionedSide& operation, bool sends, uint32_t partition) {
  if (operation.sends() != sends) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: this is the %s side; only the %s side has that", what,
                      operation.sends() ? "sending" : "receiving", sends ? "sending" : "receiving");
  }
  return base::fail(HEDDLE_ERR_ARGUMENT, "%s: partition %u: this side has 0-%u", what, partition,
                    operation.shape().partitions - 1);
}

}  // namespace

heddle_status heddle_psend_init(heddle_worker worker, const void* data, uint32_t partitions, size_t bytes,
                                heddle_peer target, uint64_t tag, heddle_partitioned* send) {
  const Shape shape{target, tag, partitions, bytes};
  return make(worker, "heddle_psend_init", data, shape, send,
              [&](Switchboard& board) { return board.add_send(shape, data); });
}

heddle_status heddle_precv_init(heddle_worker worker, void* data, uint32_t partitions, size_t bytes, heddle_peer source,
                                uint64_t tag, heddle_partitioned* receive) {
  const Shape shape{source, tag, partitions, bytes};
  return make(worker, "heddle_precv_init", data, shape, receive,
              [&](Switchboard& board) { return board.add_receive(shape, data); });
}

heddle_status heddle_partitioned_start(heddle_partitioned handle) {
  auto* operation = find_handle<PartitionedSide>(handle.id);
  if (operation == nullptr) return bad_handle("partitioned", handle.id);
  return guarded([&]() -> Status { return operation->start(); });
}

heddle_status heddle_pready(heddle_partitioned handle, uint32_t partition) {
  auto* operation = find_handle<PartitionedSide>(handle.id);
  if (operation == nullptr) [[unlikely]]
    return bad_handle("partitioned", handle.id);
  if (!operation->sends() || partition >= operation->shape().partitions) [[unlikely]] {
    return bad_partition("heddle_pready", *operation, true, partition);
  }
  return static_cast<Sender*>(operation)->ready(partition);
}

heddle_status heddle_pready_range(heddle_partitioned handle, uint32_t low, uint32_t high) {
  auto* operation = find_handle<PartitionedSide>(handle.id);
  if (operation == nullptr) return bad_handle("partitioned", handle.id);
  if (!operation->sends() || high >= operation->shape().partitions) {
    return bad_partition("heddle_pready_range", *operation, true, high);
  }
  if (low > high) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "heddle_pready_range: low %u is above high %u, which is part of the range",
                      low, high);
  }
  for (uint32_t partition = low; partition <= high; ++partition) {
    const Status status = static_cast<Sender*>(operation)->ready(partition);
    if (status != HEDDLE_DONE) return status;
  }
  return HEDDLE_DONE;
}

heddle_status heddle_parrived(heddle_partitioned handle, uint32_t partition) {
  auto* operation = find_handle<PartitionedSide>(handle.id);
  if (operation == nullptr) [[unlikely]]
    return bad_handle("partitioned", handle.id);
  if (operation->sends() || partition >= operation->shape().partitions) [[unlikely]] {
    return bad_partition("heddle_parrived", *operation, false, partition);
  }
  return static_cast<Receiver*>(operation)->arrived(partition);
}

heddle_status heddle_partitioned_bytes(heddle_partitioned handle, uint64_t* bytes) {
  auto* operation = find_handle<PartitionedSide>(handle.id);
  if (operation == nullptr) return bad_handle("partitioned", handle.id);
  if (bytes == nullptr) return null_argument("partitioned_bytes", "bytes");
  *bytes = operation->sends() ? operation->shape().total() : static_cast<Receiver*>(operation)->sent();
  return HEDDLE_DONE;
}

heddle_status heddle_partitioned_test(heddle_partitioned handle) {
  auto* operation = find_handle<PartitionedSide>(handle.id);
  if (operation == nullptr) return bad_handle("partitioned", handle.id);
  if (engine::inside_of() != nullptr) return engine::reject_wait("heddle_partitioned_test");
  return guarded([&]() -> Status { return operation->test(); });
}

heddle_status heddle_partitioned_wait(heddle_partitioned handle, int64_t timeout_ns) {
  auto* operation = find_handle<PartitionedSide>(handle.id);
  if (operation == nullptr) return bad_handle("partitioned", handle.id);
  if (engine::inside_of() != nullptr) return engine::reject_wait("heddle_partitioned_wait");
  return guarded([&]() -> Status { return operation->wait(timeout_ns); });
}

heddle_status heddle_partitioned_free(heddle_partitioned handle) {
  auto* operation = find_handle<PartitionedSide>(handle.id);
  if (operation == nullptr) return bad_handle("partitioned", handle.id);
  if (engine::inside_of() != nullptr) return engine::reject_wait("heddle_partitioned_free");
  return guarded([&]() -> Status { return operation->close(); });
}
