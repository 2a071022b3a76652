// Requests. A send that was done at once shares one request with all others of its kind, which is
// never active: it costs nothing.
#pragma once

#include <heddle/heddle.h>

#include <atomic>
#include <memory>

#include "mpi/communicators/comm.hpp"
#include "mpi/messages/operation.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

enum class Mode : std::uint8_t { standard, synchronous, ready, buffered };

inline constexpr int kPending = -1;  // of `ended`

// A member of a request that other threads read (has_requests, has_pending). A thread that sees its
// value also sees what the request's user wrote before. On x86 it is as cheap as a plain variable.
template <class T>
class Shown {
 public:
  constexpr explicit Shown(T value) : value_(value) {}
  T operator=(T value) {  // NOLINT(misc-unconventional-assign-operator): so that it can be chained
    value_.store(value, std::memory_order_release);
    return value;
  }
  operator T() const { return value_.load(std::memory_order_acquire); }  // NOLINT(google-explicit-constructor)
  T operator->() const { return *this; }
  [[nodiscard]] T get() const { return *this; }

 private:
  std::atomic<T> value_;
};

struct Request {
  enum class Kind : std::uint8_t {
    unused,  // no handle names it
    done,    // it had ended when it was made
    send,
    receive,
    operation,
    message,  // what MPI_Mprobe found: an MPI_Message, which becomes a receive
  };
  Shown<Kind> kind{Kind::unused};
  bool persistent = false;
  Shown<bool> active{false};
  Shown<bool> complete{false};  // it has ended, and `outcome` says how; still active
  Shown<bool> freed{false};     // by the program; it goes when it has ended
  bool matched = false;         // a receive of a message that was claimed (MPI_Imrecv)
  // A receive of the short path: into the program's memory, once. Of the members after
  // `packed_bytes`, only `receive` is set.
  bool plain = false;
  Mode mode = Mode::standard;
  // For sends: MPI_SUCCESS or an error's class once the source may be reused; kPending before.
  // Release: the completion; acquire: the waiting thread.
  std::atomic<int> ended{MPI_SUCCESS};
  Shown<Comm*> comm{nullptr};
  Lane* lane = nullptr;
  int peer = MPI_PROC_NULL;
  int tag = 0;
  std::size_t packed_bytes = 0;  // of what is sent or received
  heddle_receive receive{};      // of receives
  // What is sent or received.
  void* buffer = nullptr;
  MPI_Count count = 0;
  Type* type = nullptr;                 // held, unless it is predefined
  std::uint64_t sum = 0;                // of what is sent; see core/check.hpp
  std::unique_ptr<std::byte[]> packed;  // of a type that is not contiguous: what is on the way
  Outcome outcome;                      // if it is complete
  std::unique_ptr<MpiOperation> operation;
  // With MPI_THREAD_MULTIPLE: a thread tests the operation, or ends it. Acquire: it takes its turn;
  // release: it ends its turn.
  std::atomic<bool> in_turn{false};
};

// The messages that a receive takes: a rank or MPI_ANY_SOURCE, a tag or MPI_ANY_TAG, and the size
// of its buffer in bytes.
struct WantedMessages {
  int source;
  int tag;
  std::size_t room;
};
// The outcome of a receive that has ended, from what the engine reports.
Outcome outcome_of(const Comm& comm, const WantedMessages& wanted, const heddle_receive& receive, heddle_status status);

// A send that the engine took at once. All such requests are this one.
extern Request g_sent;

// Null: the handle names none. MPI_REQUEST_NULL is none.
Request* request_of(MPI_Request handle);
inline MPI_Request handle_of(Request* request) {
  return reinterpret_cast<MPI_Request>(request);
}
int bad_request(MPI_Request handle);
// Their numbers, for integer handles.
std::uint32_t number_of(const Request* request);
Request* request_at(std::uint32_t number);  // null: none
// The message that MPI_Mprobe returned; null: none.
Request* message_of(MPI_Message handle);
MPI_Message message_handle_of(Request* request);

// Requests that a thread has given back and takes again first, without a lock.
struct KeptRequests {
  static constexpr std::uint32_t kMost = 128;
  std::uint32_t count = 0;
  Request* some[kMost]{};
};
// Null: this thread has kept none yet.
extern constinit thread_local KeptRequests* t_kept [[gnu::tls_model("initial-exec")]];

Request* take_request();  // null: no memory
void give_back(Request* request);
// Null: this thread has kept none.
[[gnu::always_inline]] inline Request* take_kept() {
  KeptRequests* const kept = t_kept;
  return kept != nullptr && kept->count != 0 ? kept->some[--kept->count] : nullptr;
}
void keep(Request* request);
// True: there are requests of the communicator, including inactive ones of persistent operations.
bool has_requests(const Comm& comm);
// True: operations of the communicator are under way. Makes progress on those that are neither
// sends nor receives, even while other threads test them. It does not matter whether the program
// waits for an operation or tests it.
bool has_pending(const Comm& comm);

// Makes progress. True: it has ended, is inactive or complete; `request.outcome` says how.
bool poll_request(Request& request);
// Waits until it has ended.
void wait_request(Request& request);
// Waits for an active plain receive, stores its status except MPI_ERROR, and removes it. False: it
// did not end well; it is complete and still there.
bool wait_plain(Request& request, MPI_Status* status);
// Called after either of them: makes a persistent request inactive, and removes any other. *outcome
// is its outcome.
void finish_request(Request& request, Outcome* outcome);
// Begins a run of a persistent send or receive, or the only run of another one. Errors: errors of
// the arguments that the engine finds.
int start_request(Request& request);
// The part of start_request() for sends and for receives (messages.cpp).
int begin_send(Request& request);
int begin_receive(Request& request);
// For MPI_Request_free: the request is removed when it has ended.
int free_request(Request& request);

}  // namespace heddle::mpi
