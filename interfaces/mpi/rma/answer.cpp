// Answers the questions of ranks that do not map this process's memory. Runs in handlers, on any
// thread.
#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <new>
#include <span>

#include "mpi/rma/ask.hpp"
#include "mpi/rma/atomic.hpp"
#include "mpi/rma/dynamic.hpp"
#include "mpi/rma/locks.hpp"

namespace heddle::mpi {

std::atomic<std::size_t> g_answers{0};

namespace {

// An answer on its way. Freed when the engine has sent it.
struct Answer {
  heddle_worker worker{};
  heddle_peer to{};
  AnswerHeader header{};
  std::unique_ptr<std::byte[]> payload;
  std::size_t payload_bytes = 0;

  // Room for `bytes` bytes of data.
  std::byte* room(std::size_t bytes) {
    if (bytes <= sizeof header.data) {
      header.bytes = static_cast<std::uint32_t>(bytes);
      return header.data;
    }
    payload = std::make_unique<std::byte[]>(bytes);
    payload_bytes = bytes;
    return payload.get();
  }
};

std::mutex g_waiting_mutex;  // guards the list
std::list<Answer*> g_waiting;

void answer_sent(void* arg, heddle_status /*status*/) {
  delete static_cast<Answer*>(arg);
}

// False: the engine does not take it now. After an error the answer is dropped: the other rank has
// died.
bool try_answer(Answer* answer) {
  const heddle_am_message message{kAnswerHandler, sizeof(AnswerHeader), &answer->header, answer->payload.get(),
                                  answer->payload_bytes};
  const heddle_completion completion{answer_sent, answer, {}, HEDDLE_WHEN_LOCAL};
  const heddle_status status = heddle_try_am(answer->worker, answer->to, &message, &completion);
  if (status == HEDDLE_AGAIN) return false;
  if (status != HEDDLE_POSTED) delete answer;
  return true;
}

void send_answer(std::unique_ptr<Answer> answer) {
  if (try_answer(answer.get())) {
    static_cast<void>(answer.release());
    return;
  }
  const std::scoped_lock lock(g_waiting_mutex);
  g_waiting.push_back(answer.release());
  g_answers.fetch_add(1, std::memory_order_relaxed);
}

// ---- the questions ------------------------------------------------------------------------------

// One question as it arrived.
struct Arrival {
  Win& win;
  AskHeader header;
  const std::byte* payload;
  std::size_t bytes;
  std::uint32_t from;  // rank of the job

  [[nodiscard]] Guarded guarded() const { return {win, win.comm->rank, *win.control, true}; }
};

// The memory of a run; null: it is not within the window, or not attached.
std::byte* memory_of(Win& win, std::uint64_t offset, std::uint64_t bytes) {
  if (!win.dynamic()) {
    const auto all = static_cast<std::uint64_t>(win.bytes);
    if (bytes > all || offset > all - bytes) return nullptr;
    return static_cast<std::byte*>(win.base) + offset;
  }
  return is_attached(win, offset, bytes) ? static_cast<std::byte*>(pointer_from(offset)) : nullptr;
}

const Type* element_at(std::uint32_t number) {
  return number < kMostBasicTypes && g_basic_types[number].predefined ? &g_basic_types[number] : nullptr;
}

// Bytes in memory of elements of a run.
std::uint64_t span_of(const Type& element, std::uint64_t count) {
  return count == 0 ? 0
                    : (count - 1) * static_cast<std::uint64_t>(element.extent) +
                          static_cast<std::uint64_t>(element.true_extent);
}

int do_accumulate(const Arrival& in, Answer& answer) {
  const Type* const element = element_at(in.header.type);
  if (element == nullptr) return MPI_ERR_TYPE;
  Op op;
  op.kind = static_cast<OpKind>(in.header.detail);
  const Run one{in.header.offset, in.header.count};
  const Run* runs = in.header.runs == 1 ? &one : reinterpret_cast<const Run*>(in.payload);
  const std::byte* operands = in.payload + (in.header.runs == 1 ? 0 : in.header.runs * sizeof(Run));
  if (in.payload == nullptr || op.kind == OpKind::no_op) operands = nullptr;
  const std::span all(runs, in.header.runs);
  std::uint64_t count = 0;
  for (const Run& run : all) {
    if (memory_of(in.win, run.offset, span_of(*element, run.count)) == nullptr) return MPI_ERR_RMA_RANGE;
    count += run.count;
  }
  std::byte* old = nullptr;
  if (in.header.fetch != 0) old = answer.room(count * static_cast<std::uint64_t>(element->size));
  for (const Run& run : all) {
    std::byte* const target = memory_of(in.win, run.offset, span_of(*element, run.count));
    if (const int code =
            accumulate_here(in.guarded(), op, *element, operands, target, old, static_cast<MPI_Count>(run.count));
        code != MPI_SUCCESS)
      return code;
    const std::uint64_t bytes = run.count * static_cast<std::uint64_t>(element->size);
    if (operands != nullptr) operands += bytes;
    if (old != nullptr) old += bytes;
  }
  return MPI_SUCCESS;
}

// The payload: the value to compare, then the new one.
int do_compare_swap(const Arrival& in, Answer& answer) {
  const Type* const element = element_at(in.header.type);
  if (element == nullptr) return MPI_ERR_TYPE;
  const auto bytes = static_cast<std::size_t>(element->size);
  std::byte* const target = memory_of(in.win, in.header.offset, bytes);
  if (target == nullptr) return MPI_ERR_RMA_RANGE;
  if (in.bytes != 2 * bytes) return MPI_ERR_INTERN;
  return compare_swap_here(in.guarded(), *element, in.payload, in.payload + bytes, target, answer.room(bytes));
}

int do_question(const Arrival& in, Answer& answer) {
  switch (in.header.question) {
    case Question::accumulate:
      return do_accumulate(in, answer);
    case Question::compare_swap:
      return do_compare_swap(in, answer);
    case Question::lock:
      answer.room(1)[0] = static_cast<std::byte>(try_lock_step(
          in.win, *in.win.control, static_cast<LockStep>(in.header.detail), in.win.comm->rank_of_job(in.from)));
      return MPI_SUCCESS;
    case Question::version: {
      const std::uint64_t version = in.win.control->version.load(std::memory_order_acquire);
      std::memcpy(answer.room(sizeof version), &version, sizeof version);
      return MPI_SUCCESS;
    }
    case Question::resolve: {
      alignas(8) std::byte told[HEDDLE_PACKED_REGION_BYTES + 32];
      std::uint32_t length = 0;
      const int code = answer_resolve(in.win, in.header.offset, told, &length);
      if (code == MPI_SUCCESS) std::memcpy(answer.room(length), told, length);
      return code;
    }
  }
  return MPI_ERR_INTERN;
}

}  // namespace

bool post_answers() {
  bool moved = false;
  for (std::size_t most = g_answers.load(std::memory_order_relaxed); most > 0; --most) {
    Answer* answer = nullptr;
    {
      // Not held while the engine is called: it may run handlers.
      const std::scoped_lock lock(g_waiting_mutex);
      if (g_waiting.empty()) return moved;
      answer = g_waiting.front();
      g_waiting.pop_front();
    }
    const bool sent = try_answer(answer);
    if (!sent) {
      const std::scoped_lock lock(g_waiting_mutex);
      g_waiting.push_back(answer);
      continue;
    }
    g_answers.fetch_sub(1, std::memory_order_relaxed);
    moved = true;
  }
  return moved;
}

void on_ask(const heddle_am_arrival* message, void* /*arg*/) {
  if (g_answers.load(std::memory_order_relaxed) != 0) post_answers();
  AskHeader header;
  if (message->header_bytes != sizeof header) return;
  std::memcpy(&header, message->header, sizeof header);
  auto answer = std::make_unique<Answer>();
  answer->worker = message->worker;
  answer->to = message->source;
  answer->header.ticket = header.ticket;
  Win* const win = g_windows.at(header.window);
  answer->header.code = win == nullptr ? MPI_ERR_WIN
                                       : do_question({*win, header, static_cast<const std::byte*>(message->payload),
                                                      message->payload_bytes, message->source.rank},
                                                     *answer);
  send_answer(std::move(answer));
}

}  // namespace heddle::mpi
