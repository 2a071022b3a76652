#include "engine/worker.hpp"

#include "base/log.hpp"

namespace heddle::engine {
namespace {

constexpr std::uint64_t kMinOperations = 16;
constexpr std::uint64_t kMaxOperations = 65536;

}  // namespace

base::Result<std::unique_ptr<Worker>> Worker::open(Context& context, std::uint32_t index) {
  const std::uint64_t operations = context.environment().config.number(base::Var::worker_operations);
  if (operations < kMinOperations || operations > kMaxOperations) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_WORKER_OPERATIONS=%llu is outside %llu-%llu",
                      static_cast<unsigned long long>(operations), static_cast<unsigned long long>(kMinOperations),
                      static_cast<unsigned long long>(kMaxOperations));
  }
  auto transport = context.transport().open_worker(index);
  if (!transport) return transport.status();
  return std::unique_ptr<Worker>(new Worker(context, index, std::move(*transport)));
}

Worker::Worker(Context& context, std::uint32_t index, std::unique_ptr<transport::TransportWorker> transport)
    : context_(context),
      index_(index),
      max_workers_(context.transport().capabilities().max_workers),
      max_payload_(context.environment().config.number(base::Var::am_max_bytes)),
      small_payload_(context.transport().capabilities().max_message - HEDDLE_AM_HEADER_BYTES),
      transport_(std::move(transport)),
      capabilities_(context.transport().capabilities()),
      failure_epoch_(context.bootstrap().failure_epoch()),
      operations_(context.environment().config.number(base::Var::worker_operations)),
      outstanding_(context.size()),
      unreported_(context.size(), HEDDLE_DONE),
      failed_(context.size()),
      reassembly_(context.environment().config.number(base::Var::am_max_bytes),
                  context.environment().config.number(base::Var::am_reassembly_bytes)),
      responder_(*transport_, context.regions(), capabilities_.max_message) {
  stats_.size = sizeof stats_;
}

Worker::~Worker() {
  cancel_all(HEDDLE_ERR_CANCELLED);
  if (!context_.environment().config.flag(base::Var::stats)) return;
  const heddle_worker_stats all = read_stats();
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  context_.environment().log.say(
      "worker %u: puts %llu gets %llu atomics %llu messages %llu bytes %llu direct %llu "
      "again %llu polls %llu received %llu "
      "dropped %llu failed %llu",
      index_, number(all.puts), number(all.gets), number(all.atomics), number(all.messages), number(all.bytes),
      number(all.direct), number(all.again), number(all.polls), number(all.received), number(all.dropped),
      number(all.failed));
}

heddle_worker_stats Worker::read_stats() const {
  heddle_worker_stats all = stats_;
  all.direct = all.puts + all.gets + all.atomics - commands_;
  all.dropped += transport_->counters().malformed + responder_.lost();
  return all;
}

}  // namespace heddle::engine
