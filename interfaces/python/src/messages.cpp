// Worker: tagged messages.
#include <nanobind/stl/optional.h>

#include <optional>

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
    static_cast<void>(request.withdraw());
    throw;
  }
  if (waited != HEDDLE_DONE && !request.withdraw()) {
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

}  // namespace heddle::python
