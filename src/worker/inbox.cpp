#include "worker/inbox.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/fence.hpp"
#include "engine/handlers.hpp"
#include "worker/executor.hpp"

namespace heddle::worker {

using transport::Command;
using transport::Opcode;

Inbox::Inbox(Worker& worker, std::uint32_t records, std::unique_ptr<SmallOffload> small)
    : worker_(worker),
      tracer_(worker.context().tracer()),
      short_end_(worker.core().is_told ? 0 : kShortBytes + 1),
      block_end_(worker.core().is_told ? 0 : std::uint64_t{1} << (64 - QueuedBlock::kFlagBits)),
      copies_messages_(worker.context().transport().capabilities().copies_messages),
      small_(std::move(small)),
      queue_(std::max<std::uint32_t>(records, kMostRecords)) {}

// ---- producers ----------------------------------------------------------------------------------

void Inbox::wake_executor() {
  executor_->wake();
}

// Notes an event of a traced job.
void Inbox::note(tap::TraceEvent event, std::uint64_t position) const {
  tap::TraceRecord record{};
  record.id = position;
  record.worker = static_cast<std::uint8_t>(worker_.index());
  record.event = event;
  tracer_->note_many(record);
}

// False: the queue is full.
template <class Write>
inline bool Inbox::put_one(Run run, Write&& write) {
  const Queue::Put put = queue_.put([&](queue::CommandBytes& body) {
    std::memcpy(body.bytes, static_cast<const void*>(&run), sizeof run);
    write(body.bytes + sizeof run);
  });
  if (put == Queue::Put::wake) [[unlikely]]
    wake_executor();
  return put != Queue::Put::full;
}

namespace {

// Writes bytes one after the other into the bodies of a claimed command.
class BodyWriter {
 public:
  BodyWriter(queue::CommandQueue<>& queue, const queue::CommandQueue<>::Command& command)
      : queue_(queue), command_(command) {}

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t part = std::min(bytes.size(), sizeof(queue::CommandBytes) - within_);
      std::memcpy(queue_.body(command_, record_).bytes + within_, bytes.data(), part);
      bytes = bytes.subspan(part);
      within_ += part;
      if (within_ == sizeof(queue::CommandBytes)) {
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

bool Inbox::put_parts(Run run, std::span<const Part> parts) {
  std::size_t bytes = sizeof run;
  for (const Part& part : parts) bytes += part.size();
  const Queued claimed = queue_.claim(static_cast<std::uint32_t>((bytes + kBodyBytes - 1) / kBodyBytes));
  if (!claimed) return false;
  {
    // The queue's own atomics order its memory, and ThreadSanitizer does not see them.
    const base::HiddenAccesses hidden(base::has_thread_sanitizer());
    BodyWriter writer(queue_, claimed);
    writer.write(part_of(run));
    for (const Part& part : parts) writer.write(part);
  }
  if (base::has_thread_sanitizer()) [[unlikely]]
    base::show_release(worker_.core().order());
  if (queue_.publish(claimed)) [[unlikely]]
    wake_executor();
  if (tracer_ != nullptr) note(tap::TraceEvent::queued, claimed.end());
  return true;
}

base::Status Inbox::put(const Command& command, const engine::CallersCompletion& completion) {
  if (!command.inlined || command.bytes >= short_end_ || completion.notifies()) [[unlikely]] {
    return put_other(command, completion, false);
  }
  const bool put = put_one(&run_short, [&](std::byte* to) {
    const ShortMessage head{std::uint64_t{command.worker} << 32 | command.rank,
                            command.bytes << 32 | command.immediate};
    std::memcpy(to, &head, sizeof head);
    transport::copy_words(to + sizeof head, command.packet, command.bytes);
  });
  return put ? HEDDLE_DONE : HEDDLE_AGAIN;
}

// Out of line, so that a short message costs no registers.
[[gnu::noinline]] base::Status Inbox::put_other(const Command& command, const engine::CallersCompletion& completion,
                                                bool registered) {
  if (command.opcode == Opcode::message) return put_message(command, completion, registered);
  const engine::Kind kind = command.opcode == Opcode::put ? engine::Kind::put : engine::Kind::get;
  return put(engine::BlockTransfer{kind, static_cast<std::byte*>(command.local), command.bytes,
                                   engine::RemoteRegion::of(command.remote), command.offset},
             completion);
}

base::Status Inbox::put_message(const Command& command, const engine::CallersCompletion& completion, bool registered) {
  const bool copied = copies(command);
  const bool notifies = completion.notifies();
  const QueuedMessage head{
      command.rank,      command.worker,
      command.immediate, static_cast<std::uint16_t>(copied ? command.packet_bytes() : command.header_bytes),
      notifies,          copied,
      registered};
  std::array<Part, 6> parts;
  std::size_t count = 0;
  parts[count++] = part_of(head);
  if (notifies) parts[count++] = part_of(completion);
  std::array<std::byte, 8> zeros{};
  if (command.header_bytes != 0) {
    parts[count++] = {static_cast<const std::byte*>(command.header), command.header_bytes};
    const std::uint32_t padding = wire::pad8(command.header_bytes) - command.header_bytes;
    if (copied) parts[count++] = std::span(zeros).first(padding);
  }
  if (copied) {
    parts[count++] = {static_cast<const std::byte*>(command.source()), command.bytes};
  } else {
    parts[count++] = part_of(command.local);
    parts[count++] = part_of(command.bytes);
  }
  if (!put_parts(&run_message, std::span(parts).first(count))) return HEDDLE_AGAIN;
  return copied && !notifies ? HEDDLE_DONE : HEDDLE_POSTED;
}

base::Status Inbox::put(const engine::BlockTransfer& block, const engine::CallersCompletion& completion) {
  const bool callback = completion.fn != nullptr;
  if ((callback && completion.counter != nullptr) || block.bytes >= block_end_) [[unlikely]] {
    return put(TransferStart{block.kind, engine::Pieces(block), block.remote->rank, completion});
  }
  const std::uint64_t flags = (block.kind == engine::Kind::get ? QueuedBlock::kGet : 0) |
                              (callback ? QueuedBlock::kCallback : 0) |
                              (completion.when == HEDDLE_WHEN_LOCAL ? QueuedBlock::kLocal : 0);
  const bool put = put_one(&run_block, [&](std::byte* to) {
    static_assert(sizeof(Run) + sizeof(QueuedBlock) <= kBodyBytes && alignof(QueuedBlock) <= 8);
    auto* queued = new (to) QueuedBlock;
    queued->local = block.local;
    queued->remote = block.remote;
    queued->offset = block.offset;
    queued->bytes_and_flags = block.bytes << QueuedBlock::kFlagBits | flags;
    if (callback) {
      queued->fn = completion.fn;
    } else {
      queued->counter = completion.counter;
    }
    queued->arg = completion.arg;
  });
  return put ? HEDDLE_POSTED : HEDDLE_AGAIN;
}

// ---- the consumer -------------------------------------------------------------------------------

engine::CallersCompletion Inbox::QueuedBlock::completion() const {
  const bool callback = (bytes_and_flags & kCallback) != 0;
  return {callback ? fn : nullptr, arg, callback ? nullptr : counter,
          (bytes_and_flags & kLocal) != 0 ? HEDDLE_WHEN_LOCAL : HEDDLE_WHEN_REMOTE};
}

engine::BlockTransfer Inbox::QueuedBlock::block() const {
  return {(bytes_and_flags & kGet) != 0 ? engine::Kind::get : engine::Kind::put, local, bytes_and_flags >> kFlagBits,
          remote, offset};
}

// An executor that has slept looks for dead ranks before it posts, since threads that post to it
// make no progress. A command that goes into a dead rank's ring is lost, and quiet would not know.
[[gnu::cold, gnu::noinline]] void Inbox::note_failures() {
  if (engine::inside_of() == nullptr) static_cast<void>(worker_.completer().progress());
}

std::size_t Inbox::drain(bool by_helper) {
  if (executor_ != nullptr && !worker_.completer().knows_failures()) [[unlikely]]
    note_failures();
  by_helper_ = by_helper;
  std::size_t started = 0;
  Queued queued;
  const engine::Inside busy(worker_.core());
  // A command that the transport refused is retried alone.
  std::size_t most = std::exchange(stalled_, false) ? 1 : kBatch;
  while (started < kBatch && queue_.take(&queued)) {
    if (const std::size_t posted = post_run(queued, std::min(most, kBatch - started)); posted != 0) {
      started += posted;
      most = kBatch;
      continue;
    }
    started_ = queued.end();
    if (base::has_thread_sanitizer()) [[unlikely]]
      base::show_acquire(worker_.core().order());  // of the thread that has put it here
    if (execute(queued, HEDDLE_DONE) == HEDDLE_AGAIN) {
      started_ = queued.position;
      queue_.put_back(queued.position);
      stalled_ = true;
      break;
    }
    queue_.release(queued);
    ++started;
    most = kBatch;
  }
  if (started > 0) worker_.core().note_moved();
  if (started > 0 && tracer_ != nullptr) note(tap::TraceEvent::started, started_);
  if (started > 0 && worker_.context().objects().retired()) [[unlikely]]
    worker_.context().objects().reclaim();
  return started;
}

// Constructs the prepared command at `room`. False: the command must be posted alone.
inline bool Inbox::read_short(const std::byte* bytes, std::byte* room, bool* tagged) const {
  ShortMessage head;
  std::memcpy(&head, bytes, sizeof head);
  auto* command = new (room) Command(head.rank(), head.worker(), head.immediate());
  command->inlined = true;
  command->bytes = head.bytes();
  static_cast<void>(engine::Requester::prepare(*command));  // of a message: always
  transport::copy_words(command->packet, bytes + sizeof head, head.bytes());
  if (protocol::is_tagged(*command)) [[unlikely]] {
    *tagged = true;
    return worker_.tagged().ordered();
  }
  return true;
}

// The same for a block. False also if somebody is told of its end, or if it takes more than one
// command.
bool Inbox::read_block(const std::byte* bytes, std::byte* room) const {
  QueuedBlock block;
  std::memcpy(static_cast<void*>(&block), bytes, sizeof block);
  auto* command = new (room) Command;
  return !block.completion().notifies() && worker_.core().requester.whole(block.block(), command) &&
         engine::Requester::prepare(*command);
}

// Hands several commands to the transport in one call: `first`, which was taken, and those that
// follow it. Returns how many were posted.
std::size_t Inbox::post_run(const Queued& first, std::size_t most) {
  // The commands are constructed one by one, since most runs are short.
  alignas(Command) std::byte room[kBatch * sizeof(Command)];
  static_assert(std::is_trivially_destructible_v<Command>);
  std::byte* next = room;
  bool tagged = false;
  queue_.put_back(first.position);
  const std::size_t count = queue_.take_row(most, [&](const queue::CommandBytes& body) {
    Run run = nullptr;
    std::memcpy(static_cast<void*>(&run), body.bytes, sizeof run);
    const std::byte* bytes = body.bytes + sizeof run;
    if (run == &run_short) [[likely]] {
      if (!read_short(bytes, next, &tagged)) return false;
    } else if (run != &run_block || !read_block(bytes, next)) {
      return false;
    }
    next += sizeof(Command);
    return true;
  });
  const std::span commands(std::launder(reinterpret_cast<Command*>(room)), count);
  std::size_t posted = 0;
  if (count != 0) posted = tagged ? worker_.post(commands) : worker_.core().requester.post(commands);
  const Queued done{first.position, static_cast<std::uint32_t>(posted)};
  // Commands that were taken but not posted go back; if nothing was posted the caller keeps the
  // first one.
  queue_.put_back(posted == 0 ? first.end() : done.end());
  if (posted == 0) return 0;
  started_ = done.end();
  queue_.release(done);
  return posted;
}

base::Status Inbox::execute(const Queued& queued, base::Status cancel) {
  alignas(8) std::array<std::byte, kMostRecords * kBodyBytes> gathered;
  const std::byte* bytes = queue_.body(queued).bytes;
  if (queued.records > 1) {
    for (std::uint32_t i = 0; i < queued.records; ++i) {
      std::memcpy(gathered.data() + i * kBodyBytes, queue_.body(queued, i).bytes, kBodyBytes);
    }
    bytes = gathered.data();
  }
  Run run = nullptr;
  std::memcpy(static_cast<void*>(&run), bytes, sizeof run);
  return run(*this, bytes + sizeof run, cancel);
}

base::Status Inbox::run_short(Inbox& inbox, const std::byte* bytes, base::Status cancel) {
  ShortMessage head;
  std::memcpy(&head, bytes, sizeof head);
  Command command(head.rank(), head.worker(), head.immediate());
  command.set_message(nullptr, 0, bytes + sizeof head, head.bytes());
  return inbox.start_message(command, {}, cancel);
}

base::Status Inbox::run_message(Inbox& inbox, const std::byte* bytes, base::Status cancel) {
  QueuedMessage head;
  std::memcpy(&head, bytes, sizeof head);
  bytes += sizeof head;
  engine::CallersCompletion completion;
  if (head.notifies) {
    std::memcpy(static_cast<void*>(&completion), bytes, sizeof completion);
    bytes += sizeof completion;
  }
  Command command(head.rank, head.worker, head.immediate);
  if (head.copied) {
    command.set_message(nullptr, 0, bytes, head.bytes);
  } else {
    command.header = bytes;
    command.header_bytes = head.bytes;
    std::memcpy(static_cast<void*>(&command.local), bytes + head.bytes, sizeof command.local);
    std::memcpy(&command.bytes, bytes + head.bytes + sizeof command.local, sizeof command.bytes);
  }
  const std::uint64_t packet_bytes = command.packet_bytes();
  const base::Status status = inbox.start_message(command, completion, cancel);
  if (head.registered && status != HEDDLE_AGAIN) inbox.small_->executed(packet_bytes, inbox.by_helper_);
  return status;
}

base::Status Inbox::start_message(Command& command, const engine::CallersCompletion& completion, base::Status cancel) {
  const std::uint32_t rank = command.rank;
  const base::Status status = cancel == HEDDLE_DONE ? worker_.post(command, completion) : cancel;
  if (status < HEDDLE_DONE) worker_.give_back(command);
  worker_.core().operations.end_queued(status, completion, rank);
  return status;
}

base::Status Inbox::run_block(Inbox& inbox, const std::byte* bytes, base::Status cancel) {
  QueuedBlock queued;
  std::memcpy(static_cast<void*>(&queued), bytes, sizeof queued);
  const engine::CallersCompletion completion = queued.completion();
  const std::uint32_t rank = queued.remote->rank;
  const base::Status status =
      cancel == HEDDLE_DONE ? inbox.worker_.core().requester.try_block(queued.block(), completion) : cancel;
  inbox.worker_.core().operations.end_queued(status, completion, rank);
  return status;
}

void Inbox::cancel_all(base::Status status) {
  const engine::Inside busy(worker_.core());
  Queued queued;
  while (queue_.take(&queued)) {
    execute(queued, status);
    queue_.release(queued);
  }
  stalled_ = false;
}

}  // namespace heddle::worker
