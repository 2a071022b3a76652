#include "lcw/device.hpp"

#include <cstring>

#include <lcwi.hpp>

#include "lcw/process.hpp"

namespace heddle::for_lcw {
namespace {

const char* name_of(::lcw::op_t op) {
  switch (op) {
    case ::lcw::op_t::SEND:
      return "send";
    case ::lcw::op_t::RECV:
      return "recv";
    case ::lcw::op_t::PUT:
      return "put";
    case ::lcw::op_t::PUT_SIGNAL:
      return "the arrival of a put";
  }
  return "an operation";
}

// LCW's performance counters, if it was built with them.
void count_end(::lcw::op_t op) {
#ifdef LCW_ENABLE_PCOUNTER
  namespace pcounter = ::lcw::pcounter;
  const auto counter = op == ::lcw::op_t::SEND   ? pcounter::send_end
                       : op == ::lcw::op_t::RECV ? pcounter::recv_end
                       : op == ::lcw::op_t::PUT  ? pcounter::put_end
                                                 : pcounter::put_signal;
  pcounter::add(counter);
  pcounter::add(pcounter::comp_produce);
#else
  static_cast<void>(op);
#endif
}

}  // namespace

WorkerDevice::WorkerDevice(JoinedJob* job, std::uint32_t index, ::lcw::comp_t put_completion)
    : job_(job), index_(index), put_completion_(CompletionObject::of(put_completion)) {
  if (index_ >= kMostWorkers) fail("device %u: a process has %u devices at most", index_, kMostWorkers);
  must(heddle_am_register(job_->context, kPutHandler + index_, &on_put, this), "registering the handler of puts");
  must(heddle_am_register(job_->context, kBarrierHandler + index_, &on_barrier, this),
       "registering the handler of barriers");
  open_worker();
}

void WorkerDevice::open_worker() {
  heddle_worker_options options{};
  options.size = sizeof options;
  const heddle_status status = heddle_worker_open(job_->context, &options, &worker_);
  if (status == HEDDLE_ERR_NO_MEMORY) {
    fail(
        "device %u could not be opened: %s. Devices that were freed count, too; HEDDLE_MAX_WORKERS, the same in all "
        "ranks, allows more",
        index_, heddle_last_error());
  }
  must(status, "opening a device");
  std::uint32_t number = 0;
  must(heddle_worker_index(worker_, &number), "asking for a worker's number");
  if (number != index_) {
    fail("device %u got the worker number %u: no other code may open workers of this context", index_, number);
  }
}

WorkerDevice::~WorkerDevice() {
  closing_.store(true, std::memory_order_relaxed);
  close_worker();
  // No thread makes progress on the worker any more, so no handler runs or begins to.
  must(heddle_am_register(job_->context, kPutHandler + index_, nullptr, nullptr), "removing the handler of puts");
  must(heddle_am_register(job_->context, kBarrierHandler + index_, nullptr, nullptr),
       "removing the handler of barriers");
  while (OperationRecord* record = next_handler()) OperationRecords::give(record);
}

void WorkerDevice::close_worker() {
  heddle_status status = heddle_worker_close(worker_);
  if (status == HEDDLE_ERR_TIMEOUT) {
    fail("device %u is freed, but sends of it are not received by living ranks (%s): let them complete before", index_,
         heddle_last_error());
  }
  must(status, "closing a device");
}

OperationRecord* WorkerDevice::new_record(::lcw::op_t op, ::lcw::rank_t rank, ::lcw::tag_t tag, void* buffer,
                                          std::int64_t length, CompletionObject* completion, void* context) {
  OperationRecord* record = OperationRecords::take();
  record->request = {op, handle(), rank, tag, buffer, length, context};
  record->completion = completion;
  const auto peer = static_cast<std::uint64_t>(rank);
  if (peer >= job_->size || static_cast<std::uint64_t>(tag) > static_cast<std::uint64_t>(kMaxTag) || length < 0) {
    check(record);
  }
  return record;
}

void WorkerDevice::check(const OperationRecord* record) const {
  const ::lcw::request_t& request = record->request;
  const char* name = name_of(request.op);
  const auto tag = static_cast<long long>(request.tag);
  if (request.tag < 0 || request.tag > kMaxTag) {
    fail("%s with tag %lld: tags are 0 to %lld (get_max_tag)", name, tag, static_cast<long long>(kMaxTag));
  }
  const auto length = static_cast<long long>(request.length);
  if (length < 0) fail("%s of %lld bytes: a length is not negative", name, length);
  if (request.op == ::lcw::op_t::RECV && request.rank == kAnyRank) return;
  if (request.rank < 0 || request.rank >= static_cast<::lcw::rank_t>(job_->size)) {
    fail("%s with rank %lld: ranks are 0 to %u", name, static_cast<long long>(request.rank), job_->size - 1);
  }
}

bool WorkerDevice::send(::lcw::rank_t rank, ::lcw::tag_t tag, void* buffer, std::int64_t length,
                        CompletionObject* completion, void* context) {
  OperationRecord* record = new_record(::lcw::op_t::SEND, rank, tag, buffer, length, completion, context);
  const heddle_completion done{&on_sent, record, {0}, HEDDLE_WHEN_LOCAL};
  return posted(record,
                heddle_try_send(worker_, {static_cast<std::uint32_t>(rank), index_}, static_cast<std::uint64_t>(tag),
                                buffer, static_cast<std::size_t>(length), &done));
}

bool WorkerDevice::receive(::lcw::rank_t rank, ::lcw::tag_t tag, void* buffer, std::int64_t length,
                           CompletionObject* completion, void* context) {
  OperationRecord* record = new_record(::lcw::op_t::RECV, rank, tag, buffer, length, completion, context);
  const heddle_completion done{&on_received, record, {0}, HEDDLE_WHEN_LOCAL};
  const auto source = rank == kAnyRank ? HEDDLE_ANY : static_cast<std::uint32_t>(rank);
  // Only the k-th device of a peer sends to the k-th.
  const heddle_wanted wanted{
      {source, rank == kAnyRank ? HEDDLE_ANY : index_}, static_cast<std::uint64_t>(tag), UINT64_MAX};
  const heddle_status status =
      heddle_try_recv(worker_, &wanted, buffer, static_cast<std::size_t>(length), &record->receive, &done);
  if (status != HEDDLE_DONE) return posted(record, status);
  received(record);
  return true;
}

bool WorkerDevice::put(::lcw::rank_t rank, void* buffer, std::int64_t length, CompletionObject* completion,
                       void* context) {
  OperationRecord* record = new_record(::lcw::op_t::PUT, rank, 0, buffer, length, completion, context);
  const heddle_completion done{&on_sent, record, {0}, HEDDLE_WHEN_LOCAL};
  const heddle_am_message message{kPutHandler + index_, 0, nullptr, buffer, static_cast<std::size_t>(length)};
  return posted(record, heddle_try_am(worker_, {static_cast<std::uint32_t>(rank), index_}, &message, &done));
}

bool WorkerDevice::posted(OperationRecord* record, heddle_status status) {
  if (status == HEDDLE_POSTED) return true;
  if (status == HEDDLE_DONE) {
    deliver(record);
    return true;
  }
  if (status != HEDDLE_AGAIN) failed(record, status);
  OperationRecords::give(record);
  return false;
}

void WorkerDevice::on_sent(void* arg, heddle_status status) {
  auto* record = static_cast<OperationRecord*>(arg);
  WorkerDevice* device = of(record->request.device);
  if (status == HEDDLE_DONE) return device->deliver(record);
  if (status != HEDDLE_ERR_CANCELLED || !device->closing_.load(std::memory_order_relaxed)) {
    device->failed(record, status);
  }
  OperationRecords::give(record);
}

void WorkerDevice::on_received(void* arg, heddle_status status) {
  auto* record = static_cast<OperationRecord*>(arg);
  WorkerDevice* device = of(record->request.device);
  if (status == HEDDLE_DONE) return device->received(record);
  if (status != HEDDLE_ERR_CANCELLED || !device->closing_.load(std::memory_order_relaxed)) {
    device->failed(record, status);
  }
  OperationRecords::give(record);
}

void WorkerDevice::received(OperationRecord* record) {
  record->request.length = static_cast<std::int64_t>(record->receive.bytes);
  record->request.rank = static_cast<::lcw::rank_t>(record->receive.source.rank);
  deliver(record);
}

void WorkerDevice::on_put(const heddle_am_arrival* arrival, void* arg) {
  auto* device = static_cast<WorkerDevice*>(arg);
  const auto length = static_cast<long long>(arrival->payload_bytes);
  if (device->put_completion_ == nullptr) {
    fail("rank %u has put %lld bytes to device %u, which was allocated without put_comp", arrival->source.rank, length,
         device->index_);
  }
  void* buffer = device->job_->allocator.load(std::memory_order_acquire)->allocate(arrival->payload_bytes);
  if (arrival->payload_bytes != 0) {
    if (buffer == nullptr) fail("no memory for a put of %lld bytes from rank %u", length, arrival->source.rank);
    std::memcpy(buffer, arrival->payload, arrival->payload_bytes);
  }
  const ::lcw::request_t request{
      ::lcw::op_t::PUT_SIGNAL, device->handle(), arrival->source.rank, 0, buffer, length, nullptr};
  if (device->put_completion_->handler() == nullptr) {
    count_end(request.op);
    static_cast<RequestQueue*>(device->put_completion_)->push(request);
    return;
  }
  OperationRecord* record = OperationRecords::take();
  record->request = request;
  record->completion = device->put_completion_;
  device->deliver(record);
}

void WorkerDevice::deliver(OperationRecord* record) {
  CompletionObject* completion = record->completion;
  count_end(record->request.op);
  if (completion != nullptr && completion->handler() != nullptr) {
    OperationRecord* latest = completed_.load(std::memory_order_relaxed);
    do {
      record->next = latest;
    } while (!completed_.compare_exchange_weak(latest, record, std::memory_order_release, std::memory_order_relaxed));
    return;
  }
  // The completion is null: nobody is to be notified.
  if (completion != nullptr) static_cast<RequestQueue*>(completion)->push(record->request);
  OperationRecords::give(record);
}

OperationRecord* WorkerDevice::next_handler() {
  if (!handlers_wait()) return nullptr;
  // Another thread takes one at this moment. That thread, or the next progress, handles the rest.
  if (ready_busy_.test_and_set(std::memory_order_acquire)) return nullptr;
  OperationRecord* first = ready_.load(std::memory_order_relaxed);
  if (first == nullptr) {
    OperationRecord* latest = completed_.exchange(nullptr, std::memory_order_acquire);
    while (latest != nullptr) {
      OperationRecord* before = latest->next;
      latest->next = first;
      first = latest;
      latest = before;
    }
  }
  if (first != nullptr) ready_.store(first->next, std::memory_order_relaxed);
  ready_busy_.clear(std::memory_order_release);
  return first;
}

bool WorkerDevice::run_handlers() {
  // The number of operations that a worker takes at a time. So handlers that post again and again
  // do not keep the thread here for ever.
  constexpr int kMost = 64;
  int ran = 0;
  while (ran < kMost) {
    OperationRecord* record = next_handler();
    if (record == nullptr) break;
    const ::lcw::request_t request = record->request;
    const ::lcw::handler_t handler = record->completion->handler();
    OperationRecords::give_after_handler(record);
    handler(request);
    ++ran;
  }
  return ran > 0;
}

bool WorkerDevice::progress() {
  const int events = heddle_worker_progress(worker_);
  // STATE: the program's allocator runs inside the worker and makes progress.
  if (events < 0 && events != HEDDLE_ERR_STATE) {
    fail("progress on device %u: %s", index_, heddle_last_error());
  }
  if (events == HEDDLE_ERR_STATE) return false;
  const bool ran = handlers_wait() && run_handlers();
  if (events > 0 || ran) {
    Idle::reset();
    return true;
  }
  Idle::found_nothing();
  return false;
}

void WorkerDevice::failed(const OperationRecord* record, heddle_status status) const {
  const ::lcw::request_t& request = record->request;
  const char* advice = "";
  if (status == HEDDLE_ERR_PEER_FAILED) advice = "; the rank has died or left the job";
  if (status == HEDDLE_ERR_TRUNCATED) advice = "; the message is longer than the buffer";
  if (status == HEDDLE_ERR_CANCELLED) advice = "; the rank has freed its device";
  if (status == HEDDLE_ERR_SIZE && request.op == ::lcw::op_t::PUT) {
    advice = "; HEDDLE_AM_MAX_BYTES allows longer puts, or use send and recv";
  }
  fail("%s of %lld bytes, rank %lld, tag %lld, device %u: %s%s", name_of(request.op),
       static_cast<long long>(request.length), static_cast<long long>(request.rank),
       static_cast<long long>(request.tag), index_, heddle_status_name(status), advice);
}

// ---- barrier: dissemination --------------------------------------------------------------------

void WorkerDevice::on_barrier(const heddle_am_arrival* arrival, void* arg) {
  std::uint32_t round = kRounds;
  if (arrival->header_bytes == sizeof round) std::memcpy(&round, arrival->header, sizeof round);
  if (round >= kRounds) fail("a barrier message of rank %u is malformed", arrival->source.rank);
  static_cast<WorkerDevice*>(arg)->arrivals_[round].fetch_add(1, std::memory_order_release);
}

void WorkerDevice::signal_round(std::uint32_t round, std::uint32_t target) {
  const heddle_am_message message{kBarrierHandler + index_, sizeof round, &round, nullptr, 0};
  while (true) {
    const heddle_status status = heddle_try_am(worker_, {target, index_}, &message, nullptr);
    if (status == HEDDLE_DONE || status == HEDDLE_POSTED) return;
    if (status != HEDDLE_AGAIN) fail("barrier: telling rank %u: %s", target, heddle_last_error());
    progress();
  }
}

void WorkerDevice::wait_for_round(std::uint32_t round, std::uint32_t source, std::uint64_t epoch) {
  // Peers may need another device of this process before they come here. A dead peer never comes.
  constexpr std::uint32_t kLong = 1024;
  std::uint32_t fruitless = 0;
  while (arrivals_[round].load(std::memory_order_acquire) < epoch) {
    if (progress()) {
      fruitless = 0;
    } else if (++fruitless % kLong == 0) {
      heddle_context_progress(job_->context);
      if (heddle_context_peer_status(job_->context, source) != HEDDLE_DONE) {
        fail("barrier: rank %u has died or left the job", source);
      }
    }
  }
}

void WorkerDevice::barrier() {
  const std::uint64_t epoch = ++barriers_;
  for (std::uint32_t round = 0; (std::uint64_t{1} << round) < job_->size; ++round) {
    const auto distance = static_cast<std::uint32_t>(1U << round);
    signal_round(round, (job_->rank + distance) % job_->size);
    wait_for_round(round, (job_->rank + job_->size - distance) % job_->size, epoch);
  }
}

}  // namespace heddle::for_lcw
