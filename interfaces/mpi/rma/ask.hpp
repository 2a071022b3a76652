// Messages to a target about its memory that is not mapped here. The target's handler executes the
// question, on whatever thread makes progress there, and answers. It changes the memory by the same
// atomic instructions as the ranks that map it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "mpi/messages/operation.hpp"
#include "mpi/rma/win.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

// Numbers of handlers of class NETWORK.
inline constexpr std::uint32_t kAskHandler = 1000;
inline constexpr std::uint32_t kAnswerHandler = 1001;

// The parts of a request's operation that are under way. The count begins with one, for the call
// that issues them.
struct Tracker {
  std::atomic<std::uint32_t> left{1};  // release: a part ends; acquire: the thread that waits
  std::atomic<int> code{MPI_SUCCESS};  // the first error
  Far* far = nullptr;                  // of a put or get; they all have one target
  void add() { left.fetch_add(1, std::memory_order_relaxed); }
  // The tracker may be gone afterwards.
  void end(int ended) {
    int none = MPI_SUCCESS;
    if (ended != MPI_SUCCESS) code.compare_exchange_strong(none, ended, std::memory_order_relaxed);
    left.fetch_sub(1, std::memory_order_release);
  }
};
// Notes how a part of an operation without a request ended: the next flush reports it.
inline void note(Far& far, int code) {
  int none = MPI_SUCCESS;
  if (code != MPI_SUCCESS) far.failed.compare_exchange_strong(none, code, std::memory_order_relaxed);
}

enum class Question : std::uint8_t { accumulate, compare_swap, lock, resolve, version };

struct AskHeader {
  std::uint32_t window = 0;  // the target's number
  Question question = Question::accumulate;
  std::uint8_t detail = 0;  // accumulate: the OpKind; lock: the LockStep
  std::uint8_t fetch = 0;   // accumulate: the old values are asked for
  std::uint8_t unused = 0;
  std::uint32_t type = 0;  // number of the predefined type of the elements
  // of elements; their descriptions (Run) come first in the payload, unless it is one
  std::uint32_t runs = 0;
  std::uint64_t ticket = 0;
  // of the only run, from the window's start; an absolute address in a dynamic window
  std::uint64_t offset = 0;
  std::uint64_t count = 0;  // its elements; bytes to resolve
};

struct AnswerHeader {
  std::uint64_t ticket = 0;
  std::int32_t code = MPI_SUCCESS;
  std::uint32_t bytes = 0;  // of `data`, if there is no payload
  std::byte data[32];
};

// `count` elements in memory, their extent apart.
struct Run {
  std::uint64_t offset;
  std::uint64_t count;
};

// One question. It is freed when the engine has sent it and the answer has arrived. If a thread
// waits for the answer, that thread frees it.
struct Asked {
  AskHeader header{};
  std::unique_ptr<std::byte[]> payload;
  std::size_t payload_bytes = 0;
  std::atomic<int> left{2};  // the sending and the answer. Release; acquire at the end
  bool waited = false;
  // The sending has failed without an answer. This is reported, but the question is not freed,
  // because an answer may still arrive.
  bool lost = false;
  Win* win = nullptr;
  int rank = 0;
  Far* far = nullptr;          // of both; set by post_ask
  Tracker* tracker = nullptr;  // null: the operation has no request
  // Where old values go: bytes [from, …) of the packed form.
  void* result = nullptr;
  MPI_Count result_count = 0;
  MPI_Count result_from = 0;
  Type* result_type = nullptr;  // held
  // The answer, if a thread waits for it.
  int code = MPI_SUCCESS;
  std::uint32_t answer_bytes = 0;
  alignas(8) std::byte answer[HEDDLE_PACKED_REGION_BYTES + 32];

  Asked() = default;
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  ~Asked();
};

// Sends it; the answer follows.
int post_ask(std::unique_ptr<Asked> asked);
// Sends it and waits for the answer: what the target's handler returned, and in *answer what it
// told.
int ask_and_wait(std::unique_ptr<Asked> asked, std::unique_ptr<Asked>* answer);
// The same in two steps. *sent is to be passed to wait_answer(), once; null after an error.
int post_waited(std::unique_ptr<Asked> asked, Asked** sent);
int wait_answer(Asked* sent, std::unique_ptr<Asked>* answer);
// Error: the rank is known to have died. No error if the number is no rank of the window: peers may
// have written any number into their memory.
int check_alive(const Win& win, int rank);
// Asks now and then whether the rank lives.
int after_look(Win& win, int rank, int looks);
// Calls ready() until it is true, and makes progress in between. Error: the rank has died. A death
// is no event of a lane, so it must be looked for.
template <class Ready>
int wait_for_rank(Win& win, int rank, Ready&& ready) {
  int looks = 0;
  int code = MPI_SUCCESS;
  wait_until(*win.comm->lane, [&] {
    if (ready()) return true;
    ++looks;
    if (looks > 1) code = after_look(win, rank, looks);
    return code != MPI_SUCCESS;
  });
  return code;
}
// Calls attempt(), one of the engine's functions that may return HEDDLE_AGAIN, until it does not.
template <class Attempt>
heddle_status until_taken(Win& win, int rank, Attempt&& attempt) {
  heddle_status status = attempt();
  if (status != HEDDLE_AGAIN) [[likely]]
    return status;
  const int code = wait_for_rank(win, rank, [&] { return (status = attempt()) != HEDDLE_AGAIN; });
  return code != MPI_SUCCESS && status == HEDDLE_AGAIN ? HEDDLE_ERR_PEER_FAILED : status;
}
// Waits until fewer than `fewer` questions to the rank are under way. Error: it has died.
int wait_asked(Win& win, int rank, std::uint32_t fewer);

// Makes the handlers known. Before any rank may ask.
int register_handlers();
// The number of answers that the engine did not take inside a handler and that still wait.
// `post_answers` tries them again.
extern std::atomic<std::size_t> g_answers;
bool post_answers();

// The handler of questions (rma/ask.cpp).
void on_ask(const heddle_am_arrival* message, void* arg);
// Answers where the attached memory lies that contains the address: by an AttachedPlace and the
// packed region (rma/make.hpp). `answer` has room for HEDDLE_PACKED_REGION_BYTES + 32 bytes.
int answer_resolve(Win& win, std::uint64_t address, std::byte* answer, std::uint32_t* length);

}  // namespace heddle::mpi
