// Worker: tagged messages.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "worker.hpp"

namespace heddle::python {

namespace {

// A message that waits to be received, or was.
struct Envelope {
  std::uint32_t source;
  std::uint32_t source_worker;
  std::uint64_t tag;
  std::uint64_t bytes;
};

nb::object send(Worker& self, nb::handle data, nb::handle target, nb::handle message_tag, nb::handle target_worker,
                bool remote) {
  const heddle_peer to{number32(target, "the rank"), number32(target_worker, "the worker")};
  const std::uint64_t tag = number64(message_tag, "the tag");
  Draft draft(self);
  const Memory& memory = draft.take(data, Access::read);
  return draft.post(
      remote ? HEDDLE_WHEN_REMOTE : HEDDLE_WHEN_LOCAL,
      [&](const heddle_completion* completion) {
        return heddle_try_send(self.handle(), to, tag, memory.data(), memory.bytes(), completion);
      },
      [&](const heddle_completion* completion) {
        return heddle_send(self.handle(), to, tag, memory.data(), memory.bytes(), completion);
      });
}

// Without a mask, the whole tag. UINT64_MAX as Python's number would be taken apart in each call.
heddle_wanted wanted_of(nb::handle source, nb::handle tag, nb::handle mask, nb::handle source_worker) {
  return {{number32(source, "the rank"), number32(source_worker, "the worker")},
          number64(tag, "the tag"),
          mask.is_none() ? UINT64_MAX : number64(mask, "the mask")};
}

// The arguments of a receive.
template <class Post>
auto received_by(Worker& self, nb::handle buffer, const heddle_wanted& wanted, Post&& post) {
  Draft draft(self);
  const Memory& memory = draft.take(buffer, Access::write);
  heddle_receive* const receive = draft.receive();
  return post(
      draft,
      [&](const heddle_completion* completion) {
        return heddle_try_recv(self.handle(), &wanted, memory.data(), memory.bytes(), receive, completion);
      },
      [&](const heddle_completion* completion) {
        return heddle_recv(self.handle(), &wanted, memory.data(), memory.bytes(), receive, completion);
      });
}

nb::object recv(Worker& self, nb::handle buffer, nb::handle source, nb::handle tag, nb::handle mask,
                nb::handle source_worker) {
  return received_by(
      self, buffer, wanted_of(source, tag, mask, source_worker),
      [](Draft& draft, auto&& try_post, auto&& blocking) { return draft.post_receive(try_post, blocking); });
}

// Nobody else has the request, so it is cancelled if the wait ends early.
Envelope recv_wait(Worker& self, nb::handle buffer, nb::handle source, nb::handle tag, nb::handle mask,
                   nb::handle source_worker, const nb::object& timeout) {
  const std::int64_t limit_ns = timeout_ns(timeout);  // a wrong one takes no message
  const Request request = received_by(
      self, buffer, wanted_of(source, tag, mask, source_worker),
      [](Draft& draft, auto&& try_post, auto&& blocking) { return draft.post_receive_here(try_post, blocking); });
  heddle_status waited = HEDDLE_DONE;
  try {
    waited = request.wait_for(limit_ns);
  } catch (...) {
    // Control-C, or the worker is being closed: raised in any case.
    static_cast<void>(request.cancel_and_wait());
    throw;
  }
  if (waited != HEDDLE_DONE && !request.cancel_and_wait()) {
    if (waited != HEDDLE_ERR_TIMEOUT) check(waited);
    raise(waited,
          "no message has come within " + std::string(nb::str(timeout).c_str()) + " s; nothing waits for it any more");
  }
  if (!request.done()) check(waited);  // STATE, in a handler
  request.wait(nb::none());
  const heddle_receive& came = request.received();
  return {came.source.rank, came.source.worker, came.tag, came.bytes};
}

std::optional<Envelope> probe(const Worker& self, nb::handle source, nb::handle tag, nb::handle mask,
                              nb::handle source_worker) {
  const heddle_wanted wanted = wanted_of(source, tag, mask, source_worker);
  const Use use(self.users(), kWorkerClosed);
  heddle_receive found{};
  const heddle_status status = self.call([&] {
    const heddle_status seen = heddle_try_probe(self.handle(), &wanted, &found);
    if (seen != HEDDLE_AGAIN) return seen;
    const int events = heddle_worker_progress(self.handle());
    return events < 0 ? static_cast<heddle_status>(events) : heddle_try_probe(self.handle(), &wanted, &found);
  });
  if (status == HEDDLE_AGAIN) return std::nullopt;
  return Envelope{found.source.rank, found.source.worker, found.tag, found.bytes};
}

nb::str repr(const Envelope& self) {
  return nb::str("<heddle.Envelope, {} bytes from rank {}, tag {}>").format(self.bytes, self.source, self.tag);
}

}  // namespace

void bind_messages(nb::module_& module, nb::class_<Worker>& worker) {
  nb::class_<Envelope>(module, "Envelope", "A message that waits to be received, or was.")
      .def_ro("source", &Envelope::source, "The sender's rank.")
      .def_ro("source_worker", &Envelope::source_worker, "The sender's worker.")
      .def("__repr__", &repr)
      .def_ro("tag", &Envelope::tag, "Its tag.")
      .def_ro("nbytes", &Envelope::bytes, "Its length in bytes.");
  worker
      .def("send", &send, nb::arg("data").none(), nb::arg("target"), nb::arg("tag") = 0, nb::arg("target_worker") = 0,
           nb::kw_only(), nb::arg("remote") = false,
           nb::sig("def send(self, data: heddle.types.Buffer, target: typing.SupportsIndex, "
                   "tag: typing.SupportsIndex = 0, target_worker: typing.SupportsIndex = 0, *, remote: bool = False) "
                   "-> Request"),
           "Send the bytes of `data` with a tag (64 bits) to a worker of rank `target`.\n\n"
           "The request is complete when `data` may be changed; remote: when the message is in the target's memory (a "
           "long "
           "one: received).\n"
           "ArgumentError: no such rank. PeerFailedError: the rank has died. A short message that was copied is done, "
           "and "
           "quiet() tells of the death, unless `remote` was asked for.")
      .def(
          "recv", &recv, nb::arg("buffer").none(), nb::arg("source") = HEDDLE_ANY, nb::arg("tag") = 0,
          nb::arg("mask").none() = nb::none(), nb::arg("source_worker") = HEDDLE_ANY,
          nb::sig("def recv(self, buffer: heddle.types.Buffer, source: typing.SupportsIndex = ANY, "
                  "tag: typing.SupportsIndex = 0, mask: typing.SupportsIndex | None = None, "
                  "source_worker: typing.SupportsIndex = ANY) -> Request"),
          "Receive into `buffer` a message whose tag equals `tag` in the bits of `mask` (None: in all; 0: any tag).\n\n"
          "source, source_worker: from whom; heddle.ANY: from anybody. The request tells source, tag and nbytes, and "
          "completes with TruncatedError if the message was longer than the buffer.")
      .def(
          "recv_wait", &recv_wait, nb::arg("buffer").none(), nb::arg("source") = HEDDLE_ANY, nb::arg("tag") = 0,
          nb::arg("mask").none() = nb::none(), nb::arg("source_worker") = HEDDLE_ANY, nb::kw_only(),
          nb::arg("timeout").none() = nb::none(),
          nb::sig("def recv_wait(self, buffer: heddle.types.Buffer, source: typing.SupportsIndex = ANY, "
                  "tag: typing.SupportsIndex = 0, mask: typing.SupportsIndex | None = None, "
                  "source_worker: typing.SupportsIndex = ANY, *, timeout: float | None = None) -> Envelope"),
          "Receive a message as recv() does, and wait for it: the fastest way to one message.\n\n"
          "Returns what came. timeout: seconds, or None. TimedOut: nothing was received, and nothing waits any more. A "
          "message whose data is on its way by then is received, however long that takes. After control-C nothing "
          "waits, and a message that was on its way is lost.")
      .def("probe", &probe, nb::arg("source") = HEDDLE_ANY, nb::arg("tag") = 0, nb::arg("mask").none() = nb::none(),
           nb::arg("source_worker") = HEDDLE_ANY,
           nb::sig("def probe(self, source: typing.SupportsIndex = ANY, tag: typing.SupportsIndex = 0, "
                   "mask: typing.SupportsIndex | None = None, source_worker: typing.SupportsIndex = ANY) -> "
                   "Envelope | None"),
           "The message that such a receive would take, if one is there; it stays. Makes progress once.");
}

// Partitioned sends and receives: parts of one message that several threads make ready.

namespace {

enum class Direction : std::uint8_t { send, receive };

class Partitioned {
 public:
  Partitioned(Worker& worker, nb::handle buffer, std::uint32_t partitions, heddle_peer peer, std::uint64_t tag,
              Direction direction)
      : worker_(worker.shared_from_this()),
        memory_(std::make_shared<Memory>(buffer, direction == Direction::send ? Access::read : Access::write)),
        partitions_(partitions) {
    const Use use(worker.users(), kWorkerClosed);
    if (partitions == 0 || memory_->bytes() % partitions != 0) {
      raise(HEDDLE_ERR_ARGUMENT, "a buffer of " + std::to_string(memory_->bytes()) + " bytes does not have " +
                                     std::to_string(partitions) + " equal parts");
    }
    const std::size_t bytes = memory_->bytes() / partitions;
    heddle_partitioned handle{};
    worker.call([&] {
      return direction == Direction::send
                 ? heddle_psend_init(worker.handle(), memory_->data(), partitions, bytes, peer, tag, &handle)
                 : heddle_precv_init(worker.handle(), memory_->data(), partitions, bytes, peer, tag, &handle);
    });
    id_.store(handle.id, std::memory_order_relaxed);
  }
  Partitioned(const Partitioned&) = delete;
  Partitioned& operator=(const Partitioned&) = delete;
  ~Partitioned() {
    if (handle().id == 0) return;
    // A run that is under way, perhaps while the worker closes, uses the memory until the context
    // has left.
    const bool inside = worker_->users().enter();
    if (!inside || heddle_partitioned_free(handle()) != HEDDLE_DONE) {
      worker_->context()->keep(std::shared_ptr<void>(memory_));
    }
    if (inside) worker_->users().leave();
  }

  [[nodiscard]] std::uint32_t partitions() const { return partitions_; }
  void start() {
    call([&] {
      const std::lock_guard lock(mutex_);
      return heddle_partitioned_start(handle());
    });
  }
  void ready(nb::handle partition) {
    const std::uint32_t part = number32(partition, "the part");
    const Use use(worker_->users(), kWorkerClosed);
    check(heddle_pready(handle(), part));
  }
  void ready_range(nb::handle first, nb::handle last) {
    const std::uint32_t from = number32(first, "the part");
    const std::uint32_t to = number32(last, "the part");
    const Use use(worker_->users(), kWorkerClosed);
    check(heddle_pready_range(handle(), from, to));
  }
  [[nodiscard]] bool arrived(nb::handle partition) {
    const std::uint32_t part = number32(partition, "the part");
    return call([&] { return heddle_parrived(handle(), part); }) == HEDDLE_DONE;
  }
  [[nodiscard]] bool test() {
    return call([&] {
             const std::unique_lock lock(mutex_, std::try_to_lock);
             // another thread waits
             return lock.owns_lock() ? heddle_partitioned_test(handle()) : HEDDLE_AGAIN;
           }) == HEDDLE_DONE;
  }
  void wait(const nb::object& seconds) {
    const Use use(worker_->users(), kWorkerClosed);
    const heddle_status status = in_slices(worker_->users(), timeout_ns(seconds), [&](std::int64_t slice_ns) {
      const std::lock_guard lock(mutex_);
      return heddle_partitioned_wait(handle(), slice_ns);
    });
    const std::string text = status < 0 ? heddle_last_error() : "";
    worker_->retired().clear();
    if (status < 0) raise(status, text);
  }
  void free() {
    std::shared_ptr<Memory> memory;  // goes with the GIL
    call([&] {
      const std::lock_guard lock(mutex_);
      const heddle_status status = heddle_partitioned_free(handle());
      if (status != HEDDLE_DONE) return status;
      id_.store(0, std::memory_order_relaxed);
      memory.swap(memory_);
      return status;
    });
  }

 private:
  template <class Call>
  heddle_status call(Call&& call) {
    const Use use(worker_->users(), kWorkerClosed);
    return worker_->call(static_cast<Call&&>(call));
  }
  [[nodiscard]] heddle_partitioned handle() const { return {id_.load(std::memory_order_relaxed)}; }

  std::shared_ptr<Worker> worker_;
  std::shared_ptr<Memory> memory_;
  std::uint32_t partitions_;
  std::mutex mutex_;                  // one thread starts, tests or waits
  std::atomic<std::uint64_t> id_{0};  // 0: it is freed
};

std::shared_ptr<Partitioned> psend(Worker& worker, nb::handle buffer, nb::handle partitions, nb::handle target,
                                   nb::handle tag, nb::handle target_worker) {
  const heddle_peer peer{number32(target, "the rank"), number32(target_worker, "the worker")};
  return std::make_shared<Partitioned>(worker, buffer, number32(partitions, "the number of parts"), peer,
                                       number64(tag, "the tag"), Direction::send);
}

std::shared_ptr<Partitioned> precv(Worker& worker, nb::handle buffer, nb::handle partitions, nb::handle source,
                                   nb::handle tag, nb::handle source_worker) {
  const heddle_peer peer{number32(source, "the rank"), number32(source_worker, "the worker")};
  return std::make_shared<Partitioned>(worker, buffer, number32(partitions, "the number of parts"), peer,
                                       number64(tag, "the tag"), Direction::receive);
}

}  // namespace

void bind_partitioned(nb::module_& module, nb::class_<Worker>& worker) {
  nb::class_<Partitioned>(
      module, "Partitioned",
      "A partitioned send or receive, which is started again and again. Its buffer is kept.\n\n"
      "A run of a send: start(), ready() of each part by any thread, wait(). Of a receive: start(), "
      "arrived() as wanted, wait().")
      .def("start", &Partitioned::start, "Begin a run; waits for no peer.")
      .def("ready", &Partitioned::ready, nb::arg("partition"),
           nb::sig("def ready(self, partition: typing.SupportsIndex) -> None"),
           "This part of a send may go. Any thread.")
      .def("ready_range", &Partitioned::ready_range, nb::arg("first"), nb::arg("last"),
           nb::sig("def ready_range(self, first: typing.SupportsIndex, last: typing.SupportsIndex) -> None"),
           "The parts from first to last, both included, may go.")
      .def("arrived", &Partitioned::arrived, nb::arg("partition"),
           nb::sig("def arrived(self, partition: typing.SupportsIndex) -> bool"),
           "Whether this part of a receive is there. Any thread.")
      .def("test", &Partitioned::test, "Make progress once; whether the run has completed.")
      .def("wait", &Partitioned::wait, nb::arg("timeout").none() = nb::none(),
           nb::sig("def wait(self, timeout: float | None = None) -> None"),
           "Make progress until the run has completed. TimedOut: it goes on.")
      .def("free", &Partitioned::free, "Close it, between runs.")
      .def_prop_ro("partitions", &Partitioned::partitions, "The number of parts.");
  worker
      .def("psend", &psend, nb::arg("buffer").none(), nb::arg("partitions"), nb::arg("target"), nb::arg("tag") = 0,
           nb::arg("target_worker") = 0,
           nb::sig("def psend(self, buffer: heddle.types.Buffer, partitions: typing.SupportsIndex, "
                   "target: typing.SupportsIndex, tag: typing.SupportsIndex = 0, "
                   "target_worker: typing.SupportsIndex = 0) -> Partitioned"),
           "A persistent send of so many equal parts of `buffer`. Local: the peer makes its precv when it likes.")
      .def("precv", &precv, nb::arg("buffer").none(), nb::arg("partitions"), nb::arg("source"), nb::arg("tag") = 0,
           nb::arg("source_worker") = 0,
           nb::sig("def precv(self, buffer: heddle.types.Buffer, partitions: typing.SupportsIndex, "
                   "source: typing.SupportsIndex, tag: typing.SupportsIndex = 0, "
                   "source_worker: typing.SupportsIndex = 0) -> Partitioned"),
           "The receiving side of what that worker sends to this one with this tag. The numbers of parts may differ; "
           "the bytes in all must agree.");
}

}  // namespace heddle::python
