// Heddle in C++20: the C API of heddle.h with owners, spans and awaitable completions. Header only,
// no second semantics. Jobs in one process (heddle_inproc_…) are for tests and have no wrapper:
// pass the handle in heddle_context_options.
//
// Set-up functions throw heddle::Error; operations return the C status and never throw. An owner
// closes its handle when it is destroyed; .handle() gives a copy of the handle for the C functions
// at any time. Declare the context before everything that belongs to it, so that it is destroyed
// last.
#ifndef HEDDLE_HEDDLE_HPP
#define HEDDLE_HEDDLE_HPP

#if __cplusplus < 202002L
#error "heddle.hpp needs C++20 (-std=c++20); heddle.h is C"
#endif

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "heddle/heddle.h"
// An allocator whose memory can be mapped wholly.
#include "heddle/memory.hpp"  // IWYU pragma: export

namespace heddle {

using Status = heddle_status;

// Thrown by set-up functions that fail: the status and the message of heddle_last_error().
class Error : public std::runtime_error {
 public:
  explicit Error(Status status)
      : std::runtime_error(std::string(heddle_status_name(status)) + ": " + heddle_last_error()), status_(status) {}
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  Status status_;
};

// For set-up: throws an error as an exception, returns any other status.
inline Status check(Status status) {
  if (status < 0) throw Error(status);
  return status;
}

// Owner of one handle; closes it with `close`. A moved-from or default owner holds the null handle.
// Assignment closes the handle that it held before.
template <class Handle, heddle_status (*close)(Handle)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) noexcept : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) {
      close_held();
      handle_ = other.release();
    }
    return *this;
  }
  ~Owner() { close_held(); }
  [[nodiscard]] Handle handle() const noexcept { return handle_; }
  [[nodiscard]] explicit operator bool() const noexcept { return handle_.id != 0; }
  // Returns the handle without closing it; the owner then holds the null handle.
  Handle release() noexcept { return std::exchange(handle_, Handle{}); }

 protected:
  Handle handle_{};

 private:
  void close_held() noexcept {
    if (handle_.id != 0) static_cast<void>(close(release()));
  }
};

class Counter : public Owner<heddle_counter, heddle_counter_free> {
 public:
  using Owner::Owner;
  [[nodiscard]] std::uint64_t value() const {
    std::uint64_t value = 0;
    static_cast<void>(heddle_counter_read(handle_, &value));
    return value;
  }
  [[nodiscard]] Status status() const {
    std::uint64_t value = 0;
    return heddle_counter_read(handle_, &value);
  }
  // Sets it to 0 and forgets failures.
  Status reset() const noexcept { return heddle_counter_reset(handle_); }
  // A completion that raises this counter.
  [[nodiscard]] heddle_completion completion(heddle_when when = HEDDLE_WHEN_REMOTE) const noexcept {
    return {nullptr, nullptr, handle_, when};
  }
};

class RemoteRegion : public Owner<heddle_remote_region, heddle_remote_region_release> {
 public:
  using Owner::Owner;
  // The remote address `offset` bytes into the region.
  [[nodiscard]] heddle_remote at(std::uint64_t offset) const noexcept { return {handle_, offset}; }
  [[nodiscard]] std::uint32_t rank() const {
    std::uint32_t rank = 0;
    check(heddle_remote_region_rank(handle_, &rank));
    return rank;
  }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t bytes = 0;
    check(heddle_remote_region_bytes(handle_, &bytes));
    return bytes;
  }
  // A pointer for direct loads and stores, `offset` bytes into the region; null if the region
  // cannot be mapped (or the offset leaves it).
  [[nodiscard]] void* pointer(std::uint64_t offset = 0) const noexcept {
    void* address = nullptr;
    return heddle_remote_pointer(at(offset), &address) == HEDDLE_DONE ? address : nullptr;
  }
  // True: all of these bytes are mapped, so operations on them are direct.
  [[nodiscard]] bool mapped(std::uint64_t offset, std::size_t bytes) const {
    int mapped = 0;
    check(heddle_remote_mapped(at(offset), bytes, &mapped));
    return mapped != 0;
  }
};

class Region : public Owner<heddle_region, heddle_region_release> {
 public:
  using Owner::Owner;
  // The region's memory as an array of T (as many as fit).
  template <class T = std::byte>
  [[nodiscard]] std::span<T> memory() const {
    void* address = nullptr;
    std::size_t bytes = 0;
    check(heddle_region_address(handle_, &address, &bytes));
    return {static_cast<T*>(address), bytes / sizeof(T)};
  }
  [[nodiscard]] std::vector<std::byte> pack() const {
    std::size_t bytes = HEDDLE_PACKED_REGION_BYTES;
    std::vector<std::byte> packed(bytes);
    check(heddle_region_pack(handle_, packed.data(), &bytes));
    packed.resize(bytes);
    return packed;
  }
};

// Awaitable completion of one operation: `Status s = co_await worker.async_put(…)`. The coroutine
// resumes in the thread that makes progress on the worker (or goes on at once if the operation is
// DONE). HEDDLE_AGAIN is a result like any other: make progress and await again. Worker::async_…
// return these objects; Post is a callable (const heddle_completion*) -> Status.
template <class Post>
class Await {
 public:
  explicit Await(Post post) : post_(std::move(post)) {}
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    const heddle_completion completion{&Await::finished, this, {}, HEDDLE_WHEN_REMOTE};
    const Status posted = post_(&completion);
    if (posted == HEDDLE_POSTED) return true;  // finished() resumes
    status_ = posted;
    return false;
  }
  [[nodiscard]] Status await_resume() const noexcept { return status_; }

 private:
  static void finished(void* self, Status status) {
    auto* await = static_cast<Await*>(self);
    await->status_ = status;
    await->waiting_.resume();
  }
  Post post_;
  std::coroutine_handle<> waiting_;
  Status status_ = HEDDLE_DONE;
};

// One thread at a time may use an exclusive worker. For other workers the sharing mode says which
// threads may use them. The functions mean the same as the C functions of the same names. The
// destructor closes the worker. If heddle_worker_close leaves it open after HEDDLE_CLOSE_TIMEOUT,
// leaving the context closes it and ends its operations: their memory, and the objects that their
// completions name, must live until the context has left. A program that must know this calls
// heddle_worker_close(worker.handle()) first.
class Worker : public Owner<heddle_worker, heddle_worker_close> {
 public:
  using Owner::Owner;

  int progress() noexcept { return heddle_worker_progress(handle_); }
  // For the program's own loop: while (!finished) worker.wait();
  Status wait(std::int64_t timeout_ns = HEDDLE_FOREVER) noexcept { return heddle_worker_wait(handle_, timeout_ns); }
  // For a loop that waits for descriptors: becomes readable once the armed worker needs attention.
  [[nodiscard]] int descriptor() const {
    int descriptor = -1;
    check(heddle_worker_descriptor(handle_, &descriptor));
    return descriptor;
  }
  [[nodiscard]] Status arm() noexcept { return heddle_worker_arm(handle_); }
  [[nodiscard]] std::uint32_t index() const {
    std::uint32_t index = 0;
    check(heddle_worker_index(handle_, &index));
    return index;
  }
  [[nodiscard]] heddle_sharing mode() const {
    heddle_sharing mode = HEDDLE_SHARING_DEFAULT;
    check(heddle_worker_mode(handle_, &mode));
    return mode;
  }
  // The pointer that was heddle_worker_options.user.
  [[nodiscard]] void* user() const {
    void* user = nullptr;
    check(heddle_worker_user(handle_, &user));
    return user;
  }
  [[nodiscard]] heddle_worker_stats stats() const {
    heddle_worker_stats stats{};
    stats.size = sizeof stats;
    check(heddle_worker_stats_read(handle_, &stats));
    return stats;
  }

  [[nodiscard]] Status try_put(std::span<const std::byte> source, heddle_remote target,
                               const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_put(handle_, source.data(), source.size(), target, completion);
  }
  [[nodiscard]] Status put(std::span<const std::byte> source, heddle_remote target,
                           const heddle_completion* completion = nullptr) noexcept {
    return heddle_put(handle_, source.data(), source.size(), target, completion);
  }
  [[nodiscard]] Status try_get(std::span<std::byte> target, heddle_remote source,
                               const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_get(handle_, target.data(), target.size(), source, completion);
  }
  [[nodiscard]] Status get(std::span<std::byte> target, heddle_remote source,
                           const heddle_completion* completion = nullptr) noexcept {
    return heddle_get(handle_, target.data(), target.size(), source, completion);
  }
  [[nodiscard]] Status try_put_signal(std::span<const std::byte> source, heddle_remote target,
                                      const heddle_signal& signal,
                                      const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_put_signal(handle_, source.data(), source.size(), target, &signal, completion);
  }
  [[nodiscard]] Status put_signal(std::span<const std::byte> source, heddle_remote target, const heddle_signal& signal,
                                  const heddle_completion* completion = nullptr) noexcept {
    return heddle_put_signal(handle_, source.data(), source.size(), target, &signal, completion);
  }

  // Strided: source and target are those of the first block; the shape gives the other blocks.
  [[nodiscard]] Status try_put_strided(const void* source, heddle_remote target, const heddle_strided& shape,
                                       const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_put_strided(handle_, source, target, &shape, completion);
  }
  [[nodiscard]] Status put_strided(const void* source, heddle_remote target, const heddle_strided& shape,
                                   const heddle_completion* completion = nullptr) noexcept {
    return heddle_put_strided(handle_, source, target, &shape, completion);
  }
  [[nodiscard]] Status try_get_strided(void* target, heddle_remote source, const heddle_strided& shape,
                                       const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_get_strided(handle_, target, source, &shape, completion);
  }
  [[nodiscard]] Status get_strided(void* target, heddle_remote source, const heddle_strided& shape,
                                   const heddle_completion* completion = nullptr) noexcept {
    return heddle_get_strided(handle_, target, source, &shape, completion);
  }

  // The signal follows all blocks.
  [[nodiscard]] Status try_put_strided_signal(const void* source, heddle_remote target, const heddle_strided& shape,
                                              const heddle_signal& signal,
                                              const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_put_strided_signal(handle_, source, target, &shape, &signal, completion);
  }
  [[nodiscard]] Status put_strided_signal(const void* source, heddle_remote target, const heddle_strided& shape,
                                          const heddle_signal& signal,
                                          const heddle_completion* completion = nullptr) noexcept {
    return heddle_put_strided_signal(handle_, source, target, &shape, &signal, completion);
  }

  // Lists: the segments themselves must not change until the completion.
  [[nodiscard]] Status try_put_list(std::span<const heddle_segment> segments,
                                    const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_put_list(handle_, segments.data(), segments.size(), completion);
  }
  [[nodiscard]] Status put_list(std::span<const heddle_segment> segments,
                                const heddle_completion* completion = nullptr) noexcept {
    return heddle_put_list(handle_, segments.data(), segments.size(), completion);
  }
  [[nodiscard]] Status try_get_list(std::span<const heddle_segment> segments,
                                    const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_get_list(handle_, segments.data(), segments.size(), completion);
  }
  [[nodiscard]] Status get_list(std::span<const heddle_segment> segments,
                                const heddle_completion* completion = nullptr) noexcept {
    return heddle_get_list(handle_, segments.data(), segments.size(), completion);
  }

  [[nodiscard]] Status try_atomic(heddle_atomic_op op, heddle_remote target, std::uint64_t operand,
                                  const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_atomic(handle_, op, target, operand, completion);
  }
  [[nodiscard]] Status atomic(heddle_atomic_op op, heddle_remote target, std::uint64_t operand,
                              const heddle_completion* completion = nullptr) noexcept {
    return heddle_atomic(handle_, op, target, operand, completion);
  }
  // Every heddle_atomic_op. The old value is stored in *fetch.result (owned by the operation until
  // its completion).
  [[nodiscard]] Status try_fetch_atomic(heddle_atomic_op op, heddle_remote target, const heddle_fetch& fetch,
                                        const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_fetch_atomic(handle_, op, target, &fetch, completion);
  }
  [[nodiscard]] Status fetch_atomic(heddle_atomic_op op, heddle_remote target, const heddle_fetch& fetch,
                                    const heddle_completion* completion = nullptr) noexcept {
    return heddle_fetch_atomic(handle_, op, target, &fetch, completion);
  }
  // These wait until the value is here.
  [[nodiscard]] Status get_wait(std::span<std::byte> target, heddle_remote source) noexcept {
    return heddle_get_wait(handle_, target.data(), target.size(), source);
  }
  [[nodiscard]] Status fetch_atomic_wait(heddle_atomic_op op, heddle_remote target,
                                         const heddle_fetch& fetch) noexcept {
    return heddle_fetch_atomic_wait(handle_, op, target, &fetch);
  }
  // HEDDLE_ADD64; the old value. Throws Error.
  std::uint64_t fetch_add(heddle_remote target, std::uint64_t operand) {
    std::uint64_t old = 0;
    check(fetch_atomic_wait(HEDDLE_ADD64, target, {operand, 0, &old}));
    return old;
  }
  // HEDDLE_ADD64. The old value is stored in *result (owned by the operation until its completion).
  [[nodiscard]] Status try_fetch_add(heddle_remote target, std::uint64_t operand, std::uint64_t* result,
                                     const heddle_completion* completion = nullptr) noexcept {
    return try_fetch_atomic(HEDDLE_ADD64, target, {operand, 0, result}, completion);
  }

  // Active messages.
  [[nodiscard]] Status try_am(heddle_peer target, const heddle_am_message& message,
                              const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_am(handle_, target, &message, completion);
  }
  [[nodiscard]] Status am(heddle_peer target, const heddle_am_message& message,
                          const heddle_completion* completion = nullptr) noexcept {
    return heddle_am(handle_, target, &message, completion);
  }

  // Tagged messages. A heddle_receive must not be moved until the receive has completed.
  [[nodiscard]] Status try_send(heddle_peer target, std::uint64_t tag, std::span<const std::byte> data,
                                const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_send(handle_, target, tag, data.data(), data.size(), completion);
  }
  [[nodiscard]] Status send(heddle_peer target, std::uint64_t tag, std::span<const std::byte> data,
                            const heddle_completion* completion = nullptr) noexcept {
    return heddle_send(handle_, target, tag, data.data(), data.size(), completion);
  }
  [[nodiscard]] Status try_recv(const heddle_wanted& wanted, std::span<std::byte> data, heddle_receive* receive,
                                const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_recv(handle_, &wanted, data.data(), data.size(), receive, completion);
  }
  [[nodiscard]] Status recv(const heddle_wanted& wanted, std::span<std::byte> data, heddle_receive* receive,
                            const heddle_completion* completion = nullptr) noexcept {
    return heddle_recv(handle_, &wanted, data.data(), data.size(), receive, completion);
  }
  [[nodiscard]] Status wait(heddle_receive& receive, std::int64_t timeout_ns = HEDDLE_FOREVER) noexcept {
    return heddle_recv_wait(handle_, &receive, timeout_ns);
  }
  [[nodiscard]] Status try_cancel(heddle_receive* receive) noexcept { return heddle_try_recv_cancel(handle_, receive); }
  [[nodiscard]] Status cancel(heddle_receive* receive) noexcept { return heddle_recv_cancel(handle_, receive); }
  [[nodiscard]] Status try_probe(const heddle_wanted& wanted, heddle_receive* found) noexcept {
    return heddle_try_probe(handle_, &wanted, found);
  }
  [[nodiscard]] Status try_claim(const heddle_wanted& wanted, heddle_receive* found) noexcept {
    return heddle_try_claim(handle_, &wanted, found);
  }
  [[nodiscard]] Status try_recv_claimed(std::span<std::byte> data, heddle_receive* claimed,
                                        const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_recv_claimed(handle_, data.data(), data.size(), claimed, completion);
  }
  [[nodiscard]] Status recv_claimed(std::span<std::byte> data, heddle_receive* claimed,
                                    const heddle_completion* completion = nullptr) noexcept {
    return heddle_recv_claimed(handle_, data.data(), data.size(), claimed, completion);
  }

  // Handlers of class USER; see heddle_run_tasks.
  int run_tasks(std::uint32_t most = UINT32_MAX, std::int64_t timeout_ns = 0) noexcept {
    return heddle_run_tasks(handle_, most, timeout_ns);
  }

  // Awaitable forms of the try_ functions; see Await.
  [[nodiscard]] auto async_put(std::span<const std::byte> source, heddle_remote target) noexcept {
    return Await([this, source, target](const heddle_completion* done) { return try_put(source, target, done); });
  }
  [[nodiscard]] auto async_get(std::span<std::byte> target, heddle_remote source) noexcept {
    return Await([this, target, source](const heddle_completion* done) { return try_get(target, source, done); });
  }
  [[nodiscard]] auto async_fetch_add(heddle_remote target, std::uint64_t operand, std::uint64_t* result) noexcept {
    return Await([this, target, operand, result](const heddle_completion* done) {
      return try_fetch_add(target, operand, result, done);
    });
  }

  [[nodiscard]] Status fence() noexcept { return heddle_fence(handle_); }
  [[nodiscard]] Status flush(std::uint32_t rank) noexcept { return heddle_flush(handle_, rank); }
  [[nodiscard]] Status try_flush(std::uint32_t rank) noexcept { return heddle_try_flush(handle_, rank); }
  Status run_on_engine(void (*fn)(void*), void* arg, const heddle_completion* completion = nullptr) noexcept {
    return heddle_run_on_engine(handle_, fn, arg, completion);
  }
  Status try_run_on_engine(void (*fn)(void*), void* arg, const heddle_completion* completion = nullptr) noexcept {
    return heddle_try_run_on_engine(handle_, fn, arg, completion);
  }
  [[nodiscard]] Status quiet() noexcept { return heddle_quiet(handle_); }
  [[nodiscard]] Status try_quiet() noexcept { return heddle_try_quiet(handle_); }
  [[nodiscard]] Status wait(const Counter& counter, std::uint64_t value,
                            std::int64_t timeout_ns = HEDDLE_FOREVER) noexcept {
    return heddle_counter_wait(handle_, counter.handle(), value, timeout_ns);
  }
  [[nodiscard]] Status wait(const std::uint64_t& word, heddle_compare compare, std::uint64_t value,
                            std::int64_t timeout_ns = HEDDLE_FOREVER) noexcept {
    return heddle_signal_wait(handle_, &word, compare, value, timeout_ns);
  }
};

// Membership in a job. The destructor leaves the job, which is collective. It does not leave when
// an exception that was thrown after the context was made unwinds past it: the other ranks may be
// waiting for something that this rank no longer does, and would never call leave. The process is
// then still a member and should end: the launcher reports this, and the others' operations to it
// complete with HEDDLE_ERR_PEER_FAILED. (A program that catches the exception in an outer scope and
// continues to serve the job keeps the context in that outer scope too. In a job within one
// process, heddle_inproc_…, no launcher sees the end: call abort().)
class Context : public Owner<heddle_context, heddle_context_leave> {
 public:
  using Owner::Owner;
  Context() = default;
  // Counts the exceptions that are in flight when the new object is made.
  Context(Context&& other) noexcept : Owner(std::move(other)) {}
  Context& operator=(Context&& other) noexcept = default;
  ~Context() {
    if (std::uncaught_exceptions() > exceptions_.count) static_cast<void>(release());
  }

  // Joins the job that this process was started in (a job of one if it was started by itself).
  static Context join() {
    return join(heddle_context_options{sizeof(heddle_context_options), nullptr, nullptr, {}, 0, nullptr});
  }
  static Context join(const heddle_context_options& options) {
    heddle_context handle{};
    check(heddle_context_join(&options, &handle));
    return Context(handle);
  }

  [[nodiscard]] std::uint32_t rank() const {
    std::uint32_t rank = 0;
    check(heddle_context_rank(handle_, &rank));
    return rank;
  }
  [[nodiscard]] std::uint32_t size() const {
    std::uint32_t size = 0;
    check(heddle_context_size(handle_, &size));
    return size;
  }
  [[nodiscard]] Worker open_worker(heddle_sharing sharing = HEDDLE_SHARING_DEFAULT) const {
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = sharing;
    return open_worker(options);
  }
  // With all options; the caller sets options.size.
  [[nodiscard]] Worker open_worker(const heddle_worker_options& options) const {
    heddle_worker handle{};
    check(heddle_worker_open(handle_, &options, &handle));
    return Worker(handle);
  }
  // As heddle_context_progress: returns how many events were handled.
  int progress() const noexcept { return heddle_context_progress(handle_); }
  [[nodiscard]] Region alloc(std::size_t bytes) const {
    heddle_region handle{};
    check(heddle_region_alloc(handle_, bytes, &handle));
    return Region(handle);
  }
  [[nodiscard]] Region register_memory(std::span<std::byte> memory) const {
    heddle_region handle{};
    check(heddle_region_register(handle_, memory.data(), memory.size(), &handle));
    return Region(handle);
  }
  // Its whole pages become memory that peers on the node map (heddle_region_options).
  [[nodiscard]] Region adopt_memory(std::span<std::byte> memory) const { return adopt(memory, 0); }
  // All of the elements become such memory: see Allocator. The vector must keep its size until the
  // region is released.
  template <class T>
  [[nodiscard]] Region adopt_memory(Vector<T>& elements) const {
    return adopt(std::as_writable_bytes(std::span<T>(elements)), 1);
  }
  [[nodiscard]] RemoteRegion unpack(std::span<const std::byte> packed) const {
    heddle_remote_region handle{};
    check(heddle_region_unpack(handle_, packed.data(), packed.size(), &handle));
    return RemoteRegion(handle);
  }
  // Collective: returns the regions of all ranks, in rank order.
  [[nodiscard]] std::vector<RemoteRegion> exchange(const Region& region) const {
    std::vector<heddle_remote_region> handles(size());
    check(heddle_region_exchange(handle_, region.handle(), handles.data()));
    std::vector<RemoteRegion> all;
    all.reserve(handles.size());
    for (const heddle_remote_region handle : handles) all.emplace_back(handle);
    return all;
  }
  // Collective: returns `mine` of all ranks, in rank order; it has the same length on every rank.
  [[nodiscard]] std::vector<std::byte> exchange(std::span<const std::byte> mine) const {
    std::vector<std::byte> all(mine.size() * size());
    check(heddle_context_exchange(handle_, mine.data(), mine.size(), all.data()));
    return all;
  }
  // A counter; with a worker: only this worker's operations raise it.
  [[nodiscard]] Counter counter() const { return counter_for({}); }
  [[nodiscard]] Counter counter(const Worker& only) const { return counter_for(only.handle()); }
  // A counter with counts_done: operations that are DONE at once raise it too, so it reaches the
  // number of operations.
  [[nodiscard]] Counter counter_of_all() const { return counter_for({}, 1); }
  [[nodiscard]] Counter counter_of_all(const Worker& only) const { return counter_for(only.handle(), 1); }

  void register_am(std::uint32_t handler, heddle_am_handler fn, void* arg) const {
    check(heddle_am_register(handle_, handler, fn, arg));
  }
  // Collective. Looks at the worker more often than at the others while it waits.
  void barrier(const Worker& worker, std::int64_t timeout_ns = HEDDLE_FOREVER) const {
    check(heddle_context_barrier(handle_, worker.handle(), timeout_ns));
  }
  void barrier() const { check(heddle_context_barrier(handle_, {}, HEDDLE_FOREVER)); }
  [[nodiscard]] Status peer_status(std::uint32_t rank) const noexcept {
    return heddle_context_peer_status(handle_, rank);
  }
  // Ends the whole job. Returns only for an invalid handle.
  Status abort(int code, const char* message = nullptr) const noexcept {
    return heddle_context_abort(handle_, code, message);
  }

 private:
  [[nodiscard]] Region adopt(std::span<std::byte> memory, std::uint64_t whole_pages) const {
    const heddle_region_options options{sizeof options, 1, whole_pages};
    heddle_region handle{};
    check(heddle_region_register_with(handle_, memory.data(), memory.size(), &options, &handle));
    return Region(handle);
  }
  [[nodiscard]] Counter counter_for(heddle_worker only, std::uint64_t counts_done = 0) const {
    const heddle_counter_options options{sizeof options, only, counts_done};
    heddle_counter handle{};
    check(heddle_counter_create(handle_, &options, &handle));
    return Counter(handle);
  }

  // How many exceptions were in flight when this context was made; assignment does not change it.
  struct Exceptions {
    int count = std::uncaught_exceptions();
    Exceptions() = default;
    Exceptions(const Exceptions&) = delete;
    Exceptions& operator=(const Exceptions&) noexcept { return *this; }
  };
  Exceptions exceptions_;
};

// The bytes of a trivially copyable object or array, as puts and gets take them.
template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const T& object) noexcept {
  return std::as_bytes(std::span(&object, 1));
}
template <class T>
[[nodiscard]] std::span<std::byte> writable_bytes_of(T& object) noexcept {
  return std::as_writable_bytes(std::span(&object, 1));
}

}  // namespace heddle

// Teams and collective operations.
#include "heddle/collectives.hpp"  // IWYU pragma: export
// Partitioned send and receive.
#include "heddle/partitioned.hpp"  // IWYU pragma: export

#endif  // HEDDLE_HEDDLE_HPP
