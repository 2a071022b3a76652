// Partitioned sends and receives: parts of one message that several threads make ready.
#include <nanobind/stl/shared_ptr.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "worker.hpp"

namespace heddle::python {
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
