#include "mpi/rma/ask.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <new>
#include <span>

#include "mpi/rma/locks.hpp"
#include "mpi/rma/make.hpp"
#include "mpi/rma/operations.hpp"

namespace heddle::mpi {

namespace {

// The thread that brings the count to 0 finishes the question, unless a thread waits for it. The
// waiting thread may free the question as soon as the count is 0.
void end_parts(Asked* asked, bool waited, int parts) {
  if (waited) {
    asked->left.fetch_sub(parts, std::memory_order_release);
    return;
  }
  if (asked->left.fetch_sub(parts, std::memory_order_acq_rel) != parts) return;
  Far& far = *asked->far;
  if (asked->tracker != nullptr)
    asked->tracker->end(asked->code);
  else
    note(far, asked->code);
  if (!asked->lost) delete asked;
  far.asked.fetch_sub(1, std::memory_order_release);
}

void ask_sent(void* arg, heddle_status status) {
  auto* const asked = static_cast<Asked*>(arg);
  const bool waited = asked->waited;
  int parts = 1;
  if (status < 0) {
    // The rank may have answered before it died; if it has not, nobody waits for its answer.
    // Answers arrive inside the worker in which this runs, so none arrives meanwhile.
    parts = asked->left.load(std::memory_order_relaxed);
    asked->lost = parts > 1;
    asked->code = code_of(status);
  }
  end_parts(asked, waited, parts);
}

// Stores the old values. For a thread that waits, it also keeps the answer's data.
void take_answer(Asked& asked, int code, const std::byte* data, std::size_t bytes) {
  if (code != MPI_SUCCESS) asked.code = code;
  if (asked.result != nullptr && code == MPI_SUCCESS)
    unpack_part(data, asked.result_from, static_cast<MPI_Count>(bytes), asked.result, asked.result_count,
                *asked.result_type);
  if (!asked.waited) return;
  asked.answer_bytes = static_cast<std::uint32_t>(std::min(bytes, sizeof asked.answer));
  if (asked.answer_bytes != 0) std::memcpy(asked.answer, data, asked.answer_bytes);
}

void on_answer(const heddle_am_arrival* message, void* /*arg*/) {
  if (message->header_bytes != sizeof(AnswerHeader)) return;
  AnswerHeader header;
  std::memcpy(&header, message->header, sizeof header);
  auto* const asked = static_cast<Asked*>(pointer_from(header.ticket));
  if (asked->lost) return;
  const bool inside = message->payload_bytes == 0;
  take_answer(*asked, header.code, inside ? header.data : static_cast<const std::byte*>(message->payload),
              inside ? header.bytes : message->payload_bytes);
  end_parts(asked, asked->waited, 1);
}

}  // namespace

Asked::~Asked() {
  if (result_type != nullptr) release(result_type);
}

namespace {

// Error: the question was not sent, and has been freed.
heddle_status post_question(std::unique_ptr<Asked> asked) {
  Win& win = *asked->win;
  const auto rank = static_cast<std::size_t>(asked->rank);
  Far& far = win.far[rank];
  Asked* const sent = asked.release();
  const bool waited = sent->waited;
  sent->far = &far;
  sent->header.window = far.number;
  sent->header.ticket = reinterpret_cast<std::uint64_t>(sent);
  if (!waited) far.asked.fetch_add(1, std::memory_order_relaxed);
  const heddle_am_message message{kAskHandler, sizeof(AskHeader), &sent->header, sent->payload.get(),
                                  sent->payload_bytes};
  const heddle_completion completion{ask_sent, sent, {}, HEDDLE_WHEN_LOCAL};
  const heddle_status status = until_taken(win, sent->rank, [&] {
    return heddle_try_am(win.comm->lane->worker, win.comm->members[rank].peer, &message, &completion);
  });
  far.posted.fetch_add(1, std::memory_order_relaxed);
  if (status == HEDDLE_DONE) end_parts(sent, waited, 1);
  if (status >= 0) return status;
  delete sent;
  if (!waited) far.asked.fetch_sub(1, std::memory_order_release);
  return status;
}

}  // namespace

int post_ask(std::unique_ptr<Asked> asked) {
  return code_of(post_question(std::move(asked)));
}

int check_alive(const Win& win, int rank) {
  const auto member = static_cast<std::size_t>(rank);
  if (member >= win.comm->members.size()) return MPI_SUCCESS;
  return code_of(heddle_context_peer_status(g_job.context, win.comm->members[member].peer.rank));
}

int after_look(Win& win, int rank, int looks) {
  constexpr int kLooks = 64;
  return looks % kLooks != 0 ? MPI_SUCCESS : check_alive(win, rank);
}

int post_waited(std::unique_ptr<Asked> asked, Asked** sent) {
  asked->waited = true;
  Asked* const posted = asked.get();
  const heddle_status status = post_question(std::move(asked));
  *sent = status >= 0 ? posted : nullptr;
  return code_of(status);
}

int wait_answer(Asked* sent, std::unique_ptr<Asked>* answer) {
  const int rank = sent->rank;
  const int code = wait_for_rank(*sent->win, rank, [&] { return sent->left.load(std::memory_order_acquire) == 0; });
  // a dead rank's question is never freed: the engine may still have it
  if (code != MPI_SUCCESS) return code;
  const int ended = sent->code;
  if (sent->lost) return error(ended, "rank %d has not answered: the request to it has failed", rank);
  answer->reset(sent);
  if (ended == MPI_SUCCESS) return MPI_SUCCESS;
  return error(ended, "rank %d refused the request: error class %d", rank, ended);
}

int ask_and_wait(std::unique_ptr<Asked> asked, std::unique_ptr<Asked>* answer) {
  Asked* sent = nullptr;
  const int code = post_waited(std::move(asked), &sent);
  return sent == nullptr ? code : wait_answer(sent, answer);
}

int wait_asked(Win& win, int rank, std::uint32_t fewer) {
  Far& far = win.far[static_cast<std::size_t>(rank)];
  return wait_for_rank(win, rank, [&] { return far.asked.load(std::memory_order_acquire) < fewer; });
}

int register_handlers() {
  heddle_status status = heddle_am_register(g_job.context, kAskHandler, on_ask, nullptr);
  if (status >= 0) status = heddle_am_register(g_job.context, kAnswerHandler, on_answer, nullptr);
  return code_of(status);
}

// Answers the questions of ranks that do not map this process's memory. Runs in handlers, on any
// thread.

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
