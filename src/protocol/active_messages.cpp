#include "protocol/active_messages.hpp"

#include <array>
#include <cstdio>
#include <utility>

#include "engine/handlers.hpp"
#include "engine/tapped.hpp"

namespace heddle::protocol {

ActiveMessages::ActiveMessages(engine::Core& core)
    : core_(core),
      reassembly_(core.job.environment().config.number(base::Var::am_max_bytes),
                  core.job.environment().config.number(base::Var::am_reassembly_bytes)),
      credits_(core.job.size(), core.max_workers, core.job.environment().config.number(base::Var::am_user_bytes),
               core.unshared),
      tasks_({core.job.size(), core.max_workers, core.job.environment().config.number(base::Var::am_user_bytes),
              core.job.environment().config.number(base::Var::am_reassembly_bytes)},
             core.unshared),
      rendezvous_(core, *this) {}

// ---- sending ------------------------------------------------------------------------------------

base::Status ActiveMessages::try_long(heddle_peer target, const engine::LongMessage& message,
                                      const engine::CallersCompletion& completion) {
  if (is_offered(message.payload_bytes)) return rendezvous_.offer(target, message, completion);
  return core_.requester.try_parts(target, message, message.handler >= HEDDLE_AM_USER ? this : nullptr, completion);
}

void ActiveMessages::give_back(heddle_peer target, const engine::LongMessage& message) {
  if (is_offered(message.payload_bytes)) core_.operations.give_offer_back();
  if (message.handler >= HEDDLE_AM_USER) give_credit_back(target, message.header_bytes, message.payload_bytes);
}

// Called at the end of an operation for a USER message in parts, or for a message that was offered.
// If it was never posted, its caller gives back the reservations.
void ActiveMessages::ended(engine::Operation& operation) {
  if (operation.kind == engine::Kind::protocol) rendezvous_.ended(operation);
  if (operation.charged && operation.status != HEDDLE_DONE) [[unlikely]] {
    give_credit_back(operation.target, operation.header_bytes, operation.payload_bytes);
  }
}

// ---- arrivals -----------------------------------------------------------------------------------

std::size_t ActiveMessages::deliver(std::span<const transport::Completion> arrivals) {
  const heddle_worker handle = core_.handle;
  const engine::Job& job = core_.job;
  std::size_t delivered = 0;
  for (const transport::Completion& completion : arrivals) {
    if (completion.event != transport::Event::message ||
        wire::kind_of(completion.immediate) != wire::Kind::active_message) [[unlikely]] {
      break;
    }
    const auto message = wire::decode_am(completion.immediate, {completion.data, completion.bytes});
    if (!message) [[unlikely]]
      break;
    const engine::Handler handler = job.handler(message->handler);
    if (handler.fn == nullptr) [[unlikely]]
      break;
    const heddle_am_arrival arrival{handle,
                                    {completion.rank, completion.worker},
                                    message->handler,
                                    message->header_bytes,
                                    message->header,
                                    message->payload,
                                    message->payload_bytes};
    engine::call(handler.fn, arrival, handler.arg);
    ++delivered;
  }
  core_.stats.received += delivered;
  return delivered;
}

bool ActiveMessages::arrived(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet) {
  switch (wire::kind_of(immediate)) {
    case wire::Kind::active_message: {
      const auto message = wire::decode_am(immediate, packet);
      if (message) run_handler(source, *message, message->payload_bytes);
      return message.has_value();
    }
    case wire::Kind::user:
      return arrived_user(source, immediate, packet);
    case wire::Kind::fragment:
      break;
    default:
      return false;
  }
  if (immediate != wire::kAmOffer) return arrived_part(source, packet);
  const auto offer = wire::decode_am_offer(packet);
  if (offer) rendezvous_.arrived(source, *offer);
  return offer.has_value();
}

void ActiveMessages::run_handler(heddle_peer source, const wire::ActiveMessage& message, std::uint64_t payload_bytes) {
  const engine::Handler handler = core_.job.handler(message.handler);
  if (handler.fn == nullptr) [[unlikely]] {
    unhandled_.store(message.handler, std::memory_order_relaxed);
    std::array<char, 64> why;
    std::snprintf(why.data(), why.size(), "no handler is registered for its number, %u", message.handler);
    return core_.drop(source, why.data());
  }
  ++core_.stats.received;
  const heddle_am_arrival arrival{core_.handle,   source,          message.handler, message.header_bytes,
                                  message.header, message.payload, payload_bytes};
  engine::call(handler.fn, arrival, handler.arg);
}

bool ActiveMessages::arrived_part(heddle_peer source, std::span<const std::byte> packet) {
  const auto fragment = wire::decode_fragment(packet);
  if (fragment) arrived_fragment(source, *fragment);
  return fragment.has_value();
}

void ActiveMessages::arrived_fragment(heddle_peer source, const wire::Fragment& fragment) {
  if (core_.failed[source.rank]) return core_.drop(source, "its sender has failed, so it would never be whole");
  Reassembly::Message whole;
  switch (reassembly_.add(source, fragment, &whole)) {
    case Reassembly::Outcome::incomplete:
      return;
    case Reassembly::Outcome::malformed:
      return core_.drop(source, "it is no part of its message, or was here before");
    case Reassembly::Outcome::rejected:
      core_.drop(source, "its parts exceed HEDDLE_AM_REASSEMBLY_BYTES");
      return core_.responder.answer(source, whole.token, HEDDLE_ERR_NO_MEMORY);
    case Reassembly::Outcome::complete:
      if (whole.handler >= HEDDLE_AM_USER) return store_long(source, &whole, Tasks::Room::asked);
      core_.responder.answer(source, whole.token, HEDDLE_DONE);
      return run_handler(source, {whole.handler, whole.header_bytes, whole.header.data(), whole.payload.get(), 0},
                         whole.total_bytes);
  }
}

// ---- class USER ---------------------------------------------------------------------------------

bool ActiveMessages::arrived_user(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet) {
  if ((immediate & wire::kGrantBit) != 0) {
    const auto told = wire::decode_reply(packet);
    if (!told || !credits_.grant(source, told->head.value)) core_.drop(source, "it grants credit that was not used");
    return true;
  }
  const auto message = wire::decode_am(immediate, packet);
  if (!message) return false;
  const Tasks::Stored stored = tasks_.store(source, *message);
  if (stored == Tasks::Stored::yes) return true;
  reject_task(source, stored);
  // A message that was sent within the window counts as handled when it is dropped.
  if (stored != Tasks::Stored::no_memory) return true;
  const std::uint64_t bytes = charge(message->header_bytes, message->payload_bytes);
  if (!core_.responder.grant(source, bytes) && tasks_.owe(source, bytes)) owe_grants();
  return true;
}

void ActiveMessages::store_long(heddle_peer source, Reassembly::Message* whole, Tasks::Room room) {
  const Tasks::Stored stored = tasks_.store(source, whole, room);
  if (stored != Tasks::Stored::yes && room == Tasks::Room::reserved) tasks_.release(whole->total_bytes);
  // When the sender learns of the error, it takes back the credit of the message itself.
  core_.responder.answer(source, whole->token, stored == Tasks::Stored::yes ? HEDDLE_DONE : HEDDLE_ERR_NO_MEMORY);
  if (stored != Tasks::Stored::yes) reject_task(source, stored);
}

void ActiveMessages::reject_task(heddle_peer source, Tasks::Stored stored) {
  core_.drop(source, stored == Tasks::Stored::exceeds
                         ? "it exceeds HEDDLE_AM_USER_BYTES, which must be the same in all ranks"
                         : "there is no memory to store it (HEDDLE_AM_REASSEMBLY_BYTES bounds large USER messages)");
}

void ActiveMessages::grant(heddle_peer source, Tasks::Source* from) {
  const std::uint64_t bytes = tasks_.due(*from);
  if (bytes == 0 || core_.failed[source.rank]) return;
  core_.responder.grant(source, bytes) ? Tasks::granted(from, bytes) : owe_grants();
}

void ActiveMessages::owe_grants() {
  owes_grants_ = true;
  core_.want_advance();
}

bool ActiveMessages::run_task(heddle_worker handle, Tasks::Task* task, EndedTask* ended) {
  const engine::Handler handler = core_.job.handler(task->handler);
  if (handler.fn != nullptr) {
    const heddle_am_arrival arrival{
        handle,          task->peer,         task->handler, task->header_bytes, task->header.data(),
        task->payload(), task->payload_bytes};
    const engine::RunningTask running(core_);
    engine::call(handler.fn, arrival, handler.arg);
  } else {
    unhandled_.store(task->handler, std::memory_order_relaxed);
    std::array<char, 64> why;
    std::snprintf(why.data(), why.size(), "no handler is registered for its number, %u", task->handler);
    core_.job.report_drop(core_.index, task->peer, why.data());
  }
  // other large messages may wait for its room
  *ended = {task->peer, task->source, task->large != nullptr, handler.fn != nullptr};
  return tasks_.end(task, handler.fn != nullptr) || ended->large;
}

void ActiveMessages::ended_task(const EndedTask& task) {
  grant(task.peer, task.source);
  if (task.large) rendezvous_.room_for_tasks();
  core_.note_moved();  // that may have brought the next task, which another thread waits for
}

// ---- Protocol -----------------------------------------------------------------------------------

bool ActiveMessages::advance(bool* more) {
  bool moved = false;
  if (std::exchange(owes_grants_, false)) {
    tasks_.each_source([this](heddle_peer source, Tasks::Source* from) { grant(source, from); });
    moved = !owes_grants_;
  }
  return rendezvous_.advance(more) || moved;
}

void ActiveMessages::note_failures() {
  for (std::uint32_t rank = 0; rank < core_.failed.size(); ++rank) {
    if (core_.failed[rank]) reassembly_.forget(rank);
  }
  rendezvous_.note_failures();
}

void ActiveMessages::report(engine::Findings& findings) const {
  if (rendezvous_.waiting() == 0) return;
  findings.say(
      "%llu large messages to this worker wait to be fetched, for memory, free operations, or what "
      "their senders' ranks have published",
      static_cast<unsigned long long>(rendezvous_.waiting()));
}

}  // namespace heddle::protocol
