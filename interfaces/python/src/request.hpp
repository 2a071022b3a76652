// Operations that are under way: their memory stays until the library has done with it, whether or
// not Python still looks.
//
// A completion runs on any thread, without the GIL. So it only sets the status and puts the
// operation on its worker's list; the next call of that worker, which has the GIL, retires it: it
// releases the memory and calls the callback (Retired::clear).
//
// Owners of an Operation: the library until its completion (then the list), and the Request that
// Python has. Each drops one reference.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "calls.hpp"
#include "heddle/heddle.h"
#include "memory.hpp"

namespace heddle::python {

class Retired;
class Worker;

struct RunningOperation {
  std::atomic<int> references{0};
  // Release: what the library has written is there. Partner: the acquire loads of Request.
  std::atomic<heddle_status> status{HEDDLE_POSTED};
  Retired* home = nullptr;  // lives until the context has left
  Memory memory;
  std::array<PyObject*, 2> remotes{};  // the remote regions that it names, owned
  // Called when it is retired; owned. retired(): it has been.
  std::atomic<PyObject*> callback{nullptr};
  std::uint64_t fetched = 0;  // by an atomic
  heddle_receive receive{};
  bool receives = false;
  RunningOperation* next = nullptr;  // on that list

  static PyObject* retired() { return Py_None; }  // as a value of `callback`

  // With the GIL.
  void release() {
    memory.release();
    for (PyObject*& remote : remotes) Py_CLEAR(remote);
  }
  void drop() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle(this);
  }
  // One is kept for the thread's next operation, which needs no memory then.
  static RunningOperation* take();
  static void recycle(RunningOperation* operation);
};

// The operations of a worker that are complete and whose memory waits for a thread with the GIL.
class Retired {
 public:
  Retired() = default;
  Retired(const Retired&) = delete;
  Retired& operator=(const Retired&) = delete;
  ~Retired() { clear(); }
  // Any thread.
  void add(RunningOperation* operation) {
    operation->next = first_.load(std::memory_order_relaxed);
    // Release: the operation is complete. Partner: the exchange in clear_all().
    while (!first_.compare_exchange_weak(operation->next, operation, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    }
  }
  // With the GIL. Retires them: Python code may run.
  void clear() {
    if (first_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
      clear_all();
  }

 private:
  struct Left;
  void clear_all();

  std::atomic<RunningOperation*> first_{nullptr};
};

// The Python object of an operation.
class Request {
 public:
  // `operation` null: it was done at once.
  Request(RunningOperation* operation, std::shared_ptr<Worker> worker)
      : operation_(operation), worker_(std::move(worker)) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (operation_ != nullptr) operation_->drop();
  }

  [[nodiscard]] heddle_status status() const {
    return operation_ == nullptr ? HEDDLE_DONE : operation_->status.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool done() const { return status() != HEDDLE_POSTED; }
  // Makes progress until it is done and retired; raises its error, or TimedOut.
  void wait(const nb::object& seconds) const;
  // Makes progress once.
  [[nodiscard]] bool test() const;
  // Raises the error with which it has completed.
  void check() const;
  // Calls `function` without arguments once it is done, on the thread that finds that; None:
  // nobody.
  void on_done(nb::object function) const;
  // For a receive.
  void cancel() const;
  // Makes progress until it is done, for so long at most. TIMEOUT: it is not. With the GIL.
  [[nodiscard]] heddle_status wait_for(std::int64_t limit_ns) const;
  // Cancels a receive. If a message is on its way, waits for it. False: nothing was received. True:
  // a message was received or (in a handler) will be.
  [[nodiscard]] bool cancel_and_wait() const;
  [[nodiscard]] const std::shared_ptr<Worker>& worker() const { return worker_; }
  // The received message. Raises if this is no completed receive.
  [[nodiscard]] const heddle_receive& received() const;
  [[nodiscard]] std::uint64_t fetched() const { return operation_->fetched; }
  [[nodiscard]] nb::str repr() const;

 private:
  void retire() const;
  [[nodiscard]] heddle_status wait_slice(std::int64_t slice_ns) const;

  RunningOperation* operation_;
  std::shared_ptr<Worker> worker_;  // null: it was done at once
};

// An operation that has not been accepted. If it is done at once, nothing is allocated: its
// Operation serves the thread's next operation.
class Draft {
 public:
  explicit Draft(Worker& worker);
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (operation_ == nullptr) return;
    operation_->release();
    RunningOperation::recycle(operation_);
  }
  // The operation's memory; it stays until the end.
  const Memory& take(nb::handle object, Access access) { return operation_->memory = Memory(object, access); }
  void take(nb::handle remote) {
    operation_->remotes[operation_->remotes[0] == nullptr ? 0 : 1] = remote.inc_ref().ptr();
  }
  [[nodiscard]] heddle_receive* receive() { return &operation_->receive; }
  [[nodiscard]] std::uint64_t* fetched() {
    operation_->fetched = 0;  // a word of 32 bits is half of it
    return &operation_->fetched;
  }

  // try_post(completion) is the form that returns at once; blocking(completion) waits for room, and
  // is called without the GIL. Returns the Request; all operations that are done at once share one.
  template <class TryPost, class Blocking>
  nb::object post(heddle_when when, TryPost&& try_post, Blocking&& blocking) {
    const heddle_status status = posted(when, try_post, blocking);
    if (status == HEDDLE_POSTED) return given_away();
    python::check(status);
    return done();
  }
  // The Request of a receive has the received message, even if the receive was done at once.
  template <class TryPost, class Blocking>
  nb::object post_receive(TryPost&& try_post, Blocking&& blocking) {
    posted_receive(try_post, blocking);
    return given_away();
  }
  // The same, for a caller that waits for it here.
  template <class TryPost, class Blocking>
  Request post_receive_here(TryPost&& try_post, Blocking&& blocking) {
    posted_receive(try_post, blocking);
    return kept();
  }
  // For an atomic that returns a value. Null: the value is in *old already.
  template <class TryPost, class Blocking>
  std::unique_ptr<Request> post_fetch(TryPost&& try_post, Blocking&& blocking, std::uint64_t* old) {
    const heddle_status status = python::check(posted(HEDDLE_WHEN_REMOTE, try_post, blocking));
    if (status == HEDDLE_POSTED) return request();
    *old = operation_->fetched;
    return nullptr;
  }

 private:
  // So many bytes are copied before the GIL could be given away and taken back.
  static constexpr std::size_t kShort = 16384;

  template <class TryPost, class Blocking>
  heddle_status posted(heddle_when when, TryPost&& try_post, Blocking&& blocking) {
    const heddle_completion completion{&Draft::completed, operation_, {0}, when};
    if (operation_->memory.bytes() > kShort) return released([&] { return blocking(&completion); });
    const heddle_status status = try_post(&completion);
    return status == HEDDLE_AGAIN ? released([&] { return blocking(&completion); }) : status;
  }
  template <class TryPost, class Blocking>
  void posted_receive(TryPost&& try_post, Blocking&& blocking) {
    operation_->receives = true;
    const heddle_status status = posted(HEDDLE_WHEN_REMOTE, try_post, blocking);
    if (status == HEDDLE_POSTED) return;
    // A message that was too long is an outcome of the request, as if it had come later.
    if (status != HEDDLE_ERR_TRUNCATED) python::check(status);
    end(status);
  }
  static void completed(void* operation, heddle_status status);
  std::unique_ptr<Request> request();
  Request kept();
  nb::object given_away();
  void end(heddle_status status);  // it was done at once
  static nb::object done();

  Worker& worker_;
  Use use_;
  RunningOperation* operation_;
};

void bind_requests(nb::module_& module);

}  // namespace heddle::python
