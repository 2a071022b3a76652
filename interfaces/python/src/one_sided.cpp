// Worker: puts, gets, atomics, signals, and the order of all.
#include <chrono>
#include <memory>
#include <string>

#include "region.hpp"
#include "worker.hpp"

namespace heddle::python {
namespace {

nb::object put(Worker& self, nb::handle source, nb::handle target, nb::handle offset, bool local) {
  const heddle_remote to = RemoteRegion::of(target).at(number64(offset, "the offset"));
  Draft draft(self);
  const Memory& memory = draft.take(source, Access::read);
  draft.take(target);
  return draft.post(
      local ? HEDDLE_WHEN_LOCAL : HEDDLE_WHEN_REMOTE,
      [&](const heddle_completion* completion) {
        return heddle_try_put(self.handle(), memory.data(), memory.bytes(), to, completion);
      },
      [&](const heddle_completion* completion) {
        return heddle_put(self.handle(), memory.data(), memory.bytes(), to, completion);
      });
}

nb::object get(Worker& self, nb::handle target, nb::handle source, nb::handle offset) {
  const heddle_remote from = RemoteRegion::of(source).at(number64(offset, "the offset"));
  Draft draft(self);
  const Memory& memory = draft.take(target, Access::write);
  draft.take(source);
  return draft.post(
      HEDDLE_WHEN_REMOTE,
      [&](const heddle_completion* completion) {
        return heddle_try_get(self.handle(), memory.data(), memory.bytes(), from, completion);
      },
      [&](const heddle_completion* completion) {
        return heddle_get(self.handle(), memory.data(), memory.bytes(), from, completion);
      });
}

nb::object put_signal(Worker& self, nb::handle source, nb::handle target, nb::handle offset, nb::handle word_region,
                      nb::handle word_offset, nb::handle value, bool add) {
  const heddle_remote to = RemoteRegion::of(target).at(number64(offset, "the offset"));
  const heddle_remote at = RemoteRegion::of(word_region).at(number64(word_offset, "the word's offset"));
  const heddle_signal signal{at, word(value, 64), add ? HEDDLE_SIGNAL_ADD : HEDDLE_SIGNAL_SET};
  Draft draft(self);
  const Memory& memory = draft.take(source, Access::read);
  draft.take(target);
  draft.take(word_region);
  return draft.post(
      HEDDLE_WHEN_REMOTE,
      [&](const heddle_completion* completion) {
        return heddle_try_put_signal(self.handle(), memory.data(), memory.bytes(), to, &signal, completion);
      },
      [&](const heddle_completion* completion) {
        return heddle_put_signal(self.handle(), memory.data(), memory.bytes(), to, &signal, completion);
      });
}

void wait_signal(const Worker& self, nb::handle memory, nb::handle offset, heddle_compare compare, nb::handle value,
                 const nb::object& timeout) {
  const Use use(self.users(), kWorkerClosed);
  const Memory words(memory, Access::read);
  const std::uint64_t from = number64(offset, "the offset");
  if (words.bytes() < sizeof(std::uint64_t) || from > words.bytes() - sizeof(std::uint64_t)) {
    raise(HEDDLE_ERR_RANGE, "a 64-bit word at offset " + std::to_string(from) + " does not lie in the memory of " +
                                std::to_string(words.bytes()) + " bytes");
  }
  const auto* at = reinterpret_cast<const std::uint64_t*>(static_cast<const char*>(words.data()) + from);
  const std::uint64_t wanted = word(value, 64);
  const heddle_status status = in_slices(self.users(), timeout_ns(timeout), [&](std::int64_t slice_ns) {
    return heddle_signal_wait(self.handle(), at, compare, wanted, slice_ns);
  });
  const std::string text = status < 0 ? heddle_last_error() : "";
  self.retired().clear();
  if (status == HEDDLE_ERR_TIMEOUT) {
    raise(status, "the word is " + std::to_string(__atomic_load_n(at, __ATOMIC_RELAXED)) +
                      ", and does not compare so with " + std::to_string(wanted) + " yet");
  }
  if (status < 0) raise(status, text);
}

// ---- atomics ------------------------------------------------------------------------------------

// `op` is a constant of 64 bits. The constant of 32 bits is smaller by a fixed difference.
heddle_atomic_op width_of(heddle_atomic_op op, unsigned bits) {
  constexpr int kNarrower = HEDDLE_ADD64 - HEDDLE_ADD32;
  static_assert(HEDDLE_AND64 - HEDDLE_AND32 == kNarrower && HEDDLE_OR64 - HEDDLE_OR32 == kNarrower &&
                HEDDLE_XOR64 - HEDDLE_XOR32 == kNarrower && HEDDLE_SWAP64 - HEDDLE_SWAP32 == kNarrower &&
                HEDDLE_COMPARE_SWAP64 - HEDDLE_COMPARE_SWAP32 == kNarrower);
  if (bits != 32 && bits != 64) raise(HEDDLE_ERR_ARGUMENT, "bits is " + std::to_string(bits) + "; it is 32 or 64");
  return bits == 64 ? op : static_cast<heddle_atomic_op>(op - kNarrower);
}

template <heddle_atomic_op op>
nb::object atomic(Worker& self, nb::handle target, nb::handle offset, nb::handle value, unsigned bits) {
  const heddle_remote at = RemoteRegion::of(target).at(number64(offset, "the offset"));
  const heddle_atomic_op wide = width_of(op, bits);
  const std::uint64_t operand = word(value, bits);
  Draft draft(self);
  draft.take(target);
  return draft.post(
      HEDDLE_WHEN_REMOTE,
      [&](const heddle_completion* completion) {
        return heddle_try_atomic(self.handle(), wide, at, operand, completion);
      },
      [&](const heddle_completion* completion) { return heddle_atomic(self.handle(), wide, at, operand, completion); });
}

struct Fetch {
  heddle_atomic_op op;
  std::uint64_t operand;
  std::uint64_t compare;
};

// The operation; its value is there when it is complete. Null: it is already complete, and the
// value is in *old.
std::unique_ptr<Request> post_fetch(Worker& self, nb::handle target, nb::handle offset, const Fetch& what,
                                    std::uint64_t* old) {
  const heddle_remote at = RemoteRegion::of(target).at(number64(offset, "the offset"));
  Draft draft(self);
  draft.take(target);
  const heddle_fetch fetch{what.operand, what.compare, draft.fetched()};
  return draft.post_fetch(
      [&](const heddle_completion* completion) {
        return heddle_try_fetch_atomic(self.handle(), what.op, at, &fetch, completion);
      },
      [&](const heddle_completion* completion) {
        return heddle_fetch_atomic(self.handle(), what.op, at, &fetch, completion);
      },
      old);
}

std::uint64_t fetched(Worker& self, nb::handle target, nb::handle offset, const Fetch& what) {
  std::uint64_t old = 0;
  if (const auto request = post_fetch(self, target, offset, what, &old)) {
    request->wait(nb::none());
    old = request->fetched();
  }
  return old;
}

template <heddle_atomic_op op>
std::uint64_t fetch_atomic(Worker& self, nb::handle target, nb::handle offset, nb::handle value, unsigned bits) {
  return fetched(self, target, offset, {width_of(op, bits), word(value, bits), 0});
}

std::uint64_t compare_swap(Worker& self, nb::handle target, nb::handle offset, nb::handle compare, nb::handle value,
                           unsigned bits) {
  return fetched(self, target, offset, {width_of(HEDDLE_COMPARE_SWAP64, bits), word(value, bits), word(compare, bits)});
}

template <heddle_atomic_op op>
void bind_atomic(nb::class_<Worker>& worker, const char* name, const char* fetching, const char* what) {
  const std::string parameters =
      "(self, target: RemoteRegion, offset: typing.SupportsIndex, value: typing.SupportsIndex, bits: int = 64) -> ";
  const std::string signature = std::string("def ") + name + parameters + "Request";
  const std::string fetching_signature = std::string("def ") + fetching + parameters + "int";
  const std::string doc = std::string(what) +
                          "\n\nbits: of the word, 64 or 32; `offset`, in bytes, is a multiple of its "
                          "width. Negative values are taken as their two's complement.";
  const std::string fetching_doc = std::string(what) +
                                   " Returns the word's old value, as an unsigned number; waits for "
                                   "it, which under asyncio holds up the loop unless the region is mapped.";
  worker.def(name, &atomic<op>, nb::arg("target"), nb::arg("offset"), nb::arg("value"), nb::arg("bits") = 64,
             nb::sig(signature.c_str()), doc.c_str());
  worker.def(fetching, &fetch_atomic<op>, nb::arg("target"), nb::arg("offset"), nb::arg("value"), nb::arg("bits") = 64,
             nb::sig(fetching_signature.c_str()), fetching_doc.c_str());
}

// Repeats the attempt until it returns something other than AGAIN, and makes progress in between.
template <class Attempt>
void wait_until(const Worker& self, Attempt&& attempt) {
  const Use use(self.users(), kWorkerClosed);
  const heddle_status status = in_slices(self.users(), HEDDLE_FOREVER, [&](std::int64_t slice_ns) {
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(slice_ns);;) {
      if (const heddle_status now = attempt(); now != HEDDLE_AGAIN) return now;
      if (const heddle_status moved = heddle_worker_wait(self.handle(), slice_ns); moved < 0) return moved;
      if (std::chrono::steady_clock::now() >= until) return HEDDLE_ERR_TIMEOUT;
    }
  });
  const std::string text = status < 0 ? heddle_last_error() : "";
  self.retired().clear();
  if (status < 0) raise(status, text);
}

void fence(const Worker& self) {
  const Use use(self.users(), kWorkerClosed);
  self.call([&] { return heddle_fence(self.handle()); });
}

void flush(const Worker& self, nb::handle rank) {
  const std::uint32_t target = number32(rank, "the rank");
  wait_until(self, [&] { return heddle_try_flush(self.handle(), target); });
}

void quiet(const Worker& self) {
  wait_until(self, [&] { return heddle_try_quiet(self.handle()); });
}

void bind_order(nb::class_<Worker>& worker) {
  worker.def("fence", &fence, "What is posted after it takes effect, at each target, after what was posted before.")
      .def("flush", &flush, nb::arg("rank"), nb::sig("def flush(self, rank: typing.SupportsIndex) -> None"),
           "Wait until all operations to the rank are complete there. PeerFailedError: the rank has died.")
      .def("quiet", &quiet,
           "Wait until all operations of this worker are complete. Receives are not waited for.\n\n"
           "Raises the first error of operations; that of a request is the request's.");
}

}  // namespace

void bind_one_sided(nb::class_<Worker>& worker) {
  worker
      .def("put", &put, nb::arg("source").none(), nb::arg("target").none(), nb::arg("offset") = 0, nb::kw_only(),
           nb::arg("local") = false,
           nb::sig(
               "def put(self, source: heddle.types.Buffer, target: RemoteRegion, offset: typing.SupportsIndex = 0, *, "
               "local: bool = False) -> Request"),
           "Copy the source's bytes to `offset` bytes into the target region.\n\n"
           "The request ends when they are visible there; local: when the source may be changed.\n"
           "ArgumentError: the bytes leave the region. PeerFailedError: its owner has died.")
      .def("get", &get, nb::arg("target").none(), nb::arg("source").none(), nb::arg("offset") = 0,
           nb::sig("def get(self, target: heddle.types.Buffer, source: RemoteRegion, offset: typing.SupportsIndex = 0) "
                   "-> Request"),
           "Copy as many bytes as `target` has from `offset` bytes into the source region; errors as of put.")
      .def("put_signal", &put_signal, nb::arg("source"), nb::arg("target"), nb::arg("offset"), nb::arg("word"),
           nb::arg("word_offset"), nb::arg("value"), nb::kw_only(), nb::arg("add") = false,
           nb::sig("def put_signal(self, source: heddle.types.Buffer, target: RemoteRegion, "
                   "offset: typing.SupportsIndex, word: RemoteRegion, word_offset: typing.SupportsIndex, "
                   "value: typing.SupportsIndex, *, add: bool = False) -> Request"),
           "A put after which the unsigned 64-bit word (on the same rank) is set to, or raised by, `value`.\n\n"
           "Who sees the word's new value (wait_signal) sees the data.")
      .def("wait_signal", &wait_signal, nb::arg("memory"), nb::arg("offset"), nb::arg("compare"), nb::arg("value"),
           nb::arg("timeout").none() = nb::none(),
           nb::sig("def wait_signal(self, memory: heddle.types.Buffer, offset: typing.SupportsIndex, compare: Compare, "
                   "value: typing.SupportsIndex, timeout: float | None = None) -> None"),
           "Make progress until the unsigned 64-bit word at `offset` bytes into one's own memory compares so.\n\n"
           "timeout: seconds. TimedOut: it does not compare so yet. The death of a peer is not noticed.")
      .def("compare_swap", &compare_swap, nb::arg("target"), nb::arg("offset"), nb::arg("compare"), nb::arg("value"),
           nb::arg("bits") = 64,
           nb::sig("def compare_swap(self, target: RemoteRegion, offset: typing.SupportsIndex, "
                   "compare: typing.SupportsIndex, value: typing.SupportsIndex, bits: int = 64) -> int"),
           "Set the word of 64 or 32 bits at `offset` to `value` if it is `compare`. Returns its old value.");
  bind_atomic<HEDDLE_ADD64>(worker, "add", "fetch_add", "Add to the unsigned word at `offset` in the target region.");
  bind_atomic<HEDDLE_AND64>(worker, "and_", "fetch_and", "The word becomes its bitwise and with `value`.");
  bind_atomic<HEDDLE_OR64>(worker, "or_", "fetch_or", "The word becomes its bitwise or with `value`.");
  bind_atomic<HEDDLE_XOR64>(worker, "xor", "fetch_xor", "The word becomes its bitwise exclusive or with `value`.");
  bind_atomic<HEDDLE_SWAP64>(worker, "set", "swap", "The word becomes `value`.");
  bind_order(worker);
}

}  // namespace heddle::python
