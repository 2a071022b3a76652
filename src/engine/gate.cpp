#include "engine/gate.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/wait.hpp"

namespace heddle::engine {
namespace {

// How often posting in shared mode looks again at a busy worker: about the length of a post, so that a holder that was
// descheduled, or runs handlers, is not waited for.
constexpr int kShortWait = 64;
// Commands started before those inside let others in.
constexpr std::size_t kBatch = 64;
// What a helper's visit costs the thread whose worker it is: lines of the worker that it has to fetch again; and, of an exclusive
// worker, the interrupt by which the claim is made known (membarrier).
constexpr std::uint32_t kVisitNs = 200;
constexpr std::uint32_t kClaimNs = 1000;
// How long a helper may be inside before those whom it refuses fetch it; and for how long one of them then sleeps, at most half of
// the time, in calls that otherwise do not wait.
constexpr std::uint64_t kPatienceNs = 50'000;
constexpr std::uint64_t kFetchSleepNs = 1'000'000;
constexpr std::size_t kBodyBytes = sizeof(queue::CommandBytes);
constexpr std::size_t kMostRecords = (kMostCommandBytes + kBodyBytes - 1) / kBodyBytes;

bool registers(Sharing sharing, OffloadPolicy policy) {
  return policy != OffloadPolicy::off && sharing != Sharing::offload;
}

}  // namespace

Gate::Gate(Worker& worker, Sharing sharing, std::uint32_t records, OffloadPolicy small_offload)
    : worker_(worker),
      sharing_(sharing),
      one_thread_(worker.context().one_thread()),
      short_way_(registers(sharing, small_offload) ? Sharing::mutex : sharing),
      short_payload_(std::min<std::uint64_t>(worker.copied_payload(), transport::ShortMessage::kMostBytes)) {
  const bool small = registers(sharing, small_offload);
  if (small)
    small_ = std::make_unique<SmallOffload>(small_offload, sharing == Sharing::exclusive ? kClaimNs : kVisitNs);
  if (small || sharing == Sharing::offload || sharing == Sharing::delegate) {
    queue_ = std::make_unique<queue::CommandQueue<>>(std::max<std::uint32_t>(records, kMostRecords));
  }
}

Gate::~Gate() = default;

void Gate::begin() {
  if (sharing_ != Sharing::offload) return;
  executor_ = &worker_.context().executors().of(worker_.index());
  executor_->add(this);
}

void Gate::end() {
  if (executor_ != nullptr) executor_->remove(this);
  visit([this] {
    worker_.cancel_all(HEDDLE_ERR_CANCELLED);
    if (queue_ == nullptr) return;
    const Inside busy(worker_);
    Queued command;
    while (queue_->take(&command)) {
      execute(command, HEDDLE_ERR_CANCELLED);
      queue_->release(command);
    }
    stalled_ = false;
  });
}

bool Gate::enter() {
  if (sharing_ == Sharing::exclusive) {
    count_entry();
    handover_.enter();
    inside_.store(base::thread_mark(), std::memory_order_relaxed);
    return true;
  }
  if (!try_enter() && (!helper_.claimed() || !enter_after_helper())) return false;
  inside_.store(base::thread_mark(), std::memory_order_relaxed);
  count_entry();
  return true;
}

// Not exclusive.
bool Gate::try_enter() {
  if (sharing_ == Sharing::mutex) {
    mutex_.lock();
    return true;
  }
  if (core_.try_enter()) return true;
  for (int i = 0; sharing_ == Sharing::shared && i < kShortWait; ++i) {
    base::cpu_relax();
    if (core_.try_enter()) return true;
  }
  return false;
}

// A helper seems to be inside. As long as a visit usually takes it is like any other thread. Then it has probably lost its core,
// and is given this one, again and again but not all the time: it may as well run a long handler.
bool Gate::enter_after_helper() {
  return helper_stays() && helper_.fetch(kFetchSleepNs) && try_enter();
}

// The same visit has refused others for long, and is to be ended by the caller.
bool Gate::helper_stays() {
  const std::uint64_t now = worker_.context().clock().now_ns();
  const std::uint32_t visit = visits_.load(std::memory_order_relaxed);
  if (visit != refused_visit_.load(std::memory_order_relaxed)) {
    refused_visit_.store(visit, std::memory_order_relaxed);
    fetch_at_.store(now + kPatienceNs, std::memory_order_relaxed);
    return false;
  }
  if (now < fetch_at_.load(std::memory_order_relaxed)) return false;
  fetch_at_.store(now + kFetchSleepNs, std::memory_order_relaxed);
  return true;
}

void Gate::fetch_helper() {
  if (sharing_ == Sharing::exclusive) return handover_.fetch_helper(kFetchSleepNs);
  static_cast<void>(sharing_ == Sharing::mutex ? mutex_.fetch(kFetchSleepNs) : helper_.fetch(kFetchSleepNs));
}

bool Gate::try_enter_mutex() {
  if (!mutex_.try_lock()) return false;
  inside_.store(base::thread_mark(), std::memory_order_relaxed);
  count_entry();
  return true;
}

bool Gate::enter_as_helper(std::uint32_t number, bool urgent) {
  const bool helper = (number & queue::SystemHandover::kStays) == 0;
  if (sharing_ == Sharing::exclusive) {
    if (!(urgent ? handover_.try_claim_urgently(number) : handover_.try_claim(number))) return false;
  } else if (!(sharing_ == Sharing::mutex ? mutex_.try_lock() : enter_core_as_helper(helper ? number : 0))) {
    return false;
  }
  inside_.store(base::thread_mark(), std::memory_order_relaxed);
  helper_inside_ = helper;
  // A thread of the application may be left commands of others to execute, and leave them under way when a helper is about
  // to sleep, which looks at this. Not exclusive: there the number is the owner's, and there are no commands of others.
  if (sharing_ != Sharing::exclusive && !helper) count_entry();
  return true;
}

// `number`: 0: no helper, but a thread of the application.
bool Gate::enter_core_as_helper(std::uint32_t number) {
  if (number == 0) return core_.try_enter();
  if (!helper_.try_claim(number)) return false;
  visits_.store(visits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (core_.try_enter()) return true;
  helper_.release();
  return false;
}

void Gate::leave_as_helper() {
  const bool claimed = helper_inside_ && sharing_ != Sharing::exclusive && sharing_ != Sharing::mutex;
  helper_inside_ = false;
  if (sharing_ == Sharing::exclusive) {
    inside_.store(nullptr, std::memory_order_relaxed);
    return handover_.release();
  }
  leave();
  if (claimed) helper_.release();
}

// Inside: what this thread leaves under way (delegate: or executes on its way out) would wait for helpers that sleep. Partner of the look at the helpers' word: the
// barrier in Helpers::sleep(), between its store and its look at entries_.
bool Gate::must_call_helpers() const {
  return worker_.context().helpers().asleep() && (sharing_ == Sharing::delegate || queued() || worker_.under_way());
}

void Gate::leave() {
  const bool call = must_call_helpers();
  give_up();
  if (call) worker_.context().helpers().wake();
}

void Gate::give_up() {
  if (sharing_ == Sharing::delegate) return leave_delegated();
  // An executor that sleeps would not poll for what a handler has posted here. Nobody sets the bit but who is inside.
  const bool wake = executor_wanted() && wake_completer();
  inside_.store(nullptr, std::memory_order_relaxed);
  if (sharing_ == Sharing::exclusive) return handover_.leave();
  if (sharing_ == Sharing::mutex) return mutex_.unlock();
  core_.exit();
  if (wake) executor_->wake_completer();
}

// Inside; offload. True: who polls sleeps, or is about to, and is to be woken.
bool Gate::wake_completer() {
  return executor_->apart() ? std::exchange(completer_asleep_, false) : queue_->wake_up();
}

void Gate::leave_delegated() {
  for (int looks = 0;; ++looks) {
    const bool stalled = stalled_;  // no use in trying again at once
    inside_.store(nullptr, std::memory_order_relaxed);
    if (stalled) return core_.exit();
    if (!core_.exit_unless([this] { return queue_->ready(); }, looks)) return;
    inside_.store(base::thread_mark(), std::memory_order_relaxed);
    drain();
  }
}

void Gate::help() {
  if (core_.help()) stay();
}

// Delegate mode: inside, for what others have queued.
void Gate::stay() {
  inside_.store(base::thread_mark(), std::memory_order_relaxed);
  count_entry();
  drain();
  leave();
}

int Gate::progress() {
  if (inside_of() != nullptr || inside()) [[unlikely]]
    return refuse_progress();
  if (!may_advance() || !enter()) return 0;
  add_one(polls_);
  const std::size_t started = queue_ != nullptr ? drain() : 0;
  const int events = worker_.progress_inside();
  leave();
  return events < 0 ? events : events + static_cast<int>(started);
}

// Number of commands that were started.
std::size_t Gate::drain() {
  std::size_t started = 0;
  Queued command;
  const Inside busy(worker_);
  // What was refused before is tried alone first.
  std::size_t most = std::exchange(stalled_, false) ? 1 : kBatch;
  while (started < kBatch && queue_->take(&command)) {
    if (const std::size_t sent = start_run(command, std::min(most, kBatch - started)); sent != 0) {
      started += sent;
      most = kBatch;
      continue;
    }
    started_ = command.end();
    if (execute(command, HEDDLE_DONE) == HEDDLE_AGAIN) {
      started_ = command.position;
      queue_->put_back(command.position);
      stalled_ = true;
      break;
    }
    queue_->release(command);
    ++started;
    most = kBatch;
  }
  if (started > 0) worker_.note_moved();
  if (started > 0 && worker_.context().retired()) [[unlikely]]
    worker_.context().reclaim();
  return started;
}

// Hands short messages to the transport at once: `first` and those that follow it. How many were sent.
std::size_t Gate::start_run(const Queued& first, std::size_t most) {
  std::array<const transport::ShortMessage*, kBatch> run;
  std::size_t count = 0;
  for (Queued command = first;;) {
    const std::byte* bytes = queue_->body(command).bytes;
    RunCommand kind = nullptr;
    std::memcpy(static_cast<void*>(&kind), bytes, sizeof kind);
    if (kind != &run_short) break;
    run[count++] = std::launder(reinterpret_cast<const transport::ShortMessage*>(bytes + sizeof kind));
    if (count == most || !queue_->take(&command)) break;
  }
  if (count == 0) return 0;
  const std::size_t sent = worker_.send_all(std::span(run).first(count));
  const Queued done{first.position, static_cast<std::uint32_t>(sent)};
  // What was taken and not sent goes back; if nothing was sent the caller keeps the first.
  queue_->put_back(sent == 0 ? first.end() : done.end());
  if (sent == 0) return 0;
  started_ = done.end();
  queue_->release(done);
  return sent;
}

base::Status Gate::execute(const Queued& command, base::Status cancel) {
  alignas(8) std::array<std::byte, kMostRecords * kBodyBytes> gathered;
  const std::byte* bytes = queue_->body(command).bytes;
  if (command.records > 1) {
    for (std::uint32_t i = 0; i < command.records; ++i) {
      std::memcpy(gathered.data() + i * kBodyBytes, queue_->body(command, i).bytes, kBodyBytes);
    }
    bytes = gathered.data();
  }
  RunCommand run = nullptr;
  std::memcpy(static_cast<void*>(&run), bytes, sizeof run);
  return run(worker_, bytes + sizeof run, cancel);
}

namespace {

// Writes bytes one after the other into the bodies of a claimed command.
class BodyWriter {
 public:
  BodyWriter(queue::CommandQueue<>& queue, const queue::CommandQueue<>::Command& command)
      : queue_(queue), command_(command) {}

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t part = std::min(bytes.size(), kBodyBytes - within_);
      std::memcpy(queue_.body(command_, record_).bytes + within_, bytes.data(), part);
      bytes = bytes.subspan(part);
      within_ += part;
      if (within_ == kBodyBytes) {
        within_ = 0;
        ++record_;
      }
    }
  }

 private:
  queue::CommandQueue<>& queue_;
  const queue::CommandQueue<>::Command& command_;
  std::uint32_t record_ = 0;
  std::size_t within_ = 0;
};

}  // namespace

base::Status Gate::enqueue(const Encoded& encoded) {
  std::size_t bytes = sizeof encoded.run;
  for (const auto& part : std::span(encoded.parts).first(encoded.count)) bytes += part.size();
  const Queued claimed = queue_->claim(static_cast<std::uint32_t>((bytes + kBodyBytes - 1) / kBodyBytes));
  if (!claimed) return HEDDLE_AGAIN;
  BodyWriter writer(*queue_, claimed);
  writer.write(std::as_bytes(std::span(&encoded.run, 1)));
  for (const auto& part : std::span(encoded.parts).first(encoded.count)) writer.write(part);
  if (queue_->publish(claimed)) wake_executor();
  return encoded.complete ? HEDDLE_DONE : HEDDLE_POSTED;
}

Gate::Sent Gate::send_helped(heddle_peer target, const heddle_am_message& message) {
  if (inside()) return worker_.try_send(target, message);
  handover_.enter();
  const Sent sent = worker_.try_send(target, message);
  handover_.leave();
  return sent;
}

Gate::Sent Gate::send_shared(heddle_peer target, const heddle_am_message& message) {
  if (!core_.try_enter()) [[unlikely]]  // post() knows what to do
    return Sent::unsuitable;
  const Sent sent = worker_.try_send(target, message);
  core_.exit();
  return sent;
}

Gate::Sent Gate::send_delegated(heddle_peer target, const heddle_am_message& message) {
  // What this thread has queued goes first.
  if (queued() || !core_.try_enter()) [[unlikely]]
    return Sent::unsuitable;
  const Sent sent = worker_.try_send(target, message);
  if (core_.exit_unless([this] { return queue_->ready(); }, 0)) [[unlikely]]
    stay();
  return sent;
}

Gate::Sent Gate::send_queued(heddle_peer target, const heddle_am_message& message) {
  if (starts_here() || !is_short(message)) [[unlikely]]
    return Sent::unsuitable;
  return enqueue_short(target, message) ? Sent::sent : Sent::full;
}

void Gate::wake_executor() {
  executor_->wake();
}

base::Status run_block(Worker& worker, const std::byte* bytes, base::Status cancel) {
  QueuedBlock block;
  std::memcpy(&block, bytes, sizeof block);
  const std::uint64_t flags = block.bytes_and_flags;
  const bool callback = (flags & QueuedBlock::kCallback) != 0;
  const Completion completion{callback ? block.fn : nullptr, block.arg, callback ? nullptr : block.counter,
                              (flags & QueuedBlock::kLocal) != 0 ? HEDDLE_WHEN_LOCAL : HEDDLE_WHEN_REMOTE};
  const Kind kind = (flags & QueuedBlock::kGet) != 0 ? Kind::get : Kind::put;
  const Block one{kind, block.local, flags >> QueuedBlock::kFlagBits, block.remote, block.offset};
  const std::uint32_t rank = block.remote->rank;
  const base::Status status = cancel == HEDDLE_DONE ? worker.try_block(one, completion) : cancel;
  worker.end_queued(status, completion, rank);
  return status;
}

void write_packet(const heddle_am_message& message, std::byte* packet) {
  std::memset(packet, 0, transport::ShortMessage::kMostBytes);
  if (message.header_bytes != 0) std::memcpy(packet, message.header, message.header_bytes);
  if (message.payload_bytes != 0) {
    std::memcpy(packet + wire::pad8(message.header_bytes), message.payload, message.payload_bytes);
  }
}

base::Status run_short(Worker& worker, const std::byte* bytes, base::Status cancel) {
  transport::ShortMessage packet;
  std::memcpy(&packet, bytes, sizeof packet);
  base::Status status = cancel;
  if (cancel == HEDDLE_DONE) {
    const auto read = wire::decode_am(packet.immediate, {packet.packet, packet.bytes});
    const heddle_am_message message{read->handler, read->header_bytes, read->header, read->payload,
                                    read->payload_bytes};
    status = worker.try_am({packet.rank, packet.worker}, message, {});
  }
  worker.end_queued(status, {}, packet.rank);
  return status;
}

// ---- small-message offload ---------------------------------------------------------------------------------------------------

namespace {

base::Status run_registered(Worker& worker, const std::byte* bytes, base::Status cancel) {
  const base::Status status = run_message(worker, bytes, cancel);
  if (status == HEDDLE_AGAIN) return status;
  QueuedMessage head;
  std::memcpy(&head, bytes, sizeof head);
  worker.gate()->executed_small(head.payload_bytes);
  return status;
}

}  // namespace

base::Status Gate::post_small(const MessageCommand& command) {
  const std::uint64_t bytes = command.message->payload_bytes;
  if (inside()) return command.start(worker_);
  // Without a completion nobody could know when the source is free; what is captured is copied already.
  if (bytes <= QueuedMessage::kMostCaptured || !command.completion->observed()) return post_now(command);
  return register_or_post(command, bytes);
}

base::Status Gate::post_small(const SendCommand& command) {
  const std::uint64_t bytes = command.request.bytes;
  // What is registered goes first: tagged messages keep their order.
  if (inside()) return queued() ? enqueue(command) : command.start(worker_);
  if (bytes <= QueuedMessage::kMostCaptured || !command.completion->observed()) return post_now(command);
  // A long one is offered: it is not copied.
  if (bytes > worker_.tagged().eager()) return post_now(command);
  return register_or_post(command, bytes);
}

template <class Command>
base::Status Gate::register_or_post(const Command& command, std::uint64_t bytes) {
  Helpers& helpers = worker_.context().helpers();
  base::Clock& clock = worker_.context().clock();
  const SmallOffload::Plan plan = small_->plan(bytes, helpers.rounds(), helpers.asleep());
  const std::uint64_t begin = plan.timed ? clock.now_ns() : 0;
  if (plan.registers && enqueue_small(command)) {
    if (plan.timed) small_->registered(clock.now_ns() - begin);
    // Partner: the barrier in Helpers::sleep(), between its store and its look at the queue.
    if (helpers.asleep()) helpers.wake();
    return HEDDLE_POSTED;
  }
  const base::Status status = post_now(command);
  if (plan.timed && !plan.registers && status != HEDDLE_AGAIN) small_->submitted(bytes, clock.now_ns() - begin);
  return status;
}

// False: the queue is full.
template <class Command>
bool Gate::enqueue_small(const Command& command) {
  QueuedMessage head;
  Encoded encoded;
  encode(command, worker_, &head, &encoded);
  encoded.run = &run_registered;
  if (enqueue(encoded) == HEDDLE_AGAIN) return false;
  small_->count_registered();
  return true;
}

base::Status run_message(Worker& worker, const std::byte* bytes, base::Status cancel) {
  QueuedMessage head;
  std::memcpy(&head, bytes, sizeof head);
  bytes += sizeof head;
  Completion completion;
  if (head.observed) {
    std::memcpy(static_cast<void*>(&completion), bytes, sizeof completion);
    bytes += sizeof completion;
  }
  const void* payload = bytes + head.header_bytes;
  if (!head.captured) std::memcpy(static_cast<void*>(&payload), bytes + head.header_bytes, sizeof payload);
  base::Status status = cancel;
  if (head.handler == QueuedMessage::kTagged) {
    SendRequest request{head.target, 0, payload, head.payload_bytes};
    std::memcpy(&request.tag, bytes, sizeof request.tag);
    if (cancel == HEDDLE_DONE) status = worker.tagged().send(request, completion);
    if (status < HEDDLE_DONE) worker.tagged().give_back<true>(head.target, head.payload_bytes);
  } else {
    const heddle_am_message message{head.handler, head.header_bytes, bytes, payload, head.payload_bytes};
    if (cancel == HEDDLE_DONE) status = worker.try_am(head.target, message, completion);
    if (status < HEDDLE_DONE && worker.is_offered(message)) worker.give_offer_back();
    if (status < HEDDLE_DONE && head.handler >= HEDDLE_AM_USER) worker.give_credit_back(head.target, message);
  }
  worker.end_queued(status, completion, head.target.rank);
  return status;
}

Gate::Round Gate::execute_round(ExecutorRole role) {
  if (!enter()) return Round::waiting;
  std::size_t done = role != ExecutorRole::completions ? drain() : 0;
  if (role != ExecutorRole::commands) {
    add_one(polls_);
    completer_asleep_ = false;
    done += static_cast<std::size_t>(worker_.progress_inside());
  }
  const bool open = role == ExecutorRole::commands ? stalled_ : executor_wanted();
  leave();
  if (done != 0) return Round::busy;
  return open ? Round::waiting : Round::idle;
}

bool Gate::prepare_sleep(ExecutorRole role) {
  if (!enter()) return false;
  bool may = role == ExecutorRole::commands ? !stalled_ : !executor_wanted();
  // Armed or not where the transport cannot ring: then the sleep is short.
  if (may && role != ExecutorRole::commands && worker_.can_ring()) may = worker_.arm_inside();
  if (may && role != ExecutorRole::completions) may = queue_->prepare_sleep();
  completer_asleep_ = may && role == ExecutorRole::completions;
  leave();
  return may;
}

bool Gate::is_quiet() {
  if (!worker_.can_ring()) return true;
  if (!enter()) return false;
  const bool quiet = !worker_.has_arrivals_inside();
  leave();
  return quiet;
}

}  // namespace heddle::engine
