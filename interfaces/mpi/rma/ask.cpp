#include "mpi/rma/ask.hpp"

#include <algorithm>
#include <cstring>
#include <new>

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

}  // namespace heddle::mpi
