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

// What other threads read of a request (has_requests, has_pending): with it they see what its user
// wrote before. On x86 as cheap as a plain variable.
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
  // A receive of the short path: into the program's memory, once. What is below `packed_bytes` is
  // not set but for `receive`.
  bool plain = false;
  Mode mode = Mode::standard;
  // Of sends: MPI_SUCCESS or an error's class once the source may be reused; kPending before.
  // Release by the completion, acquire by who waits.
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
  std::uint64_t sum = 0;                // of what is sent; see check/buffers.hpp
  std::unique_ptr<std::byte[]> packed;  // of a type that is not contiguous: what is on the way
  Outcome outcome;                      // if it is complete
  std::unique_ptr<Operation> operation;
  // With MPI_THREAD_MULTIPLE: a thread tests the operation, or ends it. Acquire by who takes its
  // turn, release by who leaves.
  std::atomic<bool> in_turn{false};
};

// What a receive asks for: a rank or MPI_ANY_SOURCE, a tag or MPI_ANY_TAG, and the bytes that its
// buffer takes.
struct Wanted {
  int source;
  int tag;
  std::size_t room;
};
// What the engine tells of a receive that has ended.
Outcome outcome_of(const Comm& comm, const Wanted& wanted, const heddle_receive& receive, heddle_status status);

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
// What MPI_Mprobe gave; null: none.
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
// There are requests of the communicator, inactive ones of persistent operations included.
bool has_requests(const Comm& comm);
// Operations of the communicator are under way. Makes progress on those that are neither sends nor
// receives, also beside the threads that test them. Whether the program has asked for the end of
// one does not matter.
bool has_pending(const Comm& comm);

// Makes progress. True: it has ended, is inactive or complete; `request.outcome` says how.
bool poll_request(Request& request);
// Waits until it has ended.
void wait_request(Request& request);
// Of an active plain receive: waits, stores its status but for MPI_ERROR, and it is gone. False: it
// has ended in another way than well, is complete, and is there yet.
bool wait_plain(Request& request, MPI_Status* status);
// After either: a persistent request is inactive now, another one is gone. *outcome is its outcome.
void finish_request(Request& request, Outcome* outcome);
// Begins a run of a persistent send or receive, or the only one of another. Errors: of the
// arguments that the engine finds.
int start_request(Request& request);
// Of sends and receives (sends.cpp, receives.cpp): what start_request() does.
int begin_send(Request& request);
int begin_receive(Request& request);
// Of the program's MPI_Request_free: it goes when it has ended.
int free_request(Request& request);

}  // namespace heddle::mpi
